"""Which code a checkpoint would import: its configuration names an environment, and Gymnasium that one's module."""

import gymnasium

from td3robot.config import GymnasiumEnvironmentConfig
from td3robot.config.section import Section
from td3robot.errors import CheckpointError

OWN = ("td3robot", "gymnasium")


def require_trusted(environment: Section, source: str, trusted: bool) -> None:
    """Refuse to import a third-party module for an environment that a checkpoint names, unless the user trusts it.

    Args:
        environment: The environment section of the checkpoint's configuration.
        source: The checkpoint, for messages.
        trusted: Whether the user trusts it.

    Raises:
        CheckpointError: Naming the environment and the module.
    """
    if trusted or not isinstance(environment, GymnasiumEnvironmentConfig):
        return
    if (module := foreign_module(environment.id)) is not None:
        raise CheckpointError(
            f"{source} names the environment {environment.id!r}, whose code is the module {module!r}; nothing was "
            "imported; if you trust that module and this checkpoint, add --trust"
        )


def trust_option(environment_id: str | None) -> str:
    """Return what a command for a checkpoint on an environment has to end with: `` --trust`` or nothing.

    Args:
        environment_id: Its Gymnasium id; None of a robot.
    """
    return "" if environment_id is None or foreign_module(environment_id) is None else " --trust"


def foreign_module(environment_id: str) -> str | None:
    """Return the third-party module that ``gymnasium.make`` would import, or None, without importing it."""
    module, colon, name = environment_id.rpartition(":")
    if colon and not _is_own(module):
        return module
    try:
        entry = gymnasium.spec(name).entry_point
    except gymnasium.error.Error:
        return None  # it is not registered, and cannot be made
    if not isinstance(entry, str):
        return None  # this program registered it, and has its code
    found = entry.partition(":")[0]
    return None if _is_own(found) else found


def _is_own(module: str) -> bool:
    return any(module == own or module.startswith(f"{own}.") for own in OWN)
