"""A running stand-in, and clients of it in processes of their own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from td3robot.standin.process import Standin, start_standin

# ur_rtde's constructors hold the interpreter's lock and losing RTDE ends the process: it never runs in a test's own.
HEADER = """
import json, math, os, sys, time
import dashboard_client, rtde_control, rtde_io, rtde_receive
host = sys.argv[1]
q0 = [float(value) for value in sys.argv[2].split(",")]

def say(**found):
    print(json.dumps(found), flush=True)

def stream(control, seconds, path, period=0.008, lookahead=0.1, gain=300, after=None):
    start, index = time.perf_counter(), 0
    while (now := time.perf_counter() - start) < seconds:
        if not control.servoJ(path(now), 0, 0, period, lookahead, gain):
            return False
        if after is not None:
            after(now)
        index = max(index + 1, int(now / period))
        time.sleep(max(0.0, start + index * period - time.perf_counter()))
    return True
"""

# Disconnecting takes ur_rtde half a second an interface; its process is done here.
FOOTER = "\nos._exit(0)\n"


@pytest.fixture(scope="session")
def running() -> Iterator[Standin]:
    """A stand-in with a cube on the table."""
    with start_standin(objects={"object": {}}) as standin:
        yield standin


@pytest.fixture
def standin(running: Standin) -> Standin:
    """The same for each test, with the arm at home and everything cleared."""
    running.reset()
    running.ask(reset_wire=True, clear_faults=True)
    return running


@pytest.fixture
def ur_rtde(standin: Standin) -> Callable[..., dict[str, Any]]:
    """Run a program with ur_rtde against the stand-in, and give what it said at last."""
    pytest.importorskip("rtde_control", reason="ur_rtde is not installed; pip install 'td3robot[ur]'")

    def run(program: str, timeout_s: float = 40.0) -> dict[str, Any]:
        q0 = ",".join(str(value) for value in standin.state()["q"])
        result = subprocess.run(
            [sys.executable, "-c", HEADER + program + FOOTER, standin.host, q0],
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert result.returncode == 0, result.stderr
        said: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
        return said

    return run


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until something holds."""

    def wait(holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "it did not come to hold"
            time.sleep(0.02)

    return wait
