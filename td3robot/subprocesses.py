"""Child processes that import the same code as this one."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The variable with the number of cores that a process may use beside others, such as a run of a sweep.
CORES = "TD3ROBOT_CORES"
# Variables for a process with small matrices: more threads of linear algebra would wait for each other, and take the
# cores of other programs.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def start_python(
    arguments: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start this interpreter with exactly this process's import path; the child adds no directory.

    The child has its own session, which a Ctrl-C at the terminal does not reach: this process decides what ends, and
    when.

    Args:
        arguments: Arguments of the interpreter.
        variables: Environment variables in addition to this process's.
        **options: Options of :class:`subprocess.Popen`.
    """
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": path} | dict(variables or {}),
        start_new_session=True,
        **options,
    )


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


def return_memory() -> None:
    """Return this process's freed memory to the system (with glibc; elsewhere, do nothing)."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
