"""The error in each joint: what joint actions must see, and be rewarded for, to learn as fast as tool actions.

A tool action moves towards a point that the policy sees. For a joint action, where the tool goes is to be learned
first, and there are spare joints, which nothing keeps from moving. The arm's kinematics, which the guard knows anyway,
solve both: they say how far each joint still has to go.
"""

import numpy as np

from td3robot.jit import kernel
from td3robot.layout import Field
from td3robot.robots.interface import RobotSpec
from td3robot.row_math import damped_inverse, dot, lengths
from td3robot.state import Array
from td3robot.tasks.interface import TaskState
from td3robot.tasks.shaping import progress

# Damping of the error, for postures in which the tool can hardly be moved along it [m/rad, 1].
DAMPING = 0.03
# Damping of the null space projection: small, so that going home does not move the tool [m/rad, 1].
HOME_DAMPING = 1e-3
# Scale on which the observation resolves the last part of each joint's error [rad]: 9 mm at 0.6 m from its axis.
NEAR = 0.015
# Mean change per joint in a second that earns the whole reward for progress: more than the tool's speed limit allows
# when joints near the base move [rad/s].
FULL_SPEED = 0.6
# Scale on which joints count as arrived, all errors together [rad], and as at rest [rad/s].
ARRIVED, SETTLED = 0.1, 0.05


@kernel
def ways_of(jacobians: Array, q: Array, home: Array, error: Array) -> Array:
    """Compute how far joints (m, n) have to go [rad]; see :class:`JointError`.

    Args:
        jacobians: (m, 6, n) of the commanded tools.
        q: (m, n) the commanded postures [rad].
        home: (n,) the posture at home [rad].
        error: (m, k) as in :meth:`JointError.of`.
    """
    found, size = np.empty(q.shape), error.shape[1]
    twist = np.empty(size)
    for row in range(len(q)):
        jacobian, spare = jacobians[row, :size], home - q[row]
        for axis in range(size):
            twist[axis] = dot(jacobian[axis], spare)
        taken = damped_inverse(jacobian, twist, HOME_DAMPING)
        way = damped_inverse(jacobian, error[row], DAMPING)
        for joint in range(len(home)):
            found[row, joint] = way[joint] + (spare[joint] - taken[joint])
    return found


class JointError:
    """Computes, lays out and scores the errors in joints, from the *commanded* postures of arms.

    With J the Jacobian of the commanded tool and d its distance to go, the joints' errors are ``J* d + (I - J* J)
    (home - q)``: damped least squares (Nakamura and Hanafusa 1986), and what remains free leads to the home posture
    (Liegeois 1977). So every joint has somewhere to rest, however many the arm has. It is exact near the goal, and a
    direction far from it.
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

    def of(self, state: TaskState, error: Array) -> Array:
        """Compute the errors (m, n) of joints [rad].

        Args:
            state: Its commanded postures count.
            error: (m, k) the commanded tools' errors along the first k rows of their Jacobians: x, y, z [m], then
                rotation about x, y, z [rad], in the base frame.
        """
        return ways_of(state.commanded_jacobian, state.commanded_q, self.home, error)

    def observe(self, state: TaskState, joints: Array) -> dict[str, Array]:
        """Return the values of ``fields`` for the joints' errors (m, n) [rad]."""
        return {
            "commanded_dq": state.commanded_dq,
            "joint_way": joints,
            "joint_way_near": np.tanh(joints / NEAR),
        }

    def progress(self, before: Array, after: Array) -> Array:
        """Score the joints' errors (m, n) before and after one period in [-1, 1], by their absolute values."""
        return progress(np.abs(before).sum(axis=1), np.abs(after).sum(axis=1), self.full)

    def rest(self, joints: Array, commanded_dq: Array) -> Array:
        """Score in [0, 1] that joints with errors (m, n) have arrived, and are commanded to rest (m, n) [rad/s]."""
        scores: Array = np.exp(-np.abs(joints).sum(axis=1) / ARRIVED - lengths(commanded_dq) / SETTLED)
        return scores
