"""Exception types that a caller can tell apart.

Every message is one sentence for the person at the keyboard: what happened, the value, the bound or the
choices, and what to do. The command line prints it and exits with status 2.
"""

import difflib
import errno
import os
from collections.abc import Iterable
from importlib.util import find_spec


class Td3RobotError(Exception):
    """Base of every error that a user can cause and fix."""


class ConfigError(Td3RobotError):
    """A configuration cannot be run as it is."""


class CheckpointError(Td3RobotError):
    """A checkpoint is missing, damaged, foreign, or could not be written."""


class ContractError(Td3RobotError):
    """A robot or environment is not the one that a policy was trained for."""


class MissingExtraError(Td3RobotError, ImportError):
    """A package of an optional extra is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        from td3robot.requirements import impossible  # what it imports takes longer than the rest of this module

        self.extra, self.purpose = extra, purpose
        needed = (
            impossible(extra) or f"the extra {extra!r}, which is not installed; run: pip install 'td3robot[{extra}]'"
        )
        super().__init__(f"{purpose} needs {needed}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.extra, self.purpose)


class RobotError(Td3RobotError):
    """A robot cannot be reached, or does not follow its commands."""


class CommandRefusedError(RobotError):
    """No filtering can make a command safe: it is not finite, has the wrong shape, or is based on a stale state."""


class TrackerError(RobotError):
    """The positions of the objects are no longer known."""


class CameraError(TrackerError):
    """A camera cannot be opened, or shows nothing that can be used."""


class EnvironmentFaultError(Td3RobotError):
    """An environment raised an exception, does not answer, or returned a value that is not finite or misshapen.

    Attributes:
        details: The environment's own traceback, if it raised an exception.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.details)


class TrainingDivergedError(Td3RobotError):
    """The learner's numbers are no longer finite."""


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
        require_open_file()
        raise MissingExtraError(extra, purpose)


def require_open_file() -> None:
    """Require that this process can open one more file; without, packages seem not to be installed.

    Raises:
        Td3RobotError: It cannot.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise Td3RobotError(f"this program can open no more files ({error.strerror}); {remedy(error)}") from None


def remedy(error: OSError) -> str:
    """Return what to do about a file that cannot be opened or written, as a clause."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit, for example with ulimit -n 1024"
    return "make room, and check who may write there"


def choose(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return the error sentence for a ``name`` that is not a known ``kind``, with the nearest choice first.

    Returns:
        One sentence for an error message, for example
        ``unknown task 'raech'; did you mean 'reach'? (choices: grasp, reach)``.
    """
    known = sorted(choices)
    return f"unknown {kind} {name!r}{nearest(name, known)} (choices: {', '.join(known)})"


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``; did you mean 'reach'?`` for the choice nearest to a name, or an empty text if none is near."""
    near = difflib.get_close_matches(name, sorted(choices), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
