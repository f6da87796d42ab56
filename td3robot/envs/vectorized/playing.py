"""Playing whole episodes in several environments that step together."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from td3robot.envs.playing import Act, EpisodeFigures, Vector, require_finite
from td3robot.envs.robot_env import RobotEnv
from td3robot.envs.vectorized.env import VectorizedRobotEnv


class VectorizedPlayer:
    """Play episodes side by side: an environment whose episode has ended plays the next one.

    An episode's figures do not depend on those beside it. They are those of :class:`td3robot.envs.playing.Player` up to
    rounding.

    Args:
        environments: As in :class:`VectorizedRobotEnv`.
        threads: As there.
    """

    def __init__(self, environments: Sequence[RobotEnv], threads: int) -> None:
        self._environments, self._together = environments, VectorizedRobotEnv(environments, threads)

    def play(
        self, act: Act, episodes: Iterable[tuple[int, int]], look: Callable[[int, str], object]
    ) -> Iterator[EpisodeFigures]:
        """Play episodes, and yield the figures of each when it has ended.

        Args:
            act: The policy.
            episodes: Number and seed of each.
            look: Called with an episode's number and what it does next.

        Raises:
            EnvironmentFaultError: An observation or reward is not finite.
        """
        waiting, playing = iter(episodes), dict[int, EpisodeFigures]()
        layout = self._environments[0].observation_layout
        observations: dict[int, Vector] = {}
        while True:
            for row in sorted(set(range(len(self._environments))) - playing.keys()):
                if (episode := next(waiting, None)) is not None:
                    figures = playing[row] = EpisodeFigures(*episode)
                    look(figures.number, "reset")
                    observations[row], _ = self._environments[row].reset(seed=figures.seed)
                    require_finite(layout, observations[row], 0.0, f"episode {figures.number}, reset")
                    self._together.begin(row)
            rows = sorted(playing)
            if not rows:
                return
            look(playing[rows[0]].number, f"step {playing[rows[0]].steps}, with {len(rows) - 1} others")
            taken = self._together.step(np.stack([act(observations[row]) for row in rows]), np.array(rows))
            steps = zip(rows, taken.observations, taken.rewards.tolist(), taken.truncated, taken.infos(), strict=True)
            for row, observation, reward, truncated, info in steps:
                figures = playing[row]
                require_finite(layout, observation, reward, f"episode {figures.number}, step {figures.steps}")
                figures.count(reward, info)
                observations[row] = observation
                if truncated:
                    figures.ended = "time"
                    yield playing.pop(row)
