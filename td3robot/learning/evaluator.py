"""Evaluates a training's policies: in this process, or in others while the training goes on.

No torch here: the evaluated policy is the one that is deployed, and an evaluating process stays small.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from math import ceil
from multiprocessing.connection import wait
from typing import Any, Protocol

from td3robot import seeding
from td3robot.build import make_environment
from td3robot.config import DISTURBANCES, GymnasiumEnvironmentConfig, RobotEnvironmentConfig, RunConfig
from td3robot.envs.playing import Environment, EpisodeFigures, Evaluation, summarize
from td3robot.envs.rows import play, side_by_side
from td3robot.errors import Td3RobotError
from td3robot.learning.environments import ANSWER_LIMIT_S, PHYSICS_THREADS, make_all
from td3robot.policy.policy import Policy
from td3robot.processes import ONE_THREAD, Parent, TrainingProcess
from td3robot.robots.simulated.mujoco import clear_asset_cache

# How often a wait for an evaluation checks whether the training is to stop [s].
POLL_INTERVAL_S = 0.2
# The number of an answer that is about no policy, but that the environment could not be made.
MAKING = 0
# How many environments step together in an evaluation, at most; figures do not depend on it. In a cell that differs
# from its model, each takes 3 MB, and the second number counts.
TOGETHER, TOGETHER_DISTURBED = 25, 10


class Evaluator(Protocol):
    """Play the same episodes with every policy, without exploration."""

    def prepare(self) -> None:
        """Start getting ready for the first policy, if that takes long."""

    def start(self, policy: Policy) -> None:
        """Begin to evaluate a policy; drop the rest of the previous evaluation."""

    def finish(self, patient: bool, stopped: Callable[[], bool]) -> Evaluation | None:
        """Return the evaluation that was begun, or None if it is not finished.

        Args:
            patient: Whether to wait for it.
            stopped: Whether to stop waiting; called repeatedly.

        Raises:
            EnvironmentFaultError: The environment failed, or does not answer.
        """

    def close(self) -> None:
        """Close the environments."""


class Episodes:
    """The episodes of every evaluation, played side by side.

    Args:
        environments: At least one; used for nothing else.
        seed: The run's seed; each episode's own is derived from it.
    """

    def __init__(self, environments: Sequence[Environment], seed: int) -> None:
        self.environments, self._seed = environments, seed
        self._rows = side_by_side(environments, PHYSICS_THREADS)

    @classmethod
    def made(cls, config: RobotEnvironmentConfig | GymnasiumEnvironmentConfig, seed: int, most: int) -> "Episodes":
        """Make the environments: several robots for ``most`` episodes in an evaluation, or one of another kind."""
        count = 1
        if isinstance(config, RobotEnvironmentConfig):
            rounds = ceil(most / (TOGETHER if config.disturbance == DISTURBANCES["off"] else TOGETHER_DISTURBED))
            count = ceil(most / rounds)  # about as many in the last round as in those before
        return cls(make_all(make_environment, [config] * count), seed)

    def play(self, policy: Policy, numbers: Iterable[int], look: Callable[[str], Any]) -> Iterator[EpisodeFigures]:
        """Play episodes, and yield the figures of each; ``look`` is called with what comes next."""
        numbered = (
            (number, seeding.integer(self._seed, seeding.Stream.SELECTION_EPISODES, number)) for number in numbers
        )
        yield from play(self._rows, policy.act, numbered, lambda number, what: look(_busy(number, what)))

    def close(self) -> None:
        """Close the environments."""
        self._rows.close()


def _busy(number: int, what: str) -> str:
    return f"evaluation's episode {number} ({what})"


class LocalEvaluator:
    """Evaluate in this process, when :meth:`finish` is called.

    Args:
        episodes: Where episodes are played.
        count: How many.

    Attributes:
        environments: Those in which they are played.
    """

    def __init__(self, episodes: Episodes, count: int) -> None:
        self._episodes, self._count = episodes, count
        self.environments = episodes.environments
        self._policy: Policy | None = None

    def prepare(self) -> None:
        """Do nothing: it is ready."""

    def start(self, policy: Policy) -> None:
        """Keep the policy."""
        self._policy = policy

    def finish(self, patient: bool, stopped: Callable[[], bool]) -> Evaluation | None:
        """Play all episodes, whether patient or not."""
        assert self._policy is not None

        def look(what: str) -> None:
            """Abandon the evaluation if the training is to stop."""
            if stopped():
                raise _StoppedError

        try:
            return _summarized(list(self._episodes.play(self._policy, range(self._count), look)))
        except _StoppedError:
            return None

    def close(self) -> None:
        """Close the environments."""
        self._episodes.close()


class _StoppedError(Exception):
    """The training is to stop, and its evaluation with it."""


class EvaluatorProcesses:
    """Evaluate in several processes, which share the episodes.

    They start when they are first needed: before that, the training's own processes need the machine.

    Args:
        config: The run's configuration, with ``training.evaluators`` at least 1.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config, self._episodes = config, config.training.evaluation_episodes
        self._processes: list[EvaluatorProcess] = []

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self._processes]

    def prepare(self) -> None:
        """Start the processes, which make their environments."""
        if not self._processes:
            count = min(self._config.training.evaluators, self._episodes)
            shares = [range(number, self._episodes, count) for number in range(count)]
            self._processes = [EvaluatorProcess(self._config, share) for share in shares]

    def start(self, policy: Policy) -> None:
        """Make all processes begin."""
        self.prepare()
        for process in self._processes:
            process.start(policy)

    def finish(self, patient: bool, stopped: Callable[[], bool]) -> Evaluation | None:
        """Collect what the processes have played."""
        while True:
            played = [figures for process in self._processes for figures in process.played()]
            if len(played) == self._episodes:
                return _summarized(played)
            if not patient or stopped():
                return None
            wait([process.channel.fileno() for process in self._processes if process.playing], POLL_INTERVAL_S)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()


