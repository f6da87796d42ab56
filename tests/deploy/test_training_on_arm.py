"""Going on with a training on the stand-in's arm."""

from pathlib import Path

import pytest

from td3robot.build import make_trainer
from td3robot.cli_deploy import resumed_on_arm
from td3robot.config import load_config
from td3robot.errors import ConfigError
from td3robot.training.checkpoint import Checkpoint, find

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach.yaml"
SMALL = (
    "environment.episode_s=1",
    "environment.guard.max_state_age_s=0.5",
    "agent.actor_hidden=[8,8]",
    "agent.critic_hidden=[8,8]",
    "agent.batch_size=16",
    "agent.replay_capacity=500",
    "agent.updates_per_step=1",
    "training.environments=2",
    "training.random_steps=20",
    "training.steps=40",
    "training.torch_threads=1",
    "training.evaluate_every=1000",
    "training.log_every=10",
)


class Quiet:
    def progress(self, step, steps_per_second):
        pass

    def evaluated(self, step, evaluation):
        pass

    def message(self, text):
        pass


@pytest.mark.slow
def test_a_run_goes_on_on_the_arm_and_learns_between_episodes_alone(standin, cell, tmp_path, monkeypatch):
    run = tmp_path / "run"
    make_trainer(load_config(REACH, SMALL), run, Quiet()).train()
    path = tmp_path / "cell.yaml"
    path.write_text(f"ur: {{host: {standin.host}, late_periods: 10}}\n")
    with pytest.raises(ConfigError, match="is already at step 40"):
        resumed_on_arm(run, path, tmp_path / "on", None)

    trainer = resumed_on_arm(run, path, tmp_path / "on", 85)
    owed = []
    monkeypatch.setattr(
        trainer.collector,
        "step",
        lambda actions, step=trainer.collector.step: (owed.append(trainer.agent.updates), step(actions)),
    )
    try:
        trainer.train()
    finally:
        trainer.environment.close()
    assert trainer.step == 85
    assert trainer.replay.size == 85
    assert owed == [18] * 20 + [40] * 20 + [60] * 5  # what was owed before, and after each of two whole episodes
    assert trainer.environment.robot.fault is None
    saved = Checkpoint(find(tmp_path / "on", ("last",)))
    assert saved.document("counters")["step"] == 85
    assert saved.config().training.environments == 1
    saved.contract().require_same(Checkpoint(find(run, ("last",))).contract(), "arm", "simulation")
