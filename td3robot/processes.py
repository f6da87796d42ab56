"""Child processes that import the same code as this one, and the messages between them and their parent."""

import atexit
import ctypes
import gc
import logging
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any, NoReturn

from td3robot.errors import EnvironmentFaultError, Td3RobotError

# The variable with the number of cores that a process may use beside others, such as a run of a sweep.
CORES = "TD3ROBOT_CORES"
# Variables for a process with small matrices: more threads of linear algebra would wait for each other, and take the
# cores of other programs.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# The signals that ask a program to stop: Ctrl-C, a service manager, and a closed terminal (not on Windows).
STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# Whether a child can inherit open files, and with them a channel to its parent: not on Windows.
HAS_CHANNELS = hasattr(select, "poll")
# The descriptor of standard error.
STDERR = 2
# Where a child's status file has the parent's request to stop, behind the child's own text, and that text's length.
STOP_AT, STATUS_LENGTH = 128, 100
# How often a waiting child checks that its parent lives [s].
POLL_INTERVAL_S = 1.0
# Blocks as large as this go back to the system as soon as they are freed [bytes]. If glibc is not told, it keeps ever
# larger ones for later: 20 to 40 MB after compiling models.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
# How long a process may take to finish its step when it is closed [s].
END_S = 5.0
# Share of the free memory that a process may plan to use; the rest is for everything that it does not count.
FREE_SHARE = 0.9
CGROUP = Path("/sys/fs/cgroup")
# A lean child gets an empty package: importing this one as users do would load Gymnasium and much else.
LEAN = (
    f'import sys, types; package = sys.modules["td3robot"] = types.ModuleType("td3robot"); '
    f"package.__path__ = [{str(Path(__file__).parent)!r}]\n"
)
START = "from td3robot.processes import Parent; from {} import {}; {}(Parent.of_arguments())"


def start_python(
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    interpreter: str | None = None,
    **options: Any,
) -> "subprocess.Popen[bytes]":
    """Start a Python process; it adds no directory to its import path.

    It has its own session, which a Ctrl-C at the terminal does not reach: this process decides what ends, and when.

    Args:
        arguments: Arguments of the interpreter.
        variables: Environment variables in addition to this process's.
        interpreter: That of another environment, with its own import path. By default, this process's with exactly
            this process's import path.
        **options: Options of :class:`subprocess.Popen`.
    """
    environment = os.environ | dict(variables or {})
    environment.pop("PYTHONPATH", None)
    if interpreter is None:
        environment["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    command = [interpreter or sys.executable, "-P", *arguments]
    return subprocess.Popen(command, env=environment, start_new_session=True, **options)


def end_process(process: "subprocess.Popen[Any]", grace_s: float = 0.0) -> int:
    """Wait for a process of :func:`start_python`, then kill it with its children, and return its exit status.

    Args:
        process: The process.
        grace_s: How long it may take to end by itself [s].
    """
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)  # it has its own session
        else:
            process.kill()
    return process.wait()


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, whatever it is doing (on Linux; elsewhere, do nothing).

    Args:
        parent: The parent's id. Linux watches the thread that started this process, which must live as long.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # <linux/prctl.h>
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before that
            os._exit(1)


def cores() -> int:
    """Return how many processor cores this process may use: its share, if ``TD3ROBOT_CORES`` gives it one."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    here = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    share = os.environ.get(CORES, "")
    return min(here, int(share)) if share.isdecimal() and int(share) else here


def free_bytes() -> float:
    """Return the memory that this process may still use: the machine's, or less if a control group limits it.

    Where the system does not tell, it is without bound.
    """
    if not hasattr(os, "sysconf"):
        return float(sys.maxsize)
    free = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        limit, used = ((CGROUP / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        free = min(free, float(limit) - float(used))
    except (OSError, ValueError, StopIteration):
        pass  # not Linux, or no control group with a limit
    return FREE_SHARE * free


def raise_priority(priority: int, inherited: bool = True) -> bool:
    """Request real-time scheduling for this thread, and return whether it was granted; most systems grant it to few.

    Args:
        priority: Priority on SCHED_FIFO; 0 leaves the scheduler alone.
        inherited: Whether threads and processes that start later have it, too.
    """
    if priority == 0:
        return False
    try:
        policy = os.SCHED_FIFO | (0 if inherited else os.SCHED_RESET_ON_FORK)
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except (AttributeError, OSError):
        return False
    return True


def give_way() -> None:
    """Leave the real-time priority that this process has from the one that started it.

    Where what has one keeps the processors busy, Linux halts all of it for 50 ms in each second, a control loop too.
    """
    with suppress(AttributeError, OSError):  # not Linux, or a system that forbids it
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def return_memory() -> None:
    """Return this process's freed memory to the system (with glibc; elsewhere, do nothing)."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def tune_gc() -> None:
    """Collect garbage now, and make later collections skip what exists: short enough for an arm's control period.

    ``gc.unfreeze`` undoes it. It is also undone when the interpreter exits: objects that the collector skips then are
    never freed, and extension modules (the Robotics Toolbox, by nanobind) report them as leaked.
    """
    gc.collect()
    gc.freeze()
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)


