"""Grasp: close on an object on the table, lift it, and hold it at rest."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, pi
from types import NoneType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat, model_validator

from td3robot.config.disturbance import DisturbanceConfig
from td3robot.config.objects import AnyObjectConfig, ObjectConfig
from td3robot.config.section import Box, NonNegative, Range, Section, UnitInterval, refused
from td3robot.config.task import TaskConfig
from td3robot.geometry import about_vertical
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import ArmModel, GripperModel, Jaw, RobotSpec
from td3robot.row_math import lengths
from td3robot.state import Array, ObjectModel, Pose
from td3robot.tasks.grasp_formulas import (
    FUNNEL_HEIGHT,
    FUNNEL_RADIUS,
    IN_HAND,
    NEAR_M,
    OBJECT,
    OBSERVED,
    SEEN_WITHIN_S,
    GraspState,
    Numbers,
    Terms,
    gripper_ranges,
    held_rows,
    joint_goals_of,
    lowest_rows,
    observe_rows,
    score_rows,
    ways_left,
)
from td3robot.tasks.interface import (
    NOTHING_HELD,
    TOO_SHORT,
    Failure,
    Goal,
    Goals,
    Scores,
    Task,
    TaskState,
    Transition,
    observe_robot,
    robot_fields,
)
from td3robot.tasks.joint_error import JointError
from td3robot.tasks.patch import require_on_table, require_room, require_start_above

# The hold point is this far above the height that counts as lifted [m].
ABOVE = 0.03
# The guard's workspace begins this far below the lowest grasp [m]: actions slide along its wall, WALL_MARGIN above it,
# and the fingers clear the table there. Where the fingers meet their clearance first, the guard stops the whole arm.
FLOOR = 0.006
# Practice begins between these heights above the grasp point [m].
PRACTICE_HEIGHT = (0.004, 0.034)
# To begin with the object in the hand, a share of the offset from the grasp point, and at most this turn [rad], so that
# the fingers hold it; and a share of the way up.
GRIPPED, GRIPPED_TURN, LIFTED = 0.3, 0.2, (0.1, 0.9)
# In training, the patch is widened by this share on each side, and samples beyond it are clipped to its edge: with data
# on one side only, a policy is worst at the edges.
EDGES = 0.1
# Clearance between object and open jaw at which the full practice offset fits [m].
PRACTICE_ROOM = 0.04
# In training, an episode ends once the object was held for this long without a break: the next object teaches more.
# This share of the episodes goes on to its end instead, so that a policy learns to hold on.
PRACTICE_HOLD_S, PRACTICE_WHOLE_SHARE = 3.0, 0.25
# Practice begins this far beside the grasp point at most, across the pads and along them [m], with the tool turned from
# the object by at most this [rad]; around a wide object less, so that the open fingers are not inside it. This share of
# it begins with the object in the hand, lifted some way.
PRACTICE_OFFSET_M, PRACTICE_TURN_RAD, PRACTICE_LIFTED_SHARE = (0.012, 0.02), 0.785, 0.2
# Fingers closed further than this hold nothing: softer or smaller objects than expected stop them before. For thin
# objects the bound is half-way to the closed fraction of an empty grip, less bias and noise.
EMPTY, ON_NOTHING = 0.9, 0.965


# What is told of an object where it may be another in every episode: across the pads, along them and upwards.
OBJECT_FIELDS = (
    Field("object_size", ("across", "along", "up"), "m", "task"),
    Field("object_is_round", ("round",), "1", "task"),
)


class GraspRewards(Section):
    """Weights of the grasp task's reward terms; :class:`Grasp` has the formulas.

    Attributes:
        approach: Reward for progress of the tool down to the object.
        alignment: Reward for turning the tool to an orientation in which the object can be gripped.
        precision: Reward for keeping the tool where the object can be gripped.
        close: Reward for progress of the fingers around the object.
        grasp: Reward for closing on the object.
        push: Penalty on sliding the object over the table.
        press: Penalty on open fingers that come down on the object, or against it, from beside.
        lift: Reward for an object near its hold point.
        rise: Reward for progress of the object to its hold point.
        held: Reward for holding it there at rest.
        smoothness: Penalty on changes of the action.
        guard: Penalty on steps that the guard changed.
        joint_progress: Reward for progress of every joint, with ``joint_way``.
    """

    approach: NonNegative = 4.0
    alignment: NonNegative = 5.0
    precision: NonNegative = 1.0
    close: NonNegative = 5.0
    grasp: NonNegative = 1.0
    push: NonNegative = 4.0
    press: NonNegative = 0.0
    lift: NonNegative = 2.0
    rise: NonNegative = 20.0
    held: NonNegative = 4.0
    smoothness: NonNegative = 0.3
    guard: NonNegative = 0.1
    joint_progress: NonNegative = 5.0


def misfit(item: ObjectConfig, jaw: Jaw) -> str | None:
    """Return which bound of a jaw the object's size or mass exceeds, as a sentence, or None if it fits."""
    width, height = item.grip_width_m, item.size_m[2]
    lowest = jaw.lowest_m(width)
    if width > jaw.widest_m:
        return (
            f"the object is {1e3 * width:g} mm wide where it is gripped, and the jaw takes at most "
            f"{1e3 * jaw.widest_m:g} mm; choose a smaller object, or the task push"
        )
    if width < jaw.min_width_m:
        return (
            f"the object is {1e3 * width:g} mm wide where it is gripped, and below "
            f"{1e3 * jaw.min_width_m:g} mm the gripper's drivers cannot tell it from nothing"
        )
    if height < lowest:
        wide = "" if lowest == jaw.min_height_m else f" that is {1e3 * width:g} mm wide"
        return (
            f"the object is {1e3 * height:g} mm high, and the fingers grasp nothing{wide} lower than "
            f"{ceil(round(1e4 * lowest, 6)) / 10:g} mm"
        )
    if height > jaw.max_height_m:
        return (
            f"the object is {1e3 * height:g} mm high, and the fingers reach down to the middle of at most "
            f"{1e3 * jaw.max_height_m:g} mm"
        )
    if item.mass_kg > jaw.payload_kg:
        return f"the object's {item.mass_kg:g} kg are above the gripper's payload of {jaw.payload_kg:g} kg"
    return None


