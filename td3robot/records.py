"""The record of a session on an arm: its writer, its readers, and the report beside it.

A record is a text file with one JSON object per line, each with its ``kind`` and ``at``, this computer's monotonic time
[s]. Its first line, ``session``, gives the format version. Lines are only ever appended, and each is handed to the
system before the next one begins: a killed process loses nothing, and a power failure loses what was not on disk yet.
"""

import errno
import json
import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple

import numpy as np

from td3robot.errors import Td3RobotError, remedy
from td3robot.geometry import quaternion
from td3robot.state import JointCommand, Pose, RobotState

FILE, REPORT = "record.jsonl", "report.json"
# Format version. Records from before it was written have no ``version``, and read the same.
VERSION = 1
# A line of a period is about 2 kB; one longer than this does not belong to a record, and is not read into memory.
LONGEST_LINE = 16 * 2**20
# Beginning of a line, as the writer formats it.
KIND = re.compile(rb'\{"kind": ?"(\w+)"')
# Lines with a moment of the arm, and those about what follows.
MOMENTS = (b"period", b"travel", b"rest")
NOTES = (b"session", b"goal", b"episode_end", b"stop")
# Bytes that an index reads at a time, so that a picture stays smooth meanwhile.
CHUNK = 4 << 20


class RecordError(Td3RobotError):
    """A record cannot be written or read."""


class Record:
    """The record of one session.

    Args:
        path: The file; missing directories are created.

    Raises:
        RecordError: It cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise RecordError(f"the record {path} cannot be made: {error.strerror}; choose another --records") from None
        self._broken = False

    def begin(self, mode: str, **about: Any) -> None:
        """Append the line ``session``: the format version, the writer, the time, and a description of the session.

        Raises:
            RecordError: As in :meth:`add`.
        """
        self.add("session", version=VERSION, td3robot=version_of("td3robot"), unix_time=time(), mode=mode, **about)

    def add(self, kind: str, **values: Any) -> None:
        """Append one line.

        Raises:
            RecordError: The line could not be written. Nothing more is recorded; earlier lines stay.
        """
        if self._broken:
            return
        line = json.dumps({"kind": kind, "at": monotonic()} | values, separators=(",", ":"), default=_plain).encode()
        self._append(line + b"\n")

    def flush(self) -> None:
        """Flush everything to disk; this takes a while, so do not call it while the arm moves."""
        if not self._broken:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._broken = -1, True

    def _append(self, line: bytes) -> None:
        try:
            status = os.fstat(self._descriptor)
            begin = status.st_size
            if status.st_nlink == 0:
                self._restore(begin)
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.truncate(self._descriptor, begin)  # no half lines
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._broken = True
            raise RecordError(
                f"the record {self.path} cannot be written any more ({error.strerror}); what was recorded until then "
                f"is there; {remedy(error)}, then begin again"
            ) from None

    def _restore(self, size: int) -> None:
        """Write a record anew that somebody deleted, from the file that is still open."""
        content = os.pread(self._descriptor, size, 0)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.close(self._descriptor)
        self._descriptor = descriptor
        os.write(descriptor, content)


def record_of(path: Path) -> Path | None:
    """Return the record that a path means: the file itself, or the one in a session's folder; None without one."""
    if path.is_file():
        return path
    return path / FILE if (path / FILE).is_file() else None


