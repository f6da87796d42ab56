"""Speed of the two inner loops on this machine: learner updates and environment steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from td3robot.build import make_contract, make_environment, make_robot_env
from td3robot.config import RobotEnvironmentConfig, RunConfig
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
        steps_per_second_together, physics_share_together: Of environments that step together in a training, on one
            thread; steps count for each.
        together: How many those are; None if they step one by one.
    """

    steps_per_second: float
    steps_per_second_without_guard: float | None = None
    guard_overhead: float | None = None
    physics_share: float | None = None
    steps_per_second_together: float | None = None
    physics_share_together: float | None = None
    together: int | None = field(default=None, kw_only=True)

    def to_json(self) -> dict[str, float | None]:
        """Return the figures as plain values."""
        return asdict(self)


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
    environment = make_environment(config.environment, privileged=config.agent.is_asymmetric)
    contract = make_contract(config.environment, environment)
    sizes = int(np.prod(environment.observation_space.shape or ())), contract.action.size
    environment.close()
    torch.set_num_threads(config.training.threads)
    observed, rng = contract.observation.size, np.random.default_rng(0)
    agent = make_agent(observed, sizes[1], config.agent, 0, sizes[0] - observed)
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
    passes = []
    for seed in range(PASSES):
        rate, share = _rate_and_physics(guarded, steps, seed)
        free = _steps_per_second(unguarded, steps, seed)
        side_by_side = () if together is None else _rate_together(together, steps // count, seed)
        passes.append((rate, free, free / rate - 1.0, share, *side_by_side))
    return EnvironmentFigures(*map(median, zip(*passes, strict=True)), together=None if together is None else count)


def _rate_and_physics(environment: RobotEnv, steps: int, seed: int) -> tuple[float, float]:
    """Return steps per second, and the share of that time that physics take; 0 without physics."""
    environment.reset(seed=seed)
    with _timed_physics() as physics_s:
        rate = _steps_per_second(environment, steps, seed)
    return rate, physics_s() * rate / steps


def _rate_together(rows: RobotRows, steps: int, seed: int) -> tuple[float, float]:
    """Return steps per second of environments that step together, and the share of that time that physics take."""
    for row in range(rows.count):
        rows.reset(row, seed + row)
    actions, everything = _smooth_actions((steps, rows.count, *rows.action_shape), seed), np.arange(rows.count)
    spent = 0.0
    with _timed_physics() as physics_s:
        for number, action in enumerate(actions):
            start = perf_counter()
            taken = rows.step(action, everything)
            spent += perf_counter() - start
            for row in np.flatnonzero(taken.truncated).tolist():
                rows.reset(row, 1000 * number + row)
    return steps * rows.count / spent, physics_s() / spent


@contextmanager
def _timed_physics() -> Iterator[Callable[[], float]]:
    """Time MuJoCo's physics, and yield what tells their time so far [s]."""
    spent, integrate = [0.0], MujocoRobot.integrate

    def timed(*arguments: Any) -> None:
        """Integrate, and add the time that it takes."""
        start = perf_counter()
        integrate(*arguments)
        spent[0] += perf_counter() - start

    with patch.object(MujocoRobot, "integrate", timed):
        yield lambda: spent[0]


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
