"""A clone holds the same bytes on every system, whatever that system's git is told about line ends."""

import shutil
import subprocess
from pathlib import Path

import pytest

from td3robot.policy.checkpoint import load_policy

ROOT = Path(__file__).parents[1]
SHIPPED = (".gitattributes", "launch", "checkpoints/ur5e_reach")


def git(folder, *arguments):
    name = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "core.autocrlf=false")
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def clone(tmp_path):
    """Commit what a clone needs, and clone it as git does on Windows."""
    origin = tmp_path / "origin"
    for name in SHIPPED:
        source, target = ROOT / name, origin / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    git(tmp_path, "init", "--quiet", "origin")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "--message", "all")
    subprocess.run(
        ["git", "clone", "--quiet", "-c", "core.autocrlf=true", str(origin), str(tmp_path / "clone")], check=True
    )
    return tmp_path / "clone"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_clone_with_windows_line_ends_has_whole_policies_and_scripts_that_run(clone):
    for path in (clone / "launch").glob("*.sh"):
        assert b"\r" not in path.read_bytes(), path.name
    policy = load_policy(clone / "checkpoints" / "ur5e_reach")
    assert policy.act([0.0] * policy.observation_size).shape
