"""The reach task of many environments at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import lengths, turns_down
from td3robot.state import Array
from td3robot.tasks.interface import Goal
from td3robot.tasks.reach import Reach
from td3robot.tasks.vectorized import Scores, Worlds, nearness, progress
from td3robot.tasks.vectorized.joint_way import VectorizedJointWay


class Measures(NamedTuple):
    """What a period begins with: the commanded tools' distances (m,) from their goals [m], and the ways in joints."""

    commanded: Array
    way: Array


class VectorizedReach:
    """Observe and score m environments of a :class:`Reach`."""

    def __init__(self, task: Reach, count: int) -> None:
        self.task, self._slices, self._joints = task, task.layout.slices, VectorizedJointWay(task.joints)
        self._target = np.zeros((count, 3))

    def begin(self, row: int, goal: Goal, seen: Goal) -> None:
        """Take over an episode's goal."""
        self._target[row] = goal.position

    def held(self, closed: Array, earlier: Array, commanded: Array) -> NDArray[np.bool_]:
        """Return that nothing is held."""
        return np.zeros(len(closed), np.bool_)

    def measure(self, w: Worlds, rows: NDArray[np.intp]) -> Measures:
        """Measure worlds."""
        way = self._target[rows] - w.commanded_position
        distance = lengths(way)
        if not self.task.config.joint_way:
            return Measures(distance, np.zeros((len(rows), 0)))
        way = np.concatenate([way, turns_down(w.commanded_rotation)[:, :2]], axis=1)
        return Measures(distance, self._joints.of(w, way))

    def score(
        self,
        before: Measures,
        now: Measures,
        w: Worlds,
        roughness: Array,
        intervened: NDArray[np.bool_],
        rows: NDArray[np.intp],
    ) -> Scores:
        """Score one control period; see :meth:`Reach.score`."""
        config, weights = self.task.config, self.task.config.rewards
        distance = lengths(self._target[rows] - w.position)
        achieved = (distance <= config.tolerance_m) & (lengths(w.velocity) <= config.settle_speed_m_s)
        near = nearness(distance, config.tolerance_m)
        still = np.exp(-lengths(w.commanded_velocity) / config.settle_speed_m_s)
        terms = {
            "progress": weights.progress * progress(before.commanded, now.commanded, self.task.full_progress),
            "precision": weights.precision * near,
            "settled": weights.settled * achieved,
            "rest": weights.rest * near * still,
            "smoothness": -weights.smoothness * roughness,
            "guard": -weights.guard * intervened,
        }
        if config.joint_way:
            terms["joint_progress"] = weights.joint_progress * self._joints.progress(before.way, now.way)
            terms["joint_rest"] = weights.joint_rest * self._joints.rest(now.way, w.commanded_dq)
        return Scores(terms, achieved, distance)

    def observe(self, w: Worlds, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the observations (m, size); see :meth:`Reach.observe`."""
        at, target = self._slices, self._target[rows]
        found = np.empty((len(w.q), self.task.layout.size))
        found[:, at["q"]], found[:, at["driver_q"]] = w.q, w.drivers
        found[:, at["tcp_position"]] = w.position
        found[:, at["goal_from_tcp"]] = target - w.position
        found[:, at["commanded_from_tcp"]] = w.commanded_position - w.position
        found[:, at["goal_near"]] = np.tanh((target - w.commanded_position) / self.task.config.near_m)
        if self.task.config.joint_way:
            self._joints.observe(found, at, w, self.measure(w, rows).way)
        return found.astype(np.float32)


VECTORIZED = VectorizedReach
