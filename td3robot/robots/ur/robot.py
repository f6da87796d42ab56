"""A Universal Robots arm with a Robotiq gripper: the physical robot behind the same interface as the simulations.

Nothing here is a safety function. The robot's own safety configuration comes first, and has to be set up for the cell.
"""

import threading
from collections import deque
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic
from typing import Any

import numpy as np

from td3robot.errors import CommandRefusedError, RobotError, Td3RobotError
from td3robot.geometry import rotation_matrix
from td3robot.robots.cells.ur import UrCell
from td3robot.robots.findings import Check
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import PhysicalRobot, Status
from td3robot.robots.simulated.calibrated import calibrated_arm
from td3robot.robots.ur import check as ur_check
from td3robot.robots.ur.calibration import Calibration, find_calibration, largest_difference, require_same_arm
from td3robot.robots.ur.models import model_names
from td3robot.robots.ur.process import UrProcess
from td3robot.robots.ur.rtde import UNLOCK_AFTER_S
from td3robot.robots.ur.shared_memory import WorkerState, quantiles_ms
from td3robot.robots.ur.urcap import RobotiqGripper
from td3robot.state import Array, JointCommand, Pose, RobotState

# How far beyond the arm's own joint speeds a target may ask to go, for rounding.
SPEED_MARGIN = 1.001
# The worker sees a state grow old as well, and knows better why: it is given the time to say so.
WORKER_FIRST, WORKER_FIRST_S = 2.0, 0.05
# Control ticks kept for the figures.
KEPT_TICKS = 100_000


@dataclass(frozen=True, slots=True)
class UrStatus(Status):
    """What a UR reports besides, for people and records.

    Attributes:
        safety_mode, robot_mode, runtime_state: The controller's numbers (RTDE guide).
        speed_slider: On the pendant, 0 to 1.
        speed_scaling: What the controller makes of it, 0 to 1.
    """

    safety_mode: int
    robot_mode: int
    runtime_state: int
    speed_slider: float
    speed_scaling: float


