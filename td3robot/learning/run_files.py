"""Files that a training writes into its run directory besides checkpoints and metrics."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from td3robot import atomic
from td3robot.config import RunConfig, to_yaml
from td3robot.errors import EnvironmentFaultError, Td3RobotError
from td3robot.policy.checkpoint import CONFIG

CHANGES, TRACEBACK = "changes.json", "environment-fault.txt"


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
