"""Parallel environments: in this process, or in another, which leaves the interpreter to the learner."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from td3robot.build import make_contract
from td3robot.config import TrainingConfig
from td3robot.envs.goals import GoalColumns
from td3robot.envs.rows import Steps, side_by_side
from td3robot.errors import Td3RobotError
from td3robot.layout import Layout
from td3robot.policy.contract import Contract
from td3robot.processes import ONE_THREAD, Parent, TrainingProcess, cores
from td3robot.robots.simulated.mujoco import clear_asset_cache

Vector = NDArray[np.float32]
Rewards = NDArray[np.float64]
Make = Callable[[Any], gymnasium.Env[Any, Any]]
# A process has at least so many environments: together, each of them is faster.
TOGETHER_FROM = 4
ANSWER_LIMIT_S = 600.0  # for a step or a reset in another process, before the training is saved and ends
# While the learner waits for environments that step together, its core helps with their physics.
PHYSICS_THREADS = min(2, cores())


@dataclass(slots=True)
class Step:
    """One step of one environment: the action, and what the environment returned.

    Attributes:
        success: Whether the episode counts as a success so far; None if the environment does not say.
        reward_terms: The reward's terms by name.
        interventions: Why the guard changed the action, if it did.
    """

    action: Vector
    observation: Vector
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None
    reward_terms: dict[str, float]
    interventions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """What similar environments have in common.

    Attributes:
        observation_layout: Names of an observation's components, if they have any.
        privileged_size: How many numbers at the end of an observation only critics see.
        goals: Where an observation has its goals, if it has any.
    """

    count: int
    action_shape: tuple[int, ...]
    observation_layout: Layout | None
    privileged_size: int = 0
    goals: GoalColumns | None = None


class Environments(Protocol):
    """Environments with observations (size,) and actions in [-1, 1], alike except for their disturbances."""

    @property
    def facts(self) -> EnvironmentFacts:
        """What the environments have in common."""

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode in one environment, and return its first observation."""

    def step(self, index: int, action: Vector) -> Step:
        """Step one environment."""

    def start(self, actions: Vector) -> None:
        """Make every environment step with its row of ``actions``, by the next :meth:`finish`."""

    def finish(self) -> list[Step]:
        """Wait for the steps that :meth:`start` began, and return them."""

    def rewards(self, index: int, achieved: Vector, desired: Vector) -> Rewards:
        """Return the rewards (n,) that one environment gives for goals, between two steps."""

    def close(self) -> None:
        """Close the environments."""


class LocalEnvironments:
    """Environments of this process: they step when :meth:`finish` is called.

    Args:
        environments: At least one.
        say: Called with an environment's number and what it is about to do.
        threads: How many threads advance simulated robots; by default two, if there are two cores.
    """

    def __init__(
        self,
        environments: Sequence[gymnasium.Env[Any, Any]],
        say: Callable[[int, str], None] = lambda index, what: None,
        threads: int = PHYSICS_THREADS,
    ) -> None:
        self.environments, self._say = list(environments), say
        self._rows = side_by_side(self.environments, threads)
        self.facts = EnvironmentFacts(
            self._rows.count, self._rows.action_shape, self._rows.observation_layout, self._rows.privileged_size,
            self._rows.goals,
        )  # fmt: skip
        self._actions = np.zeros((0, *self.facts.action_shape), np.float32)

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        self._say(index, "reset")
        return self._rows.reset(index, seed)

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        self._say(index, "step")
        return steps_of(action[None], self._rows.step(action[None], np.array([index])))[0]

    def start(self, actions: Vector) -> None:
        """Keep the actions."""
        self._actions = actions

    def finish(self) -> list[Step]:
        """Step all."""
        return steps_of(self._actions, self.step_all(self._actions))

    def step_all(self, actions: Vector) -> Steps:
        """Step all."""
        self._say(0, "step, with all others" if len(actions) > 1 else "step")
        return self._rows.step(actions, np.arange(len(actions)))

    def rewards(self, index: int, achieved: Vector, desired: Vector) -> Rewards:
        """Ask it."""
        self._say(index, "compute_reward")
        return self._rows.rewards(index, achieved, desired)

    def close(self) -> None:
        """Close all."""
        self._rows.close()


def steps_of(actions: Vector, taken: Steps) -> list[Step]:
    """Return what environments that step together returned, one by one."""
    return [
        Step(
            action, observation, float(reward), bool(terminated), bool(truncated),
            info.get("success"), info.get("reward_terms", {}), info.get("interventions", ()),
        )
        for action, observation, reward, terminated, truncated, info in zip(
            actions, taken.observations, taken.rewards, taken.terminated, taken.truncated, taken.infos(), strict=True
        )
    ]  # fmt: skip


class RemoteEnvironments(ABC):
    """Environments that another process makes; their facts are known once they are made."""

    _made: tuple[EnvironmentFacts, Contract] | None = None

    @property
    def facts(self) -> EnvironmentFacts:
        """What the environments have in common.

        Raises:
            Td3RobotError: They could not be made.
        """
        return self._once_made()[0]

    @property
    def contract(self) -> Contract:
        """What a policy for these environments is trained for; errors as in :attr:`facts`."""
        return self._once_made()[1]

    @abstractmethod
    def _await_made(self) -> tuple[EnvironmentFacts, Contract]:
        """Wait until the environments are made, and return facts and contract."""

    def _once_made(self) -> tuple[EnvironmentFacts, Contract]:
        if self._made is None:
            self._made = self._await_made()
        return self._made


