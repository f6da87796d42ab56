"""Where the objects of a cell are, where they can be, and those that a person placed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import acos, degrees, isfinite
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from td3robot.config.section import Section, Vector3
from td3robot.errors import ConfigError, choose
from td3robot.geometry import about_vertical
from td3robot.robots.camera_figures import Arrival
from td3robot.state import Array, ObjectModel, Pose


@dataclass(frozen=True, slots=True)
class Sighting:
    """The last sighting of an object.

    Attributes:
        pose: Pose in the base frame.
        age_s: Time since the measurement.
        number: How many sightings of the object there were; while this stays the same, there is nothing new.
        refused: Whether something arrived since then, and none of it could be a sighting: that is not silence.
    """

    pose: Pose
    age_s: float
    number: int
    refused: bool = False


class Objects(ABC):
    """The objects of a cell, by name."""

    @abstractmethod
    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the objects for the start of an episode.

        Returns:
            Where they really lie: only simulations can place them.
        """

    @abstractmethod
    def read(self) -> Mapping[str, Sighting]:
        """Return the last sighting of every object. In a simulation, call it once per control period."""

    def become(self, models: Mapping[str, ObjectModel]) -> None:
        """Give objects another shape, size, mass and friction, by name, before they are arranged.

        Raises:
            NotImplementedError: They are real.
        """
        raise NotImplementedError("only simulated objects become others")

    def require_recent(self, name: str) -> None:  # noqa: B027  # most see whenever they are asked
        """Refuse to go on if an object in full view has not been seen for too long.

        Raises:
            TrackerError: Saying for how long.
        """

    def require_possible(self, name: str, pose: Pose) -> None:  # noqa: B027  # simulated objects may fall off a table
        """Refuse to go on with an object that is where none can be.

        Raises:
            TrackerError: Saying where.
        """

    def arrivals(self) -> Sequence[Arrival] | None:
        """Return a tracker's datagrams of the last seconds, oldest first, or None if there is no tracker.

        Raises:
            TrackerError: No datagram can be received.
        """
        return None

    def figures(self) -> dict[str, Any] | None:
        """Return a tracker's own figures of all that it has seen, or None if it has none."""
        return None

    def truth(self) -> Mapping[str, Pose] | None:
        """Return the true poses of the objects, or None if nothing is known beyond :meth:`read`."""
        return None

    def drawn(self) -> dict[str, float]:
        """Return what was drawn for this episode about how they are seen, by name; a perfect tracker draws nothing."""
        return {}

    def close(self) -> None:  # noqa: B027  # most have nothing to let go
        """Release the source of the poses. May be repeated."""


class NoObjects(Objects):
    """A cell without objects."""

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Do nothing."""
        return {}

    def read(self) -> Mapping[str, Sighting]:
        """Return nothing."""
        return {}


# An object that lies is within these distances of the task's patch and of its resting height on the table [m].
PATCH_MARGIN_M, HEIGHT_MARGIN_M = 0.05, 0.03
# A carried object may be this far outside the tool's workspace: it has a size, and the arm a lag [m].
CARRIED_MARGIN_M = 0.1
# Largest tilt: an object that lies is upright, and one that is carried does not hang upside down [rad].
LYING_TILT_RAD, CARRIED_TILT_RAD = 0.35, 1.2
MM = 1000.0


def rest_heights(models: Iterable[ObjectModel], table_m: float) -> dict[str, float]:
    """Return the height of each upright object's centre [m], by name, on a table whose top is at a height [m]."""
    return {model.name: table_m + model.size_m[2] / 2 for model in models}


