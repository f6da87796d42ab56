"""A task on a robot, behind the guard: the same environment for simulation and hardware."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from td3robot import config
from td3robot.envs.action import ActionKind
from td3robot.errors import ConfigError, EnvironmentFaultError, RobotError, TrackerError
from td3robot.layout import Layout
from td3robot.policy.contract import Contract
from td3robot.robots.guard import Guard, Ruling
from td3robot.robots.interface import Robot
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.objects import Objects
from td3robot.robots.simulated.disturbed import DisturbedRobot
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.robots.travel import Travel
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState, World
from td3robot.tasks.interface import Goal, Moment, Score, Task

Vector = NDArray[np.float32]

# Drawing goals until one is reachable from an admissible start; a box that needs more is at fault.
MAX_DRAWS = 100


class RobotEnv(gymnasium.Env[Vector, Vector]):
    """Observations as the task lays them out, actions in [-1, 1].

    ``info`` after every step: ``reward_terms`` by name, ``interventions`` (why the guard changed the wish),
    ``success`` (the goal held for the task's ``hold_steps`` up to now), ``distance_m``, ``tcp_speed_m_s``,
    ``joint_speed_rad_s``. Episodes end by time alone, as truncations; in training, also once the task says that the
    goal was held for long enough.

    Args:
        robot: Any robot; it is connected at the first reset.
        kinematics: The arm's geometry, of commands.
        observer: The same, of what is measured; a robot may have a model of its own.
        ik: For start postures.
        object_models: What they look like, for pictures.
        goals: Where goals are drawn from.
        practice: Whether episodes may begin where there is most to learn; see the task.

    Attributes:
        travel: How an arm that cannot be placed gets to its start; who deploys may have to agree to it.
        watch: Told in every control period, once it is sent: what the arm was asked for, what the guard made of it, and
            what was sent.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        robot: Robot,
        task: Task,
        guard: Guard,
        action_kind: ActionKind,
        kinematics: Kinematics,
        observer: Kinematics | ToolboxKinematics,
        ik: ToolboxKinematics,
        objects: Objects,
        object_models: tuple[ObjectModel, ...],
        episode_steps: int,
        goals: config.Box,
        practice: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.robot, self.task, self.guard, self.action_kind = robot, task, guard, action_kind
        self.render_mode = render_mode
        self._kinematics, self._observer, self._ik = kinematics, observer, ik
        self.metadata = self.metadata | {"render_fps": robot.spec.control_rate_hz}
        self._objects, self._object_models = objects, object_models
        self._practice = practice
        self.travel = Travel(robot, guard, kinematics, ik)
        self.watch: Callable[[JointCommand, Ruling, JointCommand], None] | None = None
        self._episode_steps, self._goals = episode_steps, goals
        self._renderer: Any = None
        self.observation_layout: Layout = task.layout
        self.observation_space = Box(-np.inf, np.inf, (task.layout.size,), np.float32)
        self.action_space = Box(-1.0, 1.0, (action_kind.layout.size,), np.float32)

    def contract(self) -> Contract:
        """State what a policy for this environment is trained for."""
        return Contract(
            {
                "robot": self.robot.spec.to_json(),
                "task": self.task.to_json(),
                "observation": self.task.layout.to_json(),
                "action": self.action_kind.to_json(),
                "guard": self.guard.to_json(),
                "episode_steps": self._episode_steps,
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """Draw a goal, bring the arm to its start, and observe.

        Args:
            seed: As in Gymnasium.
            options: ``goal``: a position [m] in place of the drawn one, for tasks that draw one. ``stay``: whether the
                episode begins where the arm stands, its gripper as it is.

        Raises:
            ConfigError: The given goal cannot be had.
            RobotError: The robot cannot be reached or did not get to the start.
        """
        super().reset(seed=seed)
        self.robot.connect()
        wanted = options or {}
        goal, q = self._draw()
        if "goal" in wanted:
            goal = self._given(goal, np.asarray(wanted["goal"], np.float64))
        self.robot.begin(self.np_random)
        gripper = 0.0
        if wanted.get("stay"):
            q, gripper = self._here()
            goal = replace(goal, gripper=gripper)
        elif self.robot.teleports:
            self.robot.move_to(q)
        else:
            q = self.travel.to(q)
        lying = self._objects.arrange(goal.objects)
        self.guard.reset(q, gripper)
        self._previous_action = np.zeros(self.action_kind.layout.size, np.float32)
        self._steps = self._held = 0
        self._look(self.guard.commanded)
        self.goal, self._told = self.task.settle(goal, lying), self.task.settle(goal, self.seen.objects)
        at_rest = Moment(self.world, self.world, self._previous_action, self._previous_action, ())
        self._info(self.task.score(at_rest, self.goal), ())
        return self._observe(), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Let one control period pass.

        Raises:
            EnvironmentFaultError: The action is not finite, or has the wrong shape; nothing was sent.
            CommandRefusedError: The guard refused to send anything; the arm was told to stop.
            RobotError: The robot failed; it was told to stop.
        """
        action = np.asarray(action, np.float32)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            raise EnvironmentFaultError(
                f"action {action} is not {self.action_kind.layout.size} finite numbers in [-1, 1]; nothing was sent"
            )
        action = np.clip(action, -1.0, 1.0)
        wish = self.action_kind.wish(action, self.guard.commanded, self.guard.velocity, self.goal.gripper)
        try:
            ruling = self.guard.filter(wish, self.seen.robot, self.robot.now())
            sent = self.robot.send(ruling.command)
            if self.watch is not None:
                self.watch(wish, ruling, sent)
            self.robot.advance()
        except RobotError:
            self.robot.stop()
            raise
        before = self.world
        try:
            self._look(sent)
        except TrackerError as error:
            return self._abandon(str(error))
        except RobotError:
            self.robot.stop()
            raise
        moment = Moment(before, self.world, action, self._previous_action, ruling.reasons)
        score = self.task.score(moment, self.goal)
        self._previous_action = action
        self._held = self._held + 1 if score.achieved else 0
        self._steps += 1
        practised = self._practice and self._held >= self.task.practice_hold_steps
        truncated = self._steps >= self._episode_steps or practised
        if truncated and not self.robot.teleports:
            self.robot.stop()  # nobody sends targets between two episodes
        return self._observe(), score.reward, False, truncated, self._info(score, ruling.reasons)

    def resume(self) -> Vector:
        """Go on after a pause within an episode, in which the robot was stopped; gives the observation.

        The guard is anchored to where the arm rests now, and the gripper is commanded as before.

        Raises:
            RobotError: The robot failed.
        """
        self.guard.reset(self.robot.read().q, self.guard.commanded.gripper)
        self._previous_action = np.zeros(self.action_kind.layout.size, np.float32)
        self._look(self.guard.commanded)
        return self._observe()

    def render(self) -> NDArray[np.uint8] | None:
        """Draw the arm and the goal (height, width, 3), in ``rgb_array`` mode.

        Raises:
            ConfigError: No offscreen rendering is possible here.
        """
        if self.render_mode is None:
            return None
        if self._renderer is None:
            from td3robot.envs.renderer import Renderer

            self._renderer = Renderer(self.robot.spec, self._object_models)
        frame: NDArray[np.uint8] = self._renderer.draw(self.world, self.goal.position)
        return frame

    def close(self) -> None:
        """Let go of the robot."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._objects.close()
        self.robot.close()

    def tool_at(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        return self._kinematics.tcp(q)

    def find_objects(self) -> Mapping[str, Pose]:
        """Give where the objects are, outside of any episode.

        Raises:
            TrackerError: Not every object is seen.
        """
        return self._objects.arrange({}) if self._object_models else {}

    def require_reachable(self, region: str, low: Array, high: Array) -> None:
        """Refuse a box of goals that the arm cannot reach everywhere, on a grid of 5 x 5 x 5 points.

        Raises:
            ConfigError: Naming the first point out of reach, or the limit that a posture there breaks.
        """
        axes = [np.linspace(a, b, 5) for a, b in zip(low, high, strict=True)]
        for point in np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3):
            q, objection = self._posture_at(point)
            if q is None:
                x, y, z = point
                raise ConfigError(
                    f"{region} holds ({x:.3f}, {y:.3f}, {z:.3f}) m, which the arm cannot reach ({objection}); "
                    "move or shrink the box"
                )

    def _draw(self) -> tuple[Goal, Array]:
        objection = ""
        for _ in range(MAX_DRAWS):
            goal = self.task.sample(self.np_random, self._practice)
            reachable, objection = self._posture_at(goal.position)
            if reachable is None:
                continue
            q, objection = self._posture_at(goal.start)
            if q is not None:
                return goal, q
        raise ConfigError(
            f"no admissible start was found in {MAX_DRAWS} draws (the last: {objection}); check task and guard"
        )

    def _given(self, goal: Goal, position: Array) -> Goal:
        """Put a given position into a drawn goal."""
        if goal.objects:
            raise ConfigError("the goal of this task is where its object lies, and cannot be given; leave --goal out")
        box = self._goals
        if position.shape != (3,) or not ((position >= box.low) & (position <= box.high)).all():
            raise ConfigError(
                f"the goal {position.tolist()} m is outside {box.low}..{box.high} m, for which the policy was trained"
            )
        _, objection = self._posture_at(position)
        if objection:
            raise ConfigError(f"the goal {position.tolist()} m cannot be reached: {objection}")
        return replace(goal, position=position)

    def _here(self) -> tuple[Array, float]:
        """Give posture and closed fraction where the arm stands."""
        state = self.robot.read()
        self.guard.reset(state.q)
        if (limit := self.guard.admits(state.q)) is not None:
            x, y, z = self._kinematics.tcp(state.q).position
            raise RobotError(
                f"the arm stands where the guard's limit {limit!r} keeps it from moving (tool at {x:.3f}, {y:.3f}, "
                f"{z:.3f} m): move it by hand, in freedrive, towards home"
            )
        closed = float(state.driver_q.mean()) / self.robot.spec.gripper.driver_closed
        return state.q, min(max(closed, 0.0), 1.0)

    def _posture_at(self, position: Array) -> tuple[Array | None, str]:
        """Find a posture with the tool at a position that the guard admits; or say why there is none.

        The tool points as at home if it can, and anyhow if it cannot (far and high), unless the task needs it so.
        """
        home = self.robot.spec.arm.home
        objection = "no inverse kinematics solution from home"
        for rotation in (self._kinematics.tcp(home).rotation, *([] if self.task.turns_tool else [None])):
            q = self._ik.inverse(position, home, rotation)
            if q is not None:
                limit = self.guard.admits(q)
                if limit is None:
                    return q, ""
                objection = f"the guard's limit: {limit}"
        return None, objection

    def _look(self, commanded: JointCommand) -> None:
        """Read the robot: ``seen`` is what a controller is told, ``world`` what is."""
        commanded_tcp = self._kinematics.tcp(commanded.q)
        self.seen = self._world(self.robot.read(), self._objects.read(), commanded, commanded_tcp)
        self.world = self.seen
        if isinstance(self.robot, DisturbedRobot):
            self.world = self._world(self.robot.truth(), self._objects.truth(), commanded, commanded_tcp)

    def _world(
        self, state: RobotState, objects: Mapping[str, Pose], commanded: JointCommand, commanded_tcp: Pose
    ) -> World:
        tcp, jacobian = self._observer.tcp_and_jacobian(state.q)
        return World(state, tcp, jacobian @ state.dq, commanded, commanded_tcp, objects)

    def _observe(self) -> Vector:
        self._last_observation = self.task.layout.pack(self.task.observe(self.seen, self._told))
        return self._last_observation

    def _abandon(self, fault: str) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """End the episode where nobody knows any more where the objects are; nothing moves blind."""
        self.robot.stop()
        self._held = 0
        info = self._last_info | {"success": False, "reward_terms": {}, "interventions": (), "fault": fault}
        return self._last_observation, 0.0, False, True, info

    def _info(self, score: Score, reasons: tuple[str, ...]) -> dict[str, Any]:
        velocity = self.world.tcp_velocity
        self._last_info: dict[str, Any] = {
            "reward_terms": score.terms,
            "interventions": reasons,
            "success": self._held >= self.task.hold_steps,
            "distance_m": score.distance_m,
            "tcp_speed_m_s": float(np.sqrt(velocity @ velocity)),
            "joint_speed_rad_s": float(np.abs(self.world.robot.dq).max()),
        }
        return self._last_info
