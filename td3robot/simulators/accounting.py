"""Records what arrived over the wire and what the arm did: the figures that prove a guard's limits from outside."""

import time
from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.ur import JOINTS
from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.state import Array

# Received targets that are kept until they are taken: ten minutes at 500 Hz.
MAX_RECORD = 300_000
# Controller time [s], and six joint angles [rad].
ROW = 7


@dataclass(slots=True)
class Extremes:
    """The largest and smallest values seen.

    Attributes:
        joint_speed_rad_s, joint_acceleration_rad_s2: Those of the fastest joint.
        tcp_speed_m_s: Speed of the tool centre point.
        lowest_tcp_m: Its smallest height above the table.
    """

    joint_speed_rad_s: float = 0.0
    joint_acceleration_rad_s2: float = 0.0
    tcp_speed_m_s: float = 0.0
    lowest_tcp_m: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Accounting:
    """Keep the extremes of received targets and of the measured arm.

    Between two arrivals, a target is assumed to move in a straight line. Its speed is averaged over a window, because
    single differences say more about the network's timing than about the sender; two adjoining windows give the
    acceleration. If a sender changes its velocity once per period T, by at most a T, that acceleration never exceeds a,
    provided that the window is T or longer.
    """

    spec: RobotSpec
    window_s: float = 0.1
    targets: Extremes = field(default_factory=Extremes)
    measured: Extremes = field(default_factory=Extremes)
    largest_step_rad: float = 0.0
    not_recorded: int = 0
    _record: "array[float]" = field(default_factory=lambda: array("d"))
    # Arrivals of two windows and a little more: time [s], joint angles and tool position in one vector (9,).
    _arrivals: deque[tuple[float, Array]] = field(default_factory=deque)
    _dq: Array | None = None
    _kinematics: Kinematics = field(init=False)

    def __post_init__(self) -> None:
        self._kinematics = Kinematics(self.spec)
        self._kinematics.tcp(self.spec.arm.home)  # compiled now: at the first target, that would stop the clock

    def received(self, time_s: float, target: Array) -> None:
        """Add a servoJ target (6,) [rad] and its arrival time, after the previous one, changed or not."""
        if len(self._record) < MAX_RECORD * ROW:
            self._record.extend((time_s, *target.tolist()))
        else:
            self.not_recorded += 1
        position = self._kinematics.tcp(target).position
        _lower(self.targets, float(position[2]) - self.spec.table_height_m)
        if self._arrivals:
            step = np.abs(target - self._arrivals[-1][1][:JOINTS])
            self.largest_step_rad = max(self.largest_step_rad, float(step.max()))
        self._arrivals.append((time_s, np.concatenate((target, position))))
        self._judge()

    def tick(self, arm: SimulatedArm) -> None:
        """Measure the arm, once per period."""
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
        """Start over."""
        self.targets, self.measured, self.largest_step_rad = Extremes(), Extremes(), 0.0
        self._record, self.not_recorded = array("d"), 0
        self.forget()

    def take_record(self, rows: int) -> tuple[list[list[float]], int]:
        """Remove the oldest received targets from the record, and return them and how many are left."""
        taken = self._record[: rows * ROW].tolist()
        del self._record[: rows * ROW]
        return [taken[start : start + ROW] for start in range(0, len(taken), ROW)], len(self._record) // ROW

    def forget(self) -> None:
        """Begin a new motion: what follows has nothing to do with what came before."""
        self.forget_targets()
        self._dq = None

    def forget_targets(self) -> None:
        """Begin a new sequence of targets."""
        self._arrivals.clear()

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "targets": {**self.targets.to_json(), "largest_step_rad": self.largest_step_rad},
            "measured": self.measured.to_json(),
            "window_s": self.window_s,
            "not_recorded": self.not_recorded,
        }

    def _judge(self) -> None:
        """Account for the newest target's speed and acceleration, once there are enough targets before it."""
        arrivals, window = self._arrivals, self.window_s
        now, newest = arrivals[-1]
        while len(arrivals) > 2 and arrivals[1][0] <= now - 2.0 * window:
            arrivals.popleft()
        middle = self._interpolated(now - window)
        if middle is None:
            return
        targets, velocity = self.targets, (newest - middle) / window
        targets.joint_speed_rad_s = max(targets.joint_speed_rad_s, float(np.abs(velocity[:JOINTS]).max()))
        targets.tcp_speed_m_s = max(targets.tcp_speed_m_s, float(np.linalg.norm(velocity[JOINTS:])))
        oldest = self._interpolated(now - 2.0 * window)
        if oldest is None:
            return
        change = float(np.abs((velocity - (middle - oldest) / window)[:JOINTS]).max()) / window
        targets.joint_acceleration_rad_s2 = max(targets.joint_acceleration_rad_s2, change)

    def _interpolated(self, time_s: float) -> Array | None:
        """Return the interpolated targets (9,) at a time, or None before the first."""
        arrivals = self._arrivals
        if time_s < arrivals[0][0] - 1e-9:
            return None
        after = bisect_left(arrivals, time_s, lo=1, key=lambda arrival: arrival[0])
        (begin, before), (end, behind) = arrivals[after - 1], arrivals[after]
        return before + (behind - before) * ((time_s - begin) / max(end - begin, 1e-9))


def _lower(extremes: Extremes, height: float) -> None:
    if extremes.lowest_tcp_m is None or height < extremes.lowest_tcp_m:
        extremes.lowest_tcp_m = height


class Clock:
    """Count ticks, and how late they were.

    Attributes:
        lost_s: Time that was given up instead of caught up.
    """

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=5000)
        self.worst_s = self.lost_s = 0.0
        self.ticks = 0
        self.is_real_time = False
        self._started, self._used_s = time.monotonic(), time.process_time()

    def count(self, late_s: float) -> None:
        """Count a tick that was late by ``late_s`` [s]."""
        self.ticks += 1
        self._late.append(late_s)
        self.worst_s = max(self.worst_s, late_s)

    def to_json(self) -> dict[str, Any]:
        """Return the figures; percentiles are those of the last ten seconds."""
        p50, p99 = np.percentile(self._late, [50, 99]) if self._late else (0.0, 0.0)
        wall = time.monotonic() - self._started
        return {
            "ticks": self.ticks,
            "late_p50_s": float(p50),
            "late_p99_s": float(p99),
            "late_worst_s": self.worst_s,
            "lost_s": self.lost_s,
            "real_time_priority": self.is_real_time,
            "cpu_fraction": (time.process_time() - self._used_s) / wall,
        }
