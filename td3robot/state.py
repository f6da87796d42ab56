"""The plain values exchanged between robot, guard and environment.

Units are radians, metres and seconds. Positions and rotations are in the arm's base frame, which is also
the simulation's world frame (and UR's "Base" feature).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spatialmath import SE3

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RobotState:
    """The measured state of an arm with a gripper at one instant.

    Attributes:
        q: (n,) joint angles [rad].
        dq: (n,) joint velocities [rad/s].
        driver_q: (2,) gripper driver joints, right then left [rad]; 0 is open.
        stamp: Time of the measurement on the robot's own clock [s].
    """

    q: Array
    dq: Array
    driver_q: Array
    stamp: float


@dataclass(frozen=True, slots=True)
class JointCommand:
    """A joint target for the end of the next control period.

    Attributes:
        q: (n,) target joint angles [rad].
        gripper: Closed fraction of the gripper, 0 open to 1 closed.
    """

    q: Array
    gripper: float


@dataclass(frozen=True, slots=True)
class Pose:
    """A position (3,) [m] and a rotation (3, 3), both in the base frame.

    Loops work on the arrays; elsewhere, other robotics code expects spatialmath's ``SE3``.
    """

    position: Array
    rotation: Array

    def to_se3(self) -> "SE3":
        """Return the pose as spatialmath's ``SE3``, which the Robotics Toolbox uses."""
        from spatialmath import SE3

        return SE3.Rt(self.rotation, self.position, check=False)

    @classmethod
    def from_se3(cls, pose: "SE3") -> "Pose":
        """Return the pose of a spatialmath ``SE3``.

        Raises:
            ValueError: It contains several poses.
        """
        if len(pose) != 1:
            raise ValueError(f"an SE3 of {len(pose)} poses is given where one is wanted; choose one: pose[0]")
        return cls(pose.t.copy(), pose.R.copy())


@dataclass(frozen=True, slots=True)
class World:
    """One environment at a moment, as plain values for people, pictures and records.

    Attributes:
        robot: The measured state.
        tcp: Tool centre point, from the measured joint angles.
        tcp_velocity: (3,) linear velocity of the tool centre point [m/s].
        commanded: The command that the guard last let through.
        commanded_tcp: Tool centre point, from the commanded joint angles.
        objects: Poses of the objects by name, as far as they are known now.
        ages_s: Time since each of them was last seen, times the environment's pace, by name [s].
        held: The object between the fingers, or None.
    """

    robot: RobotState
    tcp: Pose
    tcp_velocity: Array
    commanded: JointCommand
    commanded_tcp: Pose
    objects: Mapping[str, Pose] = field(default_factory=dict)
    ages_s: Mapping[str, float] = field(default_factory=dict)
    held: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectModel:
    """A free object: ``box`` or upright ``cylinder``, full extents [m], mass [kg], sliding friction."""

    name: str
    shape: str
    size_m: tuple[float, float, float]
    mass_kg: float
    friction: float

    @property
    def is_cube(self) -> bool:
        """Whether it looks the same on whichever side it lies."""
        return self.shape == "box" and len(set(self.size_m)) == 1
