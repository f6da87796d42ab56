"""Child processes that import what this one does."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def start_python(
    arguments: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start this interpreter with exactly this process's import path; the child adds no directory of its own.

    The child has a session of its own, which a Ctrl-C at the terminal does not reach: it is this process that decides
    what is to end, and when.

    Args:
        arguments: Those of the interpreter.
        variables: Of its environment, besides this process's.
        **options: Those of :class:`subprocess.Popen`.
    """
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": path} | dict(variables or {}),
        start_new_session=True,
        **options,
    )


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, whatever this one is doing then (Linux; elsewhere, nothing).

    Args:
        parent: The parent's id. Linux goes by the thread that started this process, which has to live as long.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # <linux/prctl.h>
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before that
            os._exit(1)


def return_memory() -> None:
    """Give what this process has freed back to the system (glibc; elsewhere, nothing)."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
