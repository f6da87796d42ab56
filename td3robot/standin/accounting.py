"""What came over the wire, and what the arm made of it: the figures that prove a guard's limits from outside."""

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics
from td3robot.standin.arm import PERIOD_S, SimulatedArm
from td3robot.state import Array

# Received targets that are kept until somebody takes them: ten minutes at 500 Hz.
MAX_RECORD = 300_000
# Controller time [s], and six joint angles [rad].
ROW = 7


@dataclass(slots=True)
class Extremes:
    """The largest and smallest values seen.

    Attributes:
        joint_speed_rad_s, joint_acceleration_rad_s2: Of the fastest joint.
        tcp_speed_m_s: Of the tool centre point.
        lowest_tcp_m: Its smallest height above the table.
    """

    joint_speed_rad_s: float = 0.0
    joint_acceleration_rad_s2: float = 0.0
    tcp_speed_m_s: float = 0.0
    lowest_tcp_m: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the figures."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Accounting:
    """Keeps the extremes of received targets and of the measured arm.

    Targets come in steps, whose single differences say more about the network's timing than about the sender. So
    their speed is averaged over a window; two adjoining windows give the acceleration. For a sender that changes its
    velocity once a period of T, by at most a T, that acceleration never exceeds a where the window is T or longer.
    """

    spec: RobotSpec
    window_s: float
    targets: Extremes = field(default_factory=Extremes)
    measured: Extremes = field(default_factory=Extremes)
    largest_step_rad: float = 0.0
    not_recorded: int = 0
    _record: "array[float]" = field(default_factory=lambda: array("d"))
    _goals: deque[tuple[Array, Array]] = field(default_factory=deque)
    _last: Array | None = None
    _dq: Array | None = None
    _kinematics: Kinematics = field(init=False)

    def __post_init__(self) -> None:
        self._kinematics = Kinematics(self.spec)

    def received(self, time_s: float, target: Array) -> None:
        """Take a target (6,) [rad] of servoJ that was received at a controller time."""
        if len(self._record) < MAX_RECORD * ROW:
            self._record.extend((time_s, *target.tolist()))
        else:
            self.not_recorded += 1
        if self._last is not None:
            self.largest_step_rad = max(self.largest_step_rad, float(np.abs(target - self._last).max()))
        self._last = target

    def tick(self, arm: SimulatedArm, goal: Array | None) -> None:
        """Look at the arm and at where servoJ wants it (6,) [rad] once a period."""
        if goal is None:
            self._goals.clear()
            self._last = None
        else:
            self._take_goal(goal)
        measured = self.measured
        measured.joint_speed_rad_s = max(measured.joint_speed_rad_s, float(np.abs(arm.dq).max()))
        if self._dq is not None:
            change = float(np.abs(arm.dq - self._dq).max()) / PERIOD_S
            measured.joint_acceleration_rad_s2 = max(measured.joint_acceleration_rad_s2, change)
        self._dq = arm.dq
        velocity = arm.tcp_velocity()[:3]
        measured.tcp_speed_m_s = max(measured.tcp_speed_m_s, float(np.linalg.norm(velocity)))
        _lower(measured, float(arm.tcp().position[2]) - self.spec.table_height_m)

    def reset(self) -> None:
        """Begin anew."""
        self.targets, self.measured, self.largest_step_rad = Extremes(), Extremes(), 0.0
        self._record, self.not_recorded = array("d"), 0
        self.forget()

    def take_record(self, rows: int) -> tuple[list[list[float]], int]:
        """Take the oldest received targets out of the record; give them and how many are left."""
        taken = self._record[: rows * ROW].tolist()
        del self._record[: rows * ROW]
        return [taken[start : start + ROW] for start in range(0, len(taken), ROW)], len(self._record) // ROW

    def forget(self) -> None:
        """Begin a new stretch of motion: what comes has nothing to do with what was."""
        self._goals.clear()
        self._last = self._dq = None

    def to_json(self) -> dict[str, Any]:
        """Give the figures."""
        return {
            "targets": {**self.targets.to_json(), "largest_step_rad": self.largest_step_rad},
            "measured": self.measured.to_json(),
            "window_s": self.window_s,
            "not_recorded": self.not_recorded,
        }

    def _take_goal(self, goal: Array) -> None:
        position = self._kinematics.tcp(goal).position
        window = max(1, round(self.window_s / PERIOD_S))
        self._goals.append((goal, position))
        if len(self._goals) > 2 * window + 1:
            self._goals.popleft()
        targets = self.targets
        _lower(targets, float(position[2]) - self.spec.table_height_m)
        if len(self._goals) <= window:
            return
        q, place = self._goals[-1 - window]
        velocity = (goal - q) / (window * PERIOD_S)
        targets.joint_speed_rad_s = max(targets.joint_speed_rad_s, float(np.abs(velocity).max()))
        speed = float(np.linalg.norm(position - place)) / (window * PERIOD_S)
        targets.tcp_speed_m_s = max(targets.tcp_speed_m_s, speed)
        if len(self._goals) <= 2 * window:
            return
        before = (q - self._goals[-1 - 2 * window][0]) / (window * PERIOD_S)
        change = float(np.abs(velocity - before).max()) / (window * PERIOD_S)
        targets.joint_acceleration_rad_s2 = max(targets.joint_acceleration_rad_s2, change)


def _lower(extremes: Extremes, height: float) -> None:
    if extremes.lowest_tcp_m is None or height < extremes.lowest_tcp_m:
        extremes.lowest_tcp_m = height
