"""A viewer beside another program: a child process that ends with it."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from td3robot.processes import ONE_THREAD, end_process, start_python

# The viewer's niceness.
NICE = 10


class ViewBeside:
    """A viewer's process, as a context manager: it ends with this process, however that ends, and disturbs nothing.

    Args:
        say: Called with a sentence if it ends by itself.
        options: Options of ``td3robot view``.
    """

    def __init__(self, say: Callable[[str], None], options: Sequence[str] = ()) -> None:
        self._say, self._options = say, list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def start(self, target: Path) -> None:
        """Show a run or a record; returns at once."""
        self._process = start_python(
            ["-m", "td3robot", "view", str(target), "--beside", *self._options],
            variables=ONE_THREAD,
            stdin=subprocess.PIPE,  # it ends when this end is closed
            stdout=subprocess.DEVNULL,
        )
        stand_back(self._process.pid)  # before it begins to load its modules
        threading.Thread(target=self._wait, args=(self._process,), daemon=True, name="viewer").start()

    def close(self) -> None:
        """End the viewer. May be repeated."""
        self._closing = True
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
            end_process(process, 5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        status = process.wait()
        if not self._closing and status < 0:
            self._say(f"the viewer was ended by signal {-status}; everything else goes its way without it")
        elif not self._closing:
            self._say("the viewer ended; everything else goes its way without it")


def parent_left() -> Callable[[], bool]:
    """Return a function that tells whether the parent process has ended or wants this one to end."""
    left = threading.Event()

    def read() -> None:
        """Wait until standard input is closed."""
        while os.read(sys.stdin.fileno(), 1 << 10):  # a pipe, which nobody writes to
            pass
        left.set()

    threading.Thread(target=read, daemon=True, name="parent").start()
    return left.is_set


def stand_back(pid: int) -> None:
    """Run a process, with all threads that it will start, only when nothing else needs the CPU."""
    with suppress(ProcessLookupError):
        try:
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        except (AttributeError, OSError):  # not Linux, or a system that forbids it
            os.setpriority(os.PRIO_PROCESS, pid, 19)


def be_modest() -> None:
    """Lower this process's priority below that of every other program."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
