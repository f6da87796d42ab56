"""TensorBoard's event file, written by the caller.

TensorBoard's own writer leaves that to a thread: where a file cannot be written, it prints the thread's traceback, and
what it was given shows after two minutes only.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from os import getpid
from pathlib import Path
from socket import gethostname
from time import time

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

NUMBERS = count()


class EventFile:
    """A new event file.

    Args:
        folder: Where it goes; made where it is missing.
        purge_step: TensorBoard drops what earlier files of the folder have from this step on.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, folder: Path, purge_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time()):010d}.{gethostname()}.{getpid()}.{next(NUMBERS)}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._write(
            [
                Event(file_version="brain.Event:2", step=purge_step),
                Event(session_log=SessionLog(status=SessionLog.START), step=purge_step),
            ]
        )

    def add(self, summaries: Iterable[Summary], step: int) -> None:
        """Write summaries of a step to the disk.

        Raises:
            OSError: They could not be written. The file is closed, because nothing is read behind a torn record.
        """
        self._write(Event(summary=summary, step=step) for summary in summaries)

    def close(self) -> None:
        """Close the file. May be repeated."""
        self._file.close()

    def _write(self, events: Iterable[Event]) -> None:
        try:
            for event in events:
                event.wall_time = time()
                self._records.write(event.SerializeToString())
            self._file.flush()
        except OSError:
            with suppress(OSError):
                self._file.close()
            raise
