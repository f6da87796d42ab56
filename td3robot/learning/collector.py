"""Collecting experience from several environments into one replay buffer."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.envs.playing import require_finite
from td3robot.learning.environments import Environments, Step

if TYPE_CHECKING:
    from td3robot.learning.replay import ReplayBuffer

Vector = NDArray[np.float32]


@dataclass(slots=True)
class Episode:
    """An episode in progress.

    Seed and actions are all it takes to get back here: an environment that is deterministic after
    ``reset(seed)`` is restored by replaying the actions.
    """

    index: int
    observation: Vector
    actions: list[Vector] = field(default_factory=list)
    total_reward: float = 0.0
    recent: deque[tuple[Vector, Vector, float]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """Figures of an episode that ended."""

    total_reward: float
    steps: int
    success: bool | None


class Collector:
    """Step environments side by side, and store their transitions.

    ``start`` and ``finish`` touch only the environments, and ``commit`` alone writes to the replay buffer, so that a
    learner may sample the buffer while the environments step.

    Args:
        environments: Where episodes are played.
        seed: The run's seed; every episode of every environment gets its own from it.
        n_step: Rewards summed into one transition.
        gamma: Discount for that sum.
    """

    def __init__(self, environments: Environments, seed: int, n_step: int, gamma: float) -> None:
        self.environments = environments
        self.averages = StepAverages()
        self._seed, self._n_step, self._gamma = seed, n_step, gamma
        self._pending: list[Step] = []
        self._episodes = [self._begin(index, 0) for index in range(environments.facts.count)]

    @property
    def observations(self) -> Vector:
        """The current observation of each environment (environments, size)."""
        return np.stack([episode.observation for episode in self._episodes])

    def start(self, actions: Vector) -> None:
        """Have every environment step with its row of ``actions``, by the next :meth:`finish`."""
        self.environments.start(actions)

    def finish(self) -> None:
        """Wait for the steps that :meth:`start` began.

        Raises:
            EnvironmentFaultError: An observation or reward is not finite.
        """
        self._pending = []
        steps = self.environments.finish()
        for index, (episode, step) in enumerate(zip(self._episodes, steps, strict=True)):
            where = f"environment {index}, episode {episode.index}, step {len(episode.actions)}"
            require_finite(self.environments.facts.observation_layout, step.observation, step.reward, where)
        self._pending = steps

    def commit(self, replay: "ReplayBuffer", pause: Callable[[], None] | None = None) -> list[FinishedEpisode]:
        """Store the last step's transitions, begin new episodes where one ended, and return those that ended.

        Args:
            replay: Where the transitions go.
            pause: Called between an episode and the next of its environment.
        """
        finished = []
        for index, step in enumerate(self._pending):
            episode = self._episodes[index]
            self._advance(episode, step, replay)
            self.averages.add(step)
            if step.terminated or step.truncated:
                finished.append(FinishedEpisode(episode.total_reward, len(episode.actions), step.success))
                if pause is not None:
                    pause()
                self._episodes[index] = self._begin(index, episode.index + 1)
        self._pending = []
        return finished

    def observe(self, index: int, observation: Vector) -> None:
        """Replace an environment's current observation by a newer one."""
        self._episodes[index].observation = np.asarray(observation, np.float32)

    def begin_after(self, indices: Sequence[int]) -> None:
        """Begin the episode after the given one in every environment; what was in progress is dropped."""
        self._episodes = [self._begin(index, episode + 1) for index, episode in enumerate(indices)]

    def state(self) -> tuple[dict[str, NDArray[Any]], list[int]]:
        """Return each episode's actions and last observation as arrays, and the episodes' indices."""
        arrays: dict[str, NDArray[Any]] = {}
        shape = self.environments.facts.action_shape
        for index, episode in enumerate(self._episodes):
            arrays[f"{index}.actions"] = np.array(episode.actions, np.float32).reshape(-1, *shape)
            arrays[f"{index}.observation"] = episode.observation
        return arrays, [episode.index for episode in self._episodes]

    def load_state(self, arrays: dict[str, NDArray[Any]], indices: list[int]) -> list[int]:
        """Bring every environment back to where :meth:`state` was taken, by replaying its episode.

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
                self._advance(episode, step, None)
                if ended := step.terminated or step.truncated:
                    break
            if ended or not np.array_equal(episode.observation, arrays[f"{index}.observation"]):
                diverged.append(index)
                episode = self._begin(index, episode_index + 1)
            self._episodes[index] = episode
        return diverged

    def _begin(self, index: int, episode_index: int) -> Episode:
        seed = seeding.integer(self._seed, seeding.Stream.TRAINING_EPISODES, index, episode_index)
        observation = self.environments.reset(index, seed)
        where = f"environment {index}, episode {episode_index}, reset"
        require_finite(self.environments.facts.observation_layout, observation, 0.0, where)
        return Episode(episode_index, observation)

    def _advance(self, episode: Episode, step: Step, replay: "ReplayBuffer | None") -> None:
        """Advance an episode by one step, and store the n-step transitions that are complete."""
        episode.actions.append(step.action)
        episode.total_reward += step.reward
        episode.recent.append((episode.observation, step.action, step.reward))
        ended = step.terminated or step.truncated
        while episode.recent and (ended or len(episode.recent) == self._n_step):
            reward = 0.0
            for _, _, later in reversed(episode.recent):
                reward = later + self._gamma * reward
            observation, taken, _ = episode.recent[0]
            if replay is not None:
                discount = self._gamma ** len(episode.recent)
                replay.add(observation, taken, reward, step.observation, step.terminated, discount)
            episode.recent.popleft()
        episode.observation = step.observation


class StepAverages:
    """Means over the steps since the last log row; ``names`` are reported even if nothing adds to them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.steps = 0
        self._sums: defaultdict[str, float] = defaultdict(float, dict.fromkeys(names, 0.0))

    def add(self, step: Step) -> None:
        """Add one step."""
        self.steps += 1
        self._sums["action/mean_abs"] += float(np.abs(step.action).mean())
        self._sums["action/saturated"] += float((np.abs(step.action) > 0.99).mean())
        for name, value in step.reward_terms.items():
            self._sums[f"reward/{name}"] += value
        for reason in step.interventions:
            self._sums[f"guard/{reason}"] += 1.0

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over the steps added."""
        return {name: value / max(self.steps, 1) for name, value in self._sums.items()}
