"""A guide: the hand-written policy acts in the last environments, and nowhere else."""

from pathlib import Path

import numpy as np
import pytest
import torch
from quiet import Quiet

from td3robot.config import load_config
from td3robot.errors import ConfigError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.guide import NOISE, Guide
from td3robot.learning.replay import Batch
from td3robot.learning.runs import make_trainer
from td3robot.learning.td3 import TD3
from td3robot.policy.checkpoint import load_policy
from td3robot.robots.interface import robot_spec
from td3robot.tasks.scripted import script_of

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


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_replay_has_what_the_guide_would_do_whoever_acted(tmp_path, share):
    changes = (*REACH, "agent.imitation=0.4", "agent.n_step=2", f"training.guided_share={share}")
    config = load_config(Path("ur5e_reach_quick"), changes)
    trainer = make_trainer(config, tmp_path / "run", Quiet())
    trainer.train()
    script = script_of(config.environment, trainer.contract.observation, robot_spec(config.environment.robot))
    batch = Batch.of(torch.from_numpy(trainer.replay.rows[: trainer.replay.size]), trainer.agent.observation_size, 3)
    assert len(batch.guide_action) > 50
    for observation, action in zip(batch.observation.numpy(), batch.guide_action.numpy(), strict=True):
        np.testing.assert_array_equal(action, script.act(observation))
    trainer.close()


@pytest.mark.parametrize(("better", "counts"), [(1.0, True), (-1.0, False)])
def test_the_actor_imitates_actions_that_the_critic_prefers(better, counts):
    agent = TD3(2, 1, TD3Config(imitation=0.5, hidden=(4,), device="cpu"), seed=0)
    column = torch.zeros(3, 1)
    batch = Batch(*[torch.zeros(3, 2), *[column] * 5], guide_action=torch.ones(3, 1))
    agent.Q1.forward = lambda observation, action: torch.full((3, 1), -4.0 + better)
    loss = agent.imitation_loss(batch, torch.zeros(3, 1), torch.full((3, 1), -4.0))
    assert float(loss) == pytest.approx(0.5 * 4.0 if counts else 0.0)


@pytest.mark.parametrize("change", ["training.guided_share=0.5", "agent.imitation=0.4"])
def test_an_environment_without_a_hand_written_policy_has_no_guide(change):
    with pytest.raises(ConfigError, match="need a hand-written policy, and the environment 'Pendulum-v1' has none"):
        load_config(Path("gym_pendulum"), (change, "training.environments=2"))
