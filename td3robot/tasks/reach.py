"""Reach: bring the tool centre point to a goal and rest there."""

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from td3robot.config.section import Box, NonNegative, Section
from td3robot.config.task import TaskConfig
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import ArmModel, GripperModel, RobotSpec
from td3robot.row_math import lengths, turns_down
from td3robot.state import Array
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
from td3robot.tasks.joint_error import JointError
from td3robot.tasks.shaping import nearness, progress, roughness

# Scale on which the observation resolves the last stretch to the goal [m].
NEAR_M = 0.03


class ReachRewards(Section):
    """Weights of the reach task's reward terms; :class:`Reach` has the formulas.

    Attributes:
        progress: Reward for progress of the commanded tool point to the goal.
        precision: Reward for being near the goal, on the scale of the tolerance.
        settled: Reward for being at the goal and at rest.
        rest: Reward for commanding rest near the goal.
        smoothness: Penalty on changes of the action.
        guard: Penalty on steps that the guard changed.
        joint_progress: Reward for progress of every joint, with ``joint_way``.
        joint_rest: Reward for commanding rest once every joint has arrived, with ``joint_way``.
    """

    progress: NonNegative = 1.0
    precision: NonNegative = 1.0
    settled: NonNegative = 1.0
    rest: NonNegative = 1.0
    smoothness: NonNegative = 0.05
    guard: NonNegative = 0.05
    joint_progress: NonNegative = 3.0
    joint_rest: NonNegative = 1.0


class ReachConfig(TaskConfig):
    """Bring the tool centre point to a goal and rest there.

    Attributes:
        goals: Box from which goals (and starts) are sampled uniformly.
        tolerance_m: Within this distance of the goal counts as there.
        settle_speed_m_s: Below this speed, the tool counts as at rest.
        hold_s: How long the tool must be there and at rest at the end of an episode.
        joint_way: Whether to observe how far each joint has to go, and to reward it, for ``joint_delta``.
    """

    name: Literal["reach"] = "reach"
    goals: Box = Box(low=(-0.3, 0.25, 0.05), high=(0.3, 0.75, 0.45))
    tolerance_m: PositiveFloat = 0.01
    settle_speed_m_s: PositiveFloat = 0.02
    hold_s: PositiveFloat = 0.25
    joint_way: bool = False
    rewards: ReachRewards = ReachRewards()
    region: ClassVar[str] = "task.goals"
    title: ClassVar[str] = "reach a point"
    achieved: ClassVar[str] = "reached"

    @classmethod
    def regions(cls, arm: ArmModel) -> dict[str, Any]:
        """Return the arm's box of goals."""
        region = arm.regions["goals"]
        return {"goals": {"low": region.low, "high": region.high}}

    def space(self, table_height_m: float, gripper: GripperModel) -> Box:
        """Return the box that the tool must reach, in the base frame."""
        return self.goals


