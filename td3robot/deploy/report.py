"""Summary of a session's episodes: success, tracking, latencies, missed ticks, guard interventions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from td3robot.config import DisturbanceConfig
from td3robot.deploy.episode import ArmFigures
from td3robot.deploy.gripper_figures import summarize_closings
from td3robot.envs import playing
from td3robot.statistics import Sample

# Figures that an evaluation also reports.
SHARED = (
    "success_rate",
    "success_ci95",
    "mean_return",
    "failures",
    "mean_final_distance_m",
    "max_tcp_speed_m_s",
    "max_joint_speed_rad_s",
    "handling",
)


class Summary:
    """Add up episodes without keeping their periods, so that a session may have any length.

    Args:
        trained: What the policy was trained for, shown beside the measurements; None if unknown.
    """

    def __init__(self, trained: DisturbanceConfig | None = None) -> None:
        self._trained = trained
        self.decide_ms, self.state_age_ms, self.lead_rad = Sample(), Sample(), Sample()
        self._episodes, self._at_end = list[ArmFigures](), list[float]()

    def add(self, episode: ArmFigures) -> None:
        """Add an episode that is over, however it ended."""
        self.add_periods(episode)
        if episode.lead_rad:
            self._at_end.append(episode.lead_rad[-1])
        self._episodes.append(replace(episode, decide_s=[], state_age_s=[], lead_rad=[]))

    def add_periods(self, episode: ArmFigures) -> None:
        """Add the times and distances of an episode's periods that are in its lists now."""
        self.decide_ms.add([1e3 * t for t in episode.decide_s])
        self.state_age_ms.add([1e3 * t for t in episode.state_age_s])
        self.lead_rad.add(episode.lead_rad)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        episodes = self._episodes
        steps = sum(episode.steps for episode in episodes)
        missed = sum(episode.missed_ticks for episode in episodes)
        shared = playing.summarize(episodes).to_json() if episodes else {}
        return {
            "episodes": len(episodes),
            **{name: shared.get(name) for name in SHARED},
            "steps": steps,
            "tracking": self._tracking(),
            "max_tool_force_n": max((e.tool_force_n for e in episodes if e.tool_force_n is not None), default=None),
            "guard_interventions": shared.get("guard_interventions") or {},
            "gripper": summarize_closings([one for episode in episodes for one in episode.closings], self._trained),
            "decide_ms": self.decide_ms.percentiles(),
            "state_age_ms": self.state_age_ms.percentiles(),
            "missed_ticks": missed,
            "missed_share": missed / steps if steps else None,
            "ended": dict(Counter(episode.ended for episode in episodes)),
            "faults": [episode.fault for episode in episodes if episode.fault is not None],
        }

    def _tracking(self) -> dict[str, float] | None:
        """Return the tracking error: while the arm moves (servo lag included), and at the end of each episode."""
        leads = self.lead_rad
        if not leads.count:
            return None
        return {
            "rms_rad": sqrt(leads.square / leads.count),
            "max_rad": leads.largest,
            "at_end_rad": float(np.mean(self._at_end)),
        }


def summarize(episodes: Sequence[ArmFigures], trained: DisturbanceConfig | None = None) -> dict[str, Any]:
    """Return a summary of episodes; stopped ones count as failures, and ``ended`` counts them.

    Args:
        episodes: Their figures.
        trained: As in :class:`Summary`.

    Durations are in ms, angles in rad, distances in m. What was not measured is None.
    """
    summary = Summary(trained)
    for episode in episodes:
        summary.add(episode)
    return summary.to_json()
