"""The controller's state machine: power, safety stops, the running program, and one tick of 2 ms.

Names and numbers of modes are from UR's RTDE guide. The behaviour between them is modelled; docs/standin.md has the
sources.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from td3robot.geometry import compose
from td3robot.robots.arms import UR_LAW, ServoLaw
from td3robot.simulators.accounting import Accounting
from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.gripper import Gripper
from td3robot.simulators.motion import Brake, Hold, Limiter, Motion, Reference
from td3robot.simulators.safety import Safety
from td3robot.simulators.settings import ControllerConfig
from td3robot.state import Array, Pose

if TYPE_CHECKING:
    from td3robot.simulators.control_script import ControlScript

# Where each group of digital outputs begins in `actual_digital_output_bits`.
DIGITAL = {"standard_digital_output": 0, "configurable_digital_output": 8, "tool_digital_output": 16}
# RTDE guide: 48 integer and 48 double registers each way; 0-23 are for fieldbus adapters and RTDE, 24-47 for RTDE.
COUNT = 48


@dataclass(slots=True)
class Registers:
    """General purpose registers."""

    in_int: list[int] = field(default_factory=lambda: [0] * COUNT)
    in_double: list[float] = field(default_factory=lambda: [0.0] * COUNT)
    out_int: list[int] = field(default_factory=lambda: [0] * COUNT)
    out_double: list[float] = field(default_factory=lambda: [0.0] * COUNT)


@dataclass(slots=True)
class Watchdog:
    """End the program if an input is not written often enough (URScript's ``rtde_set_watchdog``).

    Attributes:
        variable: Name of the input.
        period_s: Longest time between two writes.
        fed_s: Controller time of the last write.
    """

    variable: str
    period_s: float
    fed_s: float

    def has_expired(self, now: float) -> bool:
        """Whether the last write is too long ago."""
        return now - self.fed_s > self.period_s + 1e-9


class Inputs:
    """Everything in a controller that its RTDE clients can write.

    Args:
        time_s: Returns controller time [s].

    Attributes:
        clock: Returns controller time [s]; finer than ticks if packages arrive in real time.
        arrived_s: When a package last brought joint angles, on that clock, until the controller has counted them.
        watchdog: Set by the program; None without one.
        slider: The speed slider, 0 to 1.
    """

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = self.clock = time_s
        self.registers = Registers()
        self.watchdog: Watchdog | None = None
        self.arrived_s: float | None = None
        self.slider = 1.0
        self.digital_out = 0
        self.analog_out = [0.0, 0.0]

    def write(self, values: dict[str, Any]) -> None:
        """Store the values of one package, by name."""
        if "input_double_register_0" in values:
            self.arrived_s = self.clock()
        for name, value in values.items():
            if name.startswith("input_int_register_"):
                self.registers.in_int[int(name.rpartition("_")[2])] = value
            elif name.startswith("input_double_register_"):
                self.registers.in_double[int(name.rpartition("_")[2])] = value
            if self.watchdog is not None and self.watchdog.variable == name:
                self.watchdog.fed_s = self._time_s()
        self._write_outputs(values)

    def _write_outputs(self, values: dict[str, Any]) -> None:
        for name, shift in DIGITAL.items():
            if f"{name}_mask" in values:
                mask, bits = values[f"{name}_mask"] << shift, values[name] << shift
                self.digital_out = self.digital_out & ~mask | bits & mask
        if values.get("speed_slider_mask", 0) & 1:
            self.slider = min(max(float(values["speed_slider_fraction"]), 0.0), 1.0)
        for index in range(2):
            if values.get("standard_analog_output_mask", 0) & 1 << index:
                self.analog_out[index] = float(values[f"standard_analog_output_{index}"])


# UR: "Cannot unlock protective stop until 5s after occurrence".
UNLOCK_AFTER_S = 5.0
# All assumed [s], [rad/s^2]: no document states them.
SCRIPT_STARTS_S, POWERING_S, RELEASING_S, UNLOCKING_S = 0.04, 0.5, 0.5, 0.1
PROGRAM_STOP, PROTECTIVE_STOP = 8.0, 15.0

log = logging.getLogger("td3robot.simulators")


class RobotMode(IntEnum):
    """RTDE ``robot_mode``."""

    POWER_OFF = 3
    BOOTING = 2
    IDLE = 5
    RUNNING = 7


class SafetyMode(IntEnum):
    """RTDE ``safety_mode``."""

    NORMAL = 1
    PROTECTIVE_STOP = 3
    ROBOT_EMERGENCY_STOP = 7


class RuntimeState(IntEnum):
    """RTDE ``runtime_state``."""

    STOPPED = 1
    PLAYING = 2


class Controller:
    """A controller with its arm and gripper.

    Everything happens in :meth:`tick`, or between two ticks on a client's request.
    """

    def __init__(self, arm: SimulatedArm, config: ControllerConfig) -> None:
        self.arm, self.config = arm, config
        self.safety = Safety(config.safety_box, arm)
        self.accounting = Accounting(arm.spec)
        self.gripper, self.gripper_silent = Gripper(arm.spec.gripper, config.cell_model.gripper), False
        self.ticks = 0
        self.inputs = Inputs(lambda: self.time_s)
        self.robot_mode = RobotMode.POWER_OFF
        self.safety_mode = SafetyMode.NORMAL
        self.remote = config.remote
        self.model = config.model
        self.popup: str | None = None
        # As people enter it: to 0.1 kg.
        self.payload, self.payload_cog = round(arm.spec.gripper.mass_kg, 1), [0.0, 0.0, 0.05]
        self.tcp_offset = Pose(np.array([0.0, 0.0, config.spec().tcp_offset_m]), np.eye(3))
        self.program: ControlScript | None = None
        self.refusing: str | None = None
        self.limiter = Limiter(config.cell_model.limits, arm)
        self.reference = Reference(arm.q)
        self.motion: Motion = Hold()
        self.history: deque[Array] = deque([arm.q] * 512, maxlen=512)
        self.entries: deque[tuple[float, str]] = deque(maxlen=500)
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._stopped_s = 0.0
        self._power(config.powered)
        if config.gripper_active:
            self.gripper.activate_at_once()

    @property
    def time_s(self) -> float:
        """Controller time since start [s]."""
        return self.ticks * PERIOD_S

    @property
    def runtime_state(self) -> RuntimeState:
        """Whether a program runs."""
        return RuntimeState.PLAYING if self.program is not None else RuntimeState.STOPPED

    @property
    def may_move(self) -> bool:
        """Whether arm and safety modes allow motion."""
        return self.safety_mode is SafetyMode.NORMAL and self.robot_mode is RobotMode.RUNNING

    def note(self, text: str) -> None:
        """Write an entry into the controller's log."""
        self.entries.append((self.time_s, text))
        log.info("%9.3f s  %s", self.time_s, text)

    def tick(self) -> None:
        """Advance by one period."""
        self.ticks += 1
        due = [item for item in self._later if item[0] <= self.time_s]
        for item in due:
            self._later.remove(item)
            item[1]()
        watchdog = self.inputs.watchdog
        if watchdog is not None and self.program is not None and watchdog.has_expired(self.time_s):
            self.end_program(f"RTDE watchdog: {watchdog.variable} was not written for {watchdog.period_s:.3f} s")
        if self.program is not None:
            self.program.tick()
        self._move()
        if self.may_move:
            reason = self.safety.objection(self.reference.q)
            if reason is not None:
                self.protective_stop(reason)

    def lose(self, lost_s: float) -> None:
        """Account for time lost by the controller's clock: arrivals before and after cannot be compared."""
        if self.inputs.arrived_s is not None:
            self.inputs.arrived_s -= lost_s
        self.accounting.forget_targets()

    # The program

    def start_program(self, program: "ControlScript") -> None:
        """Schedule the start of a program, replacing the running one, if the controller may move."""
        reason = self.refuses_programs()
        if reason is not None:
            self.note(f"program not started: {reason}")
            return
        if self.program is not None:
            self.end_program("replaced by another program")
        self._later.append((self.time_s + SCRIPT_STARTS_S, lambda: self._start(program)))

    def refuses_programs(self) -> str | None:
        """Return why no program can be started, or None."""
        if not self.remote:
            return "the robot is in local control"
        if self.safety_mode is not SafetyMode.NORMAL:
            return f"safety mode is {self.safety_mode.name}"
        if self.robot_mode is not RobotMode.RUNNING:
            return f"robot mode is {self.robot_mode.name}"
        return None

    def end_program(self, reason: str) -> None:
        """Stop the program, and the arm with a controlled stop."""
        if self.program is not None:
            self.note(f"program stopped: {reason}")
        self.program, self.inputs.watchdog = None, None
        self.motion = self.motion.braked(PROGRAM_STOP)

    def refuse(self, reason: str) -> None:
        """Refuse a script; a pendant would show a popup."""
        self.popup = reason
        self.note(f"popup: {reason}")

    def _start(self, program: "ControlScript") -> None:
        if self.refuses_programs() is None and self.program is None:
            self.program = program
            program.begin()
            self.note("program started")

    # Stops

    def protective_stop(self, reason: str) -> None:
        """Stop the arm fast and keep it stopped until it is unlocked."""
        if self.safety_mode is not SafetyMode.NORMAL:
            return
        self.safety_mode = SafetyMode.PROTECTIVE_STOP
        self._stopped_s = self.time_s
        self.note(f"protective stop: {reason}")
        self._halt()

    def unlock(self) -> str:
        """Unlock a protective stop, as the dashboard does, and return its answer."""
        if self.safety_mode is SafetyMode.PROTECTIVE_STOP:
            if self.time_s - self._stopped_s < UNLOCK_AFTER_S:
                return (
                    "Cannot unlock protective stop until 5s after occurrence. "
                    "Always inspect cause of protective stop before unlocking"
                )
            self._later.append((self.time_s + UNLOCKING_S, self._unlocked))
        return "Protective stop releasing"

    def _unlocked(self) -> None:
        if self.safety_mode is SafetyMode.PROTECTIVE_STOP:
            self.safety.excuse()
            self.safety_mode = SafetyMode.NORMAL
            self.note("protective stop unlocked")

    def emergency_stop(self) -> None:
        """Press the emergency stop: the arm stops and loses power."""
        if self.safety_mode is SafetyMode.ROBOT_EMERGENCY_STOP:
            return
        self.safety_mode = SafetyMode.ROBOT_EMERGENCY_STOP
        self.note("emergency stop")
        self._halt()
        self._later.clear()
        self._power(False)

    def release_emergency_stop(self) -> None:
        """Release the emergency stop; the arm stays powered off."""
        if self.safety_mode is SafetyMode.ROBOT_EMERGENCY_STOP:
            self.safety_mode = SafetyMode.NORMAL
            self.note("emergency stop released")

    def _halt(self) -> None:
        """End the program, and brake from the arm's actual motion."""
        self.program, self.inputs.watchdog = None, None
        self.reference = Reference(self.arm.q)
        self.reference.v = self.arm.dq.copy()
        self.motion = Brake(PROTECTIVE_STOP)

    # Power

    def power_on(self) -> None:
        """Power the arm on, to IDLE."""
        if self.robot_mode is RobotMode.POWER_OFF and self.safety_mode is SafetyMode.NORMAL:
            self.robot_mode = RobotMode.BOOTING
            self._later.append((self.time_s + POWERING_S, self._powered))

    def power_off(self) -> None:
        """Power the arm off."""
        self.end_program("power off")
        self._power(False)

    def release_brakes(self) -> None:
        """Release the brakes, powering on first if needed."""
        self.power_on()
        if self.robot_mode in (RobotMode.BOOTING, RobotMode.IDLE):
            delay = RELEASING_S + (POWERING_S if self.robot_mode is RobotMode.BOOTING else 0.0)
            self._later.append((self.time_s + delay + PERIOD_S, self._released))

    def _powered(self) -> None:
        if self.robot_mode is RobotMode.BOOTING:
            self.robot_mode = RobotMode.IDLE
            self.gripper.powered = True

    def _released(self) -> None:
        if self.robot_mode is RobotMode.IDLE:
            self.robot_mode = RobotMode.RUNNING
            self.reference = Reference(self.arm.q)

    def _power(self, on: bool) -> None:
        self.robot_mode = RobotMode.RUNNING if on else RobotMode.POWER_OFF
        self.gripper.set_power(on)

    def set_remote(self, remote: bool) -> None:
        """Switch between remote and local control; a remote program does not survive the change."""
        if self.remote and not remote:
            self.end_program("the robot was taken into local control")
        self.remote = remote
        self.note("remote control" if remote else "local control")

    def reset(self, q: Array) -> None:
        """Place the arm at q, powered, stops cleared, without a program; open the gripper, keeping its activation."""
        self._later.clear()
        self.program, self.inputs.watchdog = None, None
        self.safety_mode, self.remote, self.inputs.slider = SafetyMode.NORMAL, True, 1.0
        if self.robot_mode is not RobotMode.RUNNING:
            self._power(True)
        self.arm.reset(q)
        self.gripper.reset()
        self.reference, self.motion = Reference(q), Hold()
        self.accounting.forget()
        self.note("reset in the lab")

    # Motion

    def servo(self, target: Array, time_s: float, lookahead_s: float, gain: float = UR_LAW.gain) -> None:
        """Aim servoJ at joint angles (6,) [rad]; does nothing while the arm must not move."""
        if not self.may_move:
            return
        law = ServoLaw(min(max(gain, 100.0), 2000.0), min(max(lookahead_s, 0.03), 0.2))
        at = self.reference.q + law.lookahead_s * self.reference.v
        servo = self.motion.servoed(at, self.config.cell_model.servo)
        if servo is not self.motion:
            self.motion = servo
            self.accounting.forget_targets()
        reason = self.safety.objection_to_target(target, servo.target)
        if reason is not None:
            self.protective_stop(reason)
            return
        if self.inputs.arrived_s is not None:
            self.accounting.received(self.inputs.arrived_s, target)
            self.inputs.arrived_s = None
        if not np.array_equal(servo.target, target):
            servo.aim(target, time_s, law)

    def drive(self, motion: Motion) -> None:
        """Switch to a motion other than servoJ; does nothing while the arm must not move."""
        if self.may_move:
            self.motion = motion

    def tool(self) -> Pose:
        """Return the pose of the tool centre point that is set at the controller."""
        return compose(self.arm.flange(), self.tcp_offset)

    def is_steady(self) -> bool:
        """Whether the arm is at rest."""
        return bool(np.abs(self.arm.dq).max() < 1e-2)

    def _move(self) -> None:
        self.motion.step(self.reference, self.inputs.slider * self.limiter.scale)
        self.limiter.update(self.reference)
        self.gripper.tick(self.arm.closed)
        self.arm.step(self.reference.q, self.gripper.fraction, self.reference.v, self.reference.a)
        self.history.append(self.arm.q)
        if self.motion.releases and self.motion.done and self.is_steady():
            # Brakes or not, the arm stays where it came to rest.
            self.reference, self.motion = Reference(self.arm.q), Hold()
        self.accounting.tick(self.arm)
