"""An FR3 with its hand: the physical robot, or its stand-in, behind the interface of all physical arms.

Nothing here is a safety function. The robot's own safety configuration comes first, and has to be set up for the cell.
"""

import threading
from collections import deque
from math import ceil, pi
from time import monotonic
from typing import ClassVar

import numpy as np

from td3robot.errors import CommandRefusedError, MissingExtraError, RobotError
from td3robot.geometry import about_vertical
from td3robot.robots.cells.franka import FrankaCell
from td3robot.robots.findings import Check
from td3robot.robots.franka import check as franka_check
from td3robot.robots.franka.hand import home_hand
from td3robot.robots.franka.process import FrankaProcess
from td3robot.robots.franka.shared_memory import FrankaState, quantiles_ms
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import PhysicalRobot, Status
from td3robot.robots.ur.rtde import StoppedError
from td3robot.state import Array, JointCommand, Pose, RobotState

# The hand's frame, which Desk's tool has, turned about its z axis until its x axis is the way the fingers slide [rad].
HAND_TURN = pi / 2
# Control ticks kept for the figures.
KEPT_TICKS = 100_000
# How far beyond the arm's own joint speeds a target may ask to go, for rounding.
SPEED_MARGIN = 1.001
# The worker sees a state grow old as well, and knows better why.
WORKER_FIRST = 2.0


