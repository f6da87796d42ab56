"""Place: pick an object up, set it down at a goal on the table, open, and leave it there."""

from collections.abc import Mapping
from dataclasses import replace
from math import pi, radians
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from td3robot import geometry
from td3robot.config.objects import ObjectConfig
from td3robot.config.section import Box, NonNegative, Section
from td3robot.geometry import about_vertical
from td3robot.jit import plain
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import GripperModel, RobotSpec
from td3robot.row_math import lengths
from td3robot.state import Array, Pose
from td3robot.tasks.grasp import EDGES, Grasp, GraspConfig
from td3robot.tasks.grasp_formulas import OBJECT, GraspState
from td3robot.tasks.interface import (
    NOTHING_HELD,
    TOO_SHORT,
    Failure,
    Goal,
    Goals,
    Scores,
    TaskState,
    Transition,
    observe_robot,
    robot_fields,
)
from td3robot.tasks.place_formulas import (
    OBSERVED,
    RELEASE_HEIGHT_M,
    SLACK,
    PlaceNumbers,
    PlaceTerms,
    limit_ranges,
    observe_rows,
    place_rows,
    placed_rows,
)

# The hand is clear of the object with its fingertips this far above it, and goes this much further [m].
CLEAR_M, FURTHER_M = 0.02, 0.03
# In training, an episode ends once the object has lain at its goal for this long, with the hand away.
PRACTICE_HOLD_S = 1.0
# This share of practice at the object, of what begins with open fingers around it, begins at its goal: only to leave it
# is left to do. Otherwise policies that press a held object down at its goal never learn to rise.
LEAVE_SHARE = 0.5
# This share of practice at the object begins with it in the hand. A share of that begins next to the goal, up to so far
# beside it [m]; half of these with the object just off the table [m].
IN_HAND_SHARE, AT_GOAL_SHARE, BESIDE_GOAL_M, OFF_TABLE_M = 0.6, 0.4, 0.06, 0.003
# Draws until a goal is far enough from the object.
DRAWS = 1000


class PlaceRewards(Section):
    """Weights of the place task's reward terms; :class:`Place` has the formulas.

    Attributes:
        approach: Reward for progress of the tool down to the object.
        alignment: Reward for turning the tool to the object's heading and, once it is held, to its goal's.
        precision: Reward for keeping the tool where the object can be gripped.
        close: Reward for progress of the fingers around the object.
        grasp: Reward for closing on the object.
        push: Penalty on sliding the object over the table.
        press: Penalty on open fingers that come down on the object, or against it, from beside.
        carry: Reward for progress of the held object up, over, and down to its goal.
        near: Reward for a held object near its goal.
        release: Reward for fingers that open around an object at its goal.
        leave: Reward for progress of the hand up from it.
        placed: Reward for an object that lies at its goal, more the further the hand has left.
        smoothness: Penalty on changes of the action.
        guard: Penalty on steps that the guard changed.
    """

    approach: NonNegative = 4.0
    alignment: NonNegative = 5.0
    precision: NonNegative = 1.0
    close: NonNegative = 5.0
    grasp: NonNegative = 1.0
    push: NonNegative = 4.0
    press: NonNegative = 0.0
    carry: NonNegative = 8.0
    near: NonNegative = 6.0
    release: NonNegative = 4.0
    leave: NonNegative = 4.0
    placed: NonNegative = 4.0
    smoothness: NonNegative = 0.3
    guard: NonNegative = 0.1


