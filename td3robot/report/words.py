"""Figures and names as people write them."""

import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

THIN = "\N{NO-BREAK SPACE}"
NONE = "–"  # noqa: RUF001  # a dash
NAMES = {
    "fr3": "Franka FR3", "robotiq_2f85": "Robotiq 2F-85", "robotiq_2f140": "Robotiq 2F-140", "hand_e": "Robotiq Hand-E",
    "franka_hand": "Franka hand", "tcp_delta": "moves of the tool", "joint_delta": "moves of the joints",
    "mujoco": "MuJoCo", "td3": "TD3",
}  # fmt: skip
# What the guard's reasons mean.
REASONS = {
    "any": "Any reason", "joint_speed": "Joint speed", "tcp_speed": "Tool speed", "acceleration": "Joint acceleration",
    "position": "Joint limits", "workspace": "Workspace", "clearance": "Distance to table or own links",
    "lead": "Arm too far behind its command",
}  # fmt: skip


def resume_command(run: Path, step: int | None, asked: int | None) -> str:
    """Return the command that resumes a run: to its end as configured, or beyond it if it got there.

    Args:
        run: Its directory.
        step: How far it is, if that is known.
        asked: How many steps were asked for, if that is known.
    """
    beyond = "" if step is not None and asked is not None and step < asked else " --more N"
    return f"td3robot train --resume {quote(str(run))}{beyond}"


def name_of(identifier: str) -> str:
    """Write a name from a configuration as its maker writes it."""
    if identifier in NAMES:
        return NAMES[identifier]
    if found := re.fullmatch(r"ur(\d+e?)", identifier):
        return f"UR{found[1]}"
    return identifier.replace("_", " ")


def sentence_case(identifier: str) -> str:
    """Write a key as a heading."""
    text = name_of(identifier)
    return text[:1].upper() + text[1:]


def joint_name(identifier: str) -> str:
    """Write a joint's name as a heading."""
    return sentence_case(re.sub(r"^fr3_joint", "joint ", identifier).removesuffix("_joint"))


def number(value: float | None, digits: int = 3, unit: str = "") -> str:
    """Write a number with so many significant digits and its unit."""
    if value is None or value != value:
        return NONE
    text = f"{value:,.0f}" if abs(value) >= 10**digits or float(value).is_integer() else f"{value:.{digits}g}"
    return f"{text}{'' if unit == '°' else THIN}{unit}" if unit else text


def percent(share: float | None) -> str:
    """Write a share."""
    if share is None:
        return NONE
    return f"{100 * share:.3g}{THIN}%" if share < 0.1 or share > 0.9 else f"{100 * share:.0f}{THIN}%"


def interval(low_high: Sequence[float] | None) -> str:
    """Write a proportion's interval."""
    if low_high is None:
        return NONE
    low, high = (f"{100 * share:.1f}".removesuffix(".0") for share in low_high)
    return f"{low} to {high}{THIN}%"


def succeeded(figures: dict[str, Any]) -> str:
    """Write how many episodes succeeded, with the 95 % interval."""
    rate, episodes = figures.get("success_rate"), figures.get("episodes") or 0
    if rate is None or not episodes:
        return NONE
    return f"{round(rate * episodes):,} of {int(episodes):,} ({interval(figures.get('success_ci95'))})"


def duration(seconds: float) -> str:
    """Write a duration."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Join names: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, by dotted name."""
    if not isinstance(values, dict) or not values:
        return {prefix: values}
    return {
        name: value
        for key, inner in values.items()
        for name, value in flat(inner, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def plain(value: Any) -> str:
    """Write a value of a configuration."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(each) for each in value)
    return NONE if value is None else str(value)
