"""Waiting for what other processes do."""

import sys
import time
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


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