class ChannelClosedError(Exception):
    """The process at the other end is gone."""


class Channel:
    """Pickled messages over a local socket between a process and its child.

    The socket reports at once when the other process is gone. Checking for a message takes a microsecond, because a
    real-time loop does it in every period.
    """

    _HEAD = struct.Struct("<Q")

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._poller = select.poll()
        self._poller.register(connection, select.POLLIN)

    @classmethod
    def pair(cls) -> tuple["Channel", socket.socket]:
        """Return both ends; the second is for the other process."""
        mine, other = socket.socketpair()
        return cls(mine), other

    def fileno(self) -> int:
        """Return the descriptor, for waiting on several channels."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: The other process is gone.
        """
        body = pickle.dumps(message)
        try:
            self._socket.sendall(self._HEAD.pack(len(body)) + body)
        except OSError:
            raise ChannelClosedError from None

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Wait for a message, or the end of the other process; return whether :meth:`receive` has something to do."""
        return bool(self._poller.poll(1e3 * timeout_s))

    def receive(self) -> Any:
        """Wait for the next message and return it.

        Raises:
            ChannelClosedError: The other process is gone, and every whole message was read.
        """
        (size,) = self._HEAD.unpack(self._read(self._HEAD.size))
        return pickle.loads(self._read(size))  # noqa: S301  # nobody else has this socket

    def end_sending(self) -> None:
        """Tell the other process that nothing more will be sent; its last messages can still be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        try:
            while len(data) < size:
                if not (part := self._socket.recv(min(size - len(data), 1 << 20))):
                    raise ChannelClosedError
                data += part
        except OSError:
            raise ChannelClosedError from None
        return data