class UrRobot(PhysicalRobot):
    """A UR arm driven through ur_rtde in a process of its own, and a Robotiq gripper through its URCap.

    Once it is connected, ``spec`` has the arm's own calibration: kinematics made before have to adopt it.

    After any fault ``read``, ``send`` and ``advance`` raise its reason until the operator's :meth:`recover`; no error
    of the robot is ever cleared before. :meth:`stop` is always legal; the gripper keeps what it holds.

    Args:
        spec: The robot that it has to be.
        cell: Where it is and how it is driven.
        passive: Read only: no program is started on the controller, and the gripper is not moved.
    """

    def __init__(self, spec: RobotSpec, cell: UrCell, passive: bool = False) -> None:
        super().__init__(spec, passive)
        self.cell = cell
        self.calibration: Calibration | None = None
        self._nominal = spec
        self.gripper = RobotiqGripper(cell.ur.host, cell.gripper, spec.gripper)
        self.missed_ticks, self.stretched_s = 0, 0.0
        self._process: UrProcess | None = None
        self._latch, self._faulted = threading.Lock(), threading.Event()
        self._fault: str | None = None
        self._fault_at = 0.0
        self._sent: Array | None = None
        self._due: float | None = None
        self._slipped_s = 0.0
        self._lateness: deque[float] = deque(maxlen=KEPT_TICKS)

    def connect(self) -> None:
        """Start the worker, check the robot, take control of the arm and find the gripper active.

        Raises:
            RobotError: The robot cannot be reached, is another one, or is not ready to be moved.
            MissingExtraError: ur_rtde is not installed.
        """
        if self._process is None:
            self._open(unlock_after_s=None)

    def read(self) -> RobotState:
        """Give the latest measured state, stamped with this computer's monotonic clock when it was received."""
        state = self._require_state()
        fingers = self.gripper.state()
        age, limit = monotonic() - fingers.stamp, self.cell.gripper.max_age_s
        if age > limit:
            raise self._failed(f"the gripper has not answered for {age:.2f} s (limit {limit:g} s)")
        drivers = self.spec.gripper.drivers_at(fingers.closed)
        return RobotState(np.array(state.q), np.array(state.dq), drivers, state.stamp)

    def now(self) -> float:
        """Give this computer's monotonic time [s]."""
        self._open_process()
        return monotonic()

    def _send(self, command: JointCommand) -> None:
        process, state = self._open_process(), self._require_state()
        if self.passive:
            raise RobotError("the robot was opened for reading only; nothing was sent")
        start = np.array(state.q) if self._sent is None else self._sent
        if self._sent is None:
            self._require_full_speed(state)
        speed = np.abs(command.q - start) * self.spec.control_rate_hz
        if (speed > self.spec.arm.velocity * SPEED_MARGIN).any():
            joint = int(np.argmax(speed / self.spec.arm.velocity))
            raise CommandRefusedError(
                f"the command asks joint {self.spec.arm.joint_names[joint]!r} to go at {speed[joint]:.2f} rad/s, above "
                f"the arm's {self.spec.arm.velocity[joint]:.2f} rad/s; plan from where the arm is; nothing was sent"
            )
        self._sent = command.q
        process.aim(command.q)
        self.gripper.command(command.gripper)
        if self._due is None:
            self._begin_ticks(state)
        self._fresh = True

    def advance(self) -> None:
        """Wait for the next tick of the control clock; a late one is counted, and the clock goes on from there.

        Where the worker was held up, the arm's own time has slipped, and the tick comes as much later, so that targets
        are not further and further ahead of the arm. Where nothing was sent in this period, the last target is held.
        """
        process, state = self._open_process(), self._require_state()
        if self._sent is not None and not self._fresh:
            process.aim(self._sent)
        self._fresh = False
        due = self._begin_ticks(state) if self._due is None else self._due
        slipped, self._slipped_s = state.slipped_s - self._slipped_s, state.slipped_s
        self.stretched_s += slipped
        now, period = monotonic(), self.spec.period_s
        self._due = due + period + slipped
        if now > self._due:
            self.missed_ticks += ceil((now - self._due) / period)
            self._due = now
        self._faulted.wait(self._due - now)
        self._lateness.append(monotonic() - self._due)
        self._require_state()

    def move_to(self, q: Array) -> None:
        """Refuse: this driver plans no paths; an environment brings the arm there, period by period, by its guard."""
        self._open_process()
        raise RobotError(
            "a physical arm does not jump to a posture: travel there through the guard (td3robot.robots.travel)"
        )

    def stop(self) -> None:
        """Bring the arm to rest and hold it there; the gripper keeps what it holds.

        A fault found on the way is not raised here, but by the next call that needs the arm.
        """
        self._sent = self._due = None
        if self._process is not None and not self.passive and not self._process.stop():
            self._latch_fault("the arm did not report that it came to rest; the controller's watchdog stops it")

    def close(self) -> None:
        """Stop, end the program on the controller, and let go; the controller holds the arm."""
        self._sent = self._due = None
        if self._process is not None:
            self._process.close()
            self._process = None
        self.gripper.close()

    def recover(self, activate_gripper: bool = False) -> None:
        """Make the robot ready again after a fault, at the operator's explicit word; the arm does not move.

        The worker starts anew: it waits out the 5 s of a protective stop and unlocks it, uploads the control script,
        arms the watchdog, and begins from the measured posture.

        Args:
            activate_gripper: Activate the gripper first, which closes and opens its fingers: it drops what it holds.

        Raises:
            RobotError: The cause is still there, or needs hands at the pendant; the fault stays.
        """
        since_fault = 0.0 if self._fault is None else monotonic() - self._fault_at
        self.close()
        if activate_gripper:
            self.gripper.activate()
        self._open(unlock_after_s=max(0.0, UNLOCK_AFTER_S - since_fault))

    @property
    def worker_pid(self) -> int:
        """The process id of the worker."""
        return self._open_process().pid

    @property
    def fault(self) -> str | None:
        """Why nothing is sent any more, or None."""
        return self._fault

    @property
    def holds(self) -> bool:
        """Whether the gripper has something between its fingers."""
        return self.gripper.state().holds

    @property
    def state_period_s(self) -> float:
        """Nominal time between two measured states."""
        return 1.0 / self.cell.ur.rtde_rate_hz

    @property
    def max_state_age_s(self) -> float:
        """Age of the latest state above which the driver reports a fault."""
        return self.cell.ur.max_state_age_s

    def status(self) -> UrStatus:
        """Return what the controller reports besides the measured state; a fault is reported in it, not raised."""
        state = self._open_process().state()
        return UrStatus(
            stamp=state.stamp,
            controller_time=state.controller_time,
            state_age_s=monotonic() - state.stamp,
            missed_ticks=self.missed_ticks,
            fault=self._fault,
            safety_mode=state.safety_mode,
            robot_mode=state.robot_mode,
            runtime_state=state.runtime_state,
            speed_slider=state.speed_slider,
            speed_scaling=state.speed_scaling,
        )

    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles [rad] and the controller's tool pose for them, both as of when it was connected."""
        self._open_process()
        x, y, z, *vector = self.facts["tcp_pose"]
        return np.array(self.facts["q"]), Pose(np.array([x, y, z]), rotation_matrix(vector))

    def take_control(self) -> None:
        """Start the program on the controller and arm the watchdog; the arm does not move.

        Where the robot was opened for reading, its worker starts anew, and the gripper stays connected.

        Raises:
            RobotError: A fault is latched, or the robot is not ready to be moved.
        """
        if self._fault is not None:
            raise RobotError(self._say(self._fault))
        if self.passive and self._process is not None:
            self._process.close()
            self._process = None
        self.passive = False
        self.connect()

    def activate_gripper(self) -> None:
        """Activate the gripper, which closes and opens its fingers; only while the robot is not connected."""
        self.gripper.activate()

    def check_controller(self, check: Check) -> bool:
        """Ask dashboard and gripper; returns whether both answered."""
        return ur_check.check_controller(check, self.cell, self.spec)

    def check_settings(self, check: Check) -> None:
        """Look at speed slider, payload and gripper calibration."""
        ur_check.check_settings(check, self)

    def figures(self) -> dict[str, float]:
        """Give quantiles of streaming periods, lateness of ticks, and the gripper's answer times [ms] so far.

        With them, by how much control periods were stretched in all, as the arm's own time slipped.
        """
        ticks = quantiles_ms("tick_late", self._lateness) | {"stretched_ms": 1e3 * self.stretched_s}
        return self._open_process().figures() | ticks | self.gripper.figures()

    def _open(self, unlock_after_s: float | None) -> None:
        settings = {
            "ur": {"models": model_names(self.spec.arm)} | self.cell.ur.model_dump(mode="json", exclude_none=True),
            "period_s": self.spec.period_s,
            "control": not self.passive,
            "unlock_after_s": unlock_after_s,
        }
        process = UrProcess(settings, self._latch_fault)
        self.facts = process.start()
        self._process = process
        self._fault, self._sent, self._due, self._fresh = None, None, None, False
        self._faulted.clear()
        try:
            self._calibrate()
            self.facts |= self._kinematics_facts()
            self.gripper.connect()
        except Td3RobotError:
            self.close()
            raise

    def _calibrate(self) -> None:
        """Compute with this very arm's kinematics from now on, where the cell wants that."""
        calibration = find_calibration(self.cell.ur)
        if calibration is None:
            return
        if self.calibration is not None and calibration.checksum != self.calibration.checksum:
            raise RobotError(
                f"the kinematics of {calibration.source} changed from {self.calibration.checksum} to "
                f"{calibration.checksum} since this program read them: another arm, or calibrated anew; start again"
            )
        if self.calibration is not None:
            return
        require_same_arm(self._nominal.arm, calibration)
        self.calibration = calibration
        self.spec = replace(self._nominal, arm=calibrated_arm(self._nominal.arm, calibration.chain))

    def _kinematics_facts(self) -> dict[str, Any]:
        """Say which kinematics are used, and how far the nominal ones would be off."""
        if self.calibration is None:
            return {"kinematics": "nominal", "calibration": None}
        spec = self._nominal
        away = largest_difference(spec.arm, self.calibration.chain, spec.tcp_offset_m)
        return {
            "kinematics": self.calibration.source,
            "calibration": self.calibration.checksum,
            "nominal_tool_error_mm": round(1e3 * away, 2),
        }

    def _open_process(self) -> UrProcess:
        if self._process is None:
            raise RobotError(
                f"the UR arm at {self.cell.ur.host} is not connected; call connect() first"
                if self._fault is None
                else self._say(self._fault)
            )
        return self._process

    def _require_state(self) -> WorkerState:
        """Give the latest state, unless there is a fault or it is too old."""
        process = self._open_process()
        if self._fault is not None:
            raise RobotError(self._say(self._fault))
        if (reason := self.gripper.fault) is not None:
            # Where the whole controller went, the worker is about to say so, and knows better.
            self._faulted.wait(WORKER_FIRST_S)
            raise self._failed(reason)
        state = process.state()
        age, limit = monotonic() - state.stamp, self.cell.ur.max_state_age_s
        if age > WORKER_FIRST * limit:
            raise self._failed(f"the latest state of the arm is {age:.2f} s old (limit {limit:g} s)")
        return state

    def _begin_ticks(self, state: WorkerState) -> float:
        """Begin the control clock anew, and give its first tick [s]; what slipped before does not count."""
        self._due, self._slipped_s = monotonic(), state.slipped_s
        return self._due

    def _require_full_speed(self, state: WorkerState) -> None:
        if state.speed_slider < self.cell.ur.min_speed_scaling:
            raise RobotError(
                f"the pendant's speed slider is at {100 * state.speed_slider:.0f} %, below "
                f"ur.min_speed_scaling {100 * self.cell.ur.min_speed_scaling:.0f} %: the arm would lag behind what "
                "it is sent; set the slider to 100 % and limit speeds in the guard instead"
            )

    def _latch_fault(self, reason: str) -> None:
        """Keep the first fault, and have the arm stopped if anybody still listens."""
        with self._latch:
            if self._fault is not None:
                return
            self._fault, self._fault_at = reason, monotonic()
            self._faulted.set()
        if self._process is not None:
            self._process.request_stop()

    def _failed(self, reason: str) -> RobotError:
        """Latch a fault, and make the error that says it; or the fault that came before it."""
        self._latch_fault(reason)
        return RobotError(self._say(self._fault or reason))

    def _say(self, reason: str) -> str:
        return f"{reason}; nothing moves until the operator recovers the robot (td3robot recover)"
