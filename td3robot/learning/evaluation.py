"""Evaluating a policy over whole episodes with fixed seeds, without exploration."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.learning.collector import require_finite

Vector = NDArray[np.float32]
Act = Callable[[Vector], Vector]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over some episodes. Those that an environment does not report are None.

    Attributes:
        success_ci95: Wilson score interval of the success rate.
        guard_interventions: Share of steps that the guard changed, by reason; ``any`` counts a step once.
    """

    success_rate: float | None
    success_ci95: tuple[float, float] | None
    episodes: int
    mean_return: float
    mean_steps: float
    mean_final_distance_m: float | None
    max_tcp_speed_m_s: float | None
    max_joint_speed_rad_s: float | None
    guard_interventions: dict[str, float] | None

    def to_json(self) -> dict[str, Any]:
        """Give the figures as plain values."""
        return asdict(self)

    def is_better_than(self, other: "Evaluation") -> bool:
        """Whether this is the better policy's, or as good: by return, unless one succeeds more often.

        More often is where each rate lies beyond the other's 95 % interval. Of fifty episodes, one more or less is
        chance, while the return also tells how soon and how steadily a policy succeeds.
        """
        if self._succeeds_more_often_than(other):
            return True
        return self.mean_return >= other.mean_return and not other._succeeds_more_often_than(self)

    def _succeeds_more_often_than(self, other: "Evaluation") -> bool:
        if self.success_rate is None or self.success_ci95 is None:
            return False
        if other.success_rate is None or other.success_ci95 is None:
            return False
        return self.success_rate > other.success_ci95[1] and other.success_rate < self.success_ci95[0]


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute the 95 % Wilson score interval of a proportion (Wilson 1927)."""
    z = 1.959963984540054
    p = successes / trials
    center = p + z * z / (2 * trials)
    spread = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def evaluate(
    environment: gymnasium.Env[Vector, Vector],
    act: Act,
    episodes: int,
    seed: int,
    stream: seeding.Stream = seeding.Stream.EVALUATION_EPISODES,
    on_frame: Callable[[gymnasium.Env[Vector, Vector]], None] | None = None,
) -> Evaluation:
    """Play whole episodes and gather their figures.

    Args:
        environment: Reports ``success``, ``distance_m``, ``tcp_speed_m_s``, ``joint_speed_rad_s`` and
            ``interventions`` in its info, or none of them.
        act: Maps an observation to an action in [-1, 1].
        episodes: How many.
        seed: Each episode's own seed is derived from it.
        stream: What the episodes are for: those that choose the best policy of a training are never those that
            judge it afterwards.
        on_frame: Called after every reset and step, to record a video.
    """
    returns, lengths, successes, distances = [], [], [], []
    tcp_speed, joint_speed = 0.0, 0.0
    interventions: Counter[str] = Counter()
    info: dict[str, Any] = {}
    layout = getattr(environment.unwrapped, "observation_layout", None)
    for episode in range(episodes):
        episode_seed = seeding.integer(seed, stream, episode)
        observation, info = environment.reset(seed=episode_seed)
        require_finite(layout, observation, 0.0, f"evaluation episode {episode}, reset")
        total, steps, ended = 0.0, 0, False
        while not ended:
            if on_frame is not None:
                on_frame(environment)
            observation, reward, terminated, truncated, info = environment.step(act(observation))
            require_finite(layout, observation, float(reward), f"evaluation episode {episode}, step {steps}")
            total += float(reward)
            steps += 1
            tcp_speed = max(tcp_speed, info.get("tcp_speed_m_s", 0.0))
            joint_speed = max(joint_speed, info.get("joint_speed_rad_s", 0.0))
            interventions.update(info.get("interventions", ()))
            interventions["any"] += bool(info.get("interventions"))
            ended = terminated or truncated
        if on_frame is not None:
            on_frame(environment)
        returns.append(total)
        lengths.append(steps)
        successes.append(bool(info.get("success", False)))
        distances.append(info.get("distance_m", float("nan")))

    reports_success = "success" in info
    return Evaluation(
        success_rate=float(np.mean(successes)) if reports_success else None,
        success_ci95=wilson_interval(sum(successes), episodes) if reports_success else None,
        episodes=episodes,
        mean_return=float(np.mean(returns)),
        mean_steps=float(np.mean(lengths)),
        mean_final_distance_m=float(np.mean(distances)) if "distance_m" in info else None,
        max_tcp_speed_m_s=tcp_speed if "tcp_speed_m_s" in info else None,
        max_joint_speed_rad_s=joint_speed if "joint_speed_rad_s" in info else None,
        guard_interventions=(
            {reason: count / sum(lengths) for reason, count in sorted(interventions.items())}
            if "interventions" in info
            else None
        ),
    )
