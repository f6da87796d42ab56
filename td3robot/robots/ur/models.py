"""Model names as UR controllers report them."""

import re

from td3robot.errors import ConfigError
from td3robot.robots.arms.model import ArmModel

_NAME = re.compile(r"ur(\d+)(e?)")


def model_names(arm: ArmModel) -> tuple[str, ...]:
    """Return a controller's possible answers to ``get robot model`` for an arm, the usual one first.

    An e-Series answers without its ``e``: ``UR5``, like the CB3 arm of that name. PolyScope's version tells the two
    apart.

    Raises:
        ConfigError: The arm is not from Universal Robots.
    """
    match = _NAME.fullmatch(arm.name)
    if match is None:
        raise ConfigError(f"{arm.name} is not an arm of Universal Robots, whose controllers this driver speaks to")
    short = f"UR{match[1]}"
    return (short, f"{short}e") if match[2] else (short,)


def is_ur(name: str) -> bool:
    """Whether an arm of that name is from Universal Robots."""
    return _NAME.fullmatch(name) is not None
