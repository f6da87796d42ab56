"""Translates older configurations: durations in control periods into seconds, a damping ratio into a factor."""

from collections.abc import Callable, Mapping
from typing import Any

DEFAULT_RATE_HZ = 20.0


def _seconds(steps: Any, rate_hz: float) -> Any:
    if isinstance(steps, list | tuple):
        return [_seconds(item, rate_hz) for item in steps]
    return round(steps / rate_hz, 9)


def _rate(value: Any, rate_hz: float) -> Any:
    return round(value * rate_hz, 9)


def _response(share: Any, rate_hz: float) -> Any:
    return 0.0 if share >= 1.0 else round(1.0 / (share * rate_hz), 9)


# A UR's damping ratio, around which `real` drew its own when it did so without a factor.
USUAL_DAMPING = 0.866


def _factor(damping: Any, rate_hz: float) -> Any:
    return [1.0, 1.0] if damping is None else [round(end / USUAL_DAMPING, 2) for end in damping]


# For each section of the environment: the old key, the new one, and the conversion of its value.
RENAMED: Mapping[str, Mapping[str, tuple[str, Callable[[Any, float], Any]]]] = {
    "task": {
        "hold_steps": ("hold_s", _seconds),
        "practice_hold_steps": ("practice_hold_s", _seconds),
        "full_turn_rad": ("full_turn_rad_s", _rate),
    },
    "action": {"response": ("response_s", _response)},
    "disturbance": {
        "action_delay_steps": ("action_delay_s", _seconds),
        "observation_delay_steps": ("observation_delay_s", _seconds),
        "servo_damping": ("servo_damping_factor", _factor),
    },
}


def in_seconds(values: dict[str, Any]) -> list[str]:
    """Rename the keys of older runs in place, and convert their values to seconds.

    Returns:
        The old keys that were found, as ``environment.task.hold_steps``.
    """
    environment = values.get("environment")
    if not isinstance(environment, dict):
        return []
    robot = environment.get("robot")
    rate_hz = robot.get("control_rate_hz", DEFAULT_RATE_HZ) if isinstance(robot, dict) else DEFAULT_RATE_HZ
    found = []
    for section, keys in RENAMED.items():
        here = environment.get(section)
        if not isinstance(here, dict):
            continue
        for old, (new, translate) in keys.items():
            if old in here and new not in here:
                try:
                    here[new] = translate(here[old], rate_hz)
                except (TypeError, ZeroDivisionError):
                    continue  # not a number: the old key stays, and is refused as unknown
                del here[old]
                found.append(f"environment.{section}.{old}")
    return found
