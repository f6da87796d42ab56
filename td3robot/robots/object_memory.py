"""Where objects are between sightings, and while the hand hides them."""

from collections import deque
from collections.abc import Mapping
from math import dist, hypot

import numpy as np

from td3robot.robots.objects import Objects, Sighting
from td3robot.state import Pose

# Nearer to the tool centre point than this, the hand may hide an object: most fixed cameras lose it within 60 to 80 mm,
# and the fingers reach as far again [m].
MAY_HIDE_M = 0.15
# A sighting this far from where the tool carries an object shows that it is not in the hand [m]. For a late sighting,
# add the distance that the tool may have moved meanwhile at this speed [m/s].
NOT_IN_HAND_M, TOOL_SPEED_M_S = 0.04, 0.25
# An object between the fingers is at most this far from the tool centre point, across and along the tool's axis [m].
ACROSS_M, ALONG_M = 0.02, 0.04


class ObjectMemory:
    """The best available poses of objects.

    An object that is not held stays where it was last seen. One in the hand moves with the tool, whatever a camera
    reports, unless the camera sees it elsewhere. Its position in the hand follows from where it was last seen and where
    the tool was when the fingers had just closed on it; if they dragged it meanwhile, it is still between them. Silence
    is a fault only for objects that the hand cannot hide.

    Args:
        objects: The source of sightings.
        period_s: Time between two calls of :meth:`look`.
        rest: How many periods fingers rest before they count as holding something.
        pace: Speed of the tool as a share of training's.

    Attributes:
        poses: Poses by name.
        ages_s: Time since the last sighting, without pauses since then, times the pace, by name.
    """

    def __init__(self, objects: Objects, period_s: float, rest: int, pace: float = 1.0) -> None:
        self._objects, self._period, self._pace = objects, period_s, pace
        self._tools: deque[Pose] = deque(maxlen=1 + rest)
        self.forget()

    def forget(self) -> None:
        """Forget all sightings."""
        self.poses: dict[str, Pose] = {}
        self.ages_s: dict[str, float] = {}
        self._numbers: dict[str, int] = {}
        self._pauses_s: dict[str, float] = {}
        self._tools.clear()
        self._tool: Pose | None = None
        self._held: str | None = None
        self._held_s = 0.0

    def pause(self, seconds: float) -> None:
        """Leave out a pause in which nothing moved: what was seen before it is as good as it was."""
        for name in self._pauses_s:
            self._pauses_s[name] += seconds

    def look(self, tool: Pose, held: str | None) -> None:
        """Update the poses.

        Args:
            tool: Pose of the tool centre point.
            held: The object between the fingers, or None.

        Raises:
            TrackerError: An object has not been seen for too long, or jumped.
        """
        self._held_s = self._held_s + self._period if held is not None and held == self._held else 0.0
        sightings: Mapping[str, Sighting] = self._objects.read()
        self._tools.append(tool)
        self.poses = {name: self._pose(name, seen, tool, held) for name, seen in sightings.items()}
        self._pauses_s = {
            name: self._pauses_s[name] if seen.number == self._numbers.get(name) else 0.0
            for name, seen in sightings.items()
        }
        self.ages_s = {
            name: self._pace * max(0.0, seen.age_s - self._pauses_s[name]) for name, seen in sightings.items()
        }
        self._numbers = {name: seen.number for name, seen in sightings.items()}
        self._tool, self._held = tool, held

    def _pose(self, name: str, seen: Sighting, tool: Pose, held: str | None) -> Pose:
        before = self.poses.get(name)
        if before is None or self._tool is None:
            return seen.pose
        fresh = seen.number != self._numbers[name]
        if name == held:
            if name != self._held:
                return _in_hand(_carried(seen.pose if fresh else before, self._tools[0], tool), tool)
            carried = _carried(before, self._tool, tool)
            return seen.pose if fresh and self._is_elsewhere(seen, carried) else carried
        if fresh:
            return seen.pose
        if _apart(before, tool) > MAY_HIDE_M:
            self._objects.require_recent(name)
        return before

    def _is_elsewhere(self, seen: Sighting, carried: Pose) -> bool:
        """Whether an object was seen outside the hand after it had been gripped."""
        return seen.age_s < self._held_s and _apart(seen.pose, carried) > NOT_IN_HAND_M + TOOL_SPEED_M_S * seen.age_s


def _apart(one: Pose, other: Pose) -> float:
    return dist(one.position, other.position)


def _carried(item: Pose, before: Pose, tool: Pose) -> Pose:
    """Return an object's pose after it moved with the tool."""
    turn = tool.rotation @ before.rotation.T
    return Pose(turn @ (item.position - before.position) + tool.position, turn @ item.rotation)


def _in_hand(item: Pose, tool: Pose) -> Pose:
    """Return an object's pose, moved to where fingers can hold it."""
    x, y, z = tool.rotation.T @ (item.position - tool.position)
    share = min(1.0, ACROSS_M / max(hypot(x, y), 1e-9))
    offset = np.array([share * x, share * y, min(max(z, -ALONG_M), ALONG_M)])
    return Pose(tool.position + tool.rotation @ offset, item.rotation)
