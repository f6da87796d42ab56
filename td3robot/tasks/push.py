"""Push: slide an object over the table to a goal, with the gripper closed; it may be too wide for the jaw."""

from collections.abc import Mapping
from dataclasses import replace
from math import pi
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat, model_validator

from td3robot.config.disturbance import DisturbanceConfig
from td3robot.config.objects import ObjectConfig
from td3robot.config.section import Box, NonNegative, Range, Section, UnitInterval, refused
from td3robot.config.task import TaskConfig
from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import ArmModel, GripperModel, RobotSpec
from td3robot.row_math import lengths
from td3robot.state import Array, ObjectModel, Pose
from td3robot.tasks.interface import (
    Failure,
    Goal,
    GoalPoints,
    Goals,
    Scores,
    Task,
    TaskState,
    Transition,
    observe_robot,
    robot_fields,
)
from td3robot.tasks.patch import require_on_table, require_room, require_start_above
from td3robot.tasks.shaping import nearness, progress, ramp, roughness

OBJECT = "object"
# Scale on which the observation resolves the last stretch [m].
NEAR_M = 0.03
# Closed fingers reach this far from the tool point to a side, and come down this far beside the object [m].
FINGERS_M, GAP_M = 0.022, 0.012
# The tool goes around the object above it: over a funnel that ends at the point from which it pushes. The funnel is
# flat within the first distance of that point, rises over the second, and ends so far above the object's top [m].
FLAT_M, FUNNEL_RADIUS_M, ABOVE_TOP_M = 0.012, 0.03, 0.02
# A tool that is lower than the object's top by the first distance is beside it: it may be as far ahead of the point
# from which it pushes as the second, touching the object, and its command ahead of it [m].
BELOW_TOP_M, AHEAD_M = 0.02, 0.035
# The fingertips overlap this much of a high object's side: above them, closed fingers widen to a wedge that would press
# the object's edge down and jam it. The tool is at least so far above where the gripper's lowest grasp is [m].
OVERLAP_M, ABOVE_LOWEST_M = 0.018, 0.006
# What has to be free around the patch, beside half of the object, for the hand to get behind it [m].
AROUND_M = 0.05
# The guard's workspace begins this far below the gripper's lowest grasp, as in the grasp task [m].
FLOOR_M = 0.006
# The arm's patch is narrowed by this on each side, so that the hand gets around objects at its edge [m].
NARROWER_M = 0.05
# An object nearer to its goal than this has nothing to be pushed [m].
NEAREST_M = 0.05
# In training, an episode ends once the object has lain at its goal for this long.
PRACTICE_HOLD_S = 1.0


class PushRewards(Section):
    """Weights of the push task's reward terms; :class:`Push` has the formulas.

    Attributes:
        approach: Reward for progress of the tool to where it pushes from.
        push: Reward for progress of the object to its goal.
        near: Reward for an object near its goal.
        placed: Reward for an object at rest at its goal.
        rest: Reward for commanding rest there.
        smoothness: Penalty on changes of the action.
        guard: Penalty on steps that the guard changed.
    """

    approach: NonNegative = 6.0
    push: NonNegative = 8.0
    near: NonNegative = 1.0
    placed: NonNegative = 2.0
    rest: NonNegative = 1.0
    smoothness: NonNegative = 0.1
    guard: NonNegative = 0.1