class Reach(Task):
    """Bring the tool to a goal and rest there.

    Reward terms, each times its weight, with d the distance from tool to goal:

    * ``progress``: ``clip((c_before - c) / (tool speed limit * period), -1, 1)`` with c the distance of the *commanded*
      tool point to the goal, so that an action is rewarded in its own period and not when the servo has followed
    * ``precision``: ``exp(-(d / tolerance)^2)``
    * ``settled``: 1 if d is within tolerance and the tool is at rest, else 0
    * ``rest``: ``exp(-(d / tolerance)^2)`` times ``exp(-commanded tool speed / settle speed)``: where measurements come
      late, braking is rewarded in its own period, too
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the command

    With ``joint_way``, the error is also observed and rewarded in joints (:class:`JointError`): to the goal with the
    tool pointing down, its heading free.

    * ``joint_progress``: progress of all joints along it
    * ``joint_rest``: ``exp(-sum of their errors / 0.1 rad)`` times ``exp(-length of the commanded joint velocities /
      0.05 rad/s)``: near the goal alone, arms would come to rest beside it with a joint askew
    """

    Config = ReachConfig
    name = "reach"
    uses_gripper = False
    turns_tool = False
    goal_fields = ("goal_from_tcp", "goal_near", "joint_way", "joint_way_near")

    def __init__(self, config: ReachConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        self.config = config
        self.joints = JointError(spec)
        self.full_progress = max_tcp_speed_m_s * spec.period_s
        self.hold_steps = spec.periods(config.hold_s)
        xyz = ("x", "y", "z")
        self.layout = Layout(
            [
                *robot_fields(spec),
                Field("tcp_position", xyz, "m", "kinematics"),
                Field("goal_from_tcp", xyz, "m", "task"),
                Field("commanded_from_tcp", xyz, "m", "guard"),
                Field("goal_near", xyz, "1", "task"),
                *(self.joints.fields if config.joint_way else []),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the name, and the scale of ``goal_near``; the layout says whether joints' errors are observed."""
        return {"name": self.name, "near_m": NEAR_M}

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample goal and start, each uniformly from the box of goals, and the gripper's closed fraction.

        A policy that has seen its fingers at one angle only depends on that angle to the milliradian.
        """
        box = self.config.goals
        return Goal(
            position=rng.uniform(box.low, box.high),
            start=rng.uniform(box.low, box.high),
            gripper=float(rng.uniform(0.0, 1.0)),
        )

    def observe(self, state: TaskState, goals: Goals) -> dict[str, Array]:
        """Return the robot's fields, the tool's position, the goal seen from it, and how far the servo still has to go.

        ``goal_near`` is ``tanh(distance / near)`` of the vector from the commanded tool point to the goal. It resolves
        the last centimetres, which are lost in ``goal_from_tcp`` once that is scaled to the whole workspace.
        """
        tcp, commanded = state.tcp_position, state.commanded_position
        values = {
            **observe_robot(state),
            "tcp_position": tcp,
            "goal_from_tcp": goals.position - tcp,
            "commanded_from_tcp": commanded - tcp,
            "goal_near": np.tanh((goals.position - commanded) / NEAR_M),
        }
        if self.config.joint_way:
            values |= self.joints.observe(state, self._joint_error(state, goals))
        return values

    def goal_points(self, state: TaskState, goals: Goals) -> GoalPoints:
        """Return the tool's positions and those asked for (m, 3)."""
        return GoalPoints(state.tcp_position, goals.position, self.config.tolerance_m)

    def way_left(self, state: TaskState, goals: Goals) -> Array:
        """Return the tool's distance from the goal as it is seen, and nothing within the tolerance."""
        distance = lengths(goals.position - state.tcp_position)
        return np.where(distance <= self.config.tolerance_m, 0.0, distance)

    def score(self, transition: Transition) -> Scores:
        """Score one control period by the measured tool position and speed."""
        config, weights = self.config, self.config.rewards
        before, state, goals = transition.before, transition.state, transition.goals
        distance = lengths(goals.position - state.tcp_position)
        commanded_before = lengths(goals.position - before.commanded_position)
        commanded = lengths(goals.position - state.commanded_position)
        achieved = (distance <= config.tolerance_m) & (lengths(state.tcp_velocity) <= config.settle_speed_m_s)
        near = nearness(distance, config.tolerance_m)
        still = np.exp(-lengths(state.commanded_velocity) / config.settle_speed_m_s)
        terms = {
            "progress": weights.progress * progress(commanded_before, commanded, self.full_progress),
            "precision": weights.precision * near,
            "settled": weights.settled * achieved,
            "rest": weights.rest * near * still,
            "smoothness": -weights.smoothness * roughness(transition.action, transition.previous_action),
            "guard": -weights.guard * transition.intervened,
        }
        if config.joint_way:
            joints_before, joints = self._joint_error(before, goals), self._joint_error(state, goals)
            terms["joint_progress"] = weights.joint_progress * self.joints.progress(joints_before, joints)
            terms["joint_rest"] = weights.joint_rest * self.joints.rest(joints, state.commanded_dq)
        return Scores(terms, achieved, distance)

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Tell a tool that is away from the goal from one that moves there."""
        found = super().failures(transition, gripped)
        within = self.config.tolerance_m
        return [
            Failure("too_fast") if each.distance_m is not None and each.distance_m <= within else each for each in found
        ]

    def _joint_error(self, state: TaskState, goals: Goals) -> Array:
        """Compute how far each joint (m, n) is from the goal with the tool pointing down [rad]."""
        error = [goals.position - state.commanded_position, turns_down(state.commanded_rotation)[:, :2]]
        return self.joints.of(state, np.concatenate(error, axis=1))


TASKS.register("reach", Reach)
