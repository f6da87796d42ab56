"""macOS and Windows, as far as Linux can show: what they lack is taken away, and everything but an arm works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from td3robot.policy.checkpoint import load_policy

SYSTEMS = ("macos", "windows")
# What takes long is much the same on both.
ONE = (pytest.param("macos", marks=pytest.mark.slow), "windows")
SMALL = (
    "--steps=40", "--set=training.environments=2", "--set=training.random_steps=20", "--set=training.evaluate_every=40",
    "--set=training.evaluation_episodes=2", "--set=training.learner=reference",
)  # fmt: skip


@pytest.fixture
def on(tmp_path, monkeypatch):
    """Return a function that runs a program on a system, or a command, and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def on(system, program, *arguments, status=0):
        code = f"import elsewhere; elsewhere.become({system!r})\n{program}"
        path = os.pathsep.join((str(Path(__file__).parent), str(Path(__file__).parents[1])))
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)], env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return on


COMMAND = "from td3robot.cli import main; main()"
# Several in one process: each imports PyTorch for seconds.
COMMANDS = """
import sys
from td3robot.cli import app
for line in sys.argv[1:]:
    app(line.split(), standalone_mode=False)
"""


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_policy_loads_and_acts(on, system):
    program = (
        "import numpy, td3robot\n"
        "policy = td3robot.load_policy('ur5e_reach')\n"
        "print(*policy.act(numpy.zeros(policy.observation_size)))"
    )
    here = load_policy("ur5e_reach")
    assert on(system, program).split() == [str(value) for value in here.act([0.0] * here.observation_size)]


@pytest.mark.thorough
def test_train_resume_and_evaluate_without_processes_that_share_files(on):
    train = ("train ur5e_reach_quick --out run", *SMALL)
    said = on("windows", COMMANDS, " ".join(train), "train --resume run --more 10", "eval run --episodes 2")
    assert "step 40 after" in said
    assert "step 50 after" in said
    assert "of 2 (" in said


@pytest.mark.thorough
@pytest.mark.parametrize("system", ONE)
def test_look_and_list(on, system):
    pytest.importorskip("mjviser")
    assert "http://127.0.0.1:" in on(system, COMMAND, "view", "ur5e_reach", "--no-open", "--beside")
    assert "ur5e_grasp" in on(system, COMMAND, "list")
    assert "td3robot can run here" in on(system, COMMAND, "doctor")


@pytest.mark.thorough
@pytest.mark.parametrize("system", ONE)
def test_an_arm_is_refused_in_a_sentence(on, system):
    assert "is driven from Linux only" in on(system, COMMAND, "recover", "--robot", "ur5e_standin", status=2)
    assert "is driven from Linux only" in on(system, COMMAND, "rehearse", "ur5e_reach", "--episodes", 1, status=2)
