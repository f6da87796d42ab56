"""What the robot's computer has is enough to drive it: launch/robot.txt, and nothing that only training needs."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from td3robot.requirements import NOT_ON_A_ROBOT

ROOT = Path(__file__).parents[1]
# Runs a command in a process in which those packages cannot be imported.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "threadpoolctl", "roboticstoolbox", "spatialmath", "swift", "tensorboard",
                                  "matplotlib", "plotly"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
COMMAND = f"{WITHOUT}from td3robot.cli import main; main()"


def run(tmp_path, program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_its_list_is_that_of_the_project_without_what_only_training_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    kept = [line for line in project["dependencies"] if line.partition(">")[0] not in NOT_ON_A_ROBOT]
    listed = (ROOT / "launch" / "robot.txt").read_text().splitlines()
    assert [line for line in listed if not line.startswith("#")] == kept + project["optional-dependencies"]["ur"]


def test_a_policy_loads_and_acts(tmp_path):
    program = "import td3robot; p = td3robot.load_policy('ur5e_reach'); print(p.act([0.0] * p.observation_size).shape)"
    done = run(tmp_path, WITHOUT + program)
    assert (done.returncode, done.stdout) == (0, "(3,)\n"), done.stderr


@pytest.mark.slow
def test_a_rehearsal_deploys_through_the_real_client(tmp_path):
    pytest.importorskip("rtde_control")
    done = run(tmp_path, COMMAND, "rehearse", "ur5e_reach", "--episodes", 1)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("records/*/record.jsonl"))


@pytest.mark.thorough
def test_what_it_cannot_do_is_a_sentence(tmp_path):
    done = run(tmp_path, COMMAND, "train", "ur5e_reach_quick", "--steps", 40, "--set=training.overlap=false")
    assert done.returncode == 2, done.stderr
    assert "which is not installed; td3robot doctor says how" in done.stderr
    assert "Traceback" not in done.stderr
