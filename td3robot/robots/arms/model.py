"""Arm models: kinematics, limits, servo, and how to make the MuJoCo model.

These are not a safety function: a robot's own safety configuration, on its pendant, lies outside them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import cos, sin, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from td3robot.errors import ConfigError
from td3robot.state import Array

if TYPE_CHECKING:
    import mujoco

# Damping over stiffness of the joints' motors in simulation [s]; see :class:`Servo`.
MOTOR_DAMPING_S = 0.1


class ServoLaw(NamedTuple):
    """How a joint follows its target: ``a = gain (target - q) - gain lookahead v``, as UR's ``servoj`` does.

    That is a mass on a spring, whose numbers are those that a client passes.

    Attributes:
        gain: Stiffness over inertia [1/s^2].
        lookahead_s: By how much a joint trails a steady target [s].
    """

    gain: float
    lookahead_s: float

    @property
    def damping(self) -> float:
        """The damping ratio; below 1 a joint overshoots."""
        return sqrt(self.gain) * self.lookahead_s / 2.0

    def varied(self, lag: float, damping: float) -> "ServoLaw":
        """Return the law with its lookahead time and its damping ratio multiplied by two factors."""
        return ServoLaw(self.gain * (damping / lag) ** 2, self.lookahead_s * lag)


# The law of a UR's `servoj` with ur_rtde's own arguments: gain and lookahead time. benchmarks/servo.py has a UR5e's.
UR_LAW = ServoLaw(300.0, 0.1)

# One elementary transform: its axis (`tx`, `ty`, `tz` [m], `Rx`, `Ry`, `Rz` [rad]) and its amount.
Step = tuple[str, float]
AXES = ("tx", "ty", "tz", "Rx", "Ry", "Rz")


@dataclass(frozen=True, slots=True)
class Chain:
    """A serial chain of revolute joints, each about the z axis of its frame.

    Attributes:
        links: n + 1 fixed transforms, each a sequence of elementary ones: from the base to the first joint's frame,
            from each joint to the next, and from the last joint to the flange.
    """

    links: tuple[tuple[Step, ...], ...]

    @classmethod
    def from_dh(
        cls, a: Sequence[float], d: Sequence[float], alpha: Sequence[float], offset_first: bool = False
    ) -> "Chain":
        """Return a chain from standard Denavit-Hartenberg parameters [m, m, rad]: ``Rz(q) tz(d) tx(a) Rx(alpha)``.

        With ``offset_first``, a joint's frame lies at the end of its offset d, as in URDF; the flange is the same.
        """
        before = [("tz", d_) for d_ in d]
        after = [(("tx", a_), ("Rx", alpha_)) for a_, alpha_ in zip(a, alpha, strict=True)]
        links: list[tuple[Step, ...]]
        if offset_first:
            links = [(before[0],), *((*x, z) for x, z in zip(after, before[1:], strict=False)), after[-1]]
        else:
            links = [(), *((z, *x) for z, x in zip(before, after, strict=True))]
        return cls(tuple(tuple(step for step in link if step[1] != 0) for link in links))

    @classmethod
    def from_modified_dh(
        cls, a: Sequence[float], d: Sequence[float], alpha: Sequence[float], flange_m: float
    ) -> "Chain":
        """Return a chain from Craig parameters [m, m, rad], ``Rx(alpha) tx(a) Rz(q) tz(d)`` and flange [m]."""
        before = [(("Rx", alpha_), ("tx", a_)) for a_, alpha_ in zip(a, alpha, strict=True)]
        after = [("tz", d_) for d_ in d]
        middle = [(after[i], *before[i + 1]) for i in range(len(d) - 1)]
        links = (before[0], *middle, (after[-1], ("tz", flange_m)))
        return cls(tuple(tuple(step for step in link if step[1] != 0) for link in links))

    def turned(self, angle: float) -> "Chain":
        """Return the chain with its flange's frame turned about its own z axis [rad]."""
        return Chain((*self.links[:-1], (*self.links[-1], ("Rz", angle))))

    @property
    def joints(self) -> int:
        """Number of joints."""
        return len(self.links) - 1

    def transforms(self) -> list[Array]:
        """Compute the n + 1 fixed transforms (4, 4) between the joints."""
        return [_product(link) for link in self.links]

    def flange(self, q: Array) -> Array:
        """Compute the flange's pose (4, 4) in the base frame at joint angles q (n,) [rad]."""
        first, *others = self.transforms()
        pose = first
        for angle, transform in zip(q, others, strict=True):
            pose = pose @ _elementary("Rz", float(angle)) @ transform
        return pose

    def tools(self, q: Array, offset_m: float) -> Array:
        """Compute the points (m, 3) [m] an offset beyond the flange, along its z axis, at m postures q (m, n) [rad]."""
        first, *others = self.transforms()
        poses = np.broadcast_to(first, (len(q), 4, 4))
        for joint, transform in enumerate(others):
            turns = np.tile(np.eye(4), (len(q), 1, 1))
            turns[:, 0, 0] = turns[:, 1, 1] = np.cos(q[:, joint])
            turns[:, 1, 0] = np.sin(q[:, joint])
            turns[:, 0, 1] = -turns[:, 1, 0]
            poses = poses @ turns @ transform
        points: Array = poses[:, :3, 3] + offset_m * poses[:, :3, 2]
        return points


def _product(steps: Sequence[Step]) -> Array:
    pose = np.eye(4)
    for axis, value in steps:
        pose = pose @ _elementary(axis, value)
    return pose


