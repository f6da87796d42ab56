"""The viewer as a process: beside another program, at its lowest priority, on a free port, in a browser."""

import os
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from td3robot.ports import LOOPBACK
from td3robot.processes import ONE_THREAD, end_process, start_python

# The viewer's niceness.
NICE = 10


class ViewerProcess:
    """A viewer's process, as a context manager: it ends with this process, and runs at the lowest priority.

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
        run_when_idle(self._process.pid)  # before it begins to load its modules
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
        if not self._closing:
            how = f"was ended by signal {-status}" if status < 0 else "ended"
            self._say(f"the viewer {how}; this command continues without it")


def parent_ended() -> Callable[[], bool]:
    """Return a function that returns whether the parent process ended, or closed the pipe to end this one."""
    ended = threading.Event()

    def read() -> None:
        """Wait until standard input is closed."""
        while os.read(sys.stdin.fileno(), 1 << 10):  # a pipe, which nobody writes to
            pass
        ended.set()

    threading.Thread(target=read, daemon=True, name="parent").start()
    return ended.is_set


def run_when_idle(pid: int) -> None:
    """Give a process, and all threads that it will start, CPU time only when nothing else needs it."""
    with suppress(ProcessLookupError):
        try:
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        except (AttributeError, OSError):  # not Linux, or a system that forbids it
            _set_niceness(pid, 19)


def lower_priority() -> None:
    """Lower this process's priority below that of every other program."""
    _set_niceness(0, NICE)


def _set_niceness(pid: int, least: int) -> None:
    """Make a process at least this nice; Windows has no niceness."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, pid, max(least, os.getpriority(os.PRIO_PROCESS, pid)))


def forwarding_line(url: str, ports: Sequence[int], environment: Mapping[str, str] = os.environ) -> str:
    """Return one line with the address and, over SSH, how to forward its ports."""
    connection = environment.get("SSH_CONNECTION", "").split()
    if len(connection) < 3:
        return f"view: {url}"
    forward = " ".join(f"-L {port}:{LOOPBACK}:{port}" for port in ports)
    user = environment.get("USER", "you")
    return f"view: {url} (from your own computer: ssh -N {forward} {user}@{connection[2]}, then open it there)"


def open_browser(url: str) -> str | None:
    """Open a page in the user's browser, and return a message if there is none."""
    try:
        opened = webbrowser.open(url)
    except webbrowser.Error:
        opened = False
    return None if opened else "no browser could be opened here; open the address yourself"
