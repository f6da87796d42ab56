"""The wheel is the whole product: what it carries is found by name, from any folder, without a clone."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = (
    "td3robot", "configs", "checkpoints", "docs/images", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md",
    "LICENSE", "CHANGELOG.md", "CITATION.cff", ".gitignore",
)  # fmt: skip
SMALL = ("training.environments=1", "training.overlap=false", "agent.batch_size=8", "training.evaluation_episodes=1")
build = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from a copy in which a run lies beside the released policies."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*-20*"))
        else:
            shutil.copy(source, target)
    shutil.copytree(folder / "checkpoints" / "ur5e_reach", folder / "checkpoints" / "my_run")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist", "."],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = (folder / "dist").glob("*.whl")
    return file


@pytest.fixture(scope="module")
def unzipped(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def run(unzipped, tmp_path, monkeypatch):
    """Run Python with the unzipped wheel, from an empty folder; nothing may say where the wheel lies."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> str:
        environment = os.environ | {"PYTHONPATH": str(unzipped), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-P", *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert str(unzipped) not in done.stderr
        return done.stdout

    return run


def td3robot(run, *arguments) -> str:
    return run("-m", "td3robot", *arguments)


def files_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.thorough
def test_the_wheel_carries_configurations_cells_and_released_policies_alone(wheel):
    carried = {name for name in files_in(wheel) if name.startswith(("td3robot/configs/", "td3robot/checkpoints/"))}
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert f"td3robot/{path.relative_to(ROOT).as_posix()}" in carried
    policies = {name.split("/")[2] for name in carried if name.startswith("td3robot/checkpoints/")}
    assert policies == set(build["released"]()) >= {"ur5e_reach", "ur5e_grasp"}
    for name in policies:
        manifest = json.loads((ROOT / "checkpoints" / name / "manifest.json").read_text())
        assert {f"td3robot/checkpoints/{name}/{file}" for file in (*manifest["files"], "README.md")} <= carried


@pytest.mark.thorough
def test_released_policies_are_those_that_git_keeps(wheel):
    kept = re.findall(r"!/checkpoints/(\w+)/", (ROOT / ".gitignore").read_text())
    assert sorted(build["released"]()) == sorted(kept)


@pytest.mark.thorough
def test_the_wheel_imports_and_evaluates_from_another_folder_by_name(run, unzipped):
    said = run("-c", "import td3robot; print(td3robot.__file__)")
    assert Path(said.strip()).is_relative_to(unzipped)
    figures = json.loads(td3robot(run, "eval", "ur5e_reach", "--episodes", 2, "--json"))
    assert figures["episodes"] == 2
    assert figures["success_rate"] == 1.0


@pytest.mark.thorough
def test_every_released_policy_loads_by_name(run, unzipped):
    names = sorted(path.name for path in (unzipped / "td3robot" / "checkpoints").iterdir())
    program = (
        "import sys, td3robot\n"
        "for name in sys.argv[1:]:\n"
        "    policy = td3robot.load_policy(name)\n"
        "    assert abs(policy.act([0.1] * policy.observation_size)).max() <= 1\n"
    )
    run("-c", program, *names)


@pytest.mark.slow
def test_train_by_name_makes_its_run_in_the_working_directory(run, tmp_path):
    settings = [f"--set={setting}" for setting in SMALL]
    small = ["--steps", 40, "--set=training.random_steps=20", "--set=training.evaluate_every=40", *settings]
    made = json.loads(td3robot(run, "train", "ur5e_reach", "--json", *small))
    folder = Path(made["run"])
    assert not folder.is_absolute()
    assert (tmp_path / folder).parent == tmp_path / "checkpoints"
    td3robot(run, "train", "--resume", folder, "--more", 10)
    listed = json.loads(td3robot(run, "list", "--json"))
    assert [row["name"] for row in listed["policies"]] == sorted(build["released"]())
    assert {"ur5e_reach", "gym_pendulum"} <= {row["name"] for row in listed["configurations"]}
    (mine,) = listed["runs"]
    assert (mine["path"], mine["step"], mine["resumable"], mine["name"]) == (str(folder), 50, True, "ur5e_reach")


@pytest.mark.thorough
def test_the_metadata_is_whole_and_the_readme_has_no_link_that_only_a_clone_has(wheel):
    name = next(name for name in files_in(wheel) if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Name"] == "td3robot"
    assert metadata["License-Expression"] == "MIT"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    text = metadata.get_payload()
    assert "td3robot" in text
    assert not re.findall(r"\]\((?!https?://|#)", text)
    assert not re.findall(r'src="(?!https?://)', text)


def test_links_of_the_readme_become_absolute_once_the_repository_has_an_address():
    text = '![arm](docs/a.png), <img src="docs/b.gif" width="9">, [design](docs/design.md), [x](https://x.org), [y](#y)'
    portable, place = build["portable"], "https://h.example/r"
    assert portable(text, None) == ", , design, [x](https://x.org), [y](#y)"
    assert portable(text, place) == (
        f'![arm]({place}/raw/main/docs/a.png), <img src="{place}/raw/main/docs/b.gif" width="9">, '
        f"[design]({place}/blob/main/docs/design.md), [x](https://x.org), [y](#y)"
    )
