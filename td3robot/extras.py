"""Whether the packages of an optional extra are installed, asked before anything is built."""

from importlib.util import find_spec

from td3robot.errors import MissingExtraError


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Refuse what needs an extra that is not installed; nothing is imported.

    Args:
        extra: Its name in pyproject.toml.
        purpose: What needs it, as the beginning of a sentence.
        modules: Top-level modules that it brings.

    Raises:
        MissingExtraError: One of them cannot be found.
    """
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(extra, purpose)