class FrankaRobot(PhysicalRobot):
    """An FR3 driven through franka-rs in a process of its own, with the Franka Hand.

    After any fault ``read``, ``send`` and ``advance`` raise its reason until the operator's :meth:`recover`; no error
    of the robot is ever cleared before. :meth:`stop` is always legal; the hand keeps what it holds.

    Args:
        spec: The robot that it has to be.
        cell: Where it is and how it is driven.
        passive: Read only: no motion is opened, and the hand is not moved.
    """

    console: ClassVar[str] = "Desk"

    def __init__(self, spec: RobotSpec, cell: FrankaCell, passive: bool = False) -> None:
        super().__init__(spec, passive)
        self.cell, self.config = cell, cell.franka
        self.missed_ticks, self.stretched_s = 0, 0.0
        self._process: FrankaProcess | None = None
        self._latch, self._faulted = threading.Lock(), threading.Event()
        self._fault: str | None = None
        self._sent: JointCommand | None = None
        self._due: float | None = None
        self._fresh, self._slipped_s = False, 0.0
        self._lateness: deque[float] = deque(maxlen=KEPT_TICKS)

    def connect(self) -> None:
        """Start the worker, check the robot, and open a motion in which it rests.

        Raises:
            RobotError: The robot cannot be reached, is another one, or is not ready to be moved.
            MissingExtraError: franka-rs is not installed.
        """
        if self._process is None:
            self._open(recover=False)

    def read(self) -> RobotState:
        """Give the latest measured state, stamped with this computer's monotonic clock when it was received.

        Drivers are the two finger joints, right then left [m]: 0.04 open, 0 closed.
        """
        state = self._require_state()
        fingers = np.full(2, min(state.width / 2.0, self.spec.gripper.driver_open))
        return RobotState(np.array(state.q), np.array(state.dq), fingers, state.stamp)

    def now(self) -> float:
        """Give this computer's monotonic time [s]."""
        self._open_process()
        return monotonic()

    def _send(self, command: JointCommand) -> None:
        process, state = self._open_process(), self._require_state()
        if self.passive:
            raise RobotError("the robot was opened for reading only; nothing was sent")
        self._require_reachable(np.array(state.target) if self._sent is None else self._sent.q, command.q)
        self._sent = command
        process.aim(command.q, command.gripper)
        if self._due is None:
            self._begin_ticks(state)
        self._fresh = True

    def advance(self) -> None:
        """Wait for the next tick of the control clock; a late one is counted, and the clock goes on from there.

        Where nothing was sent in this period, the last target is held.
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
        """Refuse: this driver plans no paths; an environment brings the arm there, period by period, by its guard."""
        self._open_process()
        raise RobotError(
            "a physical arm does not jump to a posture: travel there through the guard (td3robot.robots.travel)"
        )

    def stop(self) -> None:
        """Bring the arm to rest and hold it there; the hand keeps what it holds.

        A fault found on the way is not raised here, but by the next call that needs the arm.
        """
        self._sent = self._due = None
        if self._process is not None and not self.passive and not self._process.stop():
            self._latch_fault("the arm did not report that it came to rest")

    def close(self) -> None:
        """Stop, end the motion, and let go; the robot holds the arm."""
        self._sent = self._due = None
        if self._process is not None:
            self._process.close()
            self._process = None

    def recover(self, activate_gripper: bool = False) -> None:
        """Make the robot ready again after a fault, at the operator's explicit word; the arm does not move.

        The worker starts anew, clears the errors of a reflex, and begins from the measured posture.

        Args:
            activate_gripper: Home the hand first, which closes and opens its fingers: it drops what it holds.

        Raises:
            RobotError: The cause is still there, or needs hands at the robot; the fault stays.
        """
        self.close()
        if activate_gripper:
            self.activate_gripper()
        self.passive = False
        self._open(recover=True)

    def take_control(self) -> None:
        """Open a motion in which the arm rests; the arm does not move.

        Where the robot was opened for reading, its worker starts anew.

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
        """Home the hand, which closes and opens its fingers; only while the robot is not connected.

        Raises:
            RobotError: The robot is connected, or the hand did not become ready.
            MissingExtraError: franka-rs is not installed.
        """
        if self._process is not None:
            raise RobotError("the hand is made ready while the robot is not connected; call close() first")
        if not self.config.hand:
            return
        try:
            home_hand(self.config.host)
        except StoppedError as stop:
            raise RobotError(stop.reason) from None
        except ImportError:
            raise MissingExtraError("franka", "driving a Franka arm") from None

    def status(self) -> Status:
        """Return stamp and age of the latest state, missed ticks and the fault."""
        state = self._open_process().state()
        return Status(
            stamp=state.stamp,
            controller_time=state.robot_time,
            state_age_s=monotonic() - state.stamp,
            missed_ticks=self.missed_ticks,
            fault=self._fault,
        )

    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles [rad] and the robot's own tool pose for them, both as of when it was connected."""
        self._open_process()
        pose = np.array(self.facts["tool_pose"]).reshape(4, 4)
        return np.array(self.facts["q"]), Pose(pose[:3, 3].copy(), pose[:3, :3] @ about_vertical(HAND_TURN))

    def check_controller(self, check: Check) -> bool:
        """Ask whether the control box answers, and franka-rs is there; returns whether connecting makes sense."""
        return franka_check.check_controller(check, self.config)

    def check_settings(self, check: Check) -> None:
        """Look at mode, errors, payload and hand."""
        franka_check.check_settings(check, self)

    @property
    def worker_pid(self) -> int:
        """The process id of the worker."""
        return self._open_process().pid

    @property
    def fault(self) -> str | None:
        """Why nothing is sent any more, or None."""
        return self._fault

    @property
    def state_period_s(self) -> float:
        """Nominal time between two measured states: the worker reads as often as it streams."""
        return 1.0 / self.config.stream_hz

    @property
    def max_state_age_s(self) -> float:
        """Age of the latest state above which the driver reports a fault."""
        return self.config.max_state_age_s

    @property
    def holds(self) -> bool:
        """Whether the hand has something between its fingers."""
        return bool(self._open_process().state().grasped)

    def figures(self) -> dict[str, float]:
        """Return quantiles of streaming periods and of the lateness of ticks, and how much time slipped [ms]."""
        ticks = quantiles_ms("tick_late", self._lateness) | {"stretched_ms": 1e3 * self.stretched_s}
        return self._open_process().figures() | ticks

    def link_state(self) -> FrankaState:
        """Give all that the worker published last, for measurements."""
        return self._open_process().state()

    def _require_reachable(self, start: Array, q: Array) -> None:
        """Refuse a step that is faster than the arm may move at either end of it."""
        speed = (q - start) * self.spec.control_rate_hz
        arm = self.spec.arm
        for low, high in (arm.velocity_at(start), arm.velocity_at(q)):
            excess = np.maximum(speed - SPEED_MARGIN * high, SPEED_MARGIN * low - speed)
            if (joint := int(np.argmax(excess))) >= 0 and excess[joint] > 0.0:
                raise CommandRefusedError(
                    f"the command asks joint {arm.joint_names[joint]!r} to go at {speed[joint]:.2f} rad/s, outside of "
                    f"the {low[joint]:.2f} to {high[joint]:.2f} rad/s that the arm allows there; plan from where the "
                    "arm is; nothing was sent"
                )

    def _open(self, recover: bool) -> None:
        settings = {
            "franka": self.config.model_dump(mode="json"),
            "period_s": self.spec.period_s,
            "control": not self.passive,
            "recover": recover,
        }
        process = FrankaProcess(settings, self._latch_fault)
        serial = self.config.serial_number or f"fr3 at {self.config.host}"
        self.facts = process.start() | {"serial_number": serial}
        self._process = process
        self._fault, self._sent, self._due, self._fresh = None, None, None, False
        self._faulted.clear()

    def _open_process(self) -> FrankaProcess:
        if self._process is None:
            raise RobotError(
                f"the FR3 at {self.config.host} is not connected; call connect() first"
                if self._fault is None
                else self._say(self._fault)
            )
        return self._process

    def _require_state(self) -> FrankaState:
        """Give the latest state, unless there is a fault or it is too old."""
        process = self._open_process()
        if self._fault is not None:
            raise RobotError(self._say(self._fault))
        state = process.state()
        age, limit = monotonic() - state.stamp, self.config.max_state_age_s
        if age > WORKER_FIRST * limit:
            raise self._failed(f"the latest state of the arm is {age:.2f} s old (limit {limit:g} s)")
        return state

    def _begin_ticks(self, state: FrankaState) -> float:
        """Begin the control clock anew, and give its first tick [s]; what slipped before does not count."""
        self._due, self._slipped_s = monotonic(), state.slipped_s
        return self._due

    def _latch_fault(self, reason: str) -> None:
        """Keep the first fault, and have the arm stopped if anybody still listens."""
        with self._latch:
            if self._fault is not None:
                return
            self._fault = reason
            self._faulted.set()
        if self._process is not None:
            self._process.request_stop()

    def _failed(self, reason: str) -> RobotError:
        """Latch a fault, and make the error that says it; or the fault that came before it."""
        self._latch_fault(reason)
        return RobotError(self._say(self._fault or reason))

    def _say(self, reason: str) -> str:
        return f"{reason}; nothing moves until the operator recovers the robot (td3robot recover)"
