"""Locks on open directories and files, between programs; on Windows, which has none of this kind, nothing is locked."""

import os
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

AVAILABLE = fcntl is not None


def open_directory(path: Path) -> int | None:
    """Return a descriptor of a directory, to lock it; None on Windows, which opens no directories.

    Raises:
        OSError: There is no such directory, or it cannot be opened.
    """
    if not AVAILABLE:
        path.stat()
        return None
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def lock(descriptor: int | None, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open directory or file until its descriptor is closed.

    Args:
        descriptor: Of the directory or file.
        shared: Let others hold it in the same way; otherwise, nobody else holds it.
        wait: Wait for those who hold it.

    Raises:
        BlockingIOError: Another program holds it.
        OSError: Its file system has no locks.
    """
    if AVAILABLE and descriptor is not None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
