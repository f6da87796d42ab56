"""Numbers, durations, names and settings as text for people: one set of words for terminal, pages, plots and viewer."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

NONE = "–"  # noqa: RUF001  # a dash
# Units that stay on one line with their number.
UNITS = ("%", "mm", "mm/s", "m/s", "mrad", "rad/s", "rad/s²", "ms", "s", "min", "h", "Hz", "MB")
NAMES = {
    "fr3": "Franka FR3", "robotiq_2f85": "Robotiq 2F-85", "robotiq_2f140": "Robotiq 2F-140", "hand_e": "Robotiq Hand-E",
    "franka_hand": "Franka hand", "tcp_delta": "moves of the tool", "joint_delta": "moves of the joints",
    "mujoco": "MuJoCo", "td3": "TD3",
}  # fmt: skip
# Why the guard changed a command, by the names of td3robot.robots.guard.REASONS.
GUARD_REASONS = {
    "any": "any reason", "joint_speed": "joint speed", "tcp_speed": "tool speed", "acceleration": "joint acceleration",
    "position": "joint limits", "workspace": "workspace", "clearance": "distance to table or own links",
    "lead": "arm too far behind its command",
}  # fmt: skip
# What ended an episode, by its name in the figures.
ENDED_BY = {
    "time": "the time limit", "goal": "reaching the goal", "fault": "a fault", "operator": "the operator",
}  # fmt: skip
# Why an episode failed, by the kinds that tasks tell, or by what stopped it.
FAILURES = {
    "away": "away from the goal", "too_fast": "moving too fast", "too_short": "there for too short a time",
    "never_gripped": "never gripped the object", "lost": "lost the object", "not_lifted": "not lifted far enough",
    "stopped": "stopped early", "not_left": "the hand did not leave the object", "still_held": "still held the object",
    "misplaced": "away from the goal", "askew": "not turned as the goal", "support_pushed": "pushed the support away",
} | {name: f"stopped by {ENDED_BY[name]}" for name in ("fault", "operator")}  # fmt: skip
# A distance to the goal below this is left out: a lifted object has none left [m].
NOTHING_M = 5e-5


def is_plain(text: str, allowed: str = "") -> bool:
    """Whether a terminal shows a text as it is: no control characters except those allowed, and no lone surrogates."""
    return not any(unicodedata.category(each) in ("Cc", "Cs") and each not in allowed for each in text)


def name_of(identifier: str) -> str:
    """Write a name from a configuration as its maker writes it."""
    if identifier in NAMES:
        return NAMES[identifier]
    if found := re.fullmatch(r"ur(\d+e?)", identifier):
        return f"UR{found[1]}"
    return identifier.replace("_", " ")


def capital(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]


def sentence_case(identifier: str) -> str:
    """Write a key as a heading."""
    return capital(name_of(identifier))


def joint_name(identifier: str) -> str:
    """Write a joint's name as a heading: ``shoulder_pan_joint`` is ``Shoulder pan``."""
    return sentence_case(re.sub(r"^fr3_joint", "joint ", identifier).removesuffix("_joint"))


def guard_reason(name: str) -> str:
    """Write a reason of the guard."""
    return GUARD_REASONS.get(name, name.replace("_", " "))


def number(value: float | None, digits: int = 3, unit: str = "", scale: float = 1.0) -> str:
    """Write a number, times ``scale``, with so many significant digits and its unit; a dash if it is not known."""
    if value is None or value != value:
        return NONE
    value = scale * value
    text = f"{value:,.0f}" if abs(value) >= 10**digits or float(value).is_integer() else f"{value:.{digits}g}"
    return f"{text}{'' if unit == '°' else ' '}{unit}" if unit else text


def percent(share: float | None, decimals: int | None = None) -> str:
    """Write a share in percent, with as many decimals as given or as it needs."""
    if share is None:
        return NONE
    if decimals is not None:
        return f"{100 * share:.{decimals}f} %"
    return f"{100 * share:.3g} %" if share < 0.1 or share > 0.9 else f"{100 * share:.0f} %"


def interval(low_high: Sequence[float] | None) -> str:
    """Write a proportion's interval: ``96.4 to 100 %``."""
    if low_high is None:
        return NONE
    low, high = (f"{100 * share:.1f}".removesuffix(".0") for share in low_high)
    return f"{low} to {high} %"


