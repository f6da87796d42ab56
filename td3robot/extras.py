"""Checks that the packages of an optional extra are installed, before anything is built."""

from importlib.util import find_spec

from td3robot.errors import MissingExtraError


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Require that an extra is installed, without importing anything.

    Args:
        extra: Its name in pyproject.toml.
        purpose: What needs it, as the beginning of a sentence.
        modules: Top-level modules that it installs.

    Raises:
        MissingExtraError: One of them cannot be found.
    """
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(extra, purpose)
