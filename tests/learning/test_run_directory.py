import pytest

from td3robot.errors import CheckpointError, ConfigError, ContractError
from td3robot.learning.replay import ReplayBuffer
from td3robot.learning.run_directory import RunLock, RunMovedError
from td3robot.policy.contract import Contract


def test_a_run_directory_is_trained_in_by_one_process_at_a_time(tmp_path):
    with RunLock(tmp_path), pytest.raises(CheckpointError, match="in use by another training"):
        RunLock(tmp_path)
    RunLock(tmp_path).close()


def test_a_run_directory_that_was_renamed_or_deleted_is_noticed(tmp_path):
    run, place = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    with RunLock(run) as lock:
        lock.require_in_place()
        run.rename(place)
        run.mkdir()  # another one of its name
        with pytest.raises(RunMovedError, match=r"was renamed to .*elsewhere while it was trained in"):
            lock.require_in_place()
        assert lock.moved_to() == place
        place.rmdir()
        with pytest.raises(RunMovedError, match="was deleted while it was trained in"):
            lock.require_in_place()
        assert lock.moved_to() is None


def test_rounding_of_another_machine_is_no_other_contract():
    here = Contract({"speed": 0.43955134069716545, "names": ["a"]})
    here.require_same(Contract({"speed": 0.4395513406971654, "names": ["a"]}), "here", "there")
    with pytest.raises(ContractError, match=r"speed is 0\.4395\d* for here but 0\.44 for there"):
        here.require_same(Contract({"speed": 0.44, "names": ["a"]}), "here", "there")


def test_a_replay_that_does_not_fit_into_memory_is_refused_with_its_size():
    with pytest.raises(ConfigError, match=r"1000000000000 transitions needs .* GB.*lower agent.replay_capacity"):
        ReplayBuffer(10**12, 20, 3)


def test_a_run_is_held_before_anything_of_it_is_read(td3robot, made, monkeypatch):
    monkeypatch.setattr("td3robot.cli.resuming.saved_run", None)  # what reads it
    with RunLock(made):
        status, _, err = td3robot("train", "--resume", made, "--more", 5)
    assert status == 2
    assert "is in use by another training" in err
