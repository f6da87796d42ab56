"""Objects that lie where a person said, in cells without a tracker."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Annotated

import numpy as np
from pydantic import Field

from td3robot.config.section import Section, Vector3
from td3robot.errors import ConfigError, choose
from td3robot.geometry import about_vertical
from td3robot.robots.object_bounds import ObjectBounds
from td3robot.robots.objects import Objects, Sighting
from td3robot.state import Pose


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


def taught_from_text(text: str) -> tuple[str, TaughtPose]:
    """Parse ``name=x,y,z`` or ``name=x,y,z,yaw`` [m, rad] from a command line.

    Raises:
        ConfigError: The text has another form.
    """
    name, equals, numbers = text.partition("=")
    try:
        x, y, z, yaw = (*map(float, numbers.split(",")), 0.0)[:4] if numbers.count(",") in (2, 3) else ()
    except ValueError:
        raise ConfigError(f"--object {text!r} is not of the form name=x,y,z or name=x,y,z,yaw [m, rad]") from None
    if not (name and equals and all(map(isfinite, (x, y, z, yaw)))):
        raise ConfigError(f"--object {text!r} is not of the form name=x,y,z or name=x,y,z,yaw [m, rad]")
    return name, TaughtPose(position_m=(x, y, z), yaw_rad=yaw)
