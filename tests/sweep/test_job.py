"""One run of a sweep: how it begins, resumes, ends, and what its files say."""

import os
import shutil
import signal
import subprocess

import pytest

from td3robot import processes
from td3robot.errors import CheckpointError
from td3robot.learning.run_directory import RunLock
from td3robot.sweep import job
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, progress, saved_step, set_aside_unsaved
from td3robot.sweep.pool import LocalPool, train_here


@pytest.fixture
def fresh(tmp_path):
    return Job(tmp_path / "000-seed3", tmp_path / "config.yaml", ("agent.gamma=0.9", "seed=3"))


def test_a_run_begins_with_its_settings(fresh, tmp_path):
    assert fresh.arguments() == [
        "train", str(tmp_path / "config.yaml"), "--out", str(fresh.directory),
        "--set", "agent.gamma=0.9", "--set", "seed=3",
    ]  # fmt: skip


def test_a_saved_run_is_resumed_as_it_was(made, tmp_path):
    assert saved_step(made) == 60
    assert Job(made, tmp_path / "config.yaml", ("seed=3",)).arguments() == ["train", "--resume", str(made), "--trust"]


def test_progress_is_what_the_files_say(made):
    found = progress(made)
    assert (found.step, found.steps) == (60, [40, 60])
    assert len(found.returns) == 2
    assert found.values == found.returns  # the pendulum does not say what success is


def test_a_run_that_has_not_begun_has_no_progress(tmp_path):
    assert progress(tmp_path / "nowhere") == job.Progress()
    assert saved_step(tmp_path / "nowhere") is None


def test_what_died_before_it_saved_is_kept_aside(fresh):
    for number in (1, 2):
        fresh.directory.mkdir()
        (fresh.directory / "metrics.csv").write_text(f"attempt {number}")
        set_aside_unsaved(fresh.directory)
        assert not fresh.directory.exists()
        kept = fresh.directory.with_name(f"000-seed3.unsaved-{number}")
        assert (kept / "metrics.csv").read_text() == f"attempt {number}"


def test_a_saved_run_stays_where_it_is(made):
    set_aside_unsaved(made)
    assert made.is_dir()


def test_a_damaged_checkpoint_stays_and_is_for_the_training_to_refuse(made, fresh):
    shutil.copytree(made, fresh.directory, symlinks=True)
    for replay in fresh.directory.glob("last-*/replay.safetensors"):
        replay.write_bytes(b"damaged")
    set_aside_unsaved(fresh.directory)
    assert fresh.arguments() == ["train", "--resume", str(fresh.directory), "--trust"]
    ended = job.ending(fresh, fresh.start(2).wait(60))
    assert ended.status == REFUSED
    assert "replay" in ended.reason


def test_what_another_training_works_in_is_not_set_aside(fresh):
    fresh.directory.mkdir()
    (fresh.directory / "metrics.csv").touch()
    with RunLock(fresh.directory), pytest.raises(CheckpointError, match="in use by another training"):
        fresh.start(2)
    with RunLock(fresh.directory):
        ended = train_here(fresh, 2)
    assert ended.status == REFUSED
    assert "in use by another training" in ended.reason


@pytest.mark.parametrize(
    ("status", "reason", "died"),
    [
        (0, "", False),
        (STOPPED, "", False),
        (REFUSED, "no space left on device", False),
        (1, "its process ended with status 1 (no space left on device)", True),
        (-signal.SIGKILL, "its process ended with signal SIGKILL", True),
    ],
)
def test_how_a_process_ended_in_words(fresh, status, reason, died):
    fresh.log.write_text("step 100: return 3\ntd3robot: no space left on device\n")
    ended = job.ending(fresh, status)
    assert ended == Ending(status, reason)
    assert ended.died == died


def test_a_run_that_is_refused_says_why(fresh):
    """Its configuration is missing; the process is a real one."""
    process = fresh.start(2)
    ended = job.ending(fresh, process.wait(60))
    assert ended.status == REFUSED
    assert "there is no configuration" in ended.reason


def test_so_many_runs_at_once_as_there_are_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert [LocalPool(cores).free_slots() for cores in (1, 2, 3, 8, 64)] == [8, 4, 2, 1, 1]


def test_a_run_counts_the_cores_it_is_given(fresh, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert processes.cores() == 8
    given = {}
    monkeypatch.setattr(job, "start_python", lambda arguments, variables, **options: given.update(variables))
    LocalPool(3).start(fresh)
    monkeypatch.setenv(*given.popitem())
    assert processes.cores() == 3


@pytest.mark.parametrize("value", ["", "0", "-1", "many", "99"])
def test_a_number_of_cores_that_cannot_be_is_ignored(monkeypatch, value):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setenv("TD3ROBOT_CORES", value)
    assert processes.cores() == 8


def test_closing_the_pool_ends_what_runs(fresh, monkeypatch):
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    monkeypatch.setattr(Job, "start", lambda self, cores: sleeper)
    pool = LocalPool(1)
    pool.start(fresh)
    pool.close()
    assert sleeper.wait(10) == -signal.SIGKILL
