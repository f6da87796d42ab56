"""Where a task's objects can be: what a tracker or a person says otherwise is not believed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import acos, degrees

import numpy as np

from td3robot.state import Array, ObjectModel, Pose

# What lies is within this of the task's patch, and of the height at which it rests on the table [m].
PATCH_MARGIN_M, HEIGHT_MARGIN_M = 0.05, 0.03
# What was handled may be this far outside of the tool's workspace: it has a size, and the arm a lag [m].
CARRIED_MARGIN_M = 0.1
# What lies stands upright, and what is carried does not hang head down [rad].
LYING_TILT_RAD, CARRIED_TILT_RAD = 0.35, 1.2
MM = 1000.0


@dataclass(frozen=True, slots=True)
class ObjectBounds:
    """Where the objects of a task lie when an episode begins, and where they can get to in it.

    Attributes:
        patch: Low and high corner (x, y) of where they lie on the table [m].
        rest_m: Height at which the middle of each rests, by name [m].
        workspace: Low and high corner (x, y, z) of where the tool goes [m].
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
        """Derive the bounds of upright objects on a table whose top is at a height [m].

        Args:
            models: The objects.
            table_m: Height of the table top.
            space: Low and high corner of where the task has the tool go; objects lie below.
            workspace: Low and high corner of where the guard lets the tool go.
        """
        low, high = space
        rest = {model.name: table_m + model.size_m[2] / 2 for model in models}
        return cls((low[:2], high[:2]), rest, workspace)

    def objection_to_lying(self, name: str, pose: Pose) -> str | None:
        """Say why an object cannot lie so at the beginning of an episode, or None."""
        return self._objection(pose, *self._lying(name), LYING_TILT_RAD, "where the task's objects lie")

    def objection_to_carried(self, name: str, pose: Pose) -> str | None:
        """Say why an object cannot be so during an episode, or None."""
        low, high = (np.array(corner) for corner in self.workspace)
        low[2] = min(low[2], self.rest_m[name])
        margin = CARRIED_MARGIN_M
        return self._objection(pose, low - margin, high + margin, CARRIED_TILT_RAD, "where the arm can carry it")

    def nearest(self, name: str, position: Array) -> Array:
        """Return the nearest place (3,) [m] where an object may lie; of one given in millimetres, that one."""
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
