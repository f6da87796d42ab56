"""The grasp task of many environments at once."""

from math import pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import lengths, turns_down, yaws
from td3robot.state import Array
from td3robot.tasks import grasp
from td3robot.tasks.grasp import Grasp
from td3robot.tasks.interface import AT_REST, Goal
from td3robot.tasks.vectorized import Scores, Worlds, nearness, progress, ramp
from td3robot.tasks.vectorized.joint_way import VectorizedJointWay


class Measures(NamedTuple):
    """:class:`td3robot.tasks.grasp.Measures` of m environments, and what else a period begins with."""

    distance: Array
    turn: Array
    funnel: Array
    around: Array
    share: Array
    left: Array
    item: Array
    rotation: Array
    held: Array
    way: Array

    @property
    def open(self) -> Array:
        """How much of closing around the object is left to do, in [0, 1]."""
        return 1.0 - self.around * self.share


class VectorizedGrasp:
    """Observe and score m environments of a :class:`Grasp`."""

    def __init__(self, task: Grasp, count: int) -> None:
        self.task, self._t, config = task, task.terms(), task.config
        self._joints = VectorizedJointWay(task.joints)
        self._weights, self._slices = config.rewards, task.layout.slices
        self._target, self._seen_target = np.zeros((count, 3)), np.zeros((count, 3))
        self._lying = np.zeros(count)

    def begin(self, row: int, goal: Goal, seen: Goal) -> None:
        """Take over an episode's goal, and the goal as it is seen."""
        self._target[row], self._seen_target[row] = goal.position, seen.position
        self._lying[row] = goal.objects[grasp.OBJECT].position[2]

    def held(self, closed: Array, earlier: Array, commanded: Array) -> NDArray[np.bool_]:
        """Whether fingers, measured now and a moment ago, hold the object; see :meth:`Grasp.held`."""
        t = self._t
        rests = np.abs(closed - earlier) < AT_REST
        short = commanded - closed > grasp.SHORT_OF_COMMAND
        return rests & short & (0.8 * t.closed_on_object < closed) & (closed <= t.empty_beyond)

    def gripper_range(self, w: Worlds) -> Array:
        """The closed fractions (2, m) between which grippers may be commanded; see :meth:`Grasp.gripper_range`."""
        within, told = self.task.config.close_within_m, w.commanded_gripper
        if within is None:
            return np.array([np.zeros(len(w.q)), np.ones(len(w.q))])
        stopped = (w.stalled_s >= grasp.FAILED_S) & ~w.held & (w.closed > grasp.SHORT_OF_COMMAND)
        failed = (w.closed > self._t.empty_beyond) | ((told >= 1.0) & stopped)
        there = w.item_age_s <= grasp.SEEN_WITHIN_S
        for position, rotation in ((w.commanded_position, w.commanded_rotation), (w.position, w.rotation)):
            near = lengths(w.item + self._t.raised - position) <= within
            there &= near & (np.abs(self._turn(rotation, w)) <= grasp.TURNED)
        closes, opens = told >= 1.0, w.closed - told > grasp.SHORT_OF_COMMAND
        least = np.where(opens, told, np.where(~failed & closes, 1.0, 0.0))
        most = np.where(opens, told, np.where(failed, 0.0, np.where(closes | there, 1.0, told)))
        return np.array([least, most])

    def measure(self, w: Worlds, rows: NDArray[np.intp]) -> Measures:
        """Measure worlds."""
        t, point = self._t, w.item + self._t.raised
        distance = lengths(point - w.position)
        around = nearness(distance, grasp.AT_OBJECT) * nearness(self._turn(w.rotation, w), grasp.TURNED)
        beside = np.hypot(w.commanded_position[:, 0] - point[:, 0], w.commanded_position[:, 1] - point[:, 1])
        wanted = t.over * _funnel_share(beside)
        funnel = beside + np.abs(w.position[:, 2] - point[:, 2] - wanted)
        share = np.where(w.closed > t.empty_beyond, 0.0, ramp(w.closed, t.closed_on_object))
        turn = self._turn(w.commanded_rotation, w)
        left = lengths(self._target[rows] - w.item)
        way = self._way(w, self._target[rows]) if self.task.config.joint_way else np.zeros((len(rows), 0))
        return Measures(
            distance, turn, funnel, around, share, left, w.item, w.rotation, w.held.astype(np.float64), way
        )  # fmt: skip

    def score(
        self,
        before: Measures,
        now: Measures,
        w: Worlds,
        roughness: Array,
        intervened: NDArray[np.bool_],
        rows: NDArray[np.intp],
    ) -> Scores:
        """Score one control period; see :meth:`Grasp.score`."""
        t, weights, config = self._t, self._weights, self.task.config
        height = w.item[:, 2] - self._lying[rows]
        moved = w.item - before.item
        high = (now.distance <= grasp.IN_HAND) & (height >= config.lift_height_m)
        turned = np.arctan2(
            (w.rotation[:, 1] * before.rotation[:, 0]).sum(axis=1),
            (w.rotation[:, 0] * before.rotation[:, 0]).sum(axis=1),
        )
        at_rest = _speed(w.velocity, turned / t.period_s, grasp.TURN_RADIUS) <= config.rest_speed_m_s
        precision = nearness(lengths(w.item + t.raised - w.commanded_position), grasp.PRECISE)
        precision = precision * nearness(now.turn, grasp.TURNED)
        if config.close_within_m is not None:
            precision = precision * (w.commanded_gripper >= 1.0)
        pushed = np.minimum(np.hypot(moved[:, 0], moved[:, 1]) / t.step, 1.0)
        speed = _speed(w.commanded_velocity, w.commanded_turn_rate, t.turn_radius)
        slow = np.maximum(0.0, 1.0 - speed * t.period_s / t.step)
        still = grasp.SLOW_SHARE * slow + (1.0 - grasp.SLOW_SHARE) * np.exp(-speed / grasp.STILL)
        held = w.held.astype(np.float64)
        terms = {
            "approach": weights.approach * progress(before.funnel, now.funnel, t.funnel_slope * t.step),
            "alignment": weights.alignment * progress(np.abs(before.turn), np.abs(now.turn), t.full_turn),
            "precision": weights.precision * np.where(w.held, 1.0, precision),
            "close": weights.close * progress(before.open, now.open, 1.0),
            "grasp": weights.grasp * now.around * 0.5 * (now.share + held),
            "push": -weights.push * (height < grasp.LOW) * pushed,
            "press": -weights.press * (height < grasp.LOW) * self._pressing(w),
            "lift": weights.lift * (nearness(now.distance, grasp.AT_OBJECT) * np.maximum(0.0, 1.0 - now.left / t.lift)),
            "rise": weights.rise * progress(before.left, now.left, t.lift),
            "held": weights.held * high * nearness(now.left, grasp.AT_POINT) * still,
            "smoothness": -weights.smoothness * roughness,
            "guard": -weights.guard * intervened,
        }
        if config.joint_way:
            along = self._joints.progress(before.way, now.way)
            terms["joint_progress"] = weights.joint_progress * np.where(before.held == now.held, along, 0.0)
        return Scores(terms, high & w.held & at_rest, np.maximum(0.0, config.lift_height_m - height))

    def _pressing(self, w: Worlds) -> Array:
        """How far open fingers are in the object's way, in [0, 1]; see :meth:`Grasp._pressing`."""
        t = self._t
        if not self._weights.press:
            return np.zeros(len(w.q))
        way, wide = w.item - w.position, t.half_width
        across, along = (np.abs((way * w.rotation[:, :, axis]).sum(axis=1)) for axis in (0, 1))
        opening = t.half_stroke * (1.0 - ramp(w.closed, 1.0))
        beside = (across <= opening + grasp.FINGER_THICK + wide) & (along <= wide + grasp.FINGER_HALF_WIDTH)
        open_fingers = (w.commanded_gripper < 1.0) & ~w.held
        deep = w.item[:, 2] + t.half_height + grasp.ABOVE_TOP - (w.position[:, 2] - t.fingertips)
        over, low = ramp(across + wide - opening, grasp.PRESS_SCALE), ramp(deep, grasp.PRESS_SCALE)
        pressing: Array = beside * open_fingers * over * low
        return pressing

    def observe(self, w: Worlds, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the observations (m, size); see :meth:`Grasp.observe`."""
        t, at, target = self._t, self._slices, self._seen_target[rows]
        found = np.empty((len(w.q), self.task.layout.size))
        way = self._to_target(w, target)
        yaw = yaws(w.commanded_rotation)
        turn = np.where(w.held, 0.0, self._turn(w.commanded_rotation, w))
        found[:, at["q"]], found[:, at["driver_q"]] = w.q, w.drivers
        found[:, at["commanded_position"]] = w.commanded_position
        found[:, at["commanded_yaw"].start], found[:, at["commanded_yaw"].stop - 1] = np.cos(yaw), np.sin(yaw)
        found[:, at["commanded_velocity"]] = w.commanded_velocity
        found[:, at["target_from_commanded"]] = way
        found[:, at["target_near"]] = np.tanh(way / self.task.config.near_m)
        for name, value in (
            ("commanded_turn_rate", w.commanded_turn_rate),
            ("object_turn", turn),
            ("object_turn_near", np.tanh(turn / grasp.NEAR_TURN)),
            ("lift_left", np.tanh((target[:, 2] - w.item[:, 2]) / t.lift)),
            ("gripper_intent", w.intent),
            ("commanded_gripper", w.commanded_gripper),
            ("closing_rate", w.closing_rate),
            ("held", w.held),
            ("object_age", np.minimum(w.item_age_s, t.long_unseen)),
        ):
            found[:, at[name].start] = value
        if self.task.config.joint_way:
            self._joints.observe(found, at, w, self._way(w, target))
        return found.astype(np.float32)

    def _to_target(self, w: Worlds, target: Array) -> Array:
        """Compute the commanded tools' ways (m, 3) to the grasp points, or to where they hold the objects [m]."""
        return np.where(w.held[:, None], target + w.position - w.item, w.item + self._t.raised) - w.commanded_position

    def _way(self, w: Worlds, target: Array) -> Array:
        """Compute the ways (m, n) in joints; see :meth:`Grasp`."""
        way, turn, free = self._to_target(w, target), turns_down(w.commanded_rotation), ~w.held
        beside = np.hypot(way[:, 0], way[:, 1]) + grasp.TILT_RADIUS * lengths(turn)
        height = self._t.over * _funnel_share(beside)
        way[:, 2] += np.where(free, height, 0.0)
        turn[:, 2] = np.where(free, self._turn(w.commanded_rotation, w), turn[:, 2])
        return self._joints.of(w, np.concatenate([way, turn], axis=1))

    def _turn(self, rotations: Array, w: Worlds) -> Array:
        """Compute the smallest turns (m,) about the vertical that line the pads up with the objects [rad]."""
        symmetry = self.task.config.object.symmetry
        if symmetry == 0:
            return np.zeros(len(rotations))
        angle = yaws(w.item_rotation) + self._t.across - yaws(rotations)
        step = 2 * pi / symmetry
        turn: Array = (angle + step / 2) % step - step / 2
        return turn


def _funnel_share(beside: Array) -> Array:
    """Compute the funnel's heights (m,), as shares of its largest, beside the objects by so much [m]."""
    return ramp(beside - 0.01, grasp.FUNNEL_RADIUS)


def _speed(velocities: Array, turn_rates: Array, radius: float) -> Array:
    """Compute the speeds (m,) of tools, turning included [m/s]."""
    return lengths(velocities) + radius * np.abs(turn_rates)


VECTORIZED = VectorizedGrasp
