"""A running stand-in, and clients of it in processes of their own."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ur_rtde_client import run_client

from td3robot.simulators.process import UrSimulator, start_ur_simulator


@pytest.fixture(scope="session")
def running(ends_with: Callable[..., None]) -> Iterator[UrSimulator]:
    """A stand-in with a cube on the table."""
    with start_ur_simulator(objects={"object": {}}) as standin:
        ends_with(Path(__file__).parent, standin)
        yield standin


@pytest.fixture
def standin(running: UrSimulator) -> UrSimulator:
    """The same for each test, with the arm at home and everything cleared."""
    running.reset()
    running.ask(reset_wire=True, clear_faults=True)
    return running


@pytest.fixture
def ur_rtde(standin: UrSimulator) -> Callable[..., dict[str, Any]]:
    """Run a program with ur_rtde against the stand-in, and give what it said at last."""
    pytest.importorskip("rtde_control", reason="ur_rtde is not installed; pip install 'td3robot[ur]'")

    def run(program: str, timeout_s: float = 40.0) -> dict[str, Any]:
        return run_client(program, standin.host, standin.state()["q"], timeout_s)

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