def over(height_m: float, jaw: Jaw) -> float:
    """Return how far above the grasp point the tool should be beside an object of a height, to clear it [m]."""
    return max(FUNNEL_HEIGHT, height_m / 2 + jaw.fingertips_m)


def empty_beyond(closed_on_object: float) -> float:
    """Return the closed fraction beyond which fingers hold nothing, if the object should stop them at this one."""
    return max(EMPTY, (closed_on_object + ON_NOTHING) / 2)


class GraspConfig(TaskConfig):
    """Close on an object on the table, lift it, and hold it at rest.

    Attributes:
        object: What lies on the table; null with ``any_object``, which is the default there: every episode has another.
        any_object: What objects a policy is for. It observes how large its object is, and whether it is round.
        patch_low, patch_high: Where on the table (x, y) [m] objects lie.
        start_height_m: Range of the tool's height above the table at the start.
        lift_height_m: How far the object must be lifted.
        hold_s: How long the object must be held at the end of an episode.
        close_within_m: Whatever the action asks of it, the gripper begins to close only where the tool, commanded and
            measured, is this near to the grasp point and turned as the object to within 0.3 rad, and only if the object
            was seen in the last 4 s; then it closes until it holds the object or fails, and opens if it failed.
        joint_way: Whether to observe how far each joint has to go, and to reward it, for ``joint_delta``.
        practice_share: Share of training episodes that begin with the tool around the object, so that closing and
            lifting are practised before the approach is learned; evaluations have none.
    """

    name: Literal["grasp"] = "grasp"
    object: ObjectConfig | None = ObjectConfig()
    any_object: AnyObjectConfig | None = None
    patch_low: tuple[float, float] = (-0.2, 0.35)
    patch_high: tuple[float, float] = (0.2, 0.65)
    start_height_m: Range = (0.15, 0.3)
    lift_height_m: PositiveFloat = 0.1
    hold_s: PositiveFloat = 0.5
    close_within_m: PositiveFloat = 0.02
    joint_way: bool = False
    practice_share: UnitInterval = 0.5
    rewards: GraspRewards = GraspRewards()
    region: ClassVar[str] = "the task's patch, with start and lift above it,"
    title: ClassVar[str] = "grasp and lift"
    achieved: ClassVar[str] = "lifted and held"

    @model_validator(mode="before")
    @classmethod
    def _any_object_is_drawn(cls, values: Any) -> Any:
        """Draw the object, unless it is given."""
        if isinstance(values, Mapping) and values.get("any_object") is not None:
            if cls.model_fields["any_object"].annotation is NoneType:
                raise refused("it is for the task grasp, and this task has one object; leave it out", "any_object")
            return {"object": None, **values}
        return values

    @model_validator(mode="after")
    def _has_an_object(self) -> Self:
        if self.object is None and self.any_object is None:
            raise ValueError("object is null, and only any_object draws one; give the object's shape and size_m")
        return self

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        require_room(self.patch_low, self.patch_high)
        return self

    @property
    def item(self) -> ObjectConfig:
        """The object; of those that are drawn, the largest."""
        if self.object is not None:
            return self.object
        assert self.any_object is not None, "there is one or the other"
        return self.any_object.largest

    @property
    def typical(self) -> ObjectConfig | None:
        """The object of middling size, if every episode has another."""
        return self.any_object.middle if self.object is None and self.any_object is not None else None

    @classmethod
    def regions(cls, arm: ArmModel) -> dict[str, Any]:
        """Return the arm's patch of the table."""
        return {"patch_low": arm.regions["patch"].low, "patch_high": arm.regions["patch"].high}

    @classmethod
    def floor_m(cls, gripper: GripperModel) -> float:
        """Return the height from which on the tool may grasp, and is kept off the table by the workspace's wall."""
        return gripper.jaw.grasp_height_m - FLOOR

    def space(self, table_height_m: float, gripper: GripperModel) -> Box:
        """Return the box that the tool must reach, in the base frame: from grasping to above the lift."""
        lowest = gripper.jaw.grasp_height_m
        low = table_height_m + lowest
        lifted = max(lowest, self.item.size_m[2] / 2) + self.lift_height_m
        high = table_height_m + max(self.start_height_m[1], lifted)
        return Box(low=(*self.patch_low, round(low, 6)), high=(*self.patch_high, round(high, 6)))

    def objects(self) -> tuple[ObjectModel, ...]:
        """Return the object."""
        return (self.item.model(OBJECT),)

    def require_fit(self, arm: ArmModel, gripper: GripperModel, disturbance: DisturbanceConfig) -> None:
        """Refuse a patch off the table, and an object that the gripper cannot pick up or the arm cannot carry."""
        jaw, item = gripper.jaw, self.item
        require_on_table(self.patch_low, self.patch_high, arm)
        if self.object is not None and (sentence := misfit(self.object, jaw)) is not None:
            raise refused(sentence, "task", "object")
        for each in (self.any_object.smallest, self.any_object.largest) if self.any_object else ():
            if (sentence := misfit(each, jaw)) is not None:
                raise refused(f"of {self.any_object}, {sentence}", "task", "any_object")
        require_start_above(self.start_height_m[0], item.size_m[2], jaw)
        width, most = item.grip_width_m * disturbance.object_scale[1], jaw.widest_m
        if width > most:
            raise ValueError(
                f"disturbance.object_scale {disturbance.object_scale} makes the object {1e3 * width:g} mm wide "
                f"where it is gripped, and the jaw takes at most {1e3 * most:g} mm; choose a smaller object"
            )
        if disturbance.object_mass_kg is not None and disturbance.object_mass_kg[1] > jaw.payload_kg:
            raise ValueError(
                f"disturbance.object_mass_kg {disturbance.object_mass_kg} is above the gripper's payload of "
                f"{jaw.payload_kg:g} kg"
            )
        heaviest = max(item.mass_kg, (disturbance.object_mass_kg or (0.0, 0.0))[1])
        if heaviest + gripper.mass_kg > arm.payload_kg:
            raise ValueError(
                f"an object of {heaviest:g} kg in a gripper of {gripper.mass_kg:g} kg is above the arm's payload of "
                f"{arm.payload_kg:g} kg; choose a lighter object"
            )


