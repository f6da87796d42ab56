"""Speed of the two inner loops on this machine: learner updates and environment steps."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch

from td3robot.build import make_environment, make_robot_env
from td3robot.config import RobotEnvironmentConfig, RunConfig
from td3robot.envs.gymnasium_env import Environment
from td3robot.learning.agent import make_agent
from td3robot.learning.learner import make_learner
from td3robot.learning.replay import ReplayBuffer
from td3robot.robots.guard import Guard, Ruling
from td3robot.state import JointCommand, RobotState

PASSES = 5


@dataclass(frozen=True, slots=True)
class LearnerFigures:
    """Learner speed: median, slowest and fastest pass."""

    learner: str
    updates_per_second: float
    slowest: float
    fastest: float
    threads: int
    batch_size: int
    observation_size: int
    action_size: int

    def to_json(self) -> dict[str, float | str]:
        """Return the figures as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EnvironmentFigures:
    """Environment speed: medians over passes; the guard's cost comes from alternating passes with and without it."""

    steps_per_second: float
    steps_per_second_without_guard: float | None
    guard_overhead: float | None

    def to_json(self) -> dict[str, float | None]:
        """Return the figures as plain values."""
        return asdict(self)


class OpenGuard(Guard):
    """A guard that lets everything through, to measure the cost of the real one."""

    def filter(self, wish: JointCommand, state: RobotState, now: float) -> Ruling:
        """Pass the wish on."""
        self.velocity = (wish.q - self.commanded.q) / self._period
        self.commanded = wish
        return Ruling(wish, ())


def bench_learner(
    config: RunConfig, updates: int = 400, report: Callable[[str], None] = lambda _: None
) -> LearnerFigures:
    """Time updates of a configuration's agent on random transitions of its environment's sizes."""
    environment = make_environment(config.environment)
    sizes = int(np.prod(environment.observation_space.shape or ())), int(np.prod(environment.action_space.shape or ()))
    environment.close()
    if config.training.torch_threads:
        torch.set_num_threads(config.training.torch_threads)
    agent, rng = make_agent(*sizes, config.agent, seed=0), np.random.default_rng(0)
    learner = make_learner(agent, config.training, None, report)
    replay = ReplayBuffer(10_000, *sizes)
    for _ in range(10_000):
        observation, following = rng.normal(size=(2, sizes[0]))
        replay.add(observation, rng.uniform(-1, 1, sizes[1]), rng.normal(), following, False, config.agent.gamma)

    def run(count: int) -> float:
        """Return the updates per second of one pass."""
        start = perf_counter()
        learner.learn(replay, rng, count)
        return count / (perf_counter() - start)

    run(updates // 4)
    rates = sorted(run(updates) for _ in range(PASSES))
    return LearnerFigures(
        learner.name, median(rates), rates[0], rates[-1], learner.threads, config.agent.batch_size, *sizes
    )


def bench_environment(config: RunConfig, steps: int = 1000) -> EnvironmentFigures:
    """Time steps of a configuration's environment under smooth random actions, without resets."""
    if not isinstance(config.environment, RobotEnvironmentConfig):
        environment = make_environment(config.environment)
        return EnvironmentFigures(
            median(_steps_per_second(environment, steps, seed) for seed in range(PASSES)), None, None
        )
    guarded, unguarded = make_robot_env(config.environment), make_robot_env(config.environment)
    guard = unguarded.guard
    unguarded.guard = OpenGuard(unguarded.robot.spec, guard.config, guard.kinematics)
    rates, free, ratios = [], [], []
    for seed in range(PASSES):
        rates.append(_steps_per_second(guarded, steps, seed))
        free.append(_steps_per_second(unguarded, steps, seed))
        ratios.append(free[-1] / rates[-1] - 1.0)
    return EnvironmentFigures(median(rates), median(free), median(ratios))


def _steps_per_second(environment: Environment, steps: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    environment.reset(seed=seed)
    actions = np.zeros((steps, *(environment.action_space.shape or ())), np.float32)
    for index in range(1, steps):
        step = rng.normal(0.0, 0.2, actions.shape[1:])
        actions[index] = np.clip(0.9 * actions[index - 1] + step, -1.0, 1.0)
    start, spent = perf_counter(), 0.0
    for action in actions:
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            spent += perf_counter() - start
            environment.reset()
            start = perf_counter()
    return steps / (spent + perf_counter() - start)
