"""Collecting experience from several environments into one replay buffer."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.envs.playing import require_finite
from td3robot.learning.environments import Environments, Step
from td3robot.learning.window import FinishedEpisode, StepAverages

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
        self._pending: list[tuple[Episode, Step]] = []
        self._ended: list[int] = []
        self._episodes = [self._begin(index, 0) for index in range(environments.facts.count)]

    @property
    def observations(self) -> Vector:
        """The current observation of each environment (environments, size)."""
        return np.stack([episode.observation for episode in self._episodes])

    def start(self, actions: Vector) -> None:
        """Have every environment step with its row of ``actions``, by the next :meth:`finish`."""
        self.environments.start(actions)

    def finish(self, begin_next: bool = True) -> None:
        """Wait for the steps that :meth:`start` began, and begin the next episode wherever one ended.

        An environment that fails here leaves everything as it was before :meth:`start`.

        Args:
            begin_next: Whether to call :meth:`begin_next`; a caller that does not has to.

        Raises:
            EnvironmentFaultError: An observation or reward is not finite.
        """
        self._pending = []
        steps = self.environments.finish()
        for index, (episode, step) in enumerate(zip(self._episodes, steps, strict=True)):
            where = f"environment {index}, episode {episode.index}, step {len(episode.actions)}"
            require_finite(self.environments.facts.observation_layout, step.observation, step.reward, where)
        pending = list(zip(self._episodes, steps, strict=True))
        self._ended = [index for index, step in enumerate(steps) if step.terminated or step.truncated]
        if begin_next:
            self.begin_next()
        self._pending = pending

    def begin_next(self) -> None:
        """Begin the next episode of every environment whose episode ended with the last step."""
        following = {index: self._begin(index, self._episodes[index].index + 1) for index in self._ended}
        self._episodes = [following.get(index, episode) for index, episode in enumerate(self._episodes)]
        self._ended = []

    def commit(self, replay: "ReplayBuffer") -> list[FinishedEpisode]:
        """Store the last step's transitions, and return the episodes that ended with it."""
        finished = []
        for episode, step in self._pending:
            self._advance(episode, step, replay)
            self.averages.add(step)
            if step.terminated or step.truncated:
                finished.append(FinishedEpisode(episode.total_reward, len(episode.actions), step.success))
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
