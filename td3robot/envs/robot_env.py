"""A task on a robot as a Gymnasium environment: a batch of one, in simulation and on hardware."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from td3robot.envs.batch import RobotBatch, Vector, Watch
from td3robot.errors import ConfigError, EnvironmentFaultError, TrackerError, choose
from td3robot.layout import Layout
from td3robot.policy.contract import Contract
from td3robot.robots.guard import GuardDecision
from td3robot.robots.travel import Travel
from td3robot.state import Array, JointCommand, Pose, World
from td3robot.tasks.interface import Goal

if TYPE_CHECKING:
    from td3robot.envs.renderer import Renderer

RENDER_MODES = ("rgb_array",)
RESET_OPTIONS = ("goal", "stay")


class RobotEnv(gymnasium.Env[Vector, Vector]):
    """An environment with the task's observation layout and actions in [-1, 1].

    ``info`` after every step: ``reward_terms`` by name, ``interventions`` (why the guard changed the command),
    ``success`` (the goal held for the task's ``hold_steps`` up to now), ``distance_m``, ``tcp_speed_m_s``,
    ``joint_speed_rad_s``; at the end of an episode also ``is_success``, which Stable-Baselines3 looks for. Episodes end
    by time alone, as truncations; in training, also once the goal was held for long enough for the task.

    An environment pickles as the recipe it was made from, so that it can be sent to another process: unpickling makes a
    new environment of the same configuration, not connected and before its first reset, whatever the state of this one.

    Args:
        batch: Of one row.
        renderer: Makes the renderer; None for no rendering.
        recipe: Makes the same environment anew; None if it was made around something that another process cannot have.

    Attributes:
        batch: The row; environments that train together join theirs.
        robot, objects, initial: See :class:`td3robot.envs.batch.Cell`.
        task, action_kind, guard: See :class:`td3robot.envs.batch.Setting`.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 20}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        batch: RobotBatch,
        *,
        renderer: "Callable[[], Renderer] | None" = None,
        recipe: "Callable[[], RobotEnv] | None" = None,
    ) -> None:
        self.batch = batch
        self.robot, self._objects, self.initial = batch.cells[0]
        self.task, self.action_kind, self.guard = batch.task, batch.action_kind, batch.guard
        self.render_mode = None if renderer is None else RENDER_MODES[0]
        self.metadata = self.metadata | {"render_fps": batch.spec.control_rate_hz}
        self._make_renderer, self._recipe = renderer, recipe
        self._renderer: Renderer | None = None
        self._running = False
        self._last_info: dict[str, Any] = {}
        self.observation_layout: Layout = batch.layout
        self.observation_space = Box(-np.inf, np.inf, (batch.layout.size,), np.float32)
        self.action_space = Box(-1.0, 1.0, (self.action_kind.layout.size,), np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._recipe is None:
            raise ConfigError(
                "this environment was made around a robot or objects that are open in this process, and cannot be "
                "sent to another; make it there"
            )
        return _remade, (self._recipe, self.spec)

    def contract(self) -> Contract:
        """Return the contract of a policy for this environment."""
        return Contract(
            {
                "robot": self.robot.spec.to_json(),
                "task": self.task.to_json(),
                "observation": self.task.layout.to_json(),
                "action": self.action_kind.to_json(),
                "guard": self.guard.to_json(),
                "episode_steps": self.episode_steps,
            }
        )

    @property
    def episode_steps(self) -> int:
        """Control periods in an episode."""
        return self.batch.setting.episode_steps

    @property
    def travel(self) -> Travel:
        """Brings an arm that cannot be placed to its start; the operator can veto it."""
        return self.batch.travel

    @property
    def watch(self) -> Watch | None:
        """Called in every control period: what was desired, the guard's decision, and what was sent."""
        return self.batch.watch

    @watch.setter
    def watch(self, watch: Watch | None) -> None:
        """Set it, or None to call nothing."""
        self.batch.watch = watch

    @property
    def goal(self) -> Goal:
        """What the episode asks for."""
        goal = self.batch.goal[0]
        assert goal is not None, "there was no reset"
        return goal

    @property
    def world(self) -> World:
        """The environment as it truly is."""
        return self.batch.world(self.batch.state)

    @property
    def seen(self) -> World:
        """The environment as a controller sees it."""
        return self.batch.world(self.batch.seen)

    @property
    def gripper_message(self) -> str:
        """Why the gripper does not follow the policy's intent, for operators; or nothing."""
        if self.batch.retreat and self.batch.retreat.rises[0]:
            opens = "the gripper opens and " if self.task.uses_gripper else ""
            return f"nothing goes on here: {opens}the tool rises, to look again"
        return self.task.gripper_message(self.batch.seen, self.batch.seen_goals)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """Sample a goal, bring the arm to its start, and observe.

        Args:
            seed: As in Gymnasium.
            options: ``goal``: the numbers of a goal [m, rad] in place of the sampled one, for tasks that take one (see
                their ``goal_form``). ``stay``: whether the episode begins where the arm stands, with its gripper as it
                is.

        Raises:
            ConfigError: An option is unknown, or the given goal is not possible.
            RobotError: The robot cannot be reached or did not get to the start.
        """
        wanted = options or {}
        for name in wanted:
            if name not in RESET_OPTIONS:
                raise ConfigError(choose("reset option", str(name), RESET_OPTIONS))
        super().reset(seed=seed)
        self._running = False
        goal = np.asarray(wanted["goal"], np.float64) if "goal" in wanted else None
        self._last_observation = self.batch.reset(0, self.np_random, goal, bool(wanted.get("stay")))
        self._last_info, self._running = self.batch.info(), True
        return self._last_observation, {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Advance by one control period.

        Raises:
            EnvironmentFaultError: There was no reset, or the action is not finite or has the wrong shape; nothing was
                sent.
            CommandRefusedError: The guard refused to send anything; the arm was told to stop.
            RobotError: The robot failed; it was told to stop.
        """
        self._require_running("step")
        try:
            result = self.batch.step(np.asarray(action, np.float32)[None])
        except TrackerError as error:
            return self._abandon(str(error))
        self._last_observation, (self._last_info,) = result.observations[0], result.infos()
        return self._last_observation, float(result.rewards[0]), False, bool(result.truncated[0]), self._last_info

    def preview(self, action: Vector) -> GuardDecision:
        """Return what a step with an action would send now; nothing is sent, and the guard's state does not change.

        Raises:
            EnvironmentFaultError: There was no reset, or the action is not finite or has the wrong shape.
            CommandRefusedError: The guard would refuse to send anything.
        """
        self._require_running("preview")
        return self.batch.preview(np.asarray(action, np.float32)[None])

    def drive(self, desired: JointCommand) -> tuple[str, ...]:
        """Advance by one control period with a command that comes from no action, as when a person jogs the arm.

        The guard decides as on any other; no reward and no step of the episode are counted. Returns its reasons.

        Raises:
            EnvironmentFaultError: There was no reset.
            CommandRefusedError: The guard refused to send anything; the arm was told to stop.
            RobotError: The robot failed; it was told to stop.
        """
        self._require_running("drive")
        return self.batch.drive(desired)

    def resume(self, velocity: Array | None = None) -> Vector:
        """Continue an episode after a pause in which the robot was stopped, and return the observation.

        The guard is anchored to where the arm rests now, and the gripper keeps its command. The pause does not count as
        time in which objects were unseen. Fingers that moved in it have not stalled.

        Args:
            velocity: (n,) of the joints [rad/s], for an arm whose motion is only assumed; None at rest.

        Raises:
            EnvironmentFaultError: There was no reset.
            RobotError: The robot failed.
        """
        self._require_running("resume")
        self._last_observation = self.batch.resume(velocity)
        return self._last_observation

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image (height, width, 3) of the arm and the goal, in ``rgb_array`` mode.

        Raises:
            EnvironmentFaultError: There was no reset.
            ConfigError: No offscreen rendering is possible here, or another thread drew the first picture.
        """
        if self._make_renderer is None:
            return None
        self._require_running("render")
        if self._renderer is None:
            self._renderer = self._make_renderer()
        self._renderer.become(self.goal.models)
        return self._renderer.draw(self.world, self.goal.position)

    def close(self) -> None:
        """Release the robot."""
        self._running = False
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self.batch.close()

    def connect(self) -> None:
        """Connect the robot, and compute with what it then knows of its arm.

        Raises:
            RobotError: It cannot be reached, or is another robot.
        """
        self.batch.connect()

    def tool_at(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        return self.guard.kinematics.tcp(q)

    def find_objects(self) -> Mapping[str, Pose]:
        """Return the poses of the objects, outside of any episode.

        Raises:
            TrackerError: Not every object is seen.
        """
        return self._objects.arrange({})

    def _require_running(self, call: str) -> None:
        if not self._running:
            raise EnvironmentFaultError(
                f"{call}() was called before reset(): there is no episode yet; call reset() first"
            )

    def _abandon(self, fault: str) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """End the episode because the objects were lost; nothing moves blind."""
        self.robot.stop()
        end = {"success": False, "is_success": False, "reward_terms": {}, "interventions": (), "fault": fault}
        return self._last_observation, 0.0, False, True, self._last_info | end


def _remade(recipe: Callable[[], RobotEnv], spec: Any) -> RobotEnv:
    """Make an environment from its recipe, with the same Gymnasium spec."""
    environment = recipe()
    environment.spec = spec
    return environment