def unnamed_file() -> IO[bytes]:
    """Return an unbuffered file without a name: in memory, so that a full disk stops no process, if the system can."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("td3robot"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


class ChildProcess:
    """A Python process that calls a function with its :class:`Parent`, and ends when that returns.

    Args:
        function: The function, or ``module:function`` if it cannot be imported here.
        files: Descriptors that it inherits under the same numbers.
        variables: Environment variables in addition to this process's.
        interpreter: As in :func:`start_python`.
        ends_itself: The process ends on its own once the channel closes. Otherwise it ignores signals, and is killed
            when the thread that started it ends.
        lean: Import only what the function's module imports.
        keep_output: Keep what it prints for :meth:`output`, instead of printing it to standard error.

    Raises:
        Td3RobotError: This system has no :data:`HAS_CHANNELS`.

    Attributes:
        channel: Messages from and to the process.
        process: The process itself.
    """

    def __init__(
        self,
        function: "Callable[[Parent], Any] | str",
        *,
        files: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
        interpreter: str | None = None,
        ends_itself: bool = False,
        lean: bool = False,
        keep_output: bool = False,
    ) -> None:
        if not HAS_CHANNELS:
            raise Td3RobotError("an arm is driven from Linux only: processes here cannot share files with children")
        module, name = function.split(":") if isinstance(function, str) else (function.__module__, function.__name__)
        self.channel, other_end = Channel.pair()
        self._status = unnamed_file()
        self._output = unnamed_file() if keep_output else None
        descriptors = other_end.fileno(), self._status.fileno()
        program = LEAN * lean + START.format(module, name, name)
        self.process = start_python(
            ["-c", program, *map(str, (*descriptors, os.getpid(), int(ends_itself)))],
            variables,
            interpreter,
            pass_fds=(*descriptors, *files),
            stdin=subprocess.DEVNULL,
            stdout=self._output or STDERR,  # standard output is for figures
            stderr=self._output,
        )
        other_end.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    @property
    def busy_with(self) -> str:
        """What the process last reported to be busy with."""
        return os.pread(self._status.fileno(), STATUS_LENGTH, 0).decode(errors="replace").strip("\0 ")

    def ask_to_stop(self) -> None:
        """Ask the process, by ``Parent.asked_to_stop``, to end what it does; signal handlers may call this."""
        os.pwrite(self._status.fileno(), b"!", STOP_AT)

    def output(self) -> str:
        """Return what the process printed, if that is kept and it is not closed."""
        if self._output is None or self._output.closed:
            return ""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def last_words(self) -> str:
        """Return the last line that the process printed, or nothing: programs print their errors."""
        lines = [line.strip() for line in self.output().splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def kill(self) -> None:
        """Kill the process and its children at once."""
        end_process(self.process)

    def close(self, grace_s: float = 0.0) -> None:
        """Close the channel, let the process end by itself within a time [s], and kill it if not. May be repeated."""
        self.channel.close()
        end_process(self.process, grace_s)
        self._status.close()
        if self._output is not None:
            self._output.close()


class TrainingProcess:
    """A training's own child process, which ends with it, and is ended if no answer or sign of life comes in time.

    Args:
        function: What it runs; called with a :class:`Parent`.
        title: Its name in messages.
        limit_s: How long any answer may take [s].
        first: Message sent to it at once.
        variables: Environment variables in addition to this process's.
    """

    def __init__(
        self,
        function: "Callable[[Parent], None]",
        title: str,
        limit_s: float,
        first: Any,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._title, self._limit_s = title, limit_s
        self._child = ChildProcess(function, variables=RETURNED | dict(variables or {}))
        self.channel, self.pid, self.ask_to_stop = self._child.channel, self._child.pid, self._child.ask_to_stop
        self._waiting = False
        self._sign: tuple[str, float] = "", 0.0
        self._tell(first)

    def close(self) -> None:
        """End the process and its children: at once if an answer was waited for, or else when it has done its work."""
        self._child.close(0.0 if self._waiting else END_S)

    def _ask(self, message: Any) -> None:
        """Send a message that may take long to answer; from now on, the process has to give signs of life."""
        self._sign = "", monotonic()
        self._tell(message)
        self._waiting = True

    def _tell(self, message: Any) -> None:
        try:
            self.channel.send(message)
        except ChannelClosedError:
            self._raise_gone()

    def _receive(self) -> Any:
        """Wait for an answer and return it; raise an error that the process sent."""
        self._waiting = True
        if not self.channel.poll(self._limit_s):
            raise self._overdue()
        answer = self._next_message()
        self._waiting = False
        if isinstance(answer, Td3RobotError):
            raise answer
        return answer

    def _next_message(self) -> Any:
        try:
            return self.channel.receive()
        except ChannelClosedError:
            self._raise_gone()

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
            "what it waits for"
        )

    def _at_work(self) -> str:
        return self._child.busy_with or self._title

    def _raise_gone(self) -> NoReturn:
        said = self._at_work()
        self._waiting = False
        self.close()
        raise EnvironmentFaultError(
            f"{self._title} ended with status {self._child.process.returncode}; {said} was at work last, and what it "
            "said is above"
        ) from None


class Parent:
    """The parent, as its :class:`ChildProcess` sees it.

    Args:
        channel: Messages from and to it.
        status: Descriptor of a file that says what is at work, for the parent to read if there is no answer.
        pid: The parent's process id.
    """

    def __init__(self, channel: Channel, status: int, pid: int) -> None:
        self.channel, self._status, self._pid = channel, status, pid

    @classmethod
    def of_arguments(cls) -> "Parent":
        """Return the parent that this process's arguments name, and end with it if so agreed."""
        descriptor, status, pid, ends_itself = map(int, sys.argv[1:5])
        logging.getLogger("td3robot.registry").setLevel(logging.ERROR)  # the parent has said which plugins it lacks
        if not ends_itself:
            end_with_parent(pid)
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop, after saving
        return cls(Channel(socket.socket(fileno=descriptor)), status, pid)

    @property
    def is_gone(self) -> bool:
        """Whether the parent has ended."""
        return os.getppid() != self._pid

    def say(self, what: str) -> None:
        """Report what is at work."""
        os.pwrite(self._status, what.ljust(STATUS_LENGTH).encode()[:STATUS_LENGTH], 0)

    @property
    def asked_to_stop(self) -> bool:
        """Whether the parent wants this process to end what it does."""
        return os.pread(self._status, 1, STOP_AT) == b"!"

    def next(self) -> Any:
        """Wait for the next message and return it, or None once the other end or the parent is gone."""
        try:
            while not self.channel.poll(POLL_INTERVAL_S):
                if self.is_gone:
                    return None
            return self.channel.receive()
        except ChannelClosedError:
            return None

    def answer(self, answer: Any) -> None:
        """Send an answer, if the other end is still there."""
        with suppress(ChannelClosedError):
            self.channel.send(answer)
