"""Waiting for what other processes do."""

import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

# How long anything may take that is waited for [s].
PATIENCE = 120.0


def wait_for(condition, what):
    """Wait until a condition is true, and return it."""
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {PATIENCE:g} s in vain for {what}"
        time.sleep(0.02)
    return found


def children_of(pid: int) -> list[int]:
    """List the processes that a process started (Linux)."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def arguments_of(pid: int) -> list[str]:
    """Return a process's command line (Linux)."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def processes_of(argument) -> list[int]:
    """List the processes that were started with an argument (Linux)."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if str(argument) in arguments_of(int(directory.name)):
                found.append(int(directory.name))
    return found


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
