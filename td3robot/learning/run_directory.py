"""A run's directory: the lock that keeps other trainings out, the run's own description, and what was changed in it."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from td3robot import atomic, locks
from td3robot.config import RunConfig, to_yaml
from td3robot.config.disturbance import level_name
from td3robot.errors import CheckpointError, ConfigError, EnvironmentFaultError, Td3RobotError
from td3robot.format import flat
from td3robot.policy.checkpoint import CONFIG

CHANGES, TRACEBACK = "changes.json", "environment-fault.txt"
# These shape what was saved; if they changed, it would be another run's.
FIXED = (
    "name", "seed", "agent.kind", "agent.hidden", "agent.layer_norm",
    "agent.normalize_observations", "agent.asymmetric_critic", "agent.average_tau", "agent.replay_capacity",
    "agent.hindsight_goals", "training.environments",
)  # fmt: skip
# Settings in which a resume may differ and still be exact: how far it goes, what it computes on, keeps, and waits for.
FREE = (
    "training.steps", "training.learner", "training.evaluators", "training.loggers", "agent.device",
)  # fmt: skip


class RunMovedError(CheckpointError):
    """A run directory was renamed or deleted during training."""


class RunLock:
    """Hold a run directory for one training at a time, until closed; a context manager.

    Args:
        run: The directory.

    Raises:
        CheckpointError: Another process is training in it, or it cannot be opened.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        try:
            self._descriptor, there = locks.open_directory(run), run.stat()
        except OSError as error:
            raise CheckpointError(f"{run} cannot be opened as a run directory: {error.strerror}") from None
        try:
            locks.lock(self._descriptor)
        except BlockingIOError:
            self.close()
            raise CheckpointError(f"{run} is in use by another training; wait for it, or stop it with Ctrl-C") from None
        self._identity = there.st_dev, there.st_ino

    def require_in_place(self) -> None:
        """Require that the directory still has its name.

        Raises:
            RunMovedError: It was renamed or deleted, or another directory has its name.
        """
        if not self._is_at(self._run):
            place = self.moved_to()
            become = "deleted" if place is None else f"renamed to {place}"
            raise RunMovedError(f"the run directory {self._run} was {become} while it was trained in; training ends")

    def moved_to(self) -> Path | None:
        """Return the directory's current path, or None if it was deleted or the system does not tell."""
        try:
            place = Path(f"/proc/self/fd/{self._descriptor}").readlink()
        except OSError:
            return None
        return place if self._is_at(place) else None

    def _is_at(self, path: Path) -> bool:
        try:
            there = path.stat()
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._identity

    def close(self) -> None:
        """Release the directory. May be repeated."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def describe_run(
    run: Path, config: RunConfig, changes: Sequence[dict[str, Any]], report: Callable[[str], None]
) -> None:
    """Write the run's configuration, and what was changed when it was resumed.

    Args:
        run: The run directory; gets ``config.yaml``, and ``changes.json`` if there are changes.
        config: The run's configuration.
        changes: As in :attr:`~td3robot.learning.trainer.Trainer.changes`.
        report: Called with a sentence if a file could not be written.
    """
    try:
        atomic.write_text(run / CONFIG, to_yaml(config))
        if changes:
            atomic.write_text(run / CHANGES, json.dumps(changes, indent=1) + "\n")
        else:
            (run / CHANGES).unlink(missing_ok=True)
    except OSError as error:
        report(f"{error.filename} could not be written: {error.strerror or error}")


def with_traceback(run: Path, error: Td3RobotError) -> Td3RobotError:
    """Write an environment's own traceback to a file, if there is one, and return the error with the file's name."""
    if not isinstance(error, EnvironmentFaultError) or not error.details:
        return error
    path = run / TRACEBACK
    try:
        path.write_text(error.details, encoding="utf-8")
    except OSError:
        return error
    return EnvironmentFaultError(f"{error}; its traceback is in {path}")


def recorded_change(before: RunConfig, after: RunConfig, step: int, why: str) -> dict[str, Any]:
    """Return the record of a change: ``step``, ``settings`` (name to value before and after) and ``why``.

    Raises:
        ConfigError: Nothing is changed, or something without which the saved run cannot be resumed.
    """
    settings = different_settings(before, after)
    if not settings:
        raise ConfigError("--set changes nothing: the run has these values already; leave --set and --changed out")
    for name in settings:
        if name in FIXED:
            raise ConfigError(
                f"{name} cannot be changed in a resumed run, because what was saved depends on it; begin a new run "
                "from its networks with --init-from"
            )
    return {"step": step, "settings": settings, "why": " ".join(why.split())[:1000]}


def different_settings(before: RunConfig, after: RunConfig) -> dict[str, list[Any]]:
    """Return the settings in which two runs differ, with both values, except those in ``FREE``."""
    old, new = flat(_values(before)), flat(_values(after))
    names = sorted(old.keys() | new.keys())
    return {
        name: [old.get(name), new.get(name)] for name in names if name not in FREE and old.get(name) != new.get(name)
    }


def _values(config: RunConfig) -> dict[str, Any]:
    """Return a run's settings, with domain randomization by the name of its level, if it has one."""
    values = config.model_dump(mode="json")
    disturbance = getattr(config.environment, "disturbance", None)
    if disturbance is not None and (name := level_name(disturbance)) is not None:
        values["environment"]["disturbance"] = name
    return values
