"""Speed of the two inner loops on this machine: learner updates and environment steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from td3robot.build import make_environment, make_robot_env
from td3robot.config import RobotEnvironmentConfig, RunConfig
from td3robot.envs.batch import RobotBatch
from td3robot.envs.gymnasium_env import Environment
from td3robot.envs.robot_env import RobotEnv
from td3robot.envs.rows import RobotRows
from td3robot.learning.agent import make_agent
from td3robot.learning.learner import make_learner
from td3robot.learning.replay import ReplayBuffer, Transition
from td3robot.robots.guard import Guard
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.state import Array

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
    """Environment speed: medians over passes that alternate.

    Attributes:
        steps_per_second: One environment on its own.
        steps_per_second_without_guard, guard_overhead: The same without the guard, and the time that the guard adds.
        physics_share: Share of the time of a step, on its own, that MuJoCo's physics take.
        together: How many environments step together in a training; None if they step one by one.
        steps_per_second_together, physics_share_together: Of these, on one thread; steps count for each.
    """

    steps_per_second: float
    steps_per_second_without_guard: float | None = None
    guard_overhead: float | None = None
    physics_share: float | None = None
    together: int | None = None
    steps_per_second_together: float | None = None
    physics_share_together: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the figures as plain values."""
        return asdict(self)


class Timed:
    """A function that adds up the time of its calls.

    Attributes:
        seconds: The sum so far [s].
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        start = perf_counter()
        answer = self._function(*arguments, **named)
        self.seconds += perf_counter() - start
        return answer


class OpenGuard(Guard):
    """Stub that accepts every command; baseline of the guard benchmark."""

    @classmethod
    def like(cls, guard: Guard) -> "OpenGuard":
        """Return a stub for another guard's robot."""
        return cls(guard.kinematics.spec, guard.config, guard.kinematics)

    def decide(self, desired: Array, gripper: Array, measured: Array, age_s: Array, rows: Any) -> list[tuple[str, ...]]:
        """Pass the commands on."""
        self.velocity[rows] = (desired - self.q[rows]) * self.kinematics.spec.control_rate_hz
        self.q[rows], self.gripper[rows] = desired, gripper
        return [()] * len(rows)


def bench_learner(
    config: RunConfig, updates: int = 400, report: Callable[[str], None] = lambda _: None
) -> LearnerFigures:
    """Time updates of a configuration's agent on random transitions of its environment's sizes."""
    environment = make_environment(config.environment)
    sizes = int(np.prod(environment.observation_space.shape or ())), int(np.prod(environment.action_space.shape or ()))
    environment.close()
    torch.set_num_threads(config.training.threads)
    agent, rng = make_agent(*sizes, config.agent, seed=0), np.random.default_rng(0)
    learner = make_learner(agent, config.training, None, report)
    replay = ReplayBuffer(10_000, *sizes)
    for _ in range(10_000):
        observation, following = rng.normal(size=(2, sizes[0]))
        action, reward = rng.uniform(-1, 1, sizes[1]), rng.normal()
        replay.add([Transition(observation, action, reward, following, False, config.agent.gamma)])

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
        return EnvironmentFigures(median(_steps_per_second(environment, steps, seed) for seed in range(PASSES)))
    guarded, unguarded = make_robot_env(config.environment), make_robot_env(config.environment)
    unguarded.batch.guard = OpenGuard.like(unguarded.guard)
    count = config.training.environments
    together = RobotRows([make_robot_env(config.environment) for _ in range(count)]) if count > 1 else None
    rates: list[float] = []
    free: list[float] = []
    ratios: list[float] = []
    shares: list[float] = []
    batches: list[tuple[float, float]] = []
    for seed in range(PASSES):
        rate, share = _rate_and_physics(guarded, steps, seed)
        rates.append(rate)
        shares.append(share)
        free.append(_steps_per_second(unguarded, steps, seed))
        ratios.append(free[-1] / rates[-1] - 1.0)
        if together is not None:
            batches.append(_rate_together(together, steps // count, seed))
    found = EnvironmentFigures(median(rates), median(free), median(ratios), median(shares))
    if not batches:
        return found
    return replace(
        found,
        together=count,
        steps_per_second_together=median(rate for rate, _ in batches),
        physics_share_together=median(share for _, share in batches),
    )


def _rate_and_physics(environment: RobotEnv, steps: int, seed: int) -> tuple[float, float]:
    """Return steps per second, and the share of that time that physics take; 0 without physics."""
    environment.reset(seed=seed)
    with _timed_physics(environment.batch) as timed:
        rate = _steps_per_second(environment, steps, seed)
    return rate, timed.seconds * rate / steps


def _rate_together(rows: RobotRows, steps: int, seed: int) -> tuple[float, float]:
    """Return steps per second of environments that step together, and the share of that time that physics take."""
    for row in range(rows.count):
        rows.reset(row, seed + row)
    actions, everything = _smooth_actions((steps, rows.count, *rows.action_shape), seed), np.arange(rows.count)
    spent = 0.0
    with _timed_physics(rows.batch) as timed:
        for number, action in enumerate(actions):
            start = perf_counter()
            taken = rows.step(action, everything)
            spent += perf_counter() - start
            for row in np.flatnonzero(taken.truncated).tolist():
                rows.reset(row, 1000 * number + row)
    return steps * rows.count / spent, timed.seconds / spent


@contextmanager
def _timed_physics(batch: RobotBatch) -> Iterator["Timed"]:
    """Add up the time of MuJoCo's physics in a batch's steps."""
    timed = Timed(MujocoRobot.integrate)
    with patch.object(MujocoRobot, "integrate", lambda *arguments: timed(*arguments)):
        yield timed


def _smooth_actions(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Return actions of a random walk, with time along the first axis."""
    rng, actions = np.random.default_rng(seed), np.zeros(shape, np.float32)
    for index in range(1, shape[0]):
        step = rng.normal(0.0, 0.2, shape[1:])
        actions[index] = np.clip(0.9 * actions[index - 1] + step, -1.0, 1.0)
    return actions


def _steps_per_second(environment: Environment, steps: int, seed: int) -> float:
    environment.reset(seed=seed)
    actions = _smooth_actions((steps, *(environment.action_space.shape or ())), seed)
    start, spent = perf_counter(), 0.0
    for action in actions:
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            spent += perf_counter() - start
            environment.reset()
            start = perf_counter()
    return steps / (spent + perf_counter() - start)
