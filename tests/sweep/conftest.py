"""Sweeps of small pendulum runs, and what they have to be the same as."""

import signal
import subprocess

import pytest
from waiting import PATIENCE

from td3robot.processes import start_python

# Long enough that a run is met while it trains; each save is of so many steps.
STEPS, EVERY = 600, 50


@pytest.fixture
def long_enough(small):
    """Overrides of a small run that lasts some seconds."""
    changed = {"training.steps": STEPS, "training.checkpoint_every": EVERY, "training.evaluate_every": 200}
    kept = [each for each in small if each.partition("=")[0] not in changed]
    return [f"--set={each}" for each in (*kept, *(f"{name}={value}" for name, value in changed.items()))]


@pytest.fixture
def start():
    """Start the command line in a process of its own; it is ended with the test."""
    processes = []

    def start(*arguments, **options):
        options = {"stderr": subprocess.PIPE, "text": True} | options
        process = start_python(["-m", "td3robot", *map(str, arguments)], **options)
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="session")
def trained_alone():
    """The runs that were trained alone, by their arguments."""
    return {}


@pytest.fixture
def alone(tmp_path_factory, trained_alone, start, long_enough):
    """Train the run of a seed alone, once, and give its directory; tests leave it as it is."""

    def alone(seed, *more):
        if (seed, more) not in trained_alone:
            run = tmp_path_factory.mktemp("alone") / "run"
            process = start("train", "gym_pendulum", "--out", run, *long_enough, *more, f"--set=seed={seed}")
            _, said = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, said
            trained_alone[seed, more] = run
        return trained_alone[seed, more]

    return alone