class EnvironmentProcess(TrainingProcess, RemoteEnvironments):
    """A process with a training's environments; it ends with this process, or when closed.

    It starts at once, and makes the environments while this process does something else.

    Args:
        make: Makes an environment from its configuration; a function that the process can import.
        configs: One per environment, for environments with the same contract.
        limit_s: How long any answer may take [s].
        first: Number of its first environment, for messages.
    """

    def __init__(self, make: Make, configs: Sequence[Any], limit_s: float = ANSWER_LIMIT_S, first: int = 0) -> None:
        title = "the process of the training's environments"
        super().__init__(run_environments, title, limit_s, (make, configs, first), ONE_THREAD)
        self._actions: Vector | None = None  # of a step in progress

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        self._send("reset", index, seed)
        observation: Vector = self._receive()
        return observation

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        self._send("step", index, action)
        step: Step = self._receive()
        return step

    def start(self, actions: Vector) -> None:
        """Make all environments begin to step."""
        self._send("step_all", actions)
        self._actions = actions

    def finish(self) -> list[Step]:
        """Wait for all steps, and return them."""
        actions, self._actions = self._actions, None
        assert actions is not None
        return steps_of(actions, self._receive())

    def rewards(self, index: int, achieved: Vector, desired: Vector) -> Rewards:
        """Ask it."""
        self._send("rewards", index, achieved, desired)
        found: Rewards = self._receive()
        return found

    def _await_made(self) -> tuple[EnvironmentFacts, Contract]:
        made: tuple[EnvironmentFacts, Contract] = self._receive()
        return made

    def _send(self, *message: Any) -> None:
        _ = self.facts  # the facts arrive first
        if self._actions is not None:  # whoever started that step was interrupted
            self.finish()
        self._tell(message)


class EnvironmentProcesses(RemoteEnvironments):
    """Environments shared among processes of this machine.

    All environments step once before any of them steps again, and their answers are taken in a fixed order, so results
    do not depend on the number of processes.

    Args:
        make: As in :class:`EnvironmentProcess`.
        configs: As there.
        processes: How many processes, at most one per environment.
        limit_s: As there.
    """

    def __init__(self, make: Make, configs: Sequence[Any], processes: int, limit_s: float = ANSWER_LIMIT_S) -> None:
        self._shares = shares(len(configs), min(processes, len(configs)))
        self._processes: list[EnvironmentProcess] = []
        with ExitStack() as started:
            for share in self._shares:
                own = [configs[index] for index in share]
                self._processes.append(EnvironmentProcess(make, own, limit_s, share.start))
                started.callback(self._processes[-1].close)
            started.pop_all()

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self._processes]

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        number, own = place(self._shares, index)
        return self._processes[number].reset(own, seed)

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        number, own = place(self._shares, index)
        return self._processes[number].step(own, action)

    def start(self, actions: Vector) -> None:
        """Make all environments begin to step."""
        for process, share in zip(self._processes, self._shares, strict=True):
            process.start(actions[share.start : share.stop])

    def finish(self) -> list[Step]:
        """Wait for all steps, and return them."""
        return [step for process in self._processes for step in process.finish()]

    def rewards(self, index: int, achieved: Vector, desired: Vector) -> Rewards:
        """Ask it."""
        number, own = place(self._shares, index)
        return self._processes[number].rewards(own, achieved, desired)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()

    def _await_made(self) -> tuple[EnvironmentFacts, Contract]:
        facts = [process.facts for process in self._processes]
        return replace(facts[0], count=sum(each.count for each in facts)), self._processes[0].contract


def make_all(make: Make, configs: Sequence[Any]) -> list[gymnasium.Env[Any, Any]]:
    """Make an environment from each configuration; if one cannot be made, those before it are closed."""
    environments = []
    with ExitStack() as made:
        for config in configs:
            environments.append(make(config))
            made.callback(environments[-1].close)
        made.pop_all()
    return environments


def environment_processes(training: TrainingConfig) -> int:
    """Return how many processes share a run's environments.

    One per core, beside those of the learner and the evaluator, but each with enough to step together.
    """
    return max(1, min(cores() - 2, training.environments // TOGETHER_FROM))


def shares(count: int, parts: int) -> list[range]:
    """Divide the numbers below ``count`` into consecutive ranges of about the same length."""
    edges = np.linspace(0, count, parts + 1).round().astype(int).tolist()
    return [range(first, end) for first, end in pairwise(edges)]


def place(divided: Sequence[range], index: int) -> tuple[int, int]:
    """Return which of the ranges has a number, and its place there."""
    number = next(number for number, share in enumerate(divided) if index in share)
    return number, index - divided[number].start


def run_environments(parent: Parent) -> None:
    """Make environments and serve requests, until the parent is gone."""
    if (message := parent.next()) is None:
        return
    make, configs, first = message

    def say(index: int, what: str) -> None:
        """Report which environment is busy, and with what."""
        parent.say(f"environment {first + index} ({what})")

    def made() -> Iterator[gymnasium.Env[Any, Any]]:
        """Make the environments one by one."""
        for index, config in enumerate(configs):
            say(index, "being made")
            yield make(config)

    try:
        environments = LocalEnvironments(list(made()), say)
        contract = make_contract(configs[0], environments.environments[0])
    except Td3RobotError as error:
        parent.answer(error)
        return
    parent.answer((environments.facts, contract))
    with closing(environments):
        for number in count():
            if (message := parent.next()) is None:
                return
            if number == len(configs):  # each was reset, and has compiled its model, which takes memory for a moment
                clear_asset_cache()
            try:
                what, *arguments = message
                answer = getattr(environments, what)(*arguments)
            except Td3RobotError as error:
                answer = error
            parent.answer(answer)
