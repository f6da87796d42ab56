"""Critics that see the truth: the policy, its files and its contract know the observation alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from quiet import Quiet

from td3robot.config import load_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.runs import make_arm_trainer, make_trainer
from td3robot.learning.six_files import to_legacy
from td3robot.learning.td3 import TD3
from td3robot.policy.checkpoint import find, load_policy, newest
from td3robot.policy.onnx import to_onnx
from td3robot.policy.validation import require_whole

OBSERVATION, PRIVILEGED, ACTION = 3, 4, 2
REACH = (
    "agent.hidden=[8,8]", "agent.batch_size=16", "agent.replay_capacity=500", "agent.asymmetric_critic=true",
    "environment.disturbance=real", "training.steps=60", "training.random_steps=20", "training.environments=2",
    "training.overlap=false", "training.learner=reference", "training.evaluate_every=60",
    "training.evaluation_episodes=1", "training.checkpoint_every=20", "training.log_every=20",
)  # fmt: skip


def make_agent():
    return TD3(OBSERVATION, ACTION, TD3Config(hidden=(8,), asymmetric_critic=True, device="cpu"), 0, PRIVILEGED)


def configuration(*more):
    return load_config(Path("ur5e_reach_quick"), [*REACH, *more])


def trained(config, run):
    trainer = make_trainer(config, run, Quiet())
    trainer.train()
    trainer.close()
    return newest(run)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return trained(configuration(), tmp_path_factory.mktemp("asymmetric") / "run")


def test_only_the_critics_see_the_truth():
    agent, rng = make_agent(), np.random.default_rng(0)
    observation = rng.normal(size=(5, OBSERVATION + PRIVILEGED)).astype(np.float32)
    other = observation.copy()
    other[:, OBSERVATION:] += 1.0
    action = agent.select_action(observation)
    np.testing.assert_array_equal(agent.select_action(other), action)
    for critic in (agent.Q1, agent.Q2):
        values = [critic(torch.from_numpy(each), torch.from_numpy(action)) for each in (observation, other)]
        assert not torch.allclose(*values)


def test_a_checkpoint_for_play_is_of_the_observation_alone(saved, tmp_path):
    require_whole(saved, saved.config())
    size = saved.contract().observation.size
    assert len(saved.normalizer()["mean"]) == size
    assert len(saved.training_normalizer()["mean"]) == size + saved.privileged_size
    best = find(saved.path.parent, ("best",))
    policy = load_policy(best)
    assert policy.observation_size == size
    to_onnx(best, tmp_path / "policy.onnx")
    assert (tmp_path / "policy.onnx").is_file()


@pytest.mark.thorough
def test_a_resumed_run_is_the_run_that_would_have_been(saved, tmp_path):
    trained(configuration("training.steps=40"), tmp_path)
    half = newest(tmp_path)
    trainer = make_trainer(configuration(), tmp_path, Quiet())
    trainer.resume(half)
    trainer.train()
    trainer.close()
    other = newest(tmp_path)
    assert other.path.name == saved.path.name
    for name in ("actor", "Q1", "Q2_target", "replay", "normalizer", "privileged_normalizer", "episodes"):
        for key, value in saved.arrays(name).items():
            np.testing.assert_array_equal(other.arrays(name)[key], value)


def test_a_run_starts_only_from_critics_that_see_the_same(saved, tmp_path):
    trainer = make_trainer(configuration("agent.asymmetric_critic=false"), tmp_path, Quiet())
    with pytest.raises(CheckpointError, match=r"agent\.asymmetric_critic true, and this run sets it to false"):
        trainer.start_from(saved)
    trainer.close()


def test_environments_without_a_true_state_are_refused():
    with pytest.raises(ConfigError, match=r"agent\.asymmetric_critic needs the true state"):
        load_config(Path("gym_pendulum"), ["agent.asymmetric_critic=true"])


def test_arms_are_refused_because_they_supply_no_truth(tmp_path):
    with pytest.raises(ConfigError, match="no arm supplies the true state"):
        make_arm_trainer(configuration(), tmp_path, Quiet(), {}, lambda name, what: True)


def test_the_six_files_are_refused_because_their_critics_see_what_the_actor_sees(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"agent\.asymmetric_critic is true here"):
        to_legacy(saved.path, f"{tmp_path}/")