@dataclass(frozen=True, slots=True)
class ObjectBounds:
    """Bounds of a task's objects, at the start of an episode and during it.

    Attributes:
        patch: Low and high corner (x, y) of the patch of the table on which they lie [m].
        rest_m: Height of each one's centre at rest, by name [m].
        workspace: Low and high corner (x, y, z) of the tool's workspace [m].
        cubes: The objects of which any side may be up.
    """

    patch: tuple[tuple[float, float], tuple[float, float]]
    rest_m: Mapping[str, float]
    workspace: tuple[tuple[float, float, float], tuple[float, float, float]]
    cubes: frozenset[str] = frozenset()

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
        items = tuple(models)
        cubes = frozenset(item.name for item in items if item.is_cube)
        return cls((low[:2], high[:2]), rest_heights(items, table_m), workspace, cubes)

    def objection_to_lying(self, name: str, pose: Pose) -> str | None:
        """Return why an object cannot have this pose at the start of an episode, or None if it can."""
        return self._objection(name, pose, *self._lying(name), LYING_TILT_RAD, "where the task's objects lie")

    def objection_to_carried(self, name: str, pose: Pose) -> str | None:
        """Return why an object cannot have this pose during an episode, or None if it can."""
        return self._objection(name, pose, *self.carried(name), CARRIED_TILT_RAD, "where the arm can carry it")

    def carried(self, name: str) -> tuple[Array, Array]:
        """Return the low and high corner (3,) of where an object can be during an episode [m]."""
        low, high = (np.array(corner) for corner in self.workspace)
        low[2] = min(low[2], self.rest_m[name])
        return low - CARRIED_MARGIN_M, high + CARRIED_MARGIN_M

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

    def _objection(self, name: str, pose: Pose, low: Array, high: Array, most: float, place: str) -> str | None:
        for axis, value, least, greatest in zip("xyz", pose.position, low, high, strict=True):
            if not least <= value <= greatest:
                return f"{axis} = {value:.4g} m is outside of {least:.3g} to {greatest:.3g} m, {place}"
        up = np.abs(pose.rotation[2]).max() if name in self.cubes else pose.rotation[2, 2]
        tilt = acos(float(np.clip(up, -1.0, 1.0)))
        if tilt > most:
            return f"it is tilted by {degrees(tilt):.0f} degrees (limit {degrees(most):.0f})"
        return None


class TaughtPose(Section):
    """Where an object lies, according to a person.

    Attributes:
        position_m: Position of its centre in the base frame (x, y, z).
        yaw_rad: Its angle about the vertical, at most one turn either way: 90 is no angle in radians.
    """

    position_m: Vector3
    yaw_rad: Annotated[float, Field(ge=-7.0, le=7.0)] = 0.0


class TaughtObjects(Objects):
    """Objects that lie where a person said, as if each had just been seen there once.

    Args:
        names: The task's objects.
        taught: Where each of them lies.
        bounds: Where objects can lie; without bounds, anywhere.

    Raises:
        ConfigError: A name is unknown, an object was not taught, or it cannot lie there.
    """

    def __init__(
        self, names: Iterable[str], taught: Mapping[str, TaughtPose], bounds: ObjectBounds | None = None
    ) -> None:
        known = tuple(names)
        for name in taught:
            if name not in known:
                raise ConfigError(choose("object", name, known))
        for name in known:
            if name not in taught:
                raise ConfigError(
                    f"the cell does not say where {name!r} lies; give it a tracker, or a pose under taught, or with "
                    f"--object {name}=X,Y,Z,YAW"
                )
        self._poses = {
            name: Pose(np.array(pose.position_m), about_vertical(pose.yaw_rad)) for name, pose in taught.items()
        }
        if bounds is not None:
            for name, pose in self._poses.items():
                _require_lying(name, pose, bounds)

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Return the taught poses."""
        return self._poses

    def read(self) -> Mapping[str, Sighting]:
        """Return the taught poses, whatever happened since."""
        return {name: Sighting(pose, 0.0, 1) for name, pose in self._poses.items()}


def _require_lying(name: str, pose: Pose, bounds: ObjectBounds) -> None:
    if (objection := bounds.objection_to_lying(name, pose)) is not None:
        nearest = ",".join(f"{value:.4g}" for value in bounds.nearest(name, pose.position))
        raise ConfigError(
            f"{name!r} cannot lie where it was said to: {objection}; positions are in metres, in the arm's base frame, "
            f"and the nearest admissible one is {name}={nearest}"
        )


def taught_from_texts(texts: Iterable[str]) -> dict[str, TaughtPose]:
    """Parse the poses of several objects; see :func:`taught_from_text`.

    Raises:
        ConfigError: A text has another form, or two are of one object.
    """
    taught: dict[str, TaughtPose] = {}
    for name, pose in map(taught_from_text, texts):
        if name in taught:
            raise ConfigError(f"--object gives the pose of {name!r} twice; give each object one, by its own name")
        taught[name] = pose
    return taught


def taught_from_text(text: str) -> tuple[str, TaughtPose]:
    """Parse ``name=x,y,z`` or ``name=x,y,z,yaw`` [m, rad] from a command line.

    Raises:
        ConfigError: The text has another form.
    """
    name, _, numbers = text.partition("=")
    try:
        x, y, z, yaw = (*map(float, numbers.split(",")), 0.0)[:4] if name and numbers.count(",") in (2, 3) else ()
        if not all(map(isfinite, (x, y, z, yaw))):
            raise ValueError("not finite")
    except ValueError:
        raise ConfigError(f"--object {text!r} is not of the form name=x,y,z or name=x,y,z,yaw [m, rad]") from None
    return name, TaughtPose(position_m=(x, y, z), yaw_rad=yaw)
