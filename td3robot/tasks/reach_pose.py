"""Reach a pose: bring the tool centre point to a goal, turned as it asks, and rest there."""

from dataclasses import replace
from math import degrees, radians
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Bounded
from pydantic import PositiveFloat

from td3robot.config.section import Box, NonNegative, Section
from td3robot.config.task import TaskConfig
from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import ArmModel, GripperModel, RobotSpec
from td3robot.row_math import lengths, turns_between
from td3robot.state import Array
from td3robot.tasks.grasp_formulas import FULL_TURN_RAD_S
from td3robot.tasks.interface import (
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
from td3robot.tasks.shaping import nearness, progress, roughness

# Scales on which the observation resolves the last stretch to the goal [m], and the last part of the turn [rad].
NEAR_M, NEAR_TURN = 0.03, 0.1
# The tool at home points down, its x axis along the base's.
DOWN = np.diag([1.0, -1.0, -1.0])
# A turn by 1 rad counts as this much way in the reward for commanding rest: a point so far from the tool's axis [m].
TURN_RADIUS = 0.1
# Of the arm's own box of goals, these begin this far up, so that a tilted gripper clears the table, and end so much
# nearer, so that a tilted tool still gets there [m].
ABOVE_TABLE_M, NEARER_M = 0.2, 0.1


class ReachPoseRewards(Section):
    """Weights of the reward terms; :class:`ReachPose` has the formulas.

    Attributes:
        progress: Reward for progress of the commanded tool point to the goal.
        turn: Reward for progress of the commanded tool's turn to the goal's orientation.
        precision: Reward for being near the goal and turned as it asks, on the scale of the tolerances.
        settled: Reward for being there and at rest.
        rest: Reward for commanding rest there.
        smoothness: Penalty on changes of the action.
        guard: Penalty on steps that the guard changed.
    """

    progress: NonNegative = 1.0
    turn: NonNegative = 3.0
    precision: NonNegative = 1.0
    settled: NonNegative = 1.0
    rest: NonNegative = 1.0
    smoothness: NonNegative = 0.05
    guard: NonNegative = 0.05


class ReachPoseConfig(TaskConfig):
    """Bring the tool centre point to a goal, turned as it asks, and rest there.

    Attributes:
        goals: Box from which goals (and starts) are sampled uniformly.
        tilt_deg: Goals tilt the tool by up to this from pointing down, in any direction.
        turn_deg: They turn it about the vertical by up to this, either way, from its heading at home.
        tolerance_m, tolerance_rad: Within this distance and this angle of the goal counts as there. Those of
            Gymnasium-Robotics' ``HandManipulate`` tasks.
        settle_speed_m_s: Below this speed, the tool counts as at rest.
        hold_s: How long the tool must be there and at rest at the end of an episode.
    """

    name: Literal["reach_pose"] = "reach_pose"
    goals: Box = Box(low=(-0.3, 0.25, 0.2), high=(0.3, 0.65, 0.45))
    tilt_deg: Annotated[float, Bounded(ge=0.0, le=60.0)] = 45.0
    turn_deg: Annotated[float, Bounded(ge=0.0, le=150.0)] = 90.0
    tolerance_m: PositiveFloat = 0.01
    tolerance_rad: PositiveFloat = 0.1
    settle_speed_m_s: PositiveFloat = 0.02
    hold_s: PositiveFloat = 0.25
    rewards: ReachPoseRewards = ReachPoseRewards()
    region: ClassVar[str] = "task.goals"
    title: ClassVar[str] = "reach a pose"
    achieved: ClassVar[str] = "reached"

    @classmethod
    def regions(cls, arm: ArmModel) -> dict[str, Any]:
        """Return the part of the arm's box of goals where a tilted tool clears the table, and which it reaches."""
        region = arm.regions["goals"]
        (x, y, z), (x1, y1, z1) = region.low, region.high
        return {"goals": {"low": (x, y, max(z, ABOVE_TABLE_M)), "high": (x1, round(y1 - NEARER_M, 6), z1)}}

    def space(self, table_height_m: float, gripper: GripperModel) -> Box:
        """Return the box that the tool must reach, in the base frame."""
        return self.goals


class ReachPose(Task):
    """Bring the tool to a goal, turned as it asks, and rest there.

    Reward terms, each times its weight, with d the distance from tool to goal, and a the angle between them:

    * ``progress``: ``clip((c_before - c) / (tool speed limit * period), -1, 1)`` with c the distance of the *commanded*
      tool point to the goal, as in the reach task
    * ``turn``: ``clip((b_before - b) / (3.2 rad/s * period), -1, 1)`` with b the angle from the commanded tool
    * ``precision``: ``exp(-(d / tolerance)^2 - (a / tolerance)^2)``, mixed half and half with the same on scales of 50
      mm and 0.5 rad
    * ``settled``: 1 if d and a are within their tolerances and the tool is at rest, else 0
    * ``rest``: ``exp(-(d / tolerance)^2 - (a / tolerance)^2)`` times ``exp(-commanded speed / settle speed)``, where
      turning at 1 rad/s about the vertical counts as 100 mm/s
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the command
    """

    Config = ReachPoseConfig
    name = "reach_pose"
    uses_gripper = False
    turns_tool = False
    tilts_tool = True
    goal_form = "x,y,z,rx,ry,rz"

    def __init__(self, config: ReachPoseConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        self.config = config
        self.full_progress, self.full_turn = max_tcp_speed_m_s * spec.period_s, FULL_TURN_RAD_S * spec.period_s
        self.hold_steps = spec.periods(config.hold_s)
        xyz = ("x", "y", "z")
        self.layout = Layout(
            [
                *robot_fields(spec),
                Field("tcp_position", xyz, "m", "kinematics"),
                Field("goal_from_tcp", xyz, "m", "task"),
                Field("commanded_from_tcp", xyz, "m", "guard"),
                Field("goal_near", xyz, "1", "task"),
                Field("turn_left", xyz, "rad", "task"),
                Field("turn_near", xyz, "1", "task"),
                Field("commanded_dq", spec.arm.joint_names, "rad/s", "guard"),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the name, and the scales of ``goal_near`` and ``turn_near``."""
        return {"name": self.name, "near_m": NEAR_M, "near_rad": NEAR_TURN}

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample goal and start, each uniformly from the box, the goal's turn and tilt, and the gripper's opening.

        The goal turns the tool at home about the vertical, and then tilts it about a level axis in any direction.
        """
        config, box = self.config, self.config.goals
        heading = radians(rng.uniform(-config.turn_deg, config.turn_deg))
        tilt, towards = radians(config.tilt_deg) * np.sqrt(rng.uniform()), rng.uniform(-np.pi, np.pi)
        tilted = rotation_matrix(tilt * np.array([np.cos(towards), np.sin(towards), 0.0]))
        return Goal(
            position=rng.uniform(box.low, box.high),
            rotation=tilted @ about_vertical(heading) @ DOWN,
            start=rng.uniform(box.low, box.high),
            gripper=float(rng.uniform(0.0, 1.0)),
        )

    def given(self, goal: Goal, numbers: Array) -> Goal:
        """Return a sampled goal at a position (x, y, z) [m] with a rotation vector (rx, ry, rz) [rad], as URs have it.

        Raises:
            ConfigError: It tilts or turns the tool further than training did.
        """
        x, y, z, *vector = numbers
        rx, ry, rz = vector
        rotation = rotation_matrix([rx, ry, rz])
        tilt, turn = tilt_and_turn(rotation)
        for what, angle, most in (("tilts", tilt, self.config.tilt_deg), ("turns", turn, self.config.turn_deg)):
            if abs(angle) > radians(most) + 1e-6:
                raise ConfigError(
                    f"the goal {what} the tool by {degrees(abs(angle)):.0f} degrees, and the policy was trained for up "
                    f"to {most:g}; rx,ry,rz are a rotation vector, {np.pi:.2f},0,0 for a tool that points down as at "
                    "home"
                )
        return replace(goal, position=np.array([x, y, z]), rotation=rotation)

    def observe(self, state: TaskState, goals: Goals) -> dict[str, Array]:
        """Return what the reach task does, the turn that is left to the commanded tool, and its joints' velocities."""
        tcp, commanded = state.tcp_position, state.commanded_position
        turn = turns_between(state.commanded_rotation, goals.rotation)
        return {
            **observe_robot(state),
            "tcp_position": tcp,
            "goal_from_tcp": goals.position - tcp,
            "commanded_from_tcp": commanded - tcp,
            "goal_near": np.tanh((goals.position - commanded) / NEAR_M),
            "turn_left": turn,
            "turn_near": np.tanh(turn / NEAR_TURN),
            "commanded_dq": state.commanded_dq,
        }

    def score(self, transition: Transition) -> Scores:
        """Score one control period by the measured tool."""
        config, weights = self.config, self.config.rewards
        before, state, goals = transition.before, transition.state, transition.goals
        distance, angle = lengths(goals.position - state.tcp_position), self._angle(state, goals)
        commanded_before = lengths(goals.position - before.commanded_position)
        commanded = lengths(goals.position - state.commanded_position)
        turn_before = lengths(turns_between(before.commanded_rotation, goals.rotation))
        turn = lengths(turns_between(state.commanded_rotation, goals.rotation))
        there = (distance <= config.tolerance_m) & (angle <= config.tolerance_rad)
        near = nearness(distance, config.tolerance_m) * nearness(angle, config.tolerance_rad)
        wide = nearness(distance, 5.0 * config.tolerance_m) * nearness(angle, 5.0 * config.tolerance_rad)
        speed = lengths(state.commanded_velocity) + TURN_RADIUS * np.abs(state.commanded_turn_rate)
        achieved = there & (lengths(state.tcp_velocity) <= config.settle_speed_m_s)
        terms = {
            "progress": weights.progress * progress(commanded_before, commanded, self.full_progress),
            "turn": weights.turn * progress(turn_before, turn, self.full_turn),
            "precision": weights.precision * 0.5 * (near + wide),
            "settled": weights.settled * achieved,
            "rest": weights.rest * near * np.exp(-speed / config.settle_speed_m_s),
            "smoothness": -weights.smoothness * roughness(transition.action, transition.previous_action),
            "guard": -weights.guard * transition.intervened,
        }
        return Scores(terms, achieved, distance)

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Tell a tool that is away from the goal from one that is turned from it, and from one that moves there."""
        found, config = super().failures(transition, gripped), self.config
        askew = self._angle(transition.state, transition.goals) > config.tolerance_rad
        return [
            each
            if each.distance_m is None or each.distance_m > config.tolerance_m
            else Failure("askew" if askew[row] else "too_fast")
            for row, each in enumerate(found)
        ]

    def _angle(self, state: TaskState, goals: Goals) -> Array:
        """Compute the angles (m,) between measured tools and their goals [rad]."""
        return lengths(turns_between(state.tcp_rotation, goals.rotation))


def tilt_and_turn(rotation: Array) -> tuple[float, float]:
    """Return by how much a rotation (3, 3) tilts a tool from pointing down, and turns it about the vertical [rad]."""
    tilt = float(np.arccos(np.clip(-rotation[2, 2], -1.0, 1.0)))
    axis = np.cross([0.0, 0.0, -1.0], rotation[:, 2])
    size = float(np.linalg.norm(axis))
    upright = rotation if size < 1e-9 else rotation_matrix(-tilt / size * axis) @ rotation
    return tilt, float(np.arctan2(upright[1, 0], upright[0, 0]))


TASKS.register("reach_pose", ReachPose)