def succeeded(figures: Mapping[str, Any]) -> str:
    """Write how many episodes succeeded, with the 95 % interval: ``198 of 200 (96.4 to 99.7 %)``."""
    rate, episodes = figures.get("success_rate"), figures.get("episodes") or 0
    if rate is None or not episodes:
        return NONE
    return f"{round(rate * episodes):,} of {int(episodes):,} ({interval(figures.get('success_ci95'))})"


def achieved(figures: Mapping[str, Any], what: str) -> str:
    """Write the success of an evaluation: ``reached 198 of 200 (96.4 to 99.7 %), 2.4 mm from the goal``.

    Args:
        figures: With ``success_rate``, ``success_ci95``, ``episodes`` and ``mean_final_distance_m``.
        what: What the policy did in a successful episode.
    """
    if figures["success_rate"] is None:
        return f"{counted(figures['episodes'], 'episode')}; this environment does not say what success is"
    left = distance_left(figures["mean_final_distance_m"])
    return f"{what} {succeeded(figures)}" + (f", {left} from the goal" if left else "")


def distance_left(distance_m: float | None) -> str:
    """Write the distance to a goal: ``2.4 mm``; nothing if it is not known, or below ``NOTHING_M``."""
    return "" if distance_m is None or distance_m < NOTHING_M else f"{1e3 * distance_m:.1f} mm"


def failure_kind(name: str) -> str:
    """Write why an episode failed."""
    return FAILURES.get(name, name.replace("_", " "))


def failures(figures: Mapping[str, Any]) -> str:
    """Write why episodes failed: ``12 away from the goal (median 14 mm), 3 moving too fast``; a dash if none did."""
    found = []
    for kind, each in (figures.get("failures") or {}).items():
        median = each["distance_m"]
        by = "" if median is None else f" (median {number(median, unit='mm', scale=1e3)})"
        found.append(f"{each['episodes']:,} {failure_kind(kind)}{by}")
    return ", ".join(found) or NONE


def ended_by(counts: Mapping[str, int] | None) -> str:
    """Write what ended episodes, and how many of them."""
    return ", ".join(f"{ENDED_BY.get(name, name)} ({count})" for name, count in (counts or {}).items()) or NONE


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
    """Return nested mappings, and mappings in lists, as one mapping by dotted name: ``{"a.b": 1, "c[0].d": 2}``."""
    if isinstance(values, Mapping) and values:
        inner = [(f"{prefix}.{key}" if prefix else str(key), value) for key, value in values.items()]
    elif isinstance(values, list | tuple) and values and isinstance(values[0], Mapping):
        inner = [(f"{prefix}[{index}]", value) for index, value in enumerate(values)]
    else:
        return {prefix: values}
    return {name: value for key, each in inner for name, value in flat(each, key).items()}


def plain(value: Any) -> str:
    """Write the value of a setting."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(each) for each in value)
    return NONE if value is None else str(value)


def change_text(recorded: Mapping[str, Any]) -> str:
    """Write a change of a resumed run, as a run's directory records it."""
    settings = [f"{name} from {plain(old)} to {plain(new)}" for name, (old, new) in recorded["settings"].items()]
    return f"at step {recorded['step']:,}: {listed(settings)} ({recorded['why']})"


def shell(path: Path | str) -> str:
    """Write a path or a name so that it can be pasted into a shell: quoted where it has to be.

    Bytes that are not UTF-8 are written as bash, zsh and ksh read them, in hexadecimal.
    """
    text = str(path)
    text = f"./{text}" if text.startswith("-") else text
    data = text.encode("utf-8", "surrogateescape")
    if text.isprintable():
        return quote(text)
    plain_bytes = set(range(32, 127)) - set(b"'\\")
    return "$'" + "".join(chr(byte) if byte in plain_bytes else f"\\x{byte:02x}" for byte in data) + "'"


def resume_command(run: Path, step: int | None, asked: int | None) -> str:
    """Return the command that resumes a run: to its end as configured, or beyond it if it got there.

    Args:
        run: Its directory.
        step: How far it is, if that is known.
        asked: How many steps were asked for, if that is known.
    """
    beyond = "" if step is not None and asked is not None and step < asked else " --more N"
    return f"td3robot train --resume {shell(run)}{beyond}"