def _elementary(axis: str, value: float) -> Array:
    """Compute one elementary transform (4, 4)."""
    if axis not in AXES:
        raise ConfigError(f"{axis!r} is no elementary transform; a chain is made of {', '.join(AXES)}")
    matrix = np.eye(4)
    index = "xyz".index(axis[1])
    if axis[0] == "t":
        matrix[index, 3] = value
        return matrix
    i, j = (index + 1) % 3, (index + 2) % 3
    matrix[i, i] = matrix[j, j] = cos(value)
    matrix[j, i] = sin(value)
    matrix[i, j] = -sin(value)
    return matrix


@dataclass(frozen=True, slots=True)
class Servo:
    """How the joints follow their targets: by a law, which simulated motors keep to.

    Attributes:
        stiffness: (n,) of the simulated motors [N m/rad]. With damping ``stiffness * MOTOR_DAMPING_S``, a joint with
            inertia I returns from a disturbance without swinging if ``4 I <= stiffness * MOTOR_DAMPING_S**2``.
        law: The law by which the arm follows its targets.
        adjustable: Whether a client chooses the law's numbers, as a UR's does.
    """

    stiffness: tuple[float, ...]
    law: ServoLaw = UR_LAW
    adjustable: bool = False


@dataclass(frozen=True, slots=True)
class Region:
    """An axis-aligned box in the base frame, corner to corner [m]; for a table, only x and y count."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ArmModel:
    """A serial arm's kinematics and limits, and its MuJoCo model.

    Attributes:
        joint_names: From base to flange; the joints of the MuJoCo model have these names.
        chain: Kinematic chain from the base frame to the flange.
        lower, upper: (n,) joint position limits [rad].
        velocity: (n,) joint speed limits [rad/s].
        home: (n,) posture to start from [rad]; the tool points down, in front of the arm (+y).
        servo: How the simulated joints follow their targets.
        payload_kg: What the arm may carry at its flange, gripper included.
        regions: Named boxes: ``workspace`` for the guard, ``goals`` for reaching, ``patch`` where objects lie (x, y),
            and ``table`` (x, y).
        make_spec: Makes the MuJoCo model: joints in order, an actuator for each in the same order, a site
            ``attachment_site`` at the flange. Its world frame is the base frame.
        touching: Pairs of bodies that the guard does not keep apart: they share a housing, or the table.
        speed_envelope: (5, n) how joint speed limits fall towards the joints' ends, as :func:`joint_speed_limit` has
            it: lowest and highest joint angle [rad], deceleration [rad/s2], offset and tolerance [rad/s]; (0, n) if
            they are ``velocity`` everywhere.
        label: Display name, ``UR5e``; the arm's name by default.
    """

    name: str
    joint_names: tuple[str, ...]
    chain: Chain
    lower: Array
    upper: Array
    velocity: Array
    home: Array
    servo: Servo
    payload_kg: float
    regions: Mapping[str, Region]
    make_spec: Callable[[], "mujoco.MjSpec"]
    touching: tuple[tuple[str, str], ...] = ()
    speed_envelope: Array = field(default_factory=lambda: np.zeros((0, 0)))
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse inconsistent numbers.

        Raises:
            ConfigError: Naming the field, its size or value, and what is expected.
        """
        sizes = {name: len(getattr(self, name)) for name in ("joint_names", "lower", "upper", "velocity", "home")} | {
            "servo.stiffness": len(self.servo.stiffness)
        }
        for name, size in sizes.items():
            if size != self.chain.joints:
                raise ConfigError(
                    f"the arm {self.name!r} has {self.chain.joints} joints by its chain, and {size} in {name}"
                )
        if not ((self.lower < self.home) & (self.home < self.upper)).all():
            raise ConfigError(f"the home posture of the arm {self.name!r} is outside of its joint limits")
        for region in ("workspace", "goals", "patch", "table"):
            if region not in self.regions:
                raise ConfigError(
                    f"the arm {self.name!r} names no region {region!r}; say where it is, in its base frame"
                )

    def velocity_at(self, q: Array) -> tuple[Array, Array]:
        """Return the lowest and highest joint speeds (n,) [rad/s] that the arm allows at joint angles q (n,) [rad]."""
        limits = [
            joint_speed_limit(float(angle), float(fastest), self.speed_envelope, joint)
            for joint, (angle, fastest) in enumerate(zip(q, self.velocity, strict=True))
        ]
        return np.array([lowest for lowest, _ in limits]), np.array([highest for _, highest in limits])


def joint_speed_limit(angle: float, fastest: float, envelope: Array, joint: int) -> tuple[float, float]:
    """Return the lowest and highest speed [rad/s] of a joint at an angle [rad].

    libfranka's ``computeUpperLimitsJointVelocity``: ``min(cap, max(0, sqrt(2 deceleration (upper - q)) - offset)) -
    tolerance`` upwards, and its mirror image downwards. Beyond the range nothing may move further out.

    Args:
        angle: The joint angle.
        fastest: The cap [rad/s].
        envelope: (5, n) the other numbers; see :class:`ArmModel`. With (0, n), the cap holds everywhere.
        joint: Which joint.
    """
    if len(envelope) == 0:
        return -fastest, fastest
    lower, upper, deceleration, offset, tolerance = (
        envelope[0, joint], envelope[1, joint], envelope[2, joint], envelope[3, joint], envelope[4, joint],
    )  # fmt: skip
    up = sqrt(max(0.0, 2.0 * deceleration * (upper - angle))) - offset
    down = sqrt(max(0.0, 2.0 * deceleration * (angle - lower))) - offset
    highest, lowest = min(max(up, 0.0), fastest) - tolerance, tolerance - min(max(down, 0.0), fastest)
    return min(lowest, 0.0), max(highest, 0.0)