class EvaluatorProcess(TrainingProcess):
    """A process that plays some of the episodes with every policy.

    Args:
        config: The run's configuration.
        numbers: Numbers of its episodes.
    """

    def __init__(self, config: RunConfig, numbers: range) -> None:
        first = config.environment, config.seed, numbers
        super().__init__(
            run_evaluations,
            "the process of the training's evaluations",
            ANSWER_LIMIT_S,
            first,
            ONE_THREAD,
        )
        self._numbers = numbers
        self._round, self._played = 0, list[EpisodeFigures]()

    @property
    def playing(self) -> bool:
        """Whether episodes of the last policy are still missing."""
        return self._waiting

    def start(self, policy: Policy) -> None:
        """Make it play its episodes with a policy, after the rest of the previous ones."""
        self._round, self._played = self._round + 1, []
        self._ask((self._round, policy))

    def played(self) -> list[EpisodeFigures]:
        """Return the episodes played with the last policy so far.

        Raises:
            EnvironmentFaultError: The environment failed, the process ended, or it gives no sign of life.
        """
        while self._waiting and self.channel.poll():
            number, answer = self._next_message()
            if number in (MAKING, self._round):
                self._take(answer)
        if self._waiting:
            self._require_alive()
        return self._played

    def _take(self, answer: EpisodeFigures | Td3RobotError) -> None:
        if isinstance(answer, Td3RobotError):
            self._waiting = False
            raise answer
        self._played.append(answer)
        self._waiting = len(self._played) < len(self._numbers)


def run_evaluations(parent: Parent) -> None:
    """Make environments and play their episodes with one policy after another, until the parent is gone."""
    if (first := parent.next()) is None:
        return
    config, seed, numbers = first
    try:
        parent.say("the environment of the evaluations (being made)")
        episodes = Episodes.made(config, seed, len(numbers))
    except Td3RobotError as error:
        parent.answer((MAKING, error))
        return
    with closing(episodes):
        while (message := parent.next()) is not None:
            number, policy = message
            try:
                for played, figures in enumerate(episodes.play(policy, numbers, parent.say)):
                    parent.answer((number, figures))
                    if (number, played) == (1, 0):  # the model is compiled, which takes memory once
                        clear_asset_cache()
            except Td3RobotError as error:
                parent.answer((number, error))


def _summarized(played: list[EpisodeFigures]) -> Evaluation:
    """Return the figures of episodes together, whichever ended first."""
    return summarize(sorted(played, key=lambda figures: figures.number))