def read_report(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """Read ``report.json`` of a session's folder: the report, or None and why it cannot be read."""
    path = folder / REPORT
    if not path.is_file():
        return None, None
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return None, f"{path.name} cannot be read ({error}); what is shown comes from the record alone"
    return (report, None) if isinstance(report, dict) else (None, f"{path.name} is no report")


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write a session's report beside its record.

    Raises:
        Td3RobotError: It cannot be written.
    """
    path = folder / REPORT
    try:
        path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise Td3RobotError(f"the report {path} could not be written: {error.strerror}") from None


def read_record(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a record, one at a time, without a truncated last line.

    Raises:
        RecordError: The file cannot be read, is not a record, or has a newer format version.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                yield _read_line(path, number, line)
    except _CutOffError:
        return
    except OSError as error:
        raise RecordError(f"the record {path} cannot be read: {error}") from None


class _CutOffError(Exception):
    """The last line is truncated."""


def _read_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
            raise _CutOffError from None
        raise RecordError(f"{path} is no record: line {number} is not JSON") from None
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise RecordError(f"{path} is no record: line {number} has no kind")
    if values["kind"] == "session" and values.get("version", VERSION) != VERSION:
        raise RecordError(
            f"{path} is a record of version {values['version']!r}, and this td3robot reads version {VERSION}; install "
            "the td3robot that it was made with, or a newer one"
        )
    return values


class Note(NamedTuple):
    """A line about the moments that follow it.

    Attributes:
        moment: The number of the first of these moments.
    """

    moment: int
    line: dict[str, Any]


class RecordIndex:
    """The positions of a record's moments in its file, which may be long and may grow.

    Only positions are kept in memory, 8 bytes per moment; lines are read when needed.

    Attributes:
        notes: Goals, ends of episodes and stops, in order.
        session: The session's line, or None before it was read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise RecordError(f"the record {path} cannot be read: {error.strerror}") from None
        self.path = path
        self.notes: list[Note] = []
        self.session: dict[str, Any] | None = None
        self._places = array("Q")
        self._read_to = 0

    def __len__(self) -> int:
        return len(self._places)

    def extend(self) -> bool:
        """Index what was added, at most a few megabytes at a time, and return whether that was all.

        Raises:
            RecordError: The file is not a record.
        """
        self._file.seek(self._read_to)
        data = self._file.read(CHUNK)
        whole = data.rfind(b"\n") + 1
        if data and not whole and len(data) == CHUNK:
            raise RecordError(f"{self.path} is no record: a line of it is longer than {CHUNK >> 20} MB")
        for line in data[:whole].splitlines(keepends=True):
            self._add(line)
            self._read_to += len(line)
        return len(data) < CHUNK

    def moment(self, number: int) -> dict[str, Any]:
        """Read one moment.

        Raises:
            RecordError: Its line is damaged.
        """
        self._file.seek(self._places[number])
        return self._parsed(self._file.readline())

    def episode(self, number: int) -> range:
        """Return the moments of the episode that a moment is in."""
        starts = [note.moment for note in self.notes if note.line["kind"] == "goal"]
        place = bisect_right(starts, number)
        first = starts[place - 1] if place else 0
        return range(first, starts[place] if place < len(starts) else len(self))

    def last_note(self, number: int, kind: str) -> Note | None:
        """Return the last note of a kind at or before a moment."""
        known = [note for note in self.notes if note.moment <= number and note.line["kind"] == kind]
        return known[-1] if known else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, line: bytes) -> None:
        found = KIND.match(line)
        if found is None:
            raise RecordError(
                f"{self.path} is no record of td3robot: the line at byte {self._read_to} does not begin with its kind"
            )
        if found[1] in MOMENTS and b'"state":' in line:
            self._places.append(self._read_to)
        elif found[1] in NOTES:
            parsed = self._parsed(line)
            self.notes.append(Note(len(self), parsed))
            if found[1] == b"session":
                self.session = parsed

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads(line)
        except ValueError:
            raise RecordError(f"{self.path}: the line {line[:60]!r}... is damaged; restore it from a copy") from None
        return values


def state_to_json(state: RobotState) -> dict[str, Any]:
    """Return a measured state as plain values."""
    return {"stamp": state.stamp, "q": state.q, "dq": state.dq, "driver_q": state.driver_q}


def command_to_json(command: JointCommand) -> dict[str, Any]:
    """Return a command as plain values."""
    return {"q": command.q, "gripper": command.gripper}


def pose_to_json(pose: Pose) -> dict[str, Any]:
    """Return a pose in the base frame as plain values: position [m], and quaternion, w first."""
    return {"position": pose.position, "wxyz": quaternion(pose.rotation)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # Finer than a microradian is below what encoders resolve.
        return np.round(value.astype(np.float64), 7).tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be recorded")