def numbers_of(config: GraspConfig, spec: RobotSpec, step_m: float, item: ObjectConfig) -> Numbers:
    """Return the task's numbers for an object, and for a tool that moves by at most ``step_m`` in a period."""
    jaw = spec.gripper.jaw
    funnel = over(item.size_m[2], jaw)
    # Largest change of the funnel distance per tool travel, so that its progress is never clipped: if only one side
    # were clipped, going back and forth would pay. The commanded point may move sideways while the measured one goes up
    # or down.
    funnel_slope = 1.0 + funnel / FUNNEL_RADIUS + 1.0
    closed_on_object = spec.gripper.closed_on(item.grip_width_m)
    return Numbers(
        period_s=spec.period_s,
        step_m=step_m,
        symmetry=item.symmetry,
        # The pads close along the tool's x axis; a box is gripped across its shorter side.
        across=0.0 if item.size_m[0] <= item.size_m[1] else pi / 2,
        raise_m=max(0.0, jaw.grasp_height_m - item.size_m[2] / 2),
        over_m=funnel,
        funnel_step_m=funnel_slope * step_m,
        lift_m=config.lift_height_m + ABOVE,
        lifted_m=config.lift_height_m,
        within_m=config.close_within_m,
        closed_on_object=closed_on_object,
        empty_beyond=empty_beyond(closed_on_object),
        half_stroke=jaw.stroke_m / 2,
        fingertips=jaw.fingertips_m,
        half_width=item.grip_width_m / 2,
        half_length=max(item.size_m[:2]) / 2,
        half_height=item.size_m[2] / 2,
    )