class PlaceConfig(GraspConfig):
    """Pick an object up, set it down at a goal on the table, open, and leave it there.

    Attributes:
        lift_height_m: How far above the table the object is carried.
        hold_s: How long the object must lie at its goal, with the hand away, at the end of an episode.
        tolerance_m, tolerance_deg: Within this distance [m] and this turn of its goal, the object is there. A box that
            looks the same after half a turn, a square one after a quarter, may lie either way.
        object: What is picked up.
        any_object, joint_way: Not for this task.
    """

    name: Literal["place"] = "place"  # type: ignore[assignment]  # its own, not the grasp's
    object: ObjectConfig = ObjectConfig()
    lift_height_m: PositiveFloat = 0.08
    tolerance_m: PositiveFloat = 0.01
    tolerance_deg: PositiveFloat = 5.0
    any_object: None = None
    joint_way: Literal[False] = False
    rewards: PlaceRewards = PlaceRewards()  # type: ignore[assignment]  # its own, not the grasp's
    region: ClassVar[str] = "the task's patch, with start and way above it,"
    title: ClassVar[str] = "pick and place"
    achieved: ClassVar[str] = "placed"

    def space(self, table_height_m: float, gripper: GripperModel) -> Box:
        """Return the box that the tool must reach, in the base frame: from grasping to where it leaves the object."""
        box, top = super().space(table_height_m, gripper), self.size_high(gripper)
        return Box(low=box.low, high=(*box.high[:2], round(max(box.high[2], table_height_m + top), 6)))

    def size_high(self, gripper: GripperModel) -> float:
        """Return how far above the table the tool goes to leave the object [m]."""
        return self.item.size_m[2] + gripper.jaw.fingertips_m + CLEAR_M + FURTHER_M


