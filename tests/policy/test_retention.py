"""Which checkpoints stay, and what is said where the newest is damaged."""

import pytest

from td3robot import atomic
from td3robot.errors import CheckpointError
from td3robot.policy.checkpoint import newest
from td3robot.policy.checkpoint_writer import CheckpointData, publish, set_aside_later


def save(run, *steps, keep=1, kind="last"):
    for step in steps:
        publish(run, kind, step, CheckpointData("x", {"counters": {"step": step}}, {}), keep)


def steps_of(run, kind="last"):
    return sorted(int(path.name.rpartition("-")[2]) for path in run.glob(f"{kind}-*"))


def test_the_newest_are_kept(tmp_path):
    save(tmp_path, 100, 200, 300, 400, 500)
    assert steps_of(tmp_path) == [500]
    save(tmp_path, 600, 700, 800, keep=2)
    assert steps_of(tmp_path) == [700, 800]


def test_a_save_at_the_step_of_another_replaces_it(tmp_path):
    save(tmp_path, 100)
    publish(tmp_path, "last", 100, CheckpointData("y", {}, {}))
    assert (newest(tmp_path).path / "config.yaml").read_text() == "y"
    assert [path.name for path in tmp_path.iterdir()] == ["last-000000100"]


def test_a_damaged_newest_checkpoint_names_an_older_whole_one(tmp_path):
    save(tmp_path, 100, 200, 300, keep=3)
    for step in (200, 300):
        (tmp_path / f"last-{step:09d}" / "counters.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"last-000000300 is damaged: .*last-000000100 is older, and whole$"):
        newest(tmp_path)
    newest(tmp_path / "last-000000100")


def test_what_a_run_went_back_from_is_kept_under_another_name(tmp_path):
    save(tmp_path, 100, 200, keep=2)
    assert [path.name for path in set_aside_later(tmp_path, "last", 100)] == ["set-aside-last-000000200"]
    save(tmp_path, 200, keep=2)
    set_aside_later(tmp_path, "last", 100)
    assert (tmp_path / "set-aside-last-000000200-2").is_dir()
    save(tmp_path, 150, keep=2)
    atomic.delete_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "last-000000100", "last-000000150", "set-aside-last-000000200", "set-aside-last-000000200-2",
    ]  # fmt: skip


def test_a_best_policy_of_a_later_step_goes_once_the_run_has_another(tmp_path):
    save(tmp_path, 100, 200, kind="best", keep=3)
    save(tmp_path, 150, kind="best", keep=3)
    assert steps_of(tmp_path, "best") == [100, 150]