class Grasp(Task):
    """Close on an object, lift it and hold it.

    Reward terms, each times its weight. The *grasp point* is the object's centre, raised where the fingers would
    be too near the table; g is nearness of the measured tool point to it, ``exp(-(distance / 20 mm)^2)``.

    * ``approach``: progress of the tool point down a funnel over the grasp point
    * ``alignment``: progress of the tool's turn about the vertical towards the nearest grip orientation
    * ``precision``: ``exp(-(distance of the commanded tool point / 10 mm)^2)`` times ``exp(-(turn / 0.3)^2)``; 1 where
      the object is held. It is 0 for a gripper that was not commanded to close
    * ``close``: progress of the fingers as a share of their travel to the object's width, times g and
      ``exp(-(turn / 0.3)^2)``; closed on nothing counts as open
    * ``grasp``: g times ``exp(-(turn / 0.3)^2)`` times half that share, plus half where the object is held
    * ``push``: minus the object's sideways speed as a share of full tool speed, at most 1, while it is less than 10 mm
      above where it lay
    * ``press``: minus how much too far beside the object the tool is, across the pads, for open fingers to pass it,
      over 10 mm, times how far the fingertips are below 5 mm above its top, over 10 mm, each in [0, 1]; while a finger
      is over or beside the object, and was not commanded to close
    * ``lift``: g times how near the object is to its hold point, above where it lay
    * ``rise``: progress of the object to that point
    * ``held``: ``exp(-speed / 20 mm/s)``, mixed with 0.3 of ``max(0, 1 - speed / full tool speed)``, times
      ``exp(-(distance to that point / 20 mm)^2)``, once the object is lifted far enough, in the hand; the speed is the
      commanded tool's, so that an action is rewarded at once, and turning about the vertical at 1 rad/s adds 150 mm/s
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the command

    With ``joint_way``, the error is also observed and rewarded in joints (:class:`JointError`): down the funnel to the
    grasp point, turned as the object and upright, or to the hold point once the object is held.

    * ``joint_progress``: progress of all joints along it; 0 in the period in which the object becomes held or is lost
    """

    Config: ClassVar[type[TaskConfig]] = GraspConfig
    name = "grasp"
    uses_gripper = True
    turns_tool = True
    takes_goal = False
    numbers_size = len(Numbers._fields)
    terms: ClassVar[tuple[str, ...]] = Terms._fields

    def __init__(self, config: GraspConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        self.config = config
        self.joints = JointError(spec)
        self.hold_steps = spec.periods(config.hold_s)
        self.practice_hold_steps = spec.periods(PRACTICE_HOLD_S)
        self._spec, self._step_m = spec, max_tcp_speed_m_s * spec.period_s
        self._numbers = self._numbers_of(config.item)
        self._weights = np.array([getattr(config.rewards, name) for name in self.terms])
        self._table = spec.table_height_m
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
                Field("object_turn", ("yaw",), "rad", "tracker"),
                Field("object_turn_near", ("yaw",), "1", "tracker"),
                Field("lift_left", ("z",), "1", "tracker"),
                Field("gripper_intent", ("close",), "1", "guard"),
                Field("commanded_gripper", ("closed",), "1", "guard"),
                Field("closing_rate", ("closed",), "1/s", "gripper"),
                Field("held", ("held",), "1", "gripper"),
                Field("object_age", ("age",), "s", "tracker"),
                *(OBJECT_FIELDS if config.any_object else []),
                *(self.joints.fields if config.joint_way else []),
            ]
        )

    @property
    def lifted_share(self) -> float:
        """Share of practice at the object that begins with it in the hand, lifted."""
        return PRACTICE_LIFTED_SHARE

    def to_json(self) -> dict[str, Any]:
        """Return the name, the object's shape, the scale of ``target_near``, and where the gripper may close."""
        config = self.config
        drawn = {"any_object": config.any_object.model_dump(mode="json")} if config.any_object else {}
        return {
            "name": self.name,
            "near_m": NEAR_M,
            "object": config.object and config.object.model_dump(mode="json"),
            **drawn,
            "close_within_m": self.config.close_within_m,
            "seen_within_s": SEEN_WITHIN_S,
            "opens_if": "failed",
            "descends": "over the object",
        }

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample the object, if there is any, its position and yaw, and the tool's start above the patch.

        In practice, more objects lie on the patch's edges, and a share of the episodes begins with the tool around the
        object, which is aligned with the pads at home, where the tool's x axis is the base's. There, the gripper begins
        with any intent: some close at once, so that what follows a close is known before any policy closes. A share of
        these begins with the object lifted, so that what follows a lift is known, too.
        """
        config, jaw, item, models = self.config, self._spec.gripper.jaw, self.config.item, {}
        if config.object is None and config.any_object is not None:
            item = config.any_object.draw(rng, jaw.lowest_m)
            models = {OBJECT: item.model(OBJECT)}
        numbers = self._numbers_of(item)
        # Around a wide object, practice begins with less offset, so that the open fingers are not inside it.
        ease = min((jaw.widest_m - item.grip_width_m) / PRACTICE_ROOM, 1.0)
        low, high = np.array(config.patch_low), np.array(config.patch_high)
        wider = EDGES * (high - low) * practice
        x, y = np.clip(rng.uniform(low - wider, high + wider), low, high)
        yaw, intent, lift = rng.uniform(-pi, pi), 0.0, 0.0
        start = np.array([*rng.uniform(config.patch_low, config.patch_high), rng.uniform(*config.start_height_m)])
        if practice and rng.random() < config.practice_share:
            beside, along = PRACTICE_OFFSET_M
            yaw = ease * rng.uniform(-PRACTICE_TURN_RAD, PRACTICE_TURN_RAD)
            low_start, high_start = zip((-beside, beside), (-along, along), PRACTICE_HEIGHT, strict=True)
            start = rng.uniform(low_start, high_start)
            if rng.random() < self.lifted_share:
                start, lift = GRIPPED * start, rng.uniform(*LIFTED) * numbers.lift_m
                yaw *= GRIPPED_TURN / PRACTICE_TURN_RAD
            yaw -= numbers.across
            start[:2] = ease * start[:2] + (x, y)
            start[2] += item.size_m[2] / 2 + numbers.raise_m
            intent = rng.uniform()
        start[2] += self._table
        whole = practice and rng.random() < PRACTICE_WHOLE_SHARE
        lying = np.array([x, y, self._table + item.size_m[2] / 2])
        goal = Goal(lying, start, intent=intent, lift_m=lift, whole=whole, models=models, numbers=np.array(numbers))
        return self.rebase(goal, {OBJECT: Pose(lying, about_vertical(yaw))})

    def rebase(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal with its hold point above where the object lies."""
        target = objects[OBJECT].position + np.array([0.0, 0.0, self._numbers.lift_m])
        return replace(goal, position=target, objects=objects)

    def observe(self, state: TaskState, goals: Goals) -> dict[str, Array]:
        """Return the robot's fields, the commanded tool pose and velocity, the target seen from it, and the gripper.

        The *target* is the grasp point or, once the object is held, the tool position that puts the object at its hold
        point. The tool has one point to rest at, because nothing would correct its drift if it could rest anywhere.
        The commanded tool is known without delay or noise; of the measured arm, only the joint angles are observed.
        """
        values = {
            **observe_robot(state),
            "commanded_position": state.commanded_position,
            "commanded_velocity": state.commanded_velocity,
            "commanded_turn_rate": state.commanded_turn_rate,
            "gripper_intent": state.intent,
            "commanded_gripper": state.commanded_gripper,
            "closing_rate": state.closing_rate,
            "held": state.held != NOTHING_HELD,
            **dict(zip(OBSERVED, observe_rows(GraspState.of(state), goals.position), strict=True)),
        }
        if self.config.any_object:
            told = Numbers(*state.numbers.T)
            extents = 2.0 * np.array([told.half_width, told.half_length, told.half_height])
            values |= {"object_size": extents.T, "object_is_round": told.symmetry == 0}
        if self.config.joint_way:
            values |= self.joints.observe(state, self._joint_error(state, goals))
        return values

    def score(self, transition: Transition) -> Scores:
        """Score one control period."""
        before, state, goals = transition.before, transition.state, transition.goals
        weighted, achieved, left = score_rows(
            self._weights, GraspState.of(before), GraspState.of(state), goals.position, goals.objects[OBJECT].position,
            transition.action, transition.previous_action, transition.intervened,
        )  # fmt: skip
        terms = dict(zip(Terms._fields, weighted, strict=True))
        if self.config.joint_way:
            along = self.joints.progress(self._joint_error(before, goals), self._joint_error(state, goals))
            terms["joint_progress"] = self.config.rewards.joint_progress * along * (before.held == state.held)
        return Scores(terms, achieved, left)

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Tell by the fingers, and by how far the object is from the tool and from being lifted."""
        state, scores = transition.state, self.score(transition)
        away = lengths(state.objects[OBJECT].position - state.tcp_position)
        in_hand = (state.held != NOTHING_HELD) & (away <= IN_HAND + Numbers(*state.numbers.T).raise_m)
        return [
            TOO_SHORT if scores.achieved[row]
            else Failure("lost") if gripped[row] and not in_hand[row]
            else Failure("never_gripped", float(away[row])) if not in_hand[row]
            else Failure("not_lifted", float(scores.distance_m[row])) if scores.distance_m[row] > 0.0
            else Failure("too_fast")
            for row in range(len(away))
        ]  # fmt: skip

    def gripper_range(self, state: TaskState, goals: Goals) -> tuple[Array, Array]:
        """Return the bounds of the grippers' next commands.

        Fingers begin to close around the object only. Then they go on until they hold it or fail: they closed further
        than it allows, or stopped too far apart. Fingers that failed open, and close again only after that.
        """
        return gripper_ranges(GraspState.of(state))

    def lowest(self, state: TaskState) -> Array:
        """Keep the fingertips above the object until open fingers would come down around it: nothing is pushed."""
        return lowest_rows(GraspState.of(state))

    def way_left(self, state: TaskState, goals: Goals) -> Array:
        """Return the way to the grip, turn and fingers included, and then nothing: who holds something keeps it."""
        return ways_left(GraspState.of(state))

    def gripper_message(self, state: TaskState, goals: Goals) -> str:
        """Say that the fingers failed, or may not close for want of a sighting."""
        most = self.gripper_range(state, goals)[1][0]
        if state.commanded_gripper[0] >= 1.0 and most == 0.0:
            return "the fingers hold nothing, and open again"
        if most == 0.0 and state.intent[0] >= 0.5 and state.objects[OBJECT].age_s[0] > SEEN_WITHIN_S:
            return "the fingers stay open: the object was not seen for too long"
        return ""

    def held(self, state: TaskState) -> NDArray[np.intp]:
        """Return the object if the fingers rest short of their command: against something, whatever its width.

        That is what a gripper's own object detection says. A soft object gives way, and a size may be told wrong.
        """
        return held_rows(state.numbers, state.closed, state.earlier_closed, state.commanded_gripper)

    def _numbers_of(self, item: ObjectConfig) -> Numbers:
        return numbers_of(self.config, self._spec, self._step_m, item)

    def _joint_error(self, state: TaskState, goals: Goals) -> Array:
        """Compute how far joints (m, n) are from where the tool should be, turned as the object and upright [rad]."""
        return self.joints.of(state, joint_goals_of(GraspState.of(state), goals.position))


TASKS.register("grasp", Grasp)
