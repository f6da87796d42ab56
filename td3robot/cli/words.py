"""Figures as sentences with units, for people."""

from collections.abc import Mapping
from typing import Any

# A distance to the goal below this is left out: a lifted object has none left [m].
NOTHING_M = 5e-5


def success_words(figures: Mapping[str, Any], achieved: str) -> str:
    """Return how many episodes succeeded, in words: ``reached 198 of 200 (96.4 to 99.7 %), 2.4 mm from the goal``.

    Args:
        figures: With ``success_rate``, ``success_ci95``, ``episodes`` and ``mean_final_distance_m``.
        achieved: What a policy did in a successful episode.
    """
    rate, interval, episodes = figures["success_rate"], figures["success_ci95"], figures["episodes"]
    if rate is None:
        return f"{episodes_words(episodes)}; this environment does not say what success is"
    low, high = (100 * bound for bound in interval)
    distance = figures["mean_final_distance_m"]
    left = "" if distance is None or distance < NOTHING_M else f", {1e3 * distance:.1f} mm from the goal"
    return f"{achieved} {round(rate * episodes)} of {episodes} ({low:.1f} to {high:.1f} %){left}"


def episodes_words(count: int) -> str:
    """Return a number of episodes in words."""
    return "1 episode" if count == 1 else f"{count} episodes"


def guard_words(shares: Mapping[str, float] | None) -> str | None:
    """Return the share of steps that the guard changed, and why, in words, or None without a guard."""
    if shares is None:
        return None
    reasons = sorted(((share, name) for name, share in shares.items() if name != "any"), reverse=True)
    why = ", ".join(f"{name.replace('_', ' ')} {percent(share)}" for share, name in reasons)
    return f"the guard changed {percent(shares.get('any', 0.0))} of the steps" + (f" ({why})" if why else "")


def evaluation_words(figures: Mapping[str, Any], achieved: str, rate_hz: float | None = None) -> list[str]:
    """Return a few lines about an evaluation.

    Args:
        figures: The figures of :class:`~td3robot.envs.playing.Evaluation`, as plain values.
        achieved: What a policy did in a successful episode.
        rate_hz: Steps per second, if they have a duration.
    """
    steps = figures["mean_steps"]
    lasting = f"{steps:.0f} steps" + (f" ({steps / rate_hz:.1f} s)" if rate_hz else "")
    lines = [
        success_words(figures, achieved),
        f"mean return {figures['mean_return']:.1f} in {lasting}",
    ]
    if figures["max_tcp_speed_m_s"] is not None:
        joints = figures["max_joint_speed_rad_s"]
        lines.append(f"fastest tool {1e3 * figures['max_tcp_speed_m_s']:.0f} mm/s, fastest joint {joints:.2f} rad/s")
    guard = guard_words(figures["guard_interventions"])
    return lines if guard is None else [*lines, guard]


def learner_words(figures: Mapping[str, Any]) -> str:
    """Return the learner's speed in words."""
    return (
        f"{figures['updates_per_second']:,.0f} updates a second by the {figures['learner']} learner (slowest pass "
        f"{figures['slowest']:,.0f}, fastest {figures['fastest']:,.0f}); batches of {figures['batch_size']}, "
        f"{figures['threads']} "
        f"{'thread' if figures['threads'] == 1 else 'threads'}, {figures['observation_size']} numbers observed, "
        f"{figures['action_size']} in an action"
    )


def environment_words(figures: Mapping[str, Any]) -> str:
    """Return the environment's speed in words."""
    said = f"{figures['steps_per_second']:,.0f} steps a second"
    if figures["steps_per_second_without_guard"] is None:
        return said
    said = (
        f"{said}; {figures['steps_per_second_without_guard']:,.0f} without the guard, which makes a step "
        f"{percent(figures['guard_overhead'])} longer"
    )
    if figures.get("together") is None:
        return said
    return (
        f"{said}. {figures['together']} environments together: {figures['steps_per_second_together']:,.0f} steps a "
        f"second. Physics take {percent(figures['physics_share'])} of a step alone, and "
        f"{percent(figures['physics_share_together'])} together"
    )


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"
