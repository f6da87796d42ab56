"""Where a task's objects can be: poses elsewhere, from a tracker or a person, are not believed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import acos, degrees

import numpy as np

from td3robot.state import Array, ObjectModel, Pose

# An object that lies is within these distances of the task's patch and of its resting height on the table [m].
PATCH_MARGIN_M, HEIGHT_MARGIN_M = 0.05, 0.03
# A carried object may be this far outside the tool's workspace: it has a size, and the arm a lag [m].
CARRIED_MARGIN_M = 0.1
# Largest tilt: an object that lies is upright, and one that is carried does not hang upside down [rad].
LYING_TILT_RAD, CARRIED_TILT_RAD = 0.35, 1.2
MM = 1000.0


@dataclass(frozen=True, slots=True)
class ObjectBounds:
    """Bounds of a task's objects, at the start of an episode and during it.

    Attributes:
        patch: Low and high corner (x, y) of the patch of the table on which they lie [m].
        rest_m: Height of each one's centre at rest, by name [m].
        workspace: Low and high corner (x, y, z) of the tool's workspace [m].
    """

    patch: tuple[tuple[float, float], tuple[float, float]]
    rest_m: Mapping[str, float]
    workspace: tuple[tuple[float, float, float], tuple[float, float, float]]

    @classmethod
    def of(
        cls,
        models: Iterable[ObjectModel],
        table_m: float,
        space: tuple[tuple[float, float, float], tuple[float, float, float]],
        workspace: tuple[tuple[float, float, float], tuple[float, float, float]],
    ) -> "ObjectBounds":
        """Return the bounds of upright objects on a table whose top is at a height [m].

        Args:
            models: The objects.
            table_m: Height of the table top.
            space: Low and high corner of the space in which the task needs the tool; objects lie below.
            workspace: Low and high corner of the space in which the guard allows the tool.
        """
        low, high = space
        rest = {model.name: table_m + model.size_m[2] / 2 for model in models}
        return cls((low[:2], high[:2]), rest, workspace)

    def objection_to_lying(self, name: str, pose: Pose) -> str | None:
        """Return why an object cannot have this pose at the start of an episode, or None if it can."""
        return self._objection(pose, *self._lying(name), LYING_TILT_RAD, "where the task's objects lie")

    def objection_to_carried(self, name: str, pose: Pose) -> str | None:
        """Return why an object cannot have this pose during an episode, or None if it can."""
        low, high = (np.array(corner) for corner in self.workspace)
        low[2] = min(low[2], self.rest_m[name])
        margin = CARRIED_MARGIN_M
        return self._objection(pose, low - margin, high + margin, CARRIED_TILT_RAD, "where the arm can carry it")

    def nearest(self, name: str, position: Array) -> Array:
        """Return the nearest position (3,) [m] at which an object may lie, reading one in millimetres as such."""
        low, high = self._lying(name)
        if ((position / MM >= low) & (position / MM <= high)).all():
            return position / MM
        return np.clip(position, low, high)

    def _lying(self, name: str) -> tuple[Array, Array]:
        (x0, y0), (x1, y1) = self.patch
        rest, aside, above = self.rest_m[name], PATCH_MARGIN_M, HEIGHT_MARGIN_M
        return np.array([x0 - aside, y0 - aside, rest - above]), np.array([x1 + aside, y1 + aside, rest + above])

    def _objection(self, pose: Pose, low: Array, high: Array, most: float, place: str) -> str | None:
        for axis, value, least, greatest in zip("xyz", pose.position, low, high, strict=True):
            if not least <= value <= greatest:
                return f"{axis} = {value:.4g} m is outside of {least:.3g} to {greatest:.3g} m, {place}"
        tilt = acos(float(np.clip(pose.rotation[2, 2], -1.0, 1.0)))
        if tilt > most:
            return f"it is tilted by {degrees(tilt):.0f} degrees (limit {degrees(most):.0f})"
        return None
