"""What a session comes to: success, tracking, latencies, missed ticks, interventions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from td3robot.deploy.episode import Figures
from td3robot.statistics import wilson_interval


def summarize(episodes: Sequence[Figures]) -> dict[str, Any]:
    """Put the figures of episodes together; those that were stopped count as failures, and are counted.

    Durations are in ms, angles in rad, distances in m. What nobody measured is None.
    """
    steps = sum(episode.steps for episode in episodes)
    successes = sum(episode.success for episode in episodes)
    reasons: Counter[str] = Counter()
    for episode in episodes:
        reasons.update(episode.reasons)
    distances = [episode.distance_m for episode in episodes if episode.distance_m is not None]
    missed = sum(episode.missed_ticks for episode in episodes)
    return {
        "episodes": len(episodes),
        "success_rate": successes / len(episodes) if episodes else None,
        "success_ci95": wilson_interval(successes, len(episodes)) if episodes else None,
        "mean_return": float(np.mean([episode.total_reward for episode in episodes])) if episodes else None,
        "mean_final_distance_m": float(np.mean(distances)) if distances else None,
        "steps": steps,
        "max_tcp_speed_m_s": max((episode.tcp_speed_m_s for episode in episodes), default=None),
        "max_joint_speed_rad_s": max((episode.joint_speed_rad_s for episode in episodes), default=None),
        "tracking": tracking(episodes),
        "guard_interventions": {name: count / steps for name, count in sorted(reasons.items())} if steps else {},
        "decide_ms": percentiles(1e3 * t for episode in episodes for t in episode.decide_s),
        "state_age_ms": percentiles(1e3 * t for episode in episodes for t in episode.state_age_s),
        "missed_ticks": missed,
        "missed_share": missed / steps if steps else None,
        "ended": dict(Counter(episode.ended for episode in episodes)),
        "faults": [episode.fault for episode in episodes if episode.fault is not None],
    }


def tracking(episodes: Iterable[Figures]) -> dict[str, float] | None:
    """Give how far the arm is from where it was commanded: while it moves (servo lag included), and in the end."""
    found = [np.array(episode.lead_rad) for episode in episodes if episode.lead_rad]
    if not found:
        return None
    together = np.concatenate(found)
    return {
        "rms_rad": float(np.sqrt(np.mean(together**2))),
        "max_rad": float(together.max()),
        "at_end_rad": float(np.mean([leads[-1] for leads in found])),
    }


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Give median, 99th percentile and maximum; None of nothing."""
    found = np.fromiter(values, np.float64)
    if not len(found):
        return None
    p50, p99 = np.percentile(found, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "max": float(found.max())}
