"""A lock on a run directory: keeps other trainings out, and notices if the directory moves."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from td3robot.errors import CheckpointError


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
            self._descriptor = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise CheckpointError(f"{run} cannot be opened as a run directory: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise CheckpointError(f"{run} is in use by another training; wait for it, or stop it with Ctrl-C") from None

    def require_in_place(self) -> None:
        """Require that the directory still has its name.

        Raises:
            RunMovedError: It was renamed or deleted, or another directory has its name.
        """
        held = os.fstat(self._descriptor)
        try:
            there = self._run.stat()
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            place = self.moved_to()
            become = "deleted" if place is None else f"renamed to {place}"
            raise RunMovedError(f"the run directory {self._run} was {become} while it was trained in; training ends")

    def moved_to(self) -> Path | None:
        """Return the directory's current path, or None if it was deleted or the system does not tell."""
        try:
            place = Path(f"/proc/self/fd/{self._descriptor}").readlink()
            there, held = place.stat(), os.fstat(self._descriptor)
        except OSError:
            return None
        return place if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino) else None

    def close(self) -> None:
        """Release the directory. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
