"""A task on a robot, behind the guard: the same environment for simulation and hardware."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from td3robot.envs.action import ActionKind
from td3robot.envs.starts import Starts
from td3robot.errors import ConfigError, EnvironmentFaultError, RobotError, TrackerError, choose
from td3robot.geometry import length
from td3robot.layout import Layout
from td3robot.policy.contract import Contract
from td3robot.robots.guard import Guard, Ruling
from td3robot.robots.interface import Robot
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.object_memory import ObjectMemory
from td3robot.robots.objects import Objects
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.robots.travel import Travel
from td3robot.state import Array, JointCommand, Pose, RobotState, World
from td3robot.tasks.interface import AT_REST, REST_S, STALLED_PER_S, Goal, Moment, Score, Task

if TYPE_CHECKING:
    from td3robot.envs.renderer import Renderer

Vector = NDArray[np.float32]

RENDER_MODES = ("rgb_array",)
RESET_OPTIONS = ("goal", "stay")
# How long closing on an object, and lifting it, may take before an episode of practice begins [s]; the slowest gripper
# of domain randomization closes within 3 s.
GRIP_S, LIFT_S = 4.0, 2.0
# Below this, the commanded joints rest [rad/s].
STILL = 1e-6


class RobotEnv(gymnasium.Env[Vector, Vector]):
    """An environment with the task's observation layout and actions in [-1, 1].

    ``info`` after every step: ``reward_terms`` by name, ``interventions`` (why the guard changed the wish),
    ``success`` (the goal held for the task's ``hold_steps`` up to now), ``distance_m``, ``tcp_speed_m_s``,
    ``joint_speed_rad_s``; at the end of an episode also ``is_success``, which Stable-Baselines3 looks for. Episodes end
    by time alone, as truncations; in training, also once the goal was held for long enough for the task.

    An environment pickles as the recipe it was made from, so that it can be sent to another process: unpickling makes a
    new environment of the same configuration, not connected and before its first reset, whatever the state of this one.

    Args:
        robot: Any robot; it is connected at the first reset.
        objects: The objects of its cell.
        starts: Where episodes begin.
        episode_steps: Control periods in an episode.
        observer: The kinematics of the measured arm; by default the guard's, which are those of the commands, unless
            the robot has a model of its own.
        renderer: Makes the renderer; None for no rendering.
        recipe: Makes the same environment anew; None if it was made around something that another process cannot have.
        pace: Speed of the arm, as a share of training's.

    Attributes:
        travel: Brings an arm that cannot be placed to its start; the operator can veto it.
        watch: Called in every control period once its command is sent, with the wish, the guard's ruling, and the
            command that was sent.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 20}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        robot: Robot,
        objects: Objects,
        task: Task,
        guard: Guard,
        action_kind: ActionKind,
        starts: Starts,
        episode_steps: int,
        *,
        observer: Kinematics | ToolboxKinematics | None = None,
        renderer: "Callable[[], Renderer] | None" = None,
        recipe: "Callable[[], RobotEnv] | None" = None,
        pace: float = 1.0,
    ) -> None:
        self.robot, self.task, self.guard, self.action_kind = robot, task, guard, action_kind
        self.starts = starts
        self.travel = Travel(robot, guard)
        self.watch: Callable[[JointCommand, Ruling, JointCommand], None] | None = None
        self.render_mode = None if renderer is None else RENDER_MODES[0]
        self.metadata = self.metadata | {"render_fps": robot.spec.control_rate_hz}
        self._objects, self._observer = objects, observer or guard.kinematics
        rest = robot.spec.periods(REST_S)
        self.memory = ObjectMemory(objects, robot.spec.period_s, rest, pace)
        # The states that were read, and the true ones, from REST_S ago up to now.
        self._read_states: deque[RobotState] = deque(maxlen=1 + rest)
        self._true_states: deque[RobotState] = deque(maxlen=1 + rest)
        self.episode_steps = episode_steps
        self._make_renderer, self._recipe = renderer, recipe
        self._renderer: Renderer | None = None
        self._stalled_s = self._told = 0.0  # for how long the fingers have not moved, and what they are told
        self._running = False
        self.observation_layout: Layout = task.layout
        self.observation_space = Box(-np.inf, np.inf, (task.layout.size,), np.float32)
        self.action_space = Box(-1.0, 1.0, (action_kind.layout.size,), np.float32)

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

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """Sample a goal, bring the arm to its start, and observe.

        Args:
            seed: As in Gymnasium.
            options: ``goal``: a position [m] in place of the sampled one, for tasks that sample one. ``stay``: whether
                the episode begins where the arm stands, with its gripper as it is.

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
        self.connect()
        start = self.starts.draw(self.np_random)
        if "goal" in wanted:
            start = start._replace(goal=self.starts.given(start.goal, np.asarray(wanted["goal"], np.float64)))
        self.robot.begin(self.np_random)
        if wanted.get("stay"):
            start = self.starts.standing(start.goal, self.robot)
        elif self.robot.teleports:
            self.robot.move_to(start.q)
        else:
            start = start._replace(q=self.travel.to(start.q))
        goal = start.goal
        lying = self._objects.arrange(goal.objects)
        self.memory.forget()
        self.guard.reset(start.q, start.gripper)
        self._intent = max(goal.intent, self.action_kind.intent_of(start.gripper))
        self.previous_action = np.zeros(self.action_kind.layout.size, np.float32)
        self._steps = self._held = 0
        self._look_anew()
        self.goal, self.seen_goal = self.task.settle(goal, lying), self.task.settle(goal, self.seen.objects)
        at_rest = Moment(self.world, self.world, self.previous_action, self.previous_action, ())
        self._info(self.task.score(at_rest, self.goal), ())
        self._running = True
        if goal.lift_m > 0.0 and self.robot.teleports and not wanted.get("stay"):
            self._lift(goal)
        return self._observe(), {}

    @property
    def ends_early(self) -> bool:
        """Whether the episode ends once it has achieved enough moments in a row for practice."""
        return self.starts.practice and not self.goal.whole

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Advance by one control period.

        Raises:
            EnvironmentFaultError: There was no reset, or the action is not finite or has the wrong shape; nothing was
                sent.
            CommandRefusedError: The guard refused to send anything; the arm was told to stop.
            RobotError: The robot failed; it was told to stop.
        """
        self._require_running("step")
        action = self._admissible(action)
        self._intent = self.action_kind.intend(action, self._intent)
        wish = self._wish(action, self.guard, self._intent)
        ruling, sent = self._pass_period(wish)
        before = self.world
        try:
            self._look(sent)
        except TrackerError as error:
            return self._abandon(str(error))
        except RobotError:
            self.robot.stop()
            raise
        moment = Moment(before, self.world, action, self.previous_action, ruling.reasons)
        score = self.task.score(moment, self.goal)
        self.previous_action = action
        self._held = self._held + 1 if score.achieved else 0
        self._steps += 1
        practised = self.ends_early and self._held >= self.task.practice_hold_steps
        truncated = self._steps >= self.episode_steps or practised
        if truncated and not self.robot.teleports:
            self.robot.stop()  # nobody sends targets between two episodes
        info = self._info(score, ruling.reasons)
        if truncated:
            info["is_success"] = info["success"]
        return self._observe(), score.reward, False, truncated, info

    def preview(self, action: Vector) -> Ruling:
        """Return what a step with an action would send now; nothing is sent, and the guard's state does not change.

        Raises:
            EnvironmentFaultError: There was no reset, or the action is not finite or has the wrong shape.
            CommandRefusedError: The guard would refuse to send anything.
        """
        self._require_running("preview")
        action, guard = self._admissible(action), self.guard.twin()
        wish = self._wish(action, guard, self.action_kind.intend(action, self._intent))
        return guard.filter(wish, self.seen.robot, self.robot.now())

    def drive(self, wish: JointCommand) -> Ruling:
        """Advance by one control period with a wish that comes from no action, as when a person jogs the arm.

        The guard rules on it as on any other wish; no reward and no step of the episode are counted.

        Raises:
            EnvironmentFaultError: There was no reset.
            CommandRefusedError: The guard refused to send anything; the arm was told to stop.
            RobotError: The robot failed; it was told to stop.
        """
        self._require_running("drive")
        ruling, sent = self._pass_period(wish)
        self._intent = self.action_kind.intent_of(sent.gripper)
        self._look(sent)
        return ruling

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
        state, before, spec = self.robot.read(), self.seen.robot, self.robot.spec
        self.guard.reset(state.q, self.guard.commanded.gripper)
        if velocity is not None:
            self.guard.velocity = velocity
        self.previous_action = np.zeros(self.action_kind.layout.size, np.float32)
        closed, was = (spec.gripper.closed_fraction(each.driver_q) for each in (state, before))
        if abs(closed - was) >= AT_REST:
            self._stalled_s = 0.0
        self.memory.pause(max(0.0, state.stamp - before.stamp - spec.period_s))
        self._look(self.guard.commanded)
        return self._observe()

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
        return self._renderer.draw(self.world, self.goal.position)

    def close(self) -> None:
        """Release the robot."""
        self._running = False
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._objects.close()
        self.robot.close()

    def connect(self) -> None:
        """Connect the robot, and compute with what it then knows of its arm.

        Raises:
            RobotError: It cannot be reached, or is another robot.
        """
        self.robot.connect()
        for kinematics in (self.guard.kinematics, self._observer):
            kinematics.adopt(self.robot.spec)

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

    def _admissible(self, action: Vector) -> Vector:
        action = np.asarray(action, np.float32)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            raise EnvironmentFaultError(
                f"action {action} is not {self.action_kind.layout.size} finite numbers in [-1, 1]; nothing was sent"
            )
        return np.clip(action, -1.0, 1.0)

    def _wish(self, action: Vector, guard: Guard, intent: float) -> JointCommand:
        """Compute the wish: what the action asks of the arm, and the intent of the gripper."""
        kind, before = self.action_kind, guard.commanded
        if not kind.uses_gripper:
            return kind.wish(action, before, guard.velocity, self.goal.gripper)
        least, most = self.task.gripper_range(self.seen)
        gripper = min(max(kind.told(intent, before.gripper), least), most)
        action = kind.waiting(action, self.seen.closing_rate, gripper)
        return kind.wish(action, before, guard.velocity, gripper)

    def _lift(self, goal: Goal) -> None:
        """Close the gripper where the arm is, and lift what it holds, as practice may begin in simulation."""
        here = self.guard.commanded.q
        above, _ = self.starts.posture_at(goal.start + np.array([0.0, 0.0, goal.lift_m]))
        for _ in range(self.robot.spec.periods(GRIP_S)):
            if self.world.held is not None:
                break
            self.drive(JointCommand(here, 1.0))
        if above is not None and self.world.held is not None:
            for _ in range(self.robot.spec.periods(LIFT_S)):
                self.drive(JointCommand(above, 1.0))
                if np.abs(self.guard.velocity).max() < STILL:
                    break
        self._look_anew()

    def _pass_period(self, wish: JointCommand) -> tuple[Ruling, JointCommand]:
        """Send the guard's ruling on a wish, advance by one control period, and return the ruling and what was sent."""
        try:
            ruling = self.guard.filter(wish, self.seen.robot, self.robot.now())
            sent = self.robot.send(ruling.command)
            if self.watch is not None:
                self.watch(wish, ruling, sent)
            self.robot.advance()
        except RobotError:
            self.robot.stop()
            raise
        return ruling, sent

    def _look_anew(self) -> None:
        """Read the robot where an episode begins: what was before does not count."""
        self._read_states.clear()
        self._true_states.clear()
        self._stalled_s, self._told = 0.0, self.guard.commanded.gripper
        self._look(self.guard.commanded)

    def _look(self, commanded: JointCommand) -> None:
        """Read the robot: ``seen`` is the world as a controller sees it, ``world`` the true one."""
        commanded_tcp, jacobian = self.guard.kinematics.tcp_and_full_jacobian(commanded.q)
        told = (commanded, commanded_tcp, jacobian)
        self.seen = self._world(self._read_states, self.robot.read(), *told, None)
        self.world = self.seen
        lying = self._objects.truth()
        if self.robot.is_disturbed:
            known = self.seen.objects if lying is None else lying
            self.world = self._world(self._true_states, self.robot.truth(), *told, known)
        elif lying is not None:
            self.world = replace(self.seen, objects=lying)

    def _world(
        self,
        states: deque[RobotState],
        state: RobotState,
        commanded: JointCommand,
        commanded_tcp: Pose,
        commanded_jacobian: Array,
        objects: Mapping[str, Pose] | None,
    ) -> World:
        """Return the world that follows from a state; object poses come from memory unless they are given."""
        states.append(state)
        spec = self.robot.spec
        closed, before = (spec.gripper.closed_fraction(each.driver_q) for each in (state, states[0]))
        passed = state.stamp - states[0].stamp
        rate = (closed - before) / passed if passed > 0.0 else 0.0
        held = self.task.held(state, states[0], commanded)
        tcp, jacobian = self._observer.tcp_and_jacobian(state.q)
        twist = commanded_jacobian @ self.guard.velocity
        ages: Mapping[str, float] = {}
        if objects is None:
            self.memory.look(tcp, held)
            objects, ages = self.memory.poses, self.memory.ages_s
            stalls = abs(rate) < STALLED_PER_S and commanded.gripper == self._told and held is None
            self._stalled_s, self._told = self._stalled_s + spec.period_s if stalls else 0.0, commanded.gripper
        return World(
            robot=state,
            tcp=tcp,
            tcp_velocity=jacobian @ state.dq,
            commanded=commanded,
            commanded_tcp=commanded_tcp,
            commanded_velocity=twist[:3],
            commanded_turn_rate=float(twist[5]),
            commanded_dq=self.guard.velocity,
            commanded_jacobian=commanded_jacobian,
            intent=self._intent,
            closing_rate=rate,
            stalled_s=self._stalled_s,
            objects=objects,
            ages_s=ages,
            held=held,
        )

    def _observe(self) -> Vector:
        self._last_observation = self.task.layout.pack(self.task.observe(self.seen, self.seen_goal))
        return self._last_observation

    def _abandon(self, fault: str) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """End the episode because the objects were lost; nothing moves blind."""
        self.robot.stop()
        end = {"success": False, "is_success": False, "reward_terms": {}, "interventions": (), "fault": fault}
        info = self._last_info | end
        return self._last_observation, 0.0, False, True, info

    def _info(self, score: Score, reasons: tuple[str, ...]) -> dict[str, Any]:
        velocity = self.world.tcp_velocity
        self._last_info: dict[str, Any] = {
            "reward_terms": score.terms,
            "interventions": reasons,
            "success": self._held >= self.task.hold_steps,
            "distance_m": score.distance_m,
            "tcp_speed_m_s": length(velocity),
            "joint_speed_rad_s": float(np.abs(self.world.robot.dq).max()),
        }
        return self._last_info


def _remade(recipe: Callable[[], RobotEnv], spec: Any) -> RobotEnv:
    """Make an environment from its recipe, with the same Gymnasium spec."""
    environment = recipe()
    environment.spec = spec
    return environment
