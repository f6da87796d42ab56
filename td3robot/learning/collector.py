"""Collects experience from several environments for one replay buffer."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.envs.playing import require_finite
from td3robot.learning.environments import EnvironmentFacts, Environments, Step
from td3robot.learning.guide import Guide
from td3robot.learning.hindsight import Hindsight, PastStep
from td3robot.learning.replay import Transition

Vector = NDArray[np.float32]


@dataclass(slots=True)
class Episode:
    """An episode in progress.

    Seed and actions are enough to restore it: an environment that is deterministic after ``reset(seed)`` gets back to
    the same state by replaying the actions.
    """

    index: int
    observation: Vector
    actions: list[Vector] = field(default_factory=list)
    total_reward: float = 0.0
    recent: deque[tuple[Vector, Vector, float]] = field(default_factory=deque)
    past: list[PastStep] = field(default_factory=list)  # all steps, where hindsight needs them


class FinishedStep(NamedTuple):
    """A step of every environment: the episodes that go on or begin after it, and those that were played."""

    following: list[Episode]
    played: list[tuple[Episode, Step]]
    transitions: list[Transition]  # of episodes that ended, where hindsight makes them


class CollectedSteps(NamedTuple):
    """Steps, the transitions that they completed, and the episodes that ended with one of them."""

    steps: list[Step]
    transitions: list[Transition]
    finished: list[dict[str, float]]


class Experience(ABC):
    """Episodes on several environments or arms, and the transitions made from their steps.

    Args:
        facts: What the environments have in common.
        seed: The run's seed; every episode of every environment gets its own seed from it.
        n_step: Rewards summed into one transition.
        gamma: Discount for that sum.
        guide: Says for every observation what it would do, for a policy that imitates it.

    Attributes:
        facts: What the environments have in common.
    """

    def __init__(
        self, facts: EnvironmentFacts, seed: int, n_step: int, gamma: float, guide: Guide | None = None
    ) -> None:
        self.facts, self._guide = facts, guide
        self._seed, self._n_step, self._gamma = seed, n_step, gamma
        self._episodes: list[Episode] = []
        self._hindsight: Hindsight | None = None

    @abstractmethod
    def close(self) -> None:
        """Close the environments, or release the arms."""

    def state(self) -> tuple[dict[str, NDArray[Any]], list[int]]:
        """Return each episode's actions and last observation as arrays, and the episodes' indices."""
        arrays: dict[str, NDArray[Any]] = {}
        for index, episode in enumerate(self._episodes):
            arrays[f"{index}.actions"] = np.array(episode.actions, np.float32).reshape(-1, *self.facts.action_shape)
            arrays[f"{index}.observation"] = episode.observation
        return arrays, [episode.index for episode in self._episodes]

    def _seed_of(self, index: int, episode_index: int) -> int:
        return seeding.integer(self._seed, seeding.Stream.TRAINING_EPISODES, index, episode_index)

    def _taken(self, played: Sequence[tuple[Episode, Step]]) -> CollectedSteps:
        """Advance episodes by a step each."""
        transitions, finished = list[Transition](), []
        for episode, step in played:
            transitions += self._advance(episode, step)
            if step.terminated or step.truncated:
                figures = {"return": episode.total_reward, "steps": float(len(episode.actions))}
                finished.append(figures if step.success is None else figures | {"success": float(step.success)})
        return CollectedSteps([step for _, step in played], transitions, finished)

    def _advance(self, episode: Episode, step: Step) -> list[Transition]:
        """Advance an episode by one step, and return the n-step transitions that are complete."""
        complete = list[Transition]()
        episode.actions.append(step.action)
        episode.total_reward += step.reward
        if self._hindsight is not None:  # it makes the transitions, once the episode has ended
            episode.past.append(_past(episode, step))
            episode.observation = step.observation
            return complete
        episode.recent.append((episode.observation, step.action, step.reward))
        ended = step.terminated or step.truncated
        while episode.recent and (ended or len(episode.recent) == self._n_step):
            reward = 0.0
            for _, _, later in reversed(episode.recent):
                reward = later + self._gamma * reward
            discount = self._gamma ** len(episode.recent)
            observation, taken, _ = episode.recent.popleft()
            advice = self._guide.act(observation) if self._guide is not None else ()
            ends = step.terminated
            complete.append(Transition(observation, taken, reward, step.observation, ends, discount, advice))
        episode.observation = step.observation
        return complete


class Collector(Experience):
    """Step environments side by side, and make transitions of their steps.

    ``start`` and ``finish`` touch only the environments, ``advance`` the episodes, and nothing here the replay buffer,
    so that a learner may sample it while the environments step.

    Args:
        environments: Where episodes are played.
        seed: As in :class:`Experience`.
        n_step: As in :class:`Experience`.
        gamma: As in :class:`Experience`.
        hindsight_goals: As in :class:`~td3robot.config.AgentConfig`.
        guide: As in :class:`Experience`.

    Raises:
        ConfigError: Goals are wanted, and the environments have none.
    """

    def __init__(
        self,
        environments: Environments,
        seed: int,
        n_step: int,
        gamma: float,
        hindsight_goals: int = 0,
        guide: Guide | None = None,
    ) -> None:
        super().__init__(environments.facts, seed, n_step, gamma, guide)
        self.environments = environments
        if hindsight_goals:
            self._hindsight = Hindsight(environments.facts.goals, hindsight_goals, gamma)
        self._episodes = [self._begin(index, 0) for index in range(self.facts.count)]

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    @property
    def observations(self) -> Vector:
        """The current observation of each environment (environments, size)."""
        return np.stack([episode.observation for episode in self._episodes])

    def start(self, actions: Vector) -> None:
        """Make every environment step with its row of ``actions``, by the next :meth:`finish`."""
        self.environments.start(actions)

    def finish(self) -> FinishedStep:
        """Wait for the steps that :meth:`start` began, and begin the next episode wherever one ended.

        If an environment fails here, everything is left as it was before :meth:`start`.

        Raises:
            EnvironmentFaultError: An observation or reward is not finite.
        """
        steps = self.environments.finish()
        for index, (episode, step) in enumerate(zip(self._episodes, steps, strict=True)):
            where = f"environment {index}, episode {episode.index}, step {len(episode.actions)}"
            require_finite(self.facts.observation_layout, step.observation, step.reward, where)
        played = list(zip(self._episodes, steps, strict=True))
        transitions = [
            transition
            for index, (episode, step) in enumerate(played)
            if step.terminated or step.truncated
            for transition in self._in_hindsight(index, episode, step)
        ]
        following = [
            self._begin(index, episode.index + 1) if step.terminated or step.truncated else episode
            for index, (episode, step) in enumerate(played)
        ]
        return FinishedStep(following, played, transitions)

    def advance(self, finished: FinishedStep) -> CollectedSteps:
        """Advance the episodes by a finished step: observations are those after it."""
        self._episodes = finished.following
        taken = self._taken(finished.played)
        return taken._replace(transitions=taken.transitions + finished.transitions)

    def load_state(self, arrays: dict[str, NDArray[Any]], indices: list[int]) -> list[int]:
        """Restore every environment to where :meth:`state` was taken, by replaying its episode.

        Returns:
            The indices of the environments that did not reach the saved observation because they are not
            deterministic; each begins its next episode instead.
        """
        diverged = []
        for index, episode_index in enumerate(indices):
            episode = self._begin(index, episode_index)
            ended = False
            for action in arrays[f"{index}.actions"]:
                step = self.environments.step(index, action)
                self._advance(episode, step)
                if ended := step.terminated or step.truncated:
                    break
            if ended or not np.array_equal(episode.observation, arrays[f"{index}.observation"]):
                diverged.append(index)
                episode = self._begin(index, episode_index + 1)
            self._episodes[index] = episode
        return diverged

    def _in_hindsight(self, index: int, episode: Episode, last: Step) -> list[Transition]:
        """Return the transitions of an episode that ends with a step, if hindsight makes them."""
        if self._hindsight is None:
            return []
        rng = seeding.generator(self._seed, seeding.Stream.HINDSIGHT, index, episode.index)
        steps = [*episode.past, _past(episode, last)]
        return self._hindsight.transitions(steps, rng, partial(self.environments.rewards, index))

    def _begin(self, index: int, episode_index: int) -> Episode:
        observation = self.environments.reset(index, self._seed_of(index, episode_index))
        where = f"environment {index}, episode {episode_index}, reset"
        require_finite(self.facts.observation_layout, observation, 0.0, where)
        return Episode(episode_index, observation)


def _past(episode: Episode, step: Step) -> PastStep:
    return PastStep(episode.observation, step.action, step.reward, step.observation, step.terminated)
