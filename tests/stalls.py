"""Tests in real time on a computer that stands still at times: such a test is tried again where it failed meanwhile.

A failure of a computer that kept time is a failure at once.
"""

import os
import threading
import warnings
from collections.abc import Callable
from time import monotonic, sleep

import pytest
from _pytest.runner import call_and_report

# Folders and files whose tests drive in real time, and those of their files that only compute, which takes long.
IN_REAL_TIME = ("tests/deploy/", "tests/robots/", "tests/simulators/", "tests/envs/test_hardware_env.py")
COMPUTING = (
    *(f"tests/robots/test_{name}.py" for name in ("arms", "arm_limits", "disturbed", "gripper_physics", "guard",
      "guard_laws", "kinematics", "meshes", "models", "mujoco_servo", "servo", "travel")),
    *(f"tests/simulators/test_{name}.py" for name in ("cell_model", "controller", "responses", "simulator_models")),
)  # fmt: skip
ATTEMPTS = 3
# The shortest standstill that counts, which is of the order of the shortest limit in these tests [s].
SHORTEST_S = 0.05
# The niceness of test processes whose tests only compute.
GIVING_WAY = 19


def in_real_time(test: str) -> bool:
    """Whether a test, given by its id, drives in real time."""
    return test.startswith(IN_REAL_TIME) and test.partition("::")[0] not in COMPUTING


class StallWatch:
    """Measures for how long a process could not run, as a context manager.

    Attributes:
        longest_s: The longest standstill [s].
    """

    def __init__(self, period_s: float = 0.01) -> None:
        self.longest_s, self._period_s, self._since, self._over = 0.0, period_s, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        over, before = False, self._since
        while not over:
            over = self._over.is_set()
            sleep(self._period_s)
            now = monotonic()
            self.longest_s, before = max(self.longest_s, now - before - self._period_s), now

    def __enter__(self) -> "StallWatch":
        self._since = monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def attempt(
    item: pytest.Item, nextitem: pytest.Item | None, again: bool, stall_s: Callable[[], float]
) -> list[pytest.TestReport]:
    """Run a test; where it failed and may be tried again, tear down no more than it had set up for itself."""
    reports = [call_and_report(item, "setup", log=False)]
    if reports[0].passed:
        reports.append(call_and_report(item, "call", log=False))
    repeats = again and reports[-1].failed and stall_s() >= SHORTEST_S
    reports.append(call_and_report(item, "teardown", log=False, nextitem=item.parent if repeats else nextitem))
    return [] if repeats else reports


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Try a test in real time again where it failed while this process stood still; others give way to it."""
    if not in_real_time(item.nodeid):
        if "PYTEST_XDIST_WORKER" in os.environ and os.getpriority(os.PRIO_PROCESS, 0) < GIVING_WAY:
            os.setpriority(os.PRIO_PROCESS, 0, GIVING_WAY)
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(1, ATTEMPTS + 1):
        item._initrequest()
        with StallWatch() as watch:
            reports = attempt(item, nextitem, number < ATTEMPTS, lambda watch=watch: watch.longest_s)
        if reports:
            break
        warnings.warn(f"{item.nodeid} failed while this computer stood still for {watch.longest_s:.2f} s", stacklevel=1)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item._request, item.funcargs = False, None
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
