"""Grasp: close on an object on the table, lift it, and hold it at rest."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, cos, exp, pi, sin, tanh
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import PositiveFloat, model_validator

from td3robot import geometry
from td3robot.config.disturbance import DisturbanceConfig
from td3robot.config.objects import ObjectConfig
from td3robot.config.section import Box, NonNegative, Range, Section, UnitInterval, refused
from td3robot.config.task import TaskConfig
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import ArmModel, GripperModel, Jaw, RobotSpec
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState, World
from td3robot.tasks.interface import AT_REST, Goal, Moment, Score, Task, observe_robot, robot_fields
from td3robot.tasks.joint_way import JointWay
from td3robot.tasks.shaping import nearness, progress, ramp, roughness

OBJECT = "object"

# The approach follows a funnel, so that open fingers come down around the object. This is its height, or more if the
# fingers would not clear the object, and the radius at which it reaches that height [m].
FUNNEL_HEIGHT, FUNNEL_RADIUS = 0.08, 0.05
# Scale on which the observation resolves the last part of a turn [rad].
NEAR_TURN = 0.1
# The hold point is this far above the height that counts as lifted [m].
ABOVE = 0.03
# The guard's workspace begins this far below the lowest grasp [m]: actions slide along its wall, WALL_MARGIN above it,
# and the fingers clear the table there. Where the fingers meet their clearance first, the guard stops the whole arm.
FLOOR = 0.006
# Scale on which the holding reward falls with the distance from the hold point [m].
AT_POINT = 0.02
# Sideways motion is penalized less than this far above where the object lay [m].
LOW = 0.01
# Open fingers are in the object's way if the tool is beside it by so much that they would not pass it, and they reach
# deeper than this far above its top [m]; ``press`` grows to its full size over PRESS_SCALE in both directions. A finger
# is this thick, and this far to each side of the jaw's middle [m]: the largest of the grippers here.
ABOVE_TOP, PRESS_SCALE, FINGER_THICK, FINGER_HALF_WIDTH = 0.005, 0.01, 0.02, 0.012
# Scale that separates holding still from moving slowly [m/s].
STILL = 0.02
# A turning tool counts as moving like a point this far from its axis [m]: nothing else would keep it from turning. With
# ``close_within_m``, ``held`` uses the larger radius: with the smaller, some policies went on turning.
TURN_RADIUS, HELD_TURN_RADIUS = 0.05, 0.15
# Share of the holding reward that responds to speed over the whole range, not only near rest.
SLOW_SHARE = 0.3
# A grip that is misaligned with the pads by this angle is worth a third [rad].
TURNED = 0.3
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
# For the way in joints, a tool tilted by 1 rad is that far beside the object [m]: at 0.05 rad it may come down, where
# the lower finger of a wide open gripper is 3 mm nearer to the table.
TILT_RADIUS = 0.2
# Scale of the distance to the grasp point at which closing makes sense [m].
AT_OBJECT = 0.02
# Scale on which keeping the commanded tool point at the grasp point is rewarded while the fingers close [m].
PRECISE = 0.01
# An object lifted within this distance of the tool point is between the pads, not lying on the gripper [m].
IN_HAND = 0.04
# The drivers count as stopped short of closed when the command is ahead of them by this closed fraction.
SHORT_OF_COMMAND = 0.08
# Fingers that were told to close, hold nothing and have not moved for this long have failed [s]: some grippers report
# their position ten times a second, and answers may be late.
FAILED_S = 0.5
# The observed age of the object saturates here [s].
LONG_UNSEEN_S = 1.0
# With ``close_within_m``, open fingers close only around an object that was seen this lately, and the observed age
# saturates here [s].
SEEN_WITHIN_S = 4.0
# Fingers closed further than the object's width allows, by this fraction, hold nothing. The margin ends at the latest
# half-way to the closed fraction of an empty grip, less bias and noise.
EMPTY_MARGIN, ON_NOTHING = 0.16, 0.965


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
            f"{1e3 * jaw.widest_m:g} mm; choose a smaller object"
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


def over(item: ObjectConfig, jaw: Jaw) -> float:
    """Return how far above the grasp point the tool should be beside an object, so that the fingers clear it [m]."""
    return max(FUNNEL_HEIGHT, item.size_m[2] / 2 + jaw.fingertips_m)


def empty_beyond(closed_on_object: float) -> float:
    """Return the closed fraction beyond which fingers hold nothing, if the object should stop them at this one."""
    return closed_on_object + min(EMPTY_MARGIN, (ON_NOTHING - closed_on_object) / 2)


class GraspConfig(TaskConfig):
    """Close on an object on the table, lift it, and hold it at rest.

    Attributes:
        patch_low, patch_high: Where on the table (x, y) [m] objects lie.
        start_height_m: Range of the tool's height above the table at the start.
        lift_height_m: How far the object must be lifted.
        rest_speed_m_s: Below this tool speed, and not moving in the hand, the object counts as held at rest. Turning
            about the vertical at 1 rad/s counts as 0.05 m/s.
        hold_s: How long the object must be held at the end of an episode.
        practice_hold_s: In training, an episode ends once the object was held for this long without a break: the next
            object teaches more.
        practice_whole_share: Share of training episodes that go on to their end instead, so that a policy learns to
            hold on.
        full_turn_rad_s: Turn rate of the tool that earns the whole of ``alignment``. At least the rate that two joints
            at the guard's limit reach (2 * 1.57 rad/s): if only one side were clipped, turning away fast and back
            slowly would pay.
        close_within_m: Whatever the action asks of it, the gripper begins to close only where the tool, commanded and
            measured, is this near to the grasp point and turned as the object to within 0.3 rad, and only if the object
            was seen in the last 4 s; then it closes until it holds the object or fails, and opens if it failed. With
            None, it opens and closes anywhere.
        near_m: Scale on which the observation resolves the last stretch to the object.
        joint_way: Whether to observe how far each joint has to go, and to reward it, for ``joint_delta``.
        practice_share: Share of training episodes that begin with the tool around the object, so that closing and
            lifting are practised before the approach is learned; evaluations have none.
        practice_offset_m: How far beside the grasp point these begin at most, across the pads and along them. Around a
            wide object it is less, so that the open fingers are not inside it.
        practice_turn_rad: How far the tool is then turned from the object at most.
        practice_lifted_share: Share of these that begin with the object in the hand, lifted some way.
    """

    name: Literal["grasp"] = "grasp"
    object: ObjectConfig = ObjectConfig()
    patch_low: tuple[float, float] = (-0.2, 0.35)
    patch_high: tuple[float, float] = (0.2, 0.65)
    start_height_m: Range = (0.15, 0.3)
    lift_height_m: PositiveFloat = 0.1
    rest_speed_m_s: PositiveFloat = 0.02
    hold_s: PositiveFloat = 0.5
    practice_hold_s: PositiveFloat = 3.0
    practice_whole_share: UnitInterval = 0.0
    full_turn_rad_s: PositiveFloat = 3.2
    close_within_m: PositiveFloat | None = None
    near_m: PositiveFloat = 0.03
    joint_way: bool = False
    practice_share: UnitInterval = 0.5
    practice_offset_m: tuple[NonNegative, NonNegative] = (0.01, 0.01)
    practice_turn_rad: NonNegative = 0.2
    practice_lifted_share: UnitInterval = 0.0
    rewards: GraspRewards = GraspRewards()
    region: ClassVar[str] = "the task's patch, with start and lift above it,"
    title: ClassVar[str] = "grasp and lift"
    achieved: ClassVar[str] = "lifted and held"

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        for axis, low, high in zip("xy", self.patch_low, self.patch_high, strict=True):
            if not low < high:
                raise ValueError(f"the patch is empty along {axis}: patch_low {low} m is not below patch_high {high} m")
        return self

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
        lifted = max(lowest, self.object.size_m[2] / 2) + self.lift_height_m
        high = table_height_m + max(self.start_height_m[1], lifted)
        return Box(low=(*self.patch_low, round(low, 6)), high=(*self.patch_high, round(high, 6)))

    def objects(self) -> tuple[ObjectModel, ...]:
        """Return the object."""
        return (self.object.model(OBJECT),)

    def require_fit(self, arm: ArmModel, gripper: GripperModel, disturbance: DisturbanceConfig) -> None:
        """Refuse a patch off the table, and an object that the gripper cannot pick up or the arm cannot carry."""
        table, jaw, item = arm.regions["table"], gripper.jaw, self.object
        for axis, low, high, *edges in zip("xy", self.patch_low, self.patch_high, table.low, table.high, strict=True):
            if low < edges[0] or high > edges[1]:
                raise ValueError(
                    f"the patch goes from {axis} {low:g} to {high:g} m, and the table only from {edges[0]:g} to "
                    f"{edges[1]:g} m: objects would fall off its edge"
                )
        if (sentence := misfit(item, jaw)) is not None:
            raise refused(sentence, "task", "object")
        height = item.size_m[2]
        if self.start_height_m[0] < height + jaw.fingertips_m:
            raise ValueError(
                f"the tool starts from {self.start_height_m[0]:g} m above the table, with its fingers inside an object "
                f"of {height:g} m; raise start_height_m to {height + jaw.fingertips_m:g} m or more"
            )
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


def _speed(velocity: Array, turn_rate: float, radius: float) -> float:
    """Compute the speed of a tool [m/s] from its velocity (3,) [m/s] and its turn rate about the vertical [rad/s]."""
    return geometry.length(velocity) + radius * abs(turn_rate)


def _funnel_share(beside: float) -> float:
    """Compute the height of the funnel, as a share of its largest, beside the object by so much [m]."""
    return ramp(beside - 0.01, FUNNEL_RADIUS)


class Measures(NamedTuple):
    """The quantities that score a world.

    Attributes:
        distance: Distance from the measured tool point to the grasp point [m].
        turn: Smallest turn about the vertical that lines the commanded tool up with the object [rad].
        funnel: Distance from the tool point to the grasp point along the funnel [m].
        around: How surely closing fingers would have the object between them, in [0, 1].
        share: How far the fingers are closed, as a share of their travel to the object.
    """

    distance: float
    turn: float
    funnel: float
    around: float
    share: float

    @property
    def open(self) -> float:
        """How much of closing around the object is left to do, in [0, 1]."""
        return 1.0 - self.around * self.share


class GraspTerms(NamedTuple):
    """The numbers of :class:`Grasp` that follow from its configuration and the robot.

    Attributes:
        step: Full tool travel in a period [m].
        period_s: One control period.
        full_turn: Turn in a period that earns the whole of ``alignment`` [rad].
        lift: Height of the hold point above where the object lay [m].
        over: The funnel's height [m].
        funnel_slope: Largest change of the funnel distance per tool travel.
        raised: (3,) from the object's centre to the grasp point [m].
        across: Angle of the grip across the object [rad].
        closed_on_object, empty_beyond: Closed fractions on the object, and beyond which nothing is held.
        long_unseen: Where the observed age of the object saturates [s].
        turn_radius: A turning tool counts as moving like a point this far from its axis, for ``held`` [m].
        half_stroke: From the jaw's middle to an open finger [m].
        half_width, half_height: From the object's centre to where it is gripped, and to its top [m].
        fingertips: How far the fingers reach beyond the tool point [m].
    """

    step: float
    period_s: float
    full_turn: float
    lift: float
    over: float
    funnel_slope: float
    raised: Array
    across: float
    closed_on_object: float
    empty_beyond: float
    long_unseen: float
    turn_radius: float
    half_stroke: float
    half_width: float
    half_height: float
    fingertips: float


class Grasp(Task):
    """Close on an object, lift it and hold it.

    Reward terms, each times its weight. The *grasp point* is the object's centre, raised where the fingers would
    be too near the table; g is nearness of the measured tool point to it, ``exp(-(distance / 20 mm)^2)``.

    * ``approach``: progress of the tool point down a funnel over the grasp point
    * ``alignment``: progress of the tool's turn about the vertical towards the nearest grip orientation
    * ``precision``: ``exp(-(distance of the commanded tool point / 10 mm)^2)`` times ``exp(-(turn / 0.3)^2)``; 1 where
      the object is held. With ``close_within_m``, it is 0 for a gripper that was not told to close
    * ``close``: progress of the fingers as a share of their travel to the object's width, times g and
      ``exp(-(turn / 0.3)^2)``; closed on nothing counts as open
    * ``grasp``: g times ``exp(-(turn / 0.3)^2)`` times half that share, plus half where the object is held
    * ``push``: minus the object's sideways speed as a share of full tool speed, at most 1, while it is less than 10 mm
      above where it lay
    * ``press``: minus how much too far beside the object the tool is, across the pads, for open fingers to pass it,
      over 10 mm, times how far the fingertips are below 5 mm above its top, over 10 mm, each in [0, 1]; while a finger
      is over or beside the object, and was not told to close
    * ``lift``: g times how near the object is to its hold point, above where it lay
    * ``rise``: progress of the object to that point
    * ``held``: ``exp(-speed / 20 mm/s)``, mixed with 0.3 of ``max(0, 1 - speed / full tool speed)``, times
      ``exp(-(distance to that point / 20 mm)^2)``, once the object is lifted far enough, in the hand; the speed is the
      commanded tool's, so that an action is rewarded at once, and turning about the vertical at 1 rad/s adds 50 mm/s,
      or 150 with ``close_within_m``
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the wish

    With ``joint_way``, the way is also observed and rewarded in joints (:class:`JointWay`): down the funnel to the
    grasp point, turned as the object and upright, or to the hold point once the object is held.

    * ``joint_progress``: progress of all joints along it; 0 in the period in which the object becomes held or is lost
    """

    Config = GraspConfig
    name = "grasp"
    vectorized = "td3robot.tasks.vectorized.grasp"
    uses_gripper = True
    turns_tool = True
    takes_goal = False

    def __init__(self, config: GraspConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        self.config = config
        self.joints = JointWay(spec)
        self._step = max_tcp_speed_m_s * spec.period_s
        self.hold_steps = spec.periods(config.hold_s)
        self.practice_hold_steps = spec.periods(config.practice_hold_s)
        self._full_turn = config.full_turn_rad_s / spec.control_rate_hz
        self._lift = config.lift_height_m + ABOVE
        self._over = over(config.object, spec.gripper.jaw)
        # Largest change of the funnel distance per tool travel, so that its progress is never clipped: if only one side
        # were clipped, going back and forth would pay. The commanded point may move sideways while the measured one
        # goes up or down.
        self._funnel_slope = 1.0 + self._over / FUNNEL_RADIUS + 1.0
        self._period = spec.period_s
        self._gripper = spec.gripper
        self._table = spec.table_height_m
        self._turn_radius = TURN_RADIUS if config.close_within_m is None else HELD_TURN_RADIUS
        self._long_unseen = LONG_UNSEEN_S if config.close_within_m is None else SEEN_WITHIN_S
        jaw = spec.gripper.jaw
        self._half_stroke, self._fingertips = jaw.stroke_m / 2, jaw.fingertips_m
        self._half_width, self._half_height = config.object.grip_width_m / 2, config.object.size_m[2] / 2
        self._raise = np.array([0.0, 0.0, max(0.0, jaw.grasp_height_m - self._half_height)])
        # The pads close along the tool's x axis; a box is gripped across its shorter side.
        self._across = 0.0 if config.object.size_m[0] <= config.object.size_m[1] else pi / 2
        # Around a wide object, practice begins with less offset, so that the open fingers are not inside it.
        self._ease = min((jaw.widest_m - config.object.grip_width_m) / PRACTICE_ROOM, 1.0)
        self._closed_on_object = spec.gripper.closed_on(config.object.grip_width_m)
        self._empty_beyond = empty_beyond(self._closed_on_object)
        # The last measured world: the next control period begins with it.
        self._measured: tuple[World, Measures] | None = None
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
                *(self.joints.fields if config.joint_way else []),
            ]
        )

    def terms(self) -> GraspTerms:
        """Return the numbers that scores and observations are made with."""
        return GraspTerms(
            step=self._step,
            period_s=self._period,
            full_turn=self._full_turn,
            lift=self._lift,
            over=self._over,
            funnel_slope=self._funnel_slope,
            raised=self._raise,
            across=self._across,
            closed_on_object=self._closed_on_object,
            empty_beyond=self._empty_beyond,
            long_unseen=self._long_unseen,
            turn_radius=self._turn_radius,
            half_stroke=self._half_stroke,
            half_width=self._half_width,
            half_height=self._half_height,
            fingertips=self._fingertips,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the name, the object's shape, the scale of ``target_near``, and where the gripper may close."""
        config, item = self.config, self.config.object
        terms = {"name": self.name, "near_m": config.near_m, "object": item.model_dump(mode="json")}
        if config.close_within_m is not None:
            terms |= {"close_within_m": config.close_within_m, "seen_within_s": SEEN_WITHIN_S, "opens_if": "failed"}
        return terms

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample the object's position and yaw, and the tool's start above the patch.

        In practice, more objects lie on the patch's edges, and a share of the episodes begins with the tool around the
        object, which is aligned with the pads at home, where the tool's x axis is the base's. There, the gripper begins
        with any intent: some close at once, so that what follows a close is known before any policy closes. A share of
        these begins with the object lifted, so that what follows a lift is known, too.
        """
        config = self.config
        low, high = np.array(config.patch_low), np.array(config.patch_high)
        wider = EDGES * (high - low) * practice
        x, y = np.clip(rng.uniform(low - wider, high + wider), low, high)
        yaw, intent, lift = rng.uniform(-pi, pi), 0.0, 0.0
        start = np.array([*rng.uniform(config.patch_low, config.patch_high), rng.uniform(*config.start_height_m)])
        if practice and rng.random() < config.practice_share:
            turn, (beside, along) = config.practice_turn_rad, config.practice_offset_m
            yaw = self._ease * rng.uniform(-turn, turn)
            low_start, high_start = zip((-beside, beside), (-along, along), PRACTICE_HEIGHT, strict=True)
            start = rng.uniform(low_start, high_start)
            # Without lifts, no number is drawn for them, so that earlier runs repeat.
            if config.practice_lifted_share and rng.random() < config.practice_lifted_share:
                start, lift = GRIPPED * start, rng.uniform(*LIFTED) * self._lift
                yaw *= GRIPPED_TURN / max(turn, GRIPPED_TURN)
            yaw -= self._across
            start[:2] = self._ease * start[:2] + (x, y)
            start[2] += config.object.size_m[2] / 2 + self._raise[2]
            intent = rng.uniform()
        start[2] += self._table
        # Without whole episodes, no number is drawn for them, so that earlier runs repeat.
        whole = practice and config.practice_whole_share > 0.0 and rng.random() < config.practice_whole_share
        lying = np.array([x, y, self._table + config.object.size_m[2] / 2])
        pose = Pose(lying, geometry.about_vertical(yaw))
        return self.settle(Goal(lying, start, intent=intent, lift_m=lift, whole=whole), {OBJECT: pose})

    def settle(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal with its hold point above where the object lies."""
        lying = objects[OBJECT]
        target = lying.position + np.array([0.0, 0.0, self._lift])
        return replace(goal, position=target, objects=objects)

    def observe(self, world: World, goal: Goal) -> dict[str, ArrayLike]:
        """Return the robot's fields, the commanded tool pose and velocity, the target seen from it, and the gripper.

        The *target* is the grasp point or, once the object is held, the tool position that puts the object at its hold
        point. The tool has one point to rest at, because nothing would correct its drift if it could rest anywhere.
        The commanded tool is known without delay or noise; of the measured arm, only the joint angles are observed.
        """
        commanded, item = world.commanded_tcp, world.objects[OBJECT]
        yaw = geometry.yaw(commanded.rotation)
        held = world.held is not None
        way = self._target(world, goal) - commanded.position
        # An object in the hand leaves nothing to line up with, and chasing it would never end.
        turn = 0.0 if held else self._turn(commanded, item)
        left = float(goal.position[2] - item.position[2])
        values: dict[str, ArrayLike] = {
            **observe_robot(world),
            "commanded_position": commanded.position,
            "commanded_yaw": (cos(yaw), sin(yaw)),
            "commanded_velocity": world.commanded_velocity,
            "commanded_turn_rate": (world.commanded_turn_rate,),
            "target_from_commanded": way,
            "target_near": np.tanh(way / self.config.near_m),
            "object_turn": (turn,),
            "object_turn_near": (tanh(turn / NEAR_TURN),),
            "lift_left": (tanh(left / self._lift),),
            "gripper_intent": (world.intent,),
            "commanded_gripper": (world.commanded.gripper,),
            "closing_rate": (world.closing_rate,),
            "held": (float(held),),
            "object_age": (min(world.ages_s.get(OBJECT, 0.0), self._long_unseen),),
        }
        if self.config.joint_way:
            values |= self.joints.observe(world, self._way(world, goal))
        return values

    def score(self, moment: Moment, goal: Goal) -> Score:
        """Score one control period."""
        config, weights, before, world = self.config, self.config.rewards, moment.before, moment.world
        item = world.objects[OBJECT]
        earlier, now = self._measures(before), self._measures(world)
        height = float(item.position[2] - goal.objects[OBJECT].position[2])
        moved = item.position - before.objects[OBJECT].position
        left = self._left(world, goal)
        lifted = nearness(now.distance, AT_OBJECT) * max(0.0, 1.0 - left / self._lift)
        high = now.distance <= IN_HAND and height >= config.lift_height_m
        # A held object moves with the tool; camera noise is no motion.
        turn_rate = geometry.yaw(world.tcp.rotation @ before.tcp.rotation.T) / self._period
        at_rest = _speed(world.tcp_velocity, turn_rate, TURN_RADIUS) <= config.rest_speed_m_s
        achieved = high and world.held is not None and at_rest
        terms = {
            "approach": weights.approach * progress(earlier.funnel, now.funnel, self._funnel_slope * self._step),
            "alignment": weights.alignment * progress(abs(earlier.turn), abs(now.turn), self._full_turn),
            "precision": weights.precision * (1.0 if world.held is not None else self._precision(world, now.turn)),
            "close": weights.close * progress(earlier.open, now.open, 1.0),
            "grasp": weights.grasp * now.around * 0.5 * (now.share + float(world.held is not None)),
            "push": -weights.push * float(height < LOW) * min(float(np.hypot(*moved[:2])) / self._step, 1.0),
            "press": -weights.press * float(height < LOW) * self._pressing(world),
            "lift": weights.lift * lifted,
            "rise": weights.rise * progress(self._left(before, goal), left, self._lift),
            "held": weights.held
            * float(high)
            * nearness(left, AT_POINT)
            * self._stillness(_speed(world.commanded_velocity, world.commanded_turn_rate, self._turn_radius)),
            "smoothness": -weights.smoothness * roughness(moment.action, moment.previous_action),
            "guard": -weights.guard * float(bool(moment.interventions)),
        }
        if config.joint_way:
            kept = before.held == world.held
            along = self.joints.progress(self._way(before, goal), self._way(world, goal)) if kept else 0.0
            terms["joint_progress"] = weights.joint_progress * along
        return Score(terms, achieved, max(0.0, config.lift_height_m - height))

    def gripper_range(self, world: World) -> tuple[float, float]:
        """Return the bounds of the gripper's next command.

        Fingers begin to close around the object only. Then they go on until they hold it or fail: they closed further
        than it allows, or stopped too far apart. Fingers that failed open, and close again only after that.
        """
        within, item, told = self.config.close_within_m, world.objects[OBJECT], world.commanded.gripper
        if within is None:
            return 0.0, 1.0
        closed = self._gripper.closed_fraction(world.robot.driver_q)
        if closed - told > SHORT_OF_COMMAND:
            return told, told
        stopped = world.stalled_s >= FAILED_S and world.held is None and closed > SHORT_OF_COMMAND
        if closed > self._empty_beyond or (told >= 1.0 and stopped):
            return 0.0, 0.0
        if told >= 1.0:
            return 1.0, 1.0
        there = world.ages_s.get(OBJECT, 0.0) <= SEEN_WITHIN_S and all(
            self._distance(world, tool) <= within and abs(self._turn(tool, item)) <= TURNED
            for tool in (world.commanded_tcp, world.tcp)
        )
        return 0.0, 1.0 if there else told

    def gripper_words(self, world: World) -> str:
        """Say that the fingers failed, or may not close for want of a sighting."""
        _, most = self.gripper_range(world)
        if world.commanded.gripper >= 1.0 and most == 0.0:
            return "the fingers hold nothing, and open again"
        if most == 0.0 and world.intent >= 0.5 and world.ages_s.get(OBJECT, 0.0) > SEEN_WITHIN_S:
            return "the fingers stay open: the object was not seen for too long"
        return ""

    def _pressing(self, world: World) -> float:
        """Score how far open fingers are in the way of the object, which counts as square, in [0, 1]."""
        if not self.config.rewards.press or world.held is not None or world.commanded.gripper >= 1.0:
            return 0.0
        item, tool, wide = world.objects[OBJECT].position, world.tcp, self._half_width
        across, along = np.abs((item - tool.position) @ tool.rotation)[:2].tolist()
        opening = self._half_stroke * (1.0 - ramp(self._gripper.closed_fraction(world.robot.driver_q), 1.0))
        if across > opening + FINGER_THICK + wide or along > wide + FINGER_HALF_WIDTH:
            return 0.0
        deep = float(item[2]) + self._half_height + ABOVE_TOP - (float(tool.position[2]) - self._fingertips)
        return ramp(across + wide - opening, PRESS_SCALE) * ramp(deep, PRESS_SCALE)

    def _target(self, world: World, goal: Goal) -> Array:
        """Compute the grasp point (3,) or, once the object is held, where the tool puts it at its hold point [m]."""
        item = world.objects[OBJECT]
        if world.held is None:
            point: Array = item.position + self._raise
            return point
        # A held object moves with the tool, so what is left for the commanded tool does not depend on delays.
        return goal.position + world.tcp.position - item.position

    def _way(self, world: World, goal: Goal) -> Array:
        """Compute how far each joint (n,) is from where the tool should be, turned as the object and upright [rad].

        Beside the object, that is above the grasp point at the funnel's height; once it is held, where it is to hang.
        A tilted tool has to stay higher, too, or the guard would stop it with one finger near the table.
        """
        tool, turn = world.commanded_tcp, geometry.turn_down(world.commanded_tcp.rotation)
        way = self._target(world, goal) - tool.position
        if world.held is None:
            beside = float(np.hypot(*way[:2])) + TILT_RADIUS * geometry.length(turn)
            way[2] += self._over * _funnel_share(beside)
            turn[2] = self._turn(tool, world.objects[OBJECT])
        return self.joints.of(world, np.concatenate([way, turn]))

    def _measures(self, world: World) -> Measures:
        """Return a world's measures, from memory if it was the last one measured."""
        if self._measured is None or self._measured[0] is not world:
            distance = self._distance(world, world.tcp)
            turn = self._turn(world.commanded_tcp, world.objects[OBJECT])
            around = nearness(distance, AT_OBJECT) * nearness(self._turn(world.tcp, world.objects[OBJECT]), TURNED)
            self._measured = world, Measures(distance, turn, self._funnel(world), around, self._share(world))
        return self._measured[1]

    def _funnel(self, world: World) -> float:
        """Compute the distance from the tool point to the grasp point along the funnel [m].

        Sideways, the commanded point counts, so that an action is rewarded at once; in height, the measured one, which
        moves with an object that it carries.
        """
        point = world.objects[OBJECT].position + self._raise
        beside = float(np.hypot(*(world.commanded_tcp.position - point)[:2]))
        wanted = self._over * _funnel_share(beside)
        return beside + abs(float(world.tcp.position[2] - point[2]) - wanted)

    def _left(self, world: World, goal: Goal) -> float:
        """Compute the object's distance from its hold point [m]."""
        return geometry.length(goal.position - world.objects[OBJECT].position)

    def _distance(self, world: World, tool: Pose) -> float:
        """Compute the distance of a tool, measured or commanded, from the grasp point [m]."""
        return geometry.length(world.objects[OBJECT].position + self._raise - tool.position)

    def _precision(self, world: World, turn: float) -> float:
        """Score how well the commanded tool, turned from the object by ``turn`` [rad], keeps to the grasp point.

        With ``close_within_m``, it is 0 until the gripper is told to close: otherwise waiting would pay.
        """
        if self.config.close_within_m is not None and world.commanded.gripper < 1.0:
            return 0.0
        return nearness(self._distance(world, world.commanded_tcp), PRECISE) * nearness(turn, TURNED)

    def _share(self, world: World) -> float:
        """Compute how far the fingers are closed, as a share of their travel to the object; 0 if closed on nothing."""
        closed = self._gripper.closed_fraction(world.robot.driver_q)
        if closed > self._empty_beyond:
            return 0.0
        return ramp(closed, self._closed_on_object)

    def _stillness(self, speed: float) -> float:
        """Score a speed [m/s] in [0, 1]: 1 at rest, and higher the slower, from full speed down."""
        slow = max(0.0, 1.0 - speed * self._period / self._step)
        return SLOW_SHARE * slow + (1.0 - SLOW_SHARE) * exp(-speed / STILL)

    def held(self, state: RobotState, earlier: RobotState, commanded: JointCommand) -> str | None:
        """Return the object if the fingers rest short of their command, about as far apart as the object is wide."""
        closed = self._gripper.closed_fraction(state.driver_q)
        rests = abs(closed - self._gripper.closed_fraction(earlier.driver_q)) < AT_REST
        short = commanded.gripper - closed > SHORT_OF_COMMAND
        wide = 0.8 * self._closed_on_object < closed <= self._empty_beyond
        return OBJECT if rests and short and wide else None

    def _turn(self, tcp: Pose, item: Pose) -> float:
        """Compute the smallest turn about the vertical that lines the pads up with the object [rad]."""
        symmetry = self.config.object.symmetry
        if symmetry == 0:
            return 0.0
        angle = geometry.yaw(item.rotation) + self._across - geometry.yaw(tcp.rotation)
        step = 2 * pi / symmetry
        return (angle + step / 2) % step - step / 2


TASKS.register("grasp", Grasp)