class PushConfig(TaskConfig):
    """Slide an object over the table to a goal, with the gripper closed.

    Attributes:
        patch_low, patch_high: Where on the table (x, y) [m] objects and goals lie.
        start_height_m: Range of the tool's height above the table at the start.
        tolerance_m: Within this distance of its goal, the object is there.
        settle_speed_m_s: Below this speed, the object counts as at rest.
        hold_s: How long the object must be there and at rest at the end of an episode.
        practice_share: Share of training episodes that begin with the tool where it pushes from.
    """

    name: Literal["push"] = "push"
    object: ObjectConfig = ObjectConfig(size_m=(0.1, 0.1, 0.05), mass_kg=0.3)
    patch_low: tuple[float, float] = (-0.15, 0.4)
    patch_high: tuple[float, float] = (0.15, 0.6)
    start_height_m: Range = (0.15, 0.25)
    tolerance_m: PositiveFloat = 0.015
    settle_speed_m_s: PositiveFloat = 0.02
    hold_s: PositiveFloat = 0.5
    practice_share: UnitInterval = 0.5
    rewards: PushRewards = PushRewards()
    region: ClassVar[str] = "the task's patch, with room for the hand around it,"
    title: ClassVar[str] = "push"
    achieved: ClassVar[str] = "pushed to the goal"

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        require_room(self.patch_low, self.patch_high)
        if np.hypot(*np.subtract(self.patch_high, self.patch_low)) < 3.0 * NEAREST_M:
            raise ValueError(
                f"the patch {self.patch_low}..{self.patch_high} m is too small: goals are at least {NEAREST_M:g} m "
                "from the object; widen patch_low and patch_high"
            )
        return self

    @classmethod
    def regions(cls, arm: ArmModel) -> dict[str, Any]:
        """Return the arm's patch of the table, narrowed for the hand."""
        region = arm.regions["patch"]
        low, high = (tuple(np.round(np.add(corner, side), 6).tolist()) for corner, side in (
            (region.low, NARROWER_M), (region.high, -NARROWER_M)))  # fmt: skip
        return {"patch_low": low, "patch_high": high}

    @classmethod
    def floor_m(cls, gripper: GripperModel) -> float:
        """Return the height from which on the tool may push."""
        return gripper.jaw.grasp_height_m - FLOOR_M

    def space(self, table_height_m: float, gripper: GripperModel) -> Box:
        """Return the box that the tool must reach, in the base frame: around the patch, from pushing to the start."""
        around = float(np.hypot(*self.object.size_m[:2])) / 2 + AROUND_M
        low, high = (np.round(np.add(corner, side), 6).tolist() for corner, side in (
            (self.patch_low, -around), (self.patch_high, around)))  # fmt: skip
        top = max(self.start_height_m[1], self.object.size_m[2] + gripper.jaw.fingertips_m + ABOVE_TOP_M)
        return Box(
            low=(*low, round(table_height_m + gripper.jaw.grasp_height_m, 6)),
            high=(*high, round(table_height_m + top, 6)),
        )

    def objects(self) -> tuple[ObjectModel, ...]:
        """Return the object."""
        return (self.object.model(OBJECT),)

    def require_fit(self, arm: ArmModel, gripper: GripperModel, disturbance: DisturbanceConfig) -> None:
        """Refuse a patch off the table, and an object that the closed fingers pass over."""
        height, jaw = self.object.size_m[2], gripper.jaw
        require_on_table(self.patch_low, self.patch_high, arm)
        if height < jaw.min_height_m:
            raise refused(
                f"the object is {1e3 * height:g} mm high, and the fingers push nothing lower than "
                f"{1e3 * jaw.min_height_m:g} mm",
                "task",
                "object",
            )
        require_start_above(self.start_height_m[0], height, jaw)


class Measures(NamedTuple):
    """The quantities that score m rows of a state.

    Attributes:
        left: (m, 2) from the object to its goal [m].
        distance: (m,) their length [m].
        way: (m, 3) from the commanded tool to the funnel over the point that it pushes from [m].
        funnel: (m,) its distance from that point along the funnel [m].
    """

    left: Array
    distance: Array
    way: Array
    funnel: Array


