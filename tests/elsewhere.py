"""Take away from this process what only Linux has (``macos``), or what Windows has not either (``windows``)."""

import os
import select
import signal
import subprocess
import sys

MACOS = (
    *(f"sched_{name}" for name in ("setscheduler", "getscheduler", "getparam", "setaffinity", "getaffinity")),
    "SCHED_FIFO", "SCHED_IDLE", "sched_param", "memfd_create", "O_TMPFILE",
)  # fmt: skip
WINDOWS = (
    *MACOS, "fork", "forkpty", "killpg", "setsid", "sysconf", "setpriority", "getpriority", "pread", "pwrite",
    "sched_yield", "O_DIRECTORY", "getuid", "geteuid", "getpgid", "nice", "fchmod", "mkfifo",
)  # fmt: skip
UNIX_MODULES = ("fcntl", "termios", "tty", "resource", "pwd", "grp", "pty", "syslog")


def become(system: str) -> None:
    """Take it away; modules of the standard library that looked at it before keep what they saw."""
    for name in MACOS if system == "macos" else WINDOWS:
        if hasattr(os, name):
            delattr(os, name)
    _without_folders("/dev/shm", "/proc", "/sys")
    if system == "windows":
        del select.poll, signal.SIGHUP, signal.pthread_sigmask, signal.SIG_BLOCK, signal.SIG_UNBLOCK
        for module in UNIX_MODULES:
            sys.modules[module] = None
        _refuse_inherited_files()


def _without_folders(*folders: str) -> None:
    """Let nothing below these folders be opened by td3robot."""
    open_before = os.open

    def opened(path, *arguments, **options):
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(folders):
            raise FileNotFoundError(2, "No such file or directory", path)
        return open_before(path, *arguments, **options)

    os.open = opened


def _refuse_inherited_files() -> None:
    started = subprocess.Popen.__init__

    def start(self, *arguments, pass_fds=(), **options):
        if pass_fds:
            raise ValueError("pass_fds not supported on Windows.")
        started(self, *arguments, **options)

    subprocess.Popen.__init__ = start
