"""Imports go down only; torch stays with the learner; what is public is documented."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import td3robot
from td3robot.layout import Field, Layout
from td3robot.policy.checkpoint_writer import CheckpointData, write
from td3robot.policy.contract import Contract

ROOT = Path(td3robot.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# What each part may import from the package besides itself, from the bottom up.
GROUND = {
    "requirements", "errors", "state", "atomic", "layout", "geometry", "statistics", "registry", "seeding", "processes",
    "ports",
    "ray_cluster", "catalog", "locks", "config", "records", "format", "metrics", "jit", "row_math",
}  # fmt: skip
MAY_IMPORT = {
    "requirements": set(),
    "errors": {"requirements"},
    "state": set(),
    "atomic": set(),
    "locks": set(),
    "ports": {"errors"},
    "processes": {"errors"},
    "ray_cluster": {"errors", "processes"},
    "seeding": set(),
    "statistics": set(),
    "format": set(),
    "metrics": {"errors", "format", "statistics"},
    "geometry": {"state"},
    "jit": set(),
    "row_math": {"jit", "state"},
    "layout": {"errors"},
    "records": {"errors", "geometry", "state"},
    "registry": {"errors"},
    "catalog": {"errors"},
    "config": {"errors", "state", "registry", "catalog", "format"},
    "policy": GROUND,
    "vision": GROUND,
    "robots": GROUND | {"vision"},
    "tasks": GROUND | {"robots.interface"},
    "envs": GROUND | {"policy.contract", "robots", "tasks"},
    "build": GROUND | {"policy", "robots", "tasks", "envs"},
    "learning": GROUND | {"policy", "robots", "tasks", "envs", "build"},
    "simulators": GROUND | {"robots", "vision"},
    "deploy": GROUND | {"policy", "vision", "robots", "envs", "build", "simulators"},
    "report": GROUND | {"policy", "robots", "tasks", "envs", "build", "deploy"},
    "sweep": GROUND | {"policy.checkpoint", "learning.run_directory", "report.picture"},
    "view": GROUND | {"policy", "robots", "tasks", "envs", "build"},
    "cli": None,
    "__main__": {"cli"},
    "__init__": {"policy", "envs.registration", "build"},
}
HAS_TORCH = {"learning"}


def part_of(path):
    """Name the package or top module that a file belongs to."""
    inside = path.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports(path):
    """List the modules that a file imports, wherever it does."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports here are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def own_imports(path):
    return [name.removeprefix("td3robot.") for name in imports(path) if name.startswith("td3robot.")]


def allowed(name, may):
    return any(name == part or name.startswith(f"{part}.") for part in may)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_go_down_only(path):
    part = part_of(path)
    assert part in MAY_IMPORT, f"{part} has no place in the layers; give it one in {Path(__file__).name}"
    may = MAY_IMPORT[part]
    if may is not None:
        wrong = [name for name in own_imports(path) if not allowed(name, may | {part})]
        assert wrong == []


def test_the_layers_have_no_cycle():
    placed = set()
    for part, may in MAY_IMPORT.items():
        assert {name.split(".")[0] for name in may or ()} <= placed | {"cli"}, part
        placed.add(part)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_public_function_says_what_it_does(path):
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if hasattr(node, "returns")]
    assert [f.name for f in functions if not f.name.startswith("_") and not ast.get_docstring(f)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_torch_stays_with_the_learner(path):
    if any(name.split(".")[0] == "torch" for name in imports(path)):
        assert part_of(path) in HAS_TORCH


def test_only_robots_and_pictures_know_the_simulator():
    knowing = {path for path in FILES if any(name.split(".")[0] == "mujoco" for name in imports(path))}
    assert {part_of(path) for path in knowing} <= {"robots", "envs", "simulators", "view"}
    assert {path.name for path in knowing if part_of(path) == "envs"} <= {"renderer.py"}
    assert {path.name for path in knowing if part_of(path) == "view"} <= {"picture.py", "swift_page.py"}


def run(program, *arguments):
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)


def small_checkpoint(path):
    rng = np.random.default_rng(0)
    layout = Layout([Field("q", ("a", "b"), "rad", "arm")])
    contract = Contract({"observation": layout.to_json(), "action": {"layout": layout.to_json()}})
    actor = {
        "net.0.weight": rng.normal(size=(4, 2)), "net.0.bias": np.zeros(4),
        "net.2.weight": rng.normal(size=(2, 4)), "net.2.bias": np.zeros(2),
    }  # fmt: skip
    moments = {"mean": np.zeros(2), "variance": np.ones(2), "count": np.ones(1), "enabled": np.array([True])}
    arrays = {"actor": {name: value.astype(np.float32) for name, value in actor.items()}, "normalizer": moments}
    write(path, CheckpointData(config="", documents={"contract": contract.terms}, arrays=arrays))


def test_a_stand_in_needs_no_torch():
    result = run("import sys, td3robot.simulators.server; print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


# What takes longer to import than a policy to load, and a policy loads and acts without.
SLOW = ("torch", "mujoco", "gymnasium", "pydantic", "numba", "scipy", "yaml", "importlib.metadata", "td3robot.config")


@pytest.mark.parametrize("released", [True, False])
def test_loading_and_playing_a_policy_imports_nothing_slow(tmp_path, released):
    small_checkpoint(tmp_path / "policy")
    program = (
        "import sys, td3robot\n"
        "policy = td3robot.load_policy(sys.argv[1])\n"
        "policy.act([0.0] * policy.observation_size)\n"
        f"print([name for name in {SLOW} if name in sys.modules])"
    )
    result = run(program, "ur5e_grasp" if released else str(tmp_path / "policy"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"