class Push(Task):
    """Slide an object to a goal with closed fingers.

    The tool pushes from behind: its point is on the line from the goal through the object's centre, 12 mm before the
    fingers meet the object's side. With d the object's distance from its goal, the reward terms, each times its weight,
    are:

    * ``approach``: progress of the commanded tool to that point, over a funnel that leads around the object from above;
      0 once the object is within half of its tolerance
    * ``push``: progress of d as a share of full tool speed
    * ``near``: ``exp(-(d / 50 mm)^2)``
    * ``placed``: 1 if d is within the tolerance and the object is at rest
    * ``rest``: ``exp(-(d / tolerance)^2)`` times ``exp(-commanded tool speed / 20 mm/s)``
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the command
    """

    Config = PushConfig
    name = "push"
    uses_gripper = False
    turns_tool = False
    goal_form = "x,y"
    goal_fields = ("behind_from_commanded", "behind_near", "goal_from_object", "goal_near")
    gripper_kept = 1.0

    def __init__(self, config: PushConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        self.config, self._period_s = config, spec.period_s
        jaw, item = spec.gripper.jaw, config.object
        self.full_progress = max_tcp_speed_m_s * spec.period_s
        self.hold_steps = spec.periods(config.hold_s)
        self.practice_hold_steps = spec.periods(PRACTICE_HOLD_S)
        self._table, self._at, self._fingertips = spec.table_height_m, pushing_height(spec, config), jaw.fingertips_m
        self._over_m = max(0.0, self._table + item.size_m[2] + jaw.fingertips_m + ABOVE_TOP_M - self._at)
        self._half, self._round = np.array(item.size_m[:2]) / 2, item.shape == "cylinder"
        # Largest change of the funnel's distance per tool travel, so that its progress is never clipped on one side.
        self._slope = 2.0 + self._over_m / FUNNEL_RADIUS_M * (1.0 + AHEAD_M / BELOW_TOP_M)
        self._top = spec.table_height_m + item.size_m[2]
        self._symmetry = item.symmetry or 1
        xyz, xy = ("x", "y", "z"), ("x", "y")
        self.layout = Layout(
            [
                *robot_fields(spec),
                Field("commanded_position", xyz, "m", "guard"),
                Field("commanded_velocity", xyz, "m/s", "guard"),
                Field("commanded_from_tcp", xyz, "m", "guard"),
                Field("behind_from_commanded", xyz, "m", "tracker"),
                Field("behind_near", xyz, "1", "tracker"),
                Field("object_from_commanded", xyz, "m", "tracker"),
                Field("goal_from_object", xy, "m", "tracker"),
                Field("goal_near", xy, "1", "tracker"),
                Field("object_heading", ("cos", "sin"), "1", "tracker"),
                Field("object_age", ("age",), "s", "tracker"),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the name, the object's shape, and the scale of the ``near`` fields."""
        return {"name": self.name, "near_m": NEAR_M, "object": self.config.object.model_dump(mode="json")}

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample the object's position and yaw, its goal, and the tool's start above the patch.

        In practice, a share of the episodes begins with the tool near the point from which it pushes.
        """
        config = self.config
        place, goal = (rng.uniform(config.patch_low, config.patch_high) for _ in range(2))
        while np.linalg.norm(goal - place) < NEAREST_M:
            goal = rng.uniform(config.patch_low, config.patch_high)
        start = np.array([*rng.uniform(config.patch_low, config.patch_high), self._table])
        start[2] += rng.uniform(*config.start_height_m)
        turned, lying = about_vertical(rng.uniform(-pi, pi)), self._table + config.object.size_m[2] / 2
        if practice and rng.random() < config.practice_share:
            away = (place - goal) / np.linalg.norm(place - goal)
            reach = self._reach(away[None], turned[None])[0] + rng.uniform(0.0, 0.02)
            start = np.array([*(place + reach * away), self._at + rng.uniform(0.0, 0.02)])
        objects = {OBJECT: Pose(np.array([*place, lying]), turned)}
        return Goal(np.array([*goal, self._at]), start, gripper=self.gripper_kept, objects=objects)

    def given(self, goal: Goal, numbers: Array) -> Goal:
        """Return a sampled goal with another place (x, y) [m] on the table.

        Raises:
            ValueError: There are more numbers, or fewer.
            ConfigError: The place is outside the patch.
        """
        x, y = numbers
        low, high = self.config.patch_low, self.config.patch_high
        if not (low[0] <= x <= high[0] and low[1] <= y <= high[1]):
            raise ConfigError(
                f"the goal {np.round(numbers, 3).tolist()} m is outside {low}..{high} m, for which the policy was "
                "trained"
            )
        return replace(goal, position=np.array([x, y, goal.position[2]]))

    def objection(self, goal: Goal, objects: Mapping[str, Pose]) -> str | None:
        """Refuse a goal at which the object lies already."""
        place, lying = goal.position[:2], objects[OBJECT].position[:2]
        apart = float(np.linalg.norm(place - lying))
        if apart >= NEAREST_M:
            return None
        return (
            f"the goal {np.round(place, 3).tolist()} m is on top of the object, which lies {1e3 * apart:.0f} mm from "
            f"it at {np.round(lying, 3).tolist()} m; choose one at least {1e3 * NEAREST_M:.0f} mm away, or move the "
            "object"
        )

    def rebase(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal with the objects where they lie."""
        return replace(goal, objects=objects)

    def observe(self, state: TaskState, goals: Goals) -> dict[str, Array]:
        """Return the robot's fields, the commanded tool, the point that it pushes from, the object and its goal."""
        item, commanded, now = state.objects[OBJECT], state.commanded_position, self._measures(state, goals)
        heading = self._symmetry * np.arctan2(item.rotation[:, 1, 0], item.rotation[:, 0, 0]) * (not self._round)
        return {
            **observe_robot(state),
            "commanded_position": commanded,
            "commanded_velocity": state.commanded_velocity,
            "commanded_from_tcp": commanded - state.tcp_position,
            "behind_from_commanded": now.way,
            "behind_near": np.tanh(now.way / NEAR_M),
            "object_from_commanded": item.position - commanded,
            "goal_from_object": now.left,
            "goal_near": np.tanh(now.left / NEAR_M),
            "object_heading": np.stack([np.cos(heading), np.sin(heading)], axis=1),
            "object_age": np.minimum(item.age_s, 1.0),
        }

    def score(self, transition: Transition) -> Scores:
        """Score one control period."""
        config, weights = self.config, self.config.rewards
        before, state, goals = transition.before, transition.state, transition.goals
        was, now = self._measures(before, goals), self._measures(state, goals)
        moved = lengths(state.objects[OBJECT].position - before.objects[OBJECT].position)
        goes_on = np.minimum(was.distance, now.distance) > config.tolerance_m / 2
        at_rest = moved <= config.settle_speed_m_s * self._period_s
        still = np.exp(-lengths(state.commanded_velocity) / config.settle_speed_m_s)
        achieved = (now.distance <= config.tolerance_m) & at_rest
        terms = {
            "approach": weights.approach * goes_on * progress(was.funnel, now.funnel, self._slope * self.full_progress),
            "push": weights.push * progress(was.distance, now.distance, self.full_progress),
            "near": weights.near * nearness(now.distance, 0.05),
            "placed": weights.placed * achieved,
            "rest": weights.rest * nearness(now.distance, config.tolerance_m) * still,
            "smoothness": -weights.smoothness * roughness(transition.action, transition.previous_action),
            "guard": -weights.guard * transition.intervened,
        }
        return Scores(terms, achieved, now.distance)

    def goal_points(self, state: TaskState, goals: Goals) -> GoalPoints:
        """Return where objects are on the table, and where they are asked for (m, 2)."""
        return GoalPoints(state.objects[OBJECT].position[:, :2], goals.position[:, :2], self.config.tolerance_m)

    def way_left(self, state: TaskState, goals: Goals) -> Array:
        """Return the object's way to its goal and the tool's to where it pushes; nothing within the tolerance."""
        now = self._measures(state, goals)
        return np.where(now.distance <= self.config.tolerance_m, 0.0, now.distance + now.funnel)

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Tell an object that is away from its goal from one that still moves there."""
        found, within = super().failures(transition, gripped), self.config.tolerance_m
        return [
            Failure("too_fast") if each.distance_m is not None and each.distance_m <= within else each for each in found
        ]

    def _reach(self, away: Array, rotation: Array) -> Array:
        """Return how far from the object's centre (m,), along level directions (m, 2), the tool comes down [m]."""
        if self._round:
            return np.full(len(away), self._half[0] + FINGERS_M + GAP_M)
        along = np.abs(np.einsum("mji,mj->mi", rotation[:, :2, :2], away))
        found: Array = np.min(self._half / np.maximum(along, 1e-6), axis=1) + FINGERS_M + GAP_M
        return found

    def _measures(self, state: TaskState, goals: Goals) -> Measures:
        """Measure rows of a state."""
        item, commanded = state.objects[OBJECT], state.commanded_position
        left = goals.position[:, :2] - item.position[:, :2]
        distance = lengths(left)
        away = -left / np.maximum(distance, 1e-6)[:, None]
        behind = item.position[:, :2] + self._reach(away, item.rotation)[:, None] * away
        level = behind - commanded[:, :2]
        low = self._top + self._fingertips - commanded[:, 2]
        ahead = np.minimum(np.maximum(_dots(level, away), 0.0), AHEAD_M * ramp(low, BELOW_TOP_M))
        beside = lengths(level - ahead[:, None] * away)
        height = self._at + self._over_m * ramp(beside - FLAT_M, FUNNEL_RADIUS_M) - commanded[:, 2]
        way = np.concatenate([level, height[:, None]], axis=1)
        return Measures(left, distance, way, beside + np.abs(height))


def pushing_height(spec: RobotSpec, config: PushConfig) -> float:
    """Return at which height the tool pushes, in the base frame [m]."""
    jaw = spec.gripper.jaw
    above = config.object.size_m[2] + jaw.fingertips_m - OVERLAP_M
    return spec.table_height_m + max(above, jaw.grasp_height_m + ABOVE_LOWEST_M)


def _dots(one: Array, other: Array) -> Array:
    """Return the sums of the products of vectors (m, 2)."""
    return one[:, 0] * other[:, 0] + one[:, 1] * other[:, 1]


TASKS.register("push", Push)
