"""The way that is left, in joints: what joint actions have to be told, and paid for, to learn as soon as tool actions.

A tool action moves towards a point that the policy sees. For a joint action, where the tool goes is to be learned
first, and there are spare joints, which nothing keeps from moving. The arm's kinematics, which the guard knows anyway,
solve both: they say how far each joint still has to go.
"""

from math import exp

import numpy as np
from numpy.typing import ArrayLike

from td3robot.geometry import length
from td3robot.layout import Field
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array, World
from td3robot.tasks.shaping import progress

# Damping of the way, for postures in which the tool can hardly be moved along it [m/rad, 1].
DAMPING = 0.03
# Damping of the null space projection: small, so that going home does not move the tool [m/rad, 1].
HOME_DAMPING = 1e-3
# Scale on which the observation resolves the last part of each joint's way [rad]: 9 mm at 0.6 m from its axis.
NEAR = 0.015
# Mean way per joint in a second that earns the whole reward for progress: more than the tool's speed limit allows when
# joints near the base move [rad/s].
FULL_SPEED = 0.6
# Scale on which joints count as arrived, all ways together [rad], and as at rest [rad/s].
ARRIVED, SETTLED = 0.1, 0.05


class JointWay:
    """Computes, lays out and scores the way that is left in joints, from the *commanded* posture of an arm.

    With J the Jacobian of the commanded tool and d its way, the joints' way is ``J* d + (I - J* J) (home - q)``: damped
    least squares (Nakamura and Hanafusa 1986), and what remains free leads to the home posture (Liegeois 1977). So
    every joint has somewhere to rest, however many the arm has. It is exact near the goal, and a direction far from it.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self.home = spec.arm.home
        self.full = len(self.home) * FULL_SPEED * spec.period_s
        names = spec.arm.joint_names
        self.fields = [
            Field("commanded_dq", names, "rad/s", "guard"),
            Field("joint_way", names, "rad", "kinematics"),
            Field("joint_way_near", names, "1", "kinematics"),
        ]

    def of(self, world: World, way: Array) -> Array:
        """Compute the way (n,) of each joint [rad].

        Args:
            world: Its commanded posture counts.
            way: (m,) the commanded tool's way along the first m rows of its Jacobian: x, y, z [m], then rotation about
                x, y, z [rad], in the base frame.
        """
        J = world.commanded_jacobian[: len(way)]
        gram, unit = J @ J.T, np.eye(len(way))
        home = self.home - world.commanded.q
        free = home - J.T @ np.linalg.solve(gram + HOME_DAMPING**2 * unit, J @ home)
        joints: Array = J.T @ np.linalg.solve(gram + DAMPING**2 * unit, way) + free
        return joints

    def observe(self, world: World, joints: Array) -> dict[str, ArrayLike]:
        """Return the values of ``fields`` for the joints' way (n,) [rad]."""
        return {
            "commanded_dq": world.commanded_dq,
            "joint_way": joints,
            "joint_way_near": np.tanh(joints / NEAR),
        }

    def progress(self, before: Array, after: Array) -> float:
        """Score the joints' ways (n,) before and after one period in [-1, 1], each joint's by its absolute value."""
        return progress(float(np.abs(before).sum()), float(np.abs(after).sum()), self.full)

    def rest(self, joints: Array, commanded_dq: Array) -> float:
        """Score in [0, 1] that joints with ways (n,) have arrived, and are commanded to rest (n,) [rad/s]."""
        return exp(-float(np.abs(joints).sum()) / ARRIVED - length(commanded_dq) / SETTLED)
