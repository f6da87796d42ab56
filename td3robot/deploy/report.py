"""Summary of the episodes of a session: success, tracking, latencies, missed ticks, guard interventions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from td3robot.deploy.episode import Figures
from td3robot.statistics import percentiles, wilson_interval


def summarize(episodes: Sequence[Figures]) -> dict[str, Any]:
    """Summarise episodes; those that were stopped count as failures, and ``ended`` counts them.

    Durations are in ms, angles in rad, distances in m. What was not measured is None.
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
    """Return the tracking error: while the arm moves (servo lag included), and at the end of each episode."""
    found = [np.array(episode.lead_rad) for episode in episodes if episode.lead_rad]
    if not found:
        return None
    together = np.concatenate(found)
    return {
        "rms_rad": float(np.sqrt(np.mean(together**2))),
        "max_rad": float(together.max()),
        "at_end_rad": float(np.mean([leads[-1] for leads in found])),
    }
