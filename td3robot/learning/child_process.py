"""A training's own child process: it ends with the training, and is ended if it goes silent."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, ClassVar, NoReturn

from td3robot.errors import EnvironmentFaultError, Td3RobotError
from td3robot.subprocesses import end_with_parent, start_python

# The descriptor of standard error.
STDERR = 2
# What a connection raises if its other end is gone; in the middle of a message, an OSError but no ConnectionError.
GONE = (EOFError, OSError)
# Offset in that file at which the parent asks the process to stop, behind the process's own text, and its length.
STOP_AT, SAID = 128, 100
# Blocks as large as this go back to the system as soon as they are freed [bytes]. If glibc is not told, it keeps ever
# larger ones for later: 20 to 40 MB after compiling models.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
# How long a process may take to finish its step when it is closed, and how often it checks that its parent lives [s].
END_S, LOOK_S = 5.0, 1.0


class ChildProcess:
    """A process that runs ``main`` at the other end of a connection.

    Args:
        limit_s: How long any answer may take [s].
        first: Message sent to it at once.
        variables: Environment variables in addition to this process's.

    Attributes:
        connection: Connection to the process; others only wait for it.
        title: Its name in messages.
        main: The function that it runs, as ``module:function``; called with a :class:`Parent`.
    """

    title: str
    main: ClassVar[str]

    def __init__(self, limit_s: float, first: Any, variables: Mapping[str, str] | None = None) -> None:
        self._limit_s = limit_s
        self.connection, other_end = Pipe()
        self._busy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed with the process
        module, function = self.main.split(":")
        descriptors = other_end.fileno(), self._busy.fileno()
        self._process = start_python(
            [
                "-c",
                f"from {__name__} import Parent; from {module} import {function}; {function}(Parent.of_arguments())",
                *map(str, (*descriptors, os.getpid())),
            ],
            RETURNED | dict(variables or {}),
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=STDERR,  # standard output is for figures
        )
        other_end.close()
        self._waiting = False
        self._sign: tuple[str, float] = "", 0.0
        self.connection.send(first)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def close(self) -> None:
        """End the process and its children: at once if an answer was waited for, or else when it has done its work."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if self._waiting else END_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it has its own session
        self._process.wait()
        self._busy.close()

    def _ask(self, message: Any) -> None:
        """Send a message that may take long to answer; from now on, the process has to give signs of life."""
        self._sign = "", monotonic()
        self._tell(message)
        self._waiting = True

    def _tell(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except ConnectionError:
            self._raise_gone()

    def _receive(self) -> Any:
        """Wait for an answer and return it; raise an error that the process sent."""
        self._waiting = True
        try:
            if not self.connection.poll(self._limit_s):
                raise self._overdue()
            answer = self.connection.recv()
        except GONE:
            self._raise_gone()
        self._waiting = False
        if isinstance(answer, Td3RobotError):
            raise answer
        return answer

    def ask_to_stop(self) -> None:
        """Ask the process, by ``Parent.asked_to_stop``, to end what it does; signal handlers may call this."""
        os.pwrite(self._busy.fileno(), b"!", STOP_AT)

    def _require_alive(self) -> None:
        """Require that the process's report of its work keeps changing within the limit."""
        said, since = self._sign
        if (now := self._at_work()) != said:
            self._sign = now, monotonic()
        elif monotonic() > since + self._limit_s:
            raise self._overdue()

    def _overdue(self) -> EnvironmentFaultError:
        return EnvironmentFaultError(
            f"{self._at_work()} has not answered for {self._limit_s:g} s, and its process was ended; find out "
            "what it waits for, or raise training.answer_limit_s"
        )

    def _at_work(self) -> str:
        """Return what the process last reported to be busy with."""
        return os.pread(self._busy.fileno(), SAID, 0).decode(errors="replace").strip("\0 ") or self.title

    def _raise_gone(self) -> NoReturn:
        said = self._at_work()
        self._waiting = False
        self.close()
        raise EnvironmentFaultError(
            f"{self.title} ended with status {self._process.returncode}; {said} was at work last, and what it said is "
            "above"
        ) from None


class Parent:
    """The training, as its child process sees it.

    Args:
        descriptor: File descriptor of the connection.
        busy: Descriptor of a file that says what is at work, for the parent to read if there is no answer.
        pid: The parent's process id.
    """

    def __init__(self, descriptor: int, busy: int, pid: int) -> None:
        end_with_parent(pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop, after saving
        self._connection, self._busy, self._pid = Connection(descriptor), busy, pid

    @classmethod
    def of_arguments(cls) -> "Parent":
        """Return the parent that this process's arguments name."""
        return cls(*map(int, sys.argv[1:]))

    def say(self, what: str) -> None:
        """Report what is at work."""
        os.pwrite(self._busy, what.ljust(SAID).encode()[:SAID], 0)

    @property
    def asked_to_stop(self) -> bool:
        """Whether the parent wants this process to end what it does."""
        return os.pread(self._busy, 1, STOP_AT) == b"!"

    def next(self) -> Any:
        """Wait for the next message and return it, or None once the other end or the parent is gone."""
        try:
            while not self._connection.poll(LOOK_S):
                if os.getppid() != self._pid:
                    return None
            return self._connection.recv()
        except GONE:
            return None

    def answer(self, answer: Any) -> None:
        """Send an answer, if the other end is still there."""
        with suppress(ConnectionError):
            self._connection.send(answer)
