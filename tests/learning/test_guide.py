"""A guide: the hand-written policy acts in the last environments, and nowhere else."""

from pathlib import Path

import numpy as np
import pytest
from quiet import Quiet

from td3robot.config import load_config
from td3robot.errors import ConfigError
from td3robot.learning.guide import NOISE, Guide
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import load_policy

REACH = (
    "agent.hidden=[8,8]", "agent.batch_size=16", "agent.replay_capacity=500", "training.steps=60",
    "training.random_steps=20", "training.environments=4", "training.overlap=false", "training.learner=reference",
    "training.evaluate_every=60", "training.evaluation_episodes=1", "training.checkpoint_every=20",
    "training.guided_share=0.5",
)  # fmt: skip


class Doubled:
    """A hand-written policy whose actions tell what it saw."""

    def act(self, observation):
        return 2.0 * observation


def test_it_acts_in_the_last_environments_on_the_policys_own_observations():
    observations = np.arange(12.0, dtype=np.float32).reshape(4, 3) / 40
    actions = np.full((4, 2), 0.9, np.float32)
    Guide(Doubled(), size=2, count=2).replace(actions, observations, np.random.default_rng(0))
    np.testing.assert_array_equal(actions[:2], np.float32(0.9))
    np.testing.assert_allclose(actions[2:], 2.0 * observations[2:, :2], atol=4.0 * NOISE)
    assert (actions[2:] != np.clip(2.0 * observations[2:, :2], -1.0, 1.0)).all()


def test_guided_runs_repeat_bit_for_bit(tmp_path):
    weights = []
    for name in "ab":
        trainer = make_trainer(load_config(Path("ur5e_reach_quick"), REACH), tmp_path / name, Quiet())
        trainer.train()
        trainer.close()
        weights.append(load_policy(tmp_path / name).act(np.ones(trainer.agent.observation_size, np.float32)))
    np.testing.assert_array_equal(*weights)


def test_joint_actions_have_no_guide(tmp_path):
    config = load_config(Path("ur5e_reach_joint"), REACH)
    with pytest.raises(ConfigError, match="the hand-written policies move the tool"):
        make_trainer(config, tmp_path / "run", Quiet())
