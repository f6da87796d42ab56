import pytest

from td3robot.errors import CheckpointError, ConfigError, ContractError
from td3robot.learning.replay import ReplayBuffer
from td3robot.policy import checkpoint
from td3robot.policy.contract import Contract


def test_a_run_directory_is_trained_in_by_one_process_at_a_time(tmp_path):
    with (
        checkpoint.locked(tmp_path),
        pytest.raises(CheckpointError, match="in use by another training"),
        checkpoint.locked(tmp_path),
    ):
        pass
    with checkpoint.locked(tmp_path):
        pass


def test_rounding_of_another_machine_is_no_other_contract():
    here = Contract({"speed": 0.43955134069716545, "names": ["a"]})
    here.require_same(Contract({"speed": 0.4395513406971654, "names": ["a"]}), "here", "there")
    with pytest.raises(ContractError, match=r"speed is 0\.4395\d* for here but 0\.44 for there"):
        here.require_same(Contract({"speed": 0.44, "names": ["a"]}), "here", "there")


def test_a_replay_that_does_not_fit_into_memory_is_refused_with_its_size():
    with pytest.raises(ConfigError, match=r"1000000000000 transitions needs .* GB.*lower agent.replay_capacity"):
        ReplayBuffer(10**12, 20, 3)
