"""A physical arm driven through a worker process: clock, latch and recovery, the same for every vendor.

Nothing here is a safety function. The robot's own safety configuration comes first, and has to be set up for the cell.
"""

import threading
from abc import abstractmethod
from collections import deque
from dataclasses import fields
from math import ceil, inf
from time import monotonic
from typing import ClassVar, Generic

import numpy as np

from td3robot.errors import CommandRefusedError, RobotError, Td3RobotError
from td3robot.robots.cells import DriverConfig
from td3robot.robots.driver.link import StreamSettings, quantiles_ms
from td3robot.robots.driver.process import WorkerProcess, WorkerSpec
from td3robot.robots.driver.shared_memory import S
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import PhysicalRobot, Status
from td3robot.state import Array, JointCommand, RobotState

# Factor by which a target may exceed the arm's own joint speeds, for rounding.
SPEED_MARGIN = 1.001
# The worker also notices when a state gets old, and knows better why, so it gets time to say so first.
WORKER_FIRST = 2.0
# How long to wait for the worker's own reason for a fault [s].
WORKER_SPEAKS_S = 0.1
# Control ticks kept for the figures.
KEPT_TICKS = 100_000


class DrivenRobot(PhysicalRobot, Generic[S]):
    """An arm whose worker process streams targets to the controller.

    After any fault, ``read``, ``send`` and ``advance`` raise its reason until the operator calls :meth:`recover`; no
    error of the robot is ever cleared before. :meth:`stop` is always legal; the gripper keeps what it holds.

    Args:
        spec: The robot that it has to be.
        config: How its controller is reached and driven.
        passive: Read only: nothing is started on the controller, and the gripper is not moved.
        max_tcp_speed_m_s: Targets are played slower when the measured tool gets near this speed.

    Attributes:
        status_type: What :meth:`status` returns; its own fields are those of the worker's state with the same names.
    """

    status_type: ClassVar[type[Status]] = Status

    def __init__(
        self, spec: RobotSpec, config: DriverConfig, passive: bool = False, max_tcp_speed_m_s: float = inf
    ) -> None:
        super().__init__(spec, passive)
        self._config, self._max_tcp_speed = config, max_tcp_speed_m_s
        self.missed_ticks, self.stretched_s = 0, 0.0
        self._process: WorkerProcess[S] | None = None
        self._latch, self._faulted = threading.Lock(), threading.Event()
        self._fault: str | None = None
        self._fault_at = 0.0
        self._sent: JointCommand | None = None
        self._due: float | None = None
        self._fresh, self._slipped_s = False, 0.0
        self._lateness: deque[float] = deque(maxlen=KEPT_TICKS)

    @property
    @abstractmethod
    def _name(self) -> str:
        """Which robot, in words: "the UR arm at 192.168.0.10"."""

    @abstractmethod
    def _worker(self, fault_age_s: float | None) -> WorkerSpec[S]:
        """Return the worker to start; with the age of a fault [s], it clears that fault's errors."""

    @abstractmethod
    def _fingers(self, state: S) -> Array:
        """Return the driver joints (2,) of the gripper, in the unit of its model."""

    def _opened(self) -> None:  # where there is nothing to do
        """Finish connecting, once the worker is connected and ``facts`` are known; an exception closes the robot."""

    def _require_gripper(self) -> None:  # where the worker watches the gripper
        """Raise if the gripper has a fault of its own."""

    def _require_startable(self, state: S) -> None:  # where there is nothing to ask
        """Raise if a motion must not begin."""

    def _grip(self, closed: float) -> None:  # where the worker drives the gripper
        """Move the gripper to a closed fraction."""

    def _resting(self, state: S) -> Array:
        """Return the posture (n,) [rad] from which a motion begins."""
        return np.array(state.q)

    def connect(self) -> None:
        """Start the worker, check the robot, and get ready to drive it; the arm rests.

        Raises:
            RobotError: The robot cannot be reached, is another one, or is not ready to be moved.
            MissingExtraError: The vendor's client is not installed.
        """
        if self._process is None:
            self._open(fault_age_s=None)

    def read(self) -> RobotState:
        """Return the latest measured state, stamped on receipt with this computer's monotonic clock."""
        state = self._require_state()
        return RobotState(np.array(state.q), np.array(state.dq), self._fingers(state), state.stamp)

    def tool_force(self) -> Array | None:
        """Return force and torque on the tool (6,), as the controller estimates them [N, N m]; None if it does not."""
        return np.array(self.latest().force) if self._process is not None and self.latest().force else None

    def now(self) -> float:
        """Return this computer's monotonic time [s]."""
        self._open_process()
        return monotonic()

    def _send(self, command: JointCommand) -> None:
        process, state = self._open_process(), self._require_state()
        if self.passive:
            raise RobotError("the robot was opened for reading only; nothing was sent")
        if self._sent is None:
            self._require_startable(state)
        self._require_reachable(self._resting(state) if self._sent is None else self._sent.q, command.q)
        self._sent = command
        process.aim(command.q, command.gripper)
        self._grip(command.gripper)
        if self._due is None:
            self._begin_ticks(state)
        self._fresh = True

    def advance(self) -> None:
        """Wait for the next tick of the control clock; a late one is counted, and the clock continues from there.

        If the worker was delayed, the arm's own time has slipped, and the tick comes that much later, so that targets
        do not run further and further ahead of the arm. If nothing was sent in this period, the last target is held.
        """
        process, state = self._open_process(), self._require_state()
        if self._sent is not None and not self._fresh:
            process.aim(self._sent.q, self._sent.gripper)
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
        """Refuse: a driver plans no paths; an environment brings the arm there, period by period, through its guard."""
        self._open_process()
        raise RobotError(
            "a physical arm does not jump to a posture: travel there through the guard (td3robot.robots.travel)"
        )

    def stop(self) -> None:
        """Bring the arm to rest and hold it there; the gripper keeps what it holds.

        A fault found on the way is not raised here, but by the next call that needs the arm.
        """
        self._sent = self._due = None
        process = self._process
        if process is not None and not self.passive and not process.stop():
            if process.ended:  # and said why, or how: that reason is on its way
                self._faulted.wait(WORKER_SPEAKS_S)
            self._latch_fault(f"the arm did not come to rest in time, and its worker was ended; {process.when_gone}")
            process.kill()

    def close(self) -> None:
        """Stop, end our program on the controller, and disconnect; the controller holds the arm."""
        self._sent = self._due = None
        self._end_process()

    def recover(self, activate_gripper: bool = False) -> None:
        """Recover the robot from a fault at the operator's explicit word; the arm does not move.

        The worker restarts, clears the controller's errors, and begins from the measured posture.

        Args:
            activate_gripper: Activate the gripper first, which closes and opens its fingers: it drops what it holds.

        Raises:
            RobotError: The cause is still there, or needs hands at the robot; the fault stays.
        """
        fault_age_s = 0.0 if self._fault is None else monotonic() - self._fault_at
        self.close()
        self.passive = False
        if activate_gripper:
            self._require_control(fault_age_s)
            self.activate_gripper()
        self._open(fault_age_s=fault_age_s)

    def take_control(self) -> None:
        """Get ready to drive the arm; the arm does not move.

        If the robot was opened for reading, its worker restarts.

        Raises:
            RobotError: A fault is latched, or the robot is not ready to be moved.
        """
        if self._fault is not None:
            raise RobotError(self._say(self._fault))
        if self.passive:
            self._end_process()
        self.passive = False
        self.connect()

    @property
    def worker_pid(self) -> int:
        """The process id of the worker."""
        return self._open_process().pid

    @property
    def fault(self) -> str | None:
        """The reason why nothing is sent any more, or None."""
        return self._fault

    def latest(self) -> S:
        """Return everything that the worker published last, for checks and measurements; raises no fault."""
        return self._open_process().state()

    @property
    def state_period_s(self) -> float:
        """Nominal time between two measured states."""
        return 1.0 / self._config.rate_hz

    @property
    def max_state_age_s(self) -> float:
        """Age of the latest state above which the driver reports a fault."""
        return self._config.max_state_age_s

    def status(self) -> Status:
        """Return what the controller reports besides the measured state, by this robot's kind of status."""
        state, kind = self.latest(), self.status_type
        own = {field.name: getattr(state, field.name) for field in fields(kind) if hasattr(state, field.name)}
        return kind(
            **own,
            state_age_s=monotonic() - state.stamp,
            missed_ticks=self.missed_ticks,
            fault=self._fault,
        )

    def figures(self) -> dict[str, float]:
        """Return quantiles of streaming periods and of the lateness of ticks, and how much time slipped [ms]."""
        ticks = quantiles_ms("tick_late", self._lateness) | {"stretched_ms": 1e3 * self.stretched_s}
        return self._open_process().figures() | ticks

    def _stream(self, recover_after_s: float | None) -> StreamSettings:
        """Return how the worker streams to this robot."""
        arm, config = self.spec.arm, self._config
        return StreamSettings(
            rate_hz=config.rate_hz,
            period_s=self.spec.period_s,
            control=not self.passive,
            recover_after_s=recover_after_s,
            late_periods=config.late_periods,
            stop_deceleration_rad_s2=config.stop_deceleration_rad_s2,
            realtime_priority=config.realtime_priority,
            joint_names=tuple(arm.joint_names),
            lower=tuple(arm.lower.tolist()),
            upper=tuple(arm.upper.tolist()),
            velocity=tuple(arm.velocity.tolist()),
            max_tcp_speed_m_s=self._max_tcp_speed,
            max_contact_force_n=self.max_contact_force_n,
        )

    def _require_reachable(self, start: Array, q: Array) -> None:
        """Refuse a step that is faster than the arm may move at either end of the step."""
        speed = (q - start) * self.spec.control_rate_hz
        arm = self.spec.arm
        for low, high in (arm.velocity_at(start), arm.velocity_at(q)):
            excess = np.maximum(speed - SPEED_MARGIN * high, SPEED_MARGIN * low - speed)
            if excess[joint := int(np.argmax(excess))] > 0.0:
                raise CommandRefusedError(
                    f"the command asks joint {arm.joint_names[joint]!r} to go at {speed[joint]:.2f} rad/s, outside of "
                    f"the {low[joint]:.2f} to {high[joint]:.2f} rad/s that the arm allows there; plan from where the "
                    "arm is; nothing was sent"
                )

    def _open(self, fault_age_s: float | None) -> None:
        process = WorkerProcess(self._worker(fault_age_s), self._latch_fault)
        self.facts = process.start()
        self._process = process
        self._fault, self._sent, self._due, self._fresh = None, None, None, False
        self._faulted.clear()
        try:
            self._opened()
            if not self.passive:
                process.send_kinematics(_links(self.spec))
        except Td3RobotError:
            self.close()
            raise

    def _require_control(self, fault_age_s: float) -> None:
        """Take control of the arm once, so as not to open a gripper that another program is using."""
        process = WorkerProcess(self._worker(fault_age_s), self._latch_fault)
        process.start()
        process.close()

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _open_process(self) -> WorkerProcess[S]:
        if self._process is None:
            raise RobotError(
                f"{self._name} is not connected; call connect() first"
                if self._fault is None
                else self._say(self._fault)
            )
        return self._process

    def _require_state(self) -> S:
        """Return the latest state, unless there is a fault or it is too old."""
        process = self._open_process()
        if self._fault is not None:
            raise RobotError(self._say(self._fault))
        self._require_gripper()
        state = process.state()
        age, limit = monotonic() - state.stamp, self.max_state_age_s
        if age > WORKER_FIRST * limit:
            raise self._failed(f"the latest state of the arm is {age:.2f} s old (limit {limit:g} s)")
        return state

    def _begin_ticks(self, state: S) -> float:
        """Restart the control clock and return its first tick [s]; earlier slips do not count."""
        self._due, self._slipped_s = monotonic(), state.slipped_s
        return self._due

    def _latch_fault(self, reason: str) -> None:
        """Keep the first fault, and have the arm stopped if the worker still listens."""
        with self._latch:
            if self._fault is not None:
                return
            self._fault, self._fault_at = reason, monotonic()
            self._faulted.set()
        if self._process is not None:
            self._process.request_stop()

    def _failed(self, reason: str) -> RobotError:
        """Latch a fault and return its error, or that of an earlier fault.

        If a state is old because this program stalled, that is the fault, and the worker's reason takes priority.
        """
        process = self._process
        if process is not None and (stall := process.stall_s) is not None:
            self._faulted.wait(WORKER_SPEAKS_S)
            reason = f"this program stood still for {stall:.2f} s: its policy, or what else runs here, held it up"
        self._latch_fault(reason)
        return RobotError(self._say(self._fault or reason))

    def _say(self, reason: str) -> str:
        return f"{reason}; nothing moves until the operator recovers the robot (td3robot recover)"


def _links(spec: RobotSpec) -> list[list[float]]:
    """Return the arm's chain up to the tool centre point, in the worker's format."""
    *links, last = spec.arm.chain.transforms()
    tool = np.eye(4)
    tool[2, 3] = spec.tcp_offset_m
    return [link[:3].T.ravel().tolist() for link in (*links, last @ tool)]
