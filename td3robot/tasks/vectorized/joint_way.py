"""The way that is left in joints, of many environments at once."""

import numpy as np

from td3robot.geometry import lengths, solve, times
from td3robot.state import Array
from td3robot.tasks.joint_way import ARRIVED, DAMPING, HOME_DAMPING, NEAR, SETTLED, JointWay
from td3robot.tasks.vectorized import Worlds, progress


class VectorizedJointWay:
    """What :class:`JointWay` computes, observes and scores, for m environments."""

    def __init__(self, way: JointWay) -> None:
        self._way = way

    def of(self, w: Worlds, way: Array) -> Array:
        """Compute the ways (m, n) of joints for the ways (m, k) of tools; see :meth:`JointWay.of`."""
        linear, unit = w.commanded_jacobian[:, : way.shape[1]], np.eye(way.shape[1])
        across = linear.transpose(0, 2, 1)
        gram, home = linear @ across, self._way.home - w.commanded_q
        free = home - times(across, solve(gram + HOME_DAMPING**2 * unit, times(linear, home)[..., None])[..., 0])
        return times(across, solve(gram + DAMPING**2 * unit, way[..., None])[..., 0]) + free

    def observe(self, found: Array, at: dict[str, slice], w: Worlds, joints: Array) -> None:
        """Write the observed fields into observations (m, size)."""
        found[:, at["commanded_dq"]] = w.commanded_dq
        found[:, at["joint_way"]] = joints
        found[:, at["joint_way_near"]] = np.tanh(joints / NEAR)

    def progress(self, before: Array, after: Array) -> Array:
        """Score the joints' ways (m, n) before and after one period."""
        return progress(np.abs(before).sum(axis=1), np.abs(after).sum(axis=1), self._way.full)

    def rest(self, joints: Array, commanded_dq: Array) -> Array:
        """Score that joints with ways (m, n) have arrived, and are commanded to rest (m, n) [rad/s]."""
        scores: Array = np.exp(-np.abs(joints).sum(axis=1) / ARRIVED - lengths(commanded_dq) / SETTLED)
        return scores
