"""Figures as sentences with units, for people."""

from collections.abc import Mapping
from typing import Any

from td3robot.format import achieved, guard_reason, percent


def guard_words(shares: Mapping[str, float] | None) -> str | None:
    """Return the share of steps that the guard changed, and why, in words, or None without a guard."""
    if shares is None:
        return None
    reasons = sorted(((share, name) for name, share in shares.items() if name != "any"), reverse=True)
    why = ", ".join(f"{guard_reason(name)} {percent(share, 1)}" for share, name in reasons)
    return f"the guard changed {percent(shares.get('any', 0.0), 1)} of the steps" + (f" ({why})" if why else "")


def evaluation_words(figures: Mapping[str, Any], what: str, rate_hz: float | None = None) -> list[str]:
    """Return a few lines about an evaluation.

    Args:
        figures: The figures of :class:`~td3robot.envs.playing.Evaluation`, as plain values.
        what: What a policy did in a successful episode.
        rate_hz: Steps per second, if they have a duration.
    """
    steps = figures["mean_steps"]
    lasting = f"{steps:.0f} steps" + (f" ({steps / rate_hz:.1f} s)" if rate_hz else "")
    lines = [
        achieved(figures, what),
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
        f"{percent(figures['guard_overhead'], 1)} longer"
    )
    if figures.get("together") is None:
        return said
    return (
        f"{said}. {figures['together']} environments together: {figures['steps_per_second_together']:,.0f} steps a "
        f"second. Physics take {percent(figures['physics_share'], 1)} of a step alone, and "
        f"{percent(figures['physics_share_together'], 1)} together"
    )
