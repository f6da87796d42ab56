"""The record of what happened on an arm, written line by line so that it stays readable however its session ends.

A record is a text file with one JSON object per line, each with its ``kind`` and ``at``, this computer's monotonic time
[s]. Its first line, ``session``, gives the format version. Lines are only ever appended, and each is handed to the
system before the next one begins: a killed process loses nothing, and a power failure loses what was not on disk yet.
"""

import errno
import json
import os
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from time import monotonic, time
from typing import Any

import numpy as np

from td3robot.errors import Td3RobotError
from td3robot.geometry import quaternion
from td3robot.state import JointCommand, Pose, RobotState

FILE = "record.jsonl"
# Format version. Records from before it was written have no ``version``, and read the same.
VERSION = 1
# A line of a period is about 2 kB; one longer than this does not belong to a record, and is not read into memory.
LONGEST_LINE = 16 * 2**20


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
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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
        begin = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.truncate(self._descriptor, begin)  # no half lines
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._broken = True
            raise RecordError(
                f"the record {self.path} cannot be written any more ({error.strerror}), so the arm was stopped; what "
                "was recorded until then is there; make room, then begin again"
            ) from None


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
