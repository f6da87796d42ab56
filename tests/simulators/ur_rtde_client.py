"""Programs with ur_rtde, in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

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


def run_client(program: str, host: str, q0: Sequence[float], timeout_s: float = 40.0) -> dict[str, Any]:
    """Run a program with ur_rtde in a process of its own; ``q0`` is where the arm is [rad]."""
    result = subprocess.run(
        [sys.executable, "-c", HEADER + program + FOOTER, host, ",".join(map(str, q0))],
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert result.returncode == 0, result.stderr
    said: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return said
