"""Atomic replacement of files and directories: readers and crashes find the old content or the new one, never half."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType

# Temporary names: the target's name, the process, and the target's suffix, because some writers choose a format by it.
TEMPORARY = re.compile(r"\..+\.\d+\.tmp(\.[^.]+)?")


def temporary_path(path: Path) -> Path:
    """Return this process's temporary name for a file or directory, in the same directory."""
    return path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")


class Replacement:
    """Content that replaces a file or directory once it is complete.

    As a context manager it yields the temporary path, commits at the end of the block, and discards if that raises.

    Args:
        path: The file or directory to replace; its parent exists.
        durable: Flush content and name to disk when committing.

    Attributes:
        temporary: Where to write the content.
    """

    def __init__(self, path: Path, durable: bool = False) -> None:
        self._path, self._durable, self.temporary = path, durable, temporary_path(path)
        delete(self.temporary)  # of an earlier process with the same id

    def commit(self) -> None:
        """Rename the temporary path to the path.

        Raises:
            OSError: It could not be flushed or renamed; what was there before still is.
        """
        if self._durable:
            for part in (*self.temporary.rglob("*"), self.temporary):
                _flush(part)
        if self._path.is_dir() and self.temporary.is_dir():
            _replace_directory(self._path, self.temporary)
        else:
            self.temporary.replace(self._path)
        if self._durable:
            _flush(self._path.parent)

    def discard(self) -> None:
        """Delete the temporary path, unless it was committed."""
        delete(self.temporary)

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        except OSError as failure:
            error = failure
            raise
        finally:
            self.discard()
            if isinstance(error, OSError) and error.filename in (None, str(self.temporary)):
                error.filename = str(self._path)  # for the person who asked for it


def write_text(path: Path, text: str, durable: bool = False) -> None:
    """Replace a file's content by a text in UTF-8, atomically.

    Raises:
        OSError: It could not be written; the old content is still there.
    """
    with Replacement(path, durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def delete(path: Path) -> None:
    """Delete a file or a directory tree, as far as that is possible; a missing one is no error."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def delete_leftovers(directory: Path) -> None:
    """Delete what interrupted replacements left in a directory that no other process writes to."""
    for path in directory.iterdir():
        if TEMPORARY.fullmatch(path.name):
            delete(path)


def _replace_directory(path: Path, temporary: Path) -> None:
    """Rename, as no system call replaces a directory that is not empty."""
    aside = path.with_name(f".{path.stem}.0.tmp{path.suffix}")
    path.rename(aside)
    temporary.rename(path)
    delete(aside)


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # cannot be opened there
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
