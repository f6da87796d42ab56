"""Going on with a training on the stand-in's arm."""

import json
import threading
from pathlib import Path

import pytest

from td3robot.cli import training
from td3robot.cli.arm_training import resumed_on_arm
from td3robot.cli.training import train
from td3robot.config import load_config
from td3robot.deploy.deployment import recover
from td3robot.deploy.ledger import LadderError, Ledger
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.robots.cells import load_cell

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
        resumed_on_arm(run, path, tmp_path / "on", (None, None), tmp_path)

    trainer = resumed_on_arm(run, path, tmp_path / "on", (85, None), tmp_path)
    owed = []
    monkeypatch.setattr(
        trainer.collector,
        "start",
        lambda actions, start=trainer.collector.start: (owed.append(trainer.agent.updates), start(actions)),
    )
    try:
        trainer.train()
    finally:
        trainer.close()
    assert trainer.step == 85
    assert trainer.replay.size == 85
    assert owed == [18] * 20 + [40] * 20 + [60] * 5  # what was owed before, and after each of two whole episodes
    assert trainer.environment.robot.fault is None
    saved = Checkpoint(find(tmp_path / "on", ("last",)))
    assert saved.document("counters")["step"] == 85
    assert saved.config().training.environments == 1
    saved.contract().require_same(Checkpoint(find(run, ("last",))).contract(), "arm", "simulation")


@pytest.mark.slow
def test_a_fault_in_training_on_the_arm_waits_for_its_operator(standin, tmp_path, monkeypatch):
    run, records = tmp_path / "run", tmp_path / "records"
    make_trainer(load_config(REACH, SMALL), run, Quiet()).train()
    path = tmp_path / "cell.yaml"
    path.write_text(f"ur: {{host: {standin.host}, late_periods: 10}}\n")

    def soon_at_fault(*arguments):
        trainer = resumed_on_arm(*arguments)
        threading.Timer(0.5, standin.fault, ("protective_stop",)).start()
        return trainer

    monkeypatch.setattr(training.arm_training, "resumed_on_arm", soon_at_fault)
    with pytest.raises(Td3RobotError, match=r"protective stop.*what was saved is in"):
        train(resume=run, robot=path, out=tmp_path / "on", steps=2000, records=records)
    (serial,) = json.loads(Ledger().path.read_text())["robots"]
    assert "protective stop" in Ledger().latched(serial)
    standin.ask(reset=True)  # the controller is ready again, but nobody has said so here
    with pytest.raises(LadderError, match="td3robot recover"):
        resumed_on_arm(run, path, tmp_path / "again", (2000, None), records)
    recover(load_cell(path), records, activate_gripper=False)
    assert Ledger().latched(serial) is None