class Place(Grasp):
    """Pick an object up, set it down at a goal on the table, open, and leave it there.

    What is asked of the hand has three stages: it *fetches* the object, as in the grasp task; it *carries* it while the
    object is held; and it *leaves* an object that lies at its goal. Reward terms, each times its weight:

    * ``approach``, ``press``: those of the grasp task, while fetching
    * ``close``, ``precision``, ``grasp``: those of the grasp task until the object lies at its goal, then 0, 1 and 1
    * ``alignment``: progress of the tool's turn to the object's heading while fetching, to its goal's while carrying
    * ``push``: minus the object's sideways speed as a share of full tool speed, while it is less than 10 mm above where
      it lay
    * ``carry``: progress of the held object along a funnel over its goal, ``lift_height_m`` high from 60 mm beside it
    * ``near``: half of ``exp(-(d / 100 mm)^2)``, plus half of ``exp(-(d / tolerance)^2) exp(-(turn / tolerance)^2)``;
      while carrying, d is the distance along the funnel, while leaving, the object's from its goal
    * ``release``: progress of the fingers' opening, while leaving
    * ``leave``: progress of the tool's way up, while leaving
    * ``placed``: while leaving, half, plus half of ``exp(-(way up that is left / 40 mm)^2)`` once the fingers are open;
      half of it if the object lies beyond the tolerances, and within twice of them, as far as a camera may be off
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the command
    """

    Config: ClassVar[type[PlaceConfig]] = PlaceConfig
    name = "place"
    takes_goal = True
    goal_form = "x,y[,yaw]"
    terms: ClassVar[tuple[str, ...]] = PlaceTerms._fields
    release_m: ClassVar[float] = RELEASE_HEIGHT_M

    def __init__(self, config: PlaceConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        super().__init__(config, spec, max_tcp_speed_m_s)
        item, jaw = config.item, spec.gripper.jaw
        self.practice_hold_steps = spec.periods(PRACTICE_HOLD_S)
        self._own = plain(
            PlaceNumbers(
                within_m=config.tolerance_m,
                within_rad=radians(config.tolerance_deg),
                carry_m=config.lift_height_m,
                clear_m=item.size_m[2] / 2 + jaw.fingertips_m + CLEAR_M,
                leave_m=item.size_m[2] / 2 + jaw.fingertips_m + CLEAR_M + FURTHER_M,
                release_m=self.release_m,
                is_cube=item.model(OBJECT).is_cube,
            )
        )
        self._within_m = config.tolerance_m
        # Nearer than this, the object's footprint may reach its goal's, however both are turned [m].
        self._apart_m = item.across_m
        xyz = ("x", "y", "z")
        self.layout = Layout(
            [
                *robot_fields(spec),
                Field("commanded_position", xyz, "m", "guard"),
                Field("commanded_yaw", ("cos", "sin"), "1", "guard"),
                Field("commanded_velocity", xyz, "m/s", "guard"),
                Field("commanded_turn_rate", ("yaw",), "rad/s", "guard"),
                Field("target_from_commanded", xyz, "m", "tracker"),
                Field("target_near", xyz, "1", "tracker"),
                Field("turn_left", ("yaw",), "rad", "tracker"),
                Field("turn_near", ("yaw",), "1", "tracker"),
                Field("object_height", ("z",), "1", "tracker"),
                Field("goal_from_object", xyz, "m", "tracker"),
                Field("gripper_intent", ("close",), "1", "guard"),
                Field("commanded_gripper", ("closed",), "1", "guard"),
                Field("closing_rate", ("closed",), "1/s", "gripper"),
                Field("held", ("held",), "1", "gripper"),
                Field("may_open", ("may_open",), "1", "tracker"),
                Field("placed", ("placed",), "1", "tracker"),
                Field("object_age", ("age",), "s", "tracker"),
            ]
        )

    @property
    def lifted_share(self) -> float:
        """Share of practice at the object that begins with it in the hand: what follows a grip takes as long again."""
        return IN_HAND_SHARE

    def to_json(self) -> dict[str, Any]:
        """Return the grasp's terms, the goal's tolerances, and how high the object is carried."""
        config = self.config
        assert isinstance(config, PlaceConfig)
        return super().to_json() | {
            "tolerance_m": config.tolerance_m,
            "tolerance_deg": config.tolerance_deg,
            "carry_m": config.lift_height_m,
        }

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample an object and a start as the grasp task does, and a goal on the patch, no nearer than its size.

        In practice, more goals are on the patch's edges. Where the object begins in the hand, a share of the goals is
        next to it, or below it just off the table, so that what follows a release is known early; where the tool begins
        around it, a share of the objects lies at its goal already.
        """
        goal = super().sample(rng, practice)
        lying, config = goal.objects[OBJECT], self.config
        low, high = np.array(config.patch_low), np.array(config.patch_high)
        wider = EDGES * (high - low) * practice
        place, heading, lift = lying.position[:2], rng.uniform(-pi, pi), goal.lift_m
        if lift > 0.0 and rng.random() < AT_GOAL_SHARE:
            place = np.clip(place + rng.uniform(-BESIDE_GOAL_M, BESIDE_GOAL_M, 2), low, high)
            if rng.random() < 0.5:
                place, lift = lying.position[:2], OFF_TABLE_M
                heading = geometry.yaw(lying.rotation) + rng.normal(0.0, 0.1)
        elif lift == 0.0 and goal.begins_at_object and rng.random() < LEAVE_SHARE:
            heading = geometry.yaw(lying.rotation)
        else:
            place = self._far_place(rng, lying.position[:2], low - wider, high + wider)
        position = np.array([*place, goal.position[2]])
        return replace(goal, position=position, rotation=about_vertical(heading), lift_m=lift)

    def _far_place(self, rng: np.random.Generator, lying: Array, low: Array, high: Array) -> Array:
        """Draw a place on the patch that is no nearer to the object than its size; ``low``..``high`` may be larger."""
        for _ in range(DRAWS):
            place = np.clip(rng.uniform(low, high), self.config.patch_low, self.config.patch_high)
            if np.linalg.norm(place - lying) >= self._apart_m:
                break
        return place

    def given(self, goal: Goal, numbers: Array) -> Goal:
        """Return a sampled goal with another place (x, y) [m] on the table, and another heading [rad]."""
        x, y, *turn = numbers
        (heading,) = turn or (0.0,)
        return replace(goal, position=np.array([x, y, goal.position[2]]), rotation=about_vertical(float(heading)))

    def objection(self, goal: Goal, objects: Mapping[str, Pose]) -> str | None:
        """Refuse a goal on which the object lies, in part, before it is picked up."""
        place, lying = goal.position[:2], objects[OBJECT].position[:2]
        apart = float(np.linalg.norm(place - lying))
        if apart >= self._apart_m or goal.begins_at_object:
            return None
        return (
            f"the goal {np.round(place, 3).tolist()} m is on top of the object, which lies {1e3 * apart:.0f} mm from "
            f"it at {np.round(lying, 3).tolist()} m; choose one at least {1e3 * self._apart_m:.0f} mm away, or move "
            "the object"
        )

    def rebase(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal at the height of the grasp point where the object lies."""
        height = objects[OBJECT].position[2] + self._numbers.raise_m
        return replace(goal, position=np.array([*goal.position[:2], height]), objects=objects)

    def observe(self, state: TaskState, goals: Goals) -> dict[str, Array]:
        """Return the robot's fields, the commanded tool pose and velocity, where it has to go, object and gripper.

        The *target* is the grasp point; then, once the object is held, the funnel over its goal; and once it lies
        there, the place above it where the hand has left it.
        """
        lay = goals.objects[OBJECT].position
        found = observe_rows(self._own, GraspState.of(state), *self._asked(state, goals), lay)
        return {
            **observe_robot(state),
            "commanded_position": state.commanded_position,
            "commanded_velocity": state.commanded_velocity,
            "commanded_turn_rate": state.commanded_turn_rate,
            "gripper_intent": state.intent,
            "commanded_gripper": state.commanded_gripper,
            "closing_rate": state.closing_rate,
            "held": state.held != NOTHING_HELD,
            **dict(zip(OBSERVED, found, strict=True)),
        }

    def score(self, transition: Transition) -> Scores:
        """Score one control period."""
        before, state, goals = transition.before, transition.state, transition.goals
        weighted, achieved, distance = place_rows(
            self._own, self._weights, GraspState.of(before), GraspState.of(state),
            *self._asked(state, goals), goals.objects[OBJECT].position, transition.action, transition.previous_action,
            transition.intervened,
        )  # fmt: skip
        return Scores(dict(zip(PlaceTerms._fields, weighted, strict=True)), achieved, distance)

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Tell an object that was never gripped, is held, lies elsewhere or askew, from a hand that has not left."""
        state, scores, within_m = transition.state, self.score(transition), self._within_m
        away = lengths(state.objects[OBJECT].position - state.tcp_position)
        placed = self._placed(state, transition.goals, 1.0)
        return [
            TOO_SHORT if scores.achieved[row]
            else Failure("not_left") if placed[row]
            else Failure("never_gripped", float(away[row])) if not gripped[row]
            else Failure("still_held", float(scores.distance_m[row])) if state.held[row] != NOTHING_HELD
            else Failure("askew") if scores.distance_m[row] <= within_m
            else Failure("misplaced", float(scores.distance_m[row]))
            for row in range(len(away))
        ]  # fmt: skip

    def gripper_range(self, state: TaskState, goals: Goals) -> tuple[Array, Array]:
        """Return the bounds of the grippers' next commands.

        As in the grasp task, but fingers may let go of an object at its goal, and do not close on it again.
        """
        least, most = super().gripper_range(state, goals)
        limit_ranges(self._own, GraspState.of(state), *self._asked(state, goals), least, most)
        return least, most

    def way_left(self, state: TaskState, goals: Goals) -> Array:
        """Return the way to the grip as in the grasp task; nothing once the object is held, or lies at its goal."""
        left: Array = np.where(self._placed(state, goals, SLACK), 0.0, super().way_left(state, goals))
        return left

    def _asked(self, state: TaskState, goals: Goals) -> tuple[Array, Array]:
        """Return where the objects' centres must end up (m, 3) [m], and how they must be turned there (m, 3, 3)."""
        return goals.position - np.array([0.0, 0.0, self._numbers.raise_m]), goals.rotation

    def _placed(self, state: TaskState, goals: Goals, slack: float) -> NDArray[np.bool_]:
        """Return whether objects (m,) lie at their goals, and are not held, within so many times the tolerances."""
        return placed_rows(self._own, GraspState.of(state), *self._asked(state, goals), slack)


TASKS.register("place", Place)
