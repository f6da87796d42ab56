"""Simulated episodes to view: moved by a policy, by nothing, at random, or by hand behind the guard."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.config import RobotEnvironmentConfig
from td3robot.envs.playing import EpisodeFigures
from td3robot.envs.robot_env import RobotEnv
from td3robot.format import distance_left, failure_kind, name_of
from td3robot.metrics import REWARDS, Chart, time_chart
from td3robot.robots.guard import GuardDecision
from td3robot.state import Array, JointCommand
from td3robot.tasks.interface import Failure, Task
from td3robot.view.source import Snapshot, Source, Workcell

Vector = NDArray[np.float32]
Act = Callable[[Vector], Vector]

BY_HAND = "by hand"
# Gain of the approach to a posture set by hand: speed per remaining distance [1/s].
JOG_GAIN_HZ = 2.0
# How long the end of an episode is shown [s].
END_S = 1.0
# How long a random action is held, so that the arm moves visibly [s].
HOLD_S = 0.5


class Episodes(Source):
    """Episodes of one environment.

    The episodes are those of ``td3robot eval`` with the same seed, unless a goal is moved.

    Args:
        config: The environment's configuration.
        environment: The simulated environment.
        controllers: What may move the arm, by name; ``by hand`` is added.
        title, kind: See :class:`Source`.
        seed: Each episode's own seed is derived from it.
    """

    actions = frozenset({"play", "step", "speed", "next", "act", "jog"})

    def __init__(
        self,
        config: RobotEnvironmentConfig,
        environment: RobotEnv,
        controllers: Mapping[str, Act],
        title: str,
        kind: str,
        seed: int = 12345,
    ) -> None:
        self.title, self.kind = title, kind
        self._config, self._environment, self._seed = config, environment, seed
        self._policies = dict(controllers)
        self.controllers = (*controllers, BY_HAND)
        self._act = self.controllers[0]
        if environment.task.takes_goal and environment.task.goal_form == Task.goal_form:  # a point
            self.actions |= {"goal"}
        environment.watch = self._ruled
        self._number = -1
        self._over = True
        self._wanted: tuple[Array, float] | None = None
        self._failure: Failure | None = None
        self._decision: GuardDecision | None = None
        self._figures = EpisodeFigures(0, 0)
        self._observation: Vector
        self._terms, self._changed, self._distances = list[dict[str, float]](), list[float](), list[float]()

    @property
    def workcell(self) -> Workcell:
        """Arm, objects, and the guard's workspace."""
        return Workcell(self._environment.robot.spec, self._config.task.objects(), self._config.guard.workspace)

    def advance(self) -> Snapshot:
        """Play one control period, or begin the next episode if one is over."""
        if self._over:
            self._begin(None)
            return self._snapshot(begins=True)
        if self._act == BY_HAND:
            return self._jogged()
        self._decision = None
        action = self._policies[self._act](self._observation)
        self._observation, reward, terminated, truncated, info = self._environment.step(action)
        self._figures.count(float(reward), info)
        self._terms.append(dict(info["reward_terms"]))
        self._changed.append(float(bool(info["interventions"])))
        self._distances.append(float(info["distance_m"]))
        self._over, self._failure = terminated or truncated, info.get("failure")
        return self._snapshot(fault=info.get("fault"))

    def next_episode(self) -> None:
        """Begin the next episode."""
        self._over = True

    def set_goal(self, position: Array) -> None:
        """Begin an episode that goes to a goal (3,) [m] from where the arm is.

        Raises:
            ConfigError: The goal is outside the box of goals, or out of reach.
        """
        self._begin(position)

    def choose_controller(self, name: str) -> None:
        """Choose another of :attr:`controllers` to move the arm, from where it is."""
        if name == self._act or self._number < 0:
            self._act = name
            return
        self._act = name
        self._wanted = None
        self._observation = self._environment.resume()

    def jog(self, q: Array, gripper: float) -> None:
        """Move by hand to a posture (n,) [rad] and a closed fraction, subject to the guard."""
        self.choose_controller(BY_HAND)
        self._wanted = (q, gripper)

    def charts(self) -> list[Chart]:
        """Return distance, reward terms and interventions of the episode in progress."""
        steps = len(self._distances)
        if not steps:
            return []
        seconds = np.arange(1.0, steps + 1.0) * self._environment.robot.spec.period_s
        terms = {
            REWARDS.get(name, name_of(name)): np.array([row[name] for row in self._terms]) for name in self._terms[-1]
        }
        changed = {"changed": 100.0 * np.cumsum(self._changed) / np.arange(1.0, steps + 1.0)}
        return [
            time_chart("Left to go", seconds, {"distance": 1e3 * np.array(self._distances)}, "mm"),
            time_chart("Reward terms, each period", seconds, terms),
            time_chart("Periods changed by the guard so far", seconds, changed, "%", (0.0, 100.0)),
        ]

    def close(self) -> None:
        """Release the simulation."""
        self._environment.close()

    def _begin(self, goal: Array | None) -> None:
        options = None if goal is None else {"goal": goal, "stay": True}
        number = self._number + (goal is None)
        seed = seeding.integer(self._seed, seeding.Stream.EVALUATION_EPISODES, max(number, 0))
        self._observation, _ = self._environment.reset(seed=seed, options=options)
        self._number = number
        self._figures = EpisodeFigures(number, seed)
        self._terms, self._changed, self._distances = [], [], []
        self._decision = None
        self._wanted, self._over, self._failure = None, False, None

    def _ruled(self, desired: JointCommand, decision: GuardDecision, sent: JointCommand) -> None:
        self._decision = decision

    def _jogged(self) -> Snapshot:
        """Advance by one control period in which the arm approaches the requested posture."""
        environment, commanded = self._environment, self._environment.guard.commanded
        q, gripper = self._wanted or (commanded.q, commanded.gripper)
        remaining = q - commanded.q
        step = remaining * min(1.0, JOG_GAIN_HZ * environment.robot.spec.period_s)
        environment.drive(JointCommand(commanded.q + step, gripper))
        return self._snapshot(remaining=float(np.abs(remaining).max()))

    def _snapshot(self, begins: bool = False, fault: str | None = None, remaining: float | None = None) -> Snapshot:
        environment, figures = self._environment, self._figures
        world, period = environment.world, environment.robot.spec.period_s
        reasons = self._decision.reasons if self._decision is not None else ()
        caption: tuple[str, ...] = ()
        if self._act == BY_HAND:
            caption += ("By hand: the arm goes where the sliders say, as far as the guard lets it",)
            if remaining is not None and remaining > 1e-3:
                caption += (f"{np.degrees(remaining):.0f}° left to go",)
        else:
            caption += (f"Episode {self._number + 1}, {figures.steps * period:.1f} s, by {self._act}",)
            if figures.steps:
                left = [f"{distance} left to go"] if (distance := distance_left(figures.distance_m)) else []
                caption += (", ".join([*left, f"return {figures.total_reward:.1f}"]),)
        if self._over:
            why = f": {failure_kind(self._failure.kind)}" if self._failure is not None else ""
            caption += (fault or ("**Success**" if figures.success else f"**No success**{why}"),)
        return Snapshot(
            world.robot, world.commanded, world.objects, environment.goal.position, reasons, caption,
            END_S if self._over else period, begins,
        )  # fmt: skip


def at_rest(size: int) -> Act:
    """Return a policy that always returns zeros."""
    return lambda observation: np.zeros(size, np.float32)


class AtRandom:
    """Act at random, holding each action for a while.

    Args:
        size: Size of an action.
        held: Control periods for which each action is held.
    """

    def __init__(self, size: int, held: int) -> None:
        self._size, self._held, self._left = size, held, 0
        self._rng = np.random.default_rng(0)

    def __call__(self, observation: Vector) -> Vector:
        """Return the action of this period."""
        if not self._left:
            self._left = self._held
            self._action = self._rng.uniform(-1.0, 1.0, self._size).astype(np.float32)
        self._left -= 1
        return self._action
