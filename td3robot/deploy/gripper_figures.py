"""Measures a gripper's closing delay and speed from its commands and states, period by period."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from td3robot.config import DisturbanceConfig
from td3robot.robots.grippers.model import GripperModel

# Closed fractions: a command that rises by the first begins a closing, and one shorter than the second does not count.
STEP, TRAVEL = 0.02, 0.2
# Fingers that moved by this closed fraction have started to move: some counts of a device.
MOVED = 0.01
# Fingers that move by less than this within this time are at rest [1], [s].
STILL, STILL_S = 0.01, 0.2
# Longest duration of a closing [s].
LONGEST_S = 5.0
# The part of the travel in which fingers move evenly: neither starting nor meeting an object.
EVENLY = (0.1, 0.9)


@dataclass(frozen=True, slots=True)
class Closing:
    """One closing.

    Attributes:
        delay_s: From the command to the first motion of the fingers.
        speed: Mean speed, as a share of the gripper's fastest.
    """

    delay_s: float
    speed: float


class GripperWatch:
    """Measure every closing of a gripper whose command and state arrive once per control period.

    Attributes:
        closings: The closings so far.
    """

    def __init__(self, gripper: GripperModel) -> None:
        self._gripper = gripper
        self.closings: list[Closing] = []
        self.forget()

    def forget(self) -> None:
        """Start over after a pause; a closing in progress is not measured."""
        self._commanded: float | None = None
        self._began_s: float | None = None
        self._seen: list[tuple[float, float]] = []

    def gripper_command(self, at: float, closed: float) -> None:
        """Add a command (a closed fraction) and the time it was sent [s]."""
        rise = 0.0 if self._commanded is None else closed - self._commanded
        self._commanded = closed
        if self._began_s is None and rise > STEP:
            self._began_s, self._seen = at, self._seen[-1:]
        elif rise < -STEP:
            self.finish()

    def measured(self, at: float, driver_q: Any) -> None:
        """Add the drivers (2,), in their unit, and the time they were measured [s]."""
        closed = self._gripper.closed_fraction(driver_q)
        self._seen.append((at, closed))
        if self._began_s is None:
            del self._seen[:-1]
            return
        before = [fraction for time, fraction in self._seen if time <= at - STILL_S]
        stopped = closed - self._seen[0][1] > TRAVEL and before and closed - before[-1] < STILL
        if stopped or at - self._began_s > LONGEST_S:
            self.finish()

    def finish(self) -> None:
        """End the closing in progress, if there is one."""
        if self._began_s is not None and (closing := self._closing(self._began_s)) is not None:
            self.closings.append(closing)
        self._began_s, self._seen = None, self._seen[-1:]

    def _closing(self, began_s: float) -> Closing | None:
        """Return the closing from a line fitted to the even part of the travel, whose slope is the speed.

        Motion begins where that line does, or where the fingers first moved, if that is earlier: some take a while to
        come up to speed. At 20 measurements a second, that is up to 15 ms too early, and too late for fingers that
        start gently: by 13 ms for a simulated 2F-85 at full speed, by 27 ms at half (tests/deploy).
        """
        times, closed = np.array(self._seen).T
        way = closed[-1] - closed[0]
        share = (closed - closed[0]) / max(way, TRAVEL)
        evenly = (share > EVENLY[0]) & (share < EVENLY[1])
        if way < TRAVEL or evenly.sum() < 2:
            return None
        rate, at_begin = np.polyfit(times[evenly] - began_s, closed[evenly], 1)
        first = int(np.argmax(closed - closed[0] > MOVED))
        moved_s = np.interp(closed[0] + MOVED, closed[first - 1 : first + 1], times[first - 1 : first + 1]) - began_s
        delay = min(float((closed[0] - at_begin) / rate), float(moved_s))
        return Closing(max(0.0, delay), float(rate / self._gripper.closing_rate))


def summarize_closings(closings: Sequence[Closing], trained: DisturbanceConfig | None) -> dict[str, Any] | None:
    """Return a summary of closings as plain values, beside the ranges of training, or None without closings.

    Durations are in s, speeds are shares of the gripper's fastest.
    """
    if not closings:
        return None
    return {
        "closings": len(closings),
        "delay_s": float(np.mean([closing.delay_s for closing in closings])),
        "speed": float(np.mean([closing.speed for closing in closings])),
        "trained_delay_s": None if trained is None else list(trained.gripper_delay_s),
        "trained_speed": None if trained is None else list(trained.gripper_speed),
    }
