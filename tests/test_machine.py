"""A person's machine: streams that are closed or full, paths that a shell would split, a disk without room."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from td3robot import atomic, format
from td3robot.cli import catalog, doctor
from td3robot.envs.video import VideoRecorder
from td3robot.errors import CheckpointError, ConfigError
from td3robot.learning.six_files import export_legacy
from td3robot.report.build import make_report
from td3robot.robots.physical import Check

PROGRAM = [sys.executable, "-m", "td3robot"]


def run_shell(arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.join(PROGRAM)} {arguments}"
    environment = os.environ | variables
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("command", ["--version", "schema run"])
def test_closed_standard_output_is_said_and_ends_nothing(command):
    done = run_shell(f"{command} >&-")
    assert done.stderr == "td3robot: standard output is closed, so results are not printed\n"
    assert done.returncode == 0


def test_with_every_stream_closed_a_command_ends_as_usual(tmp_path):
    assert run_shell(f"copy ur5e {tmp_path}/cell.yaml <&- >&- 2>&-").returncode == 0
    assert "robot:" in (tmp_path / "cell.yaml").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("command", ["list", "schema run"])
def test_results_that_find_no_room_are_an_error(command):
    done = run_shell(f"{command} >/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("td3robot: standard output cannot be written (No space left on device)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["list", "schema run"])
def test_a_reader_that_leaves_is_no_error(command):
    done = run_shell(f"{command} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "$HOME", "-x", "a;b", "\udcff", "é\udcff'\\", "a\tb", "*"])
def test_a_printed_path_can_be_pasted(tmp_path, name):
    path = tmp_path / name
    path.write_text("found")
    for pasted, folder in ((format.shell(path), "/"), (format.shell(Path(name)), tmp_path)):
        done = subprocess.run(["bash", "-c", f"cat {pasted}"], cwd=folder, capture_output=True, check=False)
        assert done.stdout == b"found", pasted
        assert pasted.isprintable()


def test_commands_are_printed_so_that_they_can_be_pasted(td3robot, tmp_path, set_small):
    run = tmp_path / "a run"
    status, _, err = td3robot("train", "gym_pendulum", "--out", run, *set_small, "--set", "training.overlap=false")
    assert status == 0
    assert f"evaluate with: td3robot eval '{run}/best-" in err
    status, _, err = td3robot("train", "gym_pendulum", "--out", run, *set_small)
    assert f"resume it with --resume '{run}'" in err


def no_room(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_that_finds_no_room_is_named_and_the_one_before_stays(tmp_path):
    (tmp_path / "x").write_text("before")
    with pytest.raises(OSError, match="No space left") as failure, atomic.Replacement(tmp_path / "x") as temporary:
        temporary.write_text("half")
        no_room()
    assert failure.value.filename == str(tmp_path / "x")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "before")]


def test_a_copy_that_finds_no_room_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "write_text", no_room)
    with pytest.raises(OSError, match="No space left"):
        catalog.copy("ur5e", tmp_path / "cell.yaml")
    assert not list(tmp_path.iterdir())


def test_six_files_that_find_no_room_leave_nothing(pendulum_trainer, tmp_path, monkeypatch):
    import torch

    whole, calls = torch.save, []

    def save(values, path):
        calls.append(path)
        whole(values, path) if len(calls) < 3 else no_room()

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(CheckpointError, match=r"x_\* could not be written: No space left on device; nothing was left"):
        export_legacy(pendulum_trainer().agent, f"{tmp_path}/x_")
    assert not list(tmp_path.glob("x_*"))


def test_a_video_that_finds_no_room_is_said_in_a_sentence(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    recorder = VideoRecorder(tmp_path / "x.mp4", 20.0, 10)

    class Drawn:
        """Something to see."""

        def render(self):
            """Draw it."""
            import numpy as np

            return np.zeros((64, 64, 3), np.uint8)

    recorder._writer.append_data = no_room
    sentence = r"the video .*x\.mp4 could not be written \(No space left on device\)"
    with pytest.raises(ConfigError, match=sentence), recorder:
        recorder.add(Drawn())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("library", ["nothere", "OSMesa 2"])
def test_a_drawing_library_that_is_not_there_is_one_sentence(library):
    done = run_shell("list", MUJOCO_GL=library)
    assert done.returncode == 2
    assert done.stderr.startswith(f"td3robot: MUJOCO_GL is {library!r}, and MuJoCo does not start with it here (")
    assert done.stderr.count("\n") == 1


def test_the_doctor_finds_a_drawing_library_that_is_not_there(monkeypatch):
    check = Check()
    monkeypatch.setenv("MUJOCO_GL", "nothere")
    monkeypatch.setattr(doctor, "drawing_fault", lambda: "MUJOCO_GL is 'nothere', and so on")
    doctor._drawing_library(check)
    assert not check.go
    assert "MUJOCO_GL" not in os.environ


def test_a_report_names_a_run_whose_name_is_no_text(made, tmp_path):
    run = tmp_path / "r\udcff"
    shutil.copytree(made, run)
    assert "r\\udcff" in make_report([run]).read_text(encoding="utf-8")
