"""Going on with a training on the stand-in's arm."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.cli import training
from td3robot.cli.resuming import resumed_on_arms
from td3robot.cli.training import train
from td3robot.config import load_config
from td3robot.deploy.deployment import recover
from td3robot.deploy.ledger import LadderError, Ledger
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.robots.cells import load_cell
from td3robot.robots.ur.robot import UrRobot
from td3robot.simulators.process import start_ur_simulator

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach_quick.yaml"
SMALL = (
    "environment.episode_s=1",
    "environment.guard.max_state_age_s=0.5",
    "agent.hidden=[8,8]",
    "agent.batch_size=16",
    "agent.replay_capacity=500",
    "agent.updates_per_step=1",
    "training.environments=2",
    "training.random_steps=20",
    "training.steps=40",
    "training.threads=1",
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


def serial_of_only_robot():
    (serial,) = json.loads(Ledger().path.read_text())["robots"]
    return serial


def at_fault_once_it_plays(monkeypatch, standin):
    """Have a stand-in's arm stop soon after a training on it has begun to play episodes."""

    def soon_at_fault(*arguments):
        trainer = resumed_on_arms(*arguments)
        threading.Timer(0.5, standin.fault, ("protective_stop",)).start()
        return trainer

    monkeypatch.setattr(training, "resumed_on_arms", soon_at_fault)


@pytest.mark.slow
def test_a_run_goes_on_on_the_arm_and_learns_between_episodes_alone(standin, cell, tmp_path, monkeypatch):
    run = tmp_path / "run"
    make_trainer(load_config(REACH, SMALL), run, Quiet()).train()
    path = tmp_path / "cell.yaml"
    path.write_text(f"ur: {{host: {standin.host}, late_periods: 10, max_state_age_s: 0.5}}\n")
    with pytest.raises(ConfigError, match="is already at step 40"):
        resumed_on_arms(run, [path], tmp_path / "on", (None, None), tmp_path)

    trainer = resumed_on_arms(run, [path], tmp_path / "on", (85, None), tmp_path)
    owed = []
    monkeypatch.setattr(
        trainer.collector,
        "play",
        lambda *what, play=trainer.collector.play: (owed.append((trainer.step, trainer.agent.updates)), play(*what))[1],
    )
    try:
        trainer.train()
    finally:
        trainer.close()
    assert trainer.step == 85
    assert trainer.replay.size == 85
    assert owed == [(40, 18), (60, 40), (80, 60)]  # what was owed before, and after each of two whole episodes
    assert Ledger().latched(serial_of_only_robot()) is None
    saved = Checkpoint(find(tmp_path / "on", ("last",)))
    assert saved.document("counters")["step"] == 85
    assert saved.config().training.environments == 1
    saved.contract().require_same(Checkpoint(find(run, ("last",))).contract(), "arm", "simulation")


@pytest.mark.slow
def test_a_fault_in_training_on_the_arm_waits_for_its_operator(standin, tmp_path, monkeypatch):
    run, records = tmp_path / "run", tmp_path / "records"
    make_trainer(load_config(REACH, SMALL), run, Quiet()).train()
    path = tmp_path / "cell.yaml"
    path.write_text(f"ur: {{host: {standin.host}, late_periods: 10, max_state_age_s: 0.5}}\n")

    at_fault_once_it_plays(monkeypatch, standin)
    with pytest.raises(Td3RobotError, match=r"protective stop.*what was saved is in"):
        train(resume=run, robots=[path], out=tmp_path / "on", steps=2000, records=records)
    serial = serial_of_only_robot()
    assert "protective stop" in Ledger().latched(serial)
    standin.ask(reset=True)  # the controller is ready again, but nobody has said so here
    with pytest.raises(LadderError, match="td3robot recover"):
        resumed_on_arms(run, [path], tmp_path / "again", (2000, None), records)
    recover(load_cell(path), records, activate_gripper=False)
    assert Ledger().latched(serial) is None


@pytest.fixture
def two_arms(standin, own_host, tmp_path):
    """Give the cells of two arms, and the second one's stand-in."""
    with start_ur_simulator(own_host(5)) as other:
        paths = []
        for name, host in (("left", standin.host), ("right", other.host)):
            paths.append(tmp_path / f"{name}.yaml")
            # Two drivers on SCHED_FIFO beside two stand-ins would leave two cores to nobody else for a second.
            ur = f"host: {host}, late_periods: 10, max_state_age_s: 0.5, realtime_priority: 0"
            paths[-1].write_text(f"ur: {{{ur}}}\n")
        right = load_cell(paths[-1])
        UrRobot(robot_spec(right.robot), right).gripper.activate()
        yield paths, other


@pytest.mark.slow
def test_two_arms_feed_one_learner(two_arms, tmp_path):
    run, (paths, _) = tmp_path / "run", two_arms
    make_trainer(load_config(REACH, SMALL), run, Quiet()).train()
    with pytest.raises(ConfigError, match=r"are the same robot, \d+; give every arm one --robot"):
        same = tmp_path / "other" / "left.yaml"
        same.parent.mkdir()
        same.write_text(paths[0].read_text())
        resumed_on_arms(run, [paths[0], same], tmp_path / "on", (None, 41), tmp_path)

    trainer = resumed_on_arms(run, paths, tmp_path / "on", (None, 51), tmp_path)
    rounds = []
    play = trainer.collector.play

    def play_and_note(*arguments):
        rounds.append(play(*arguments))
        return rounds[-1]

    trainer.collector.play = play_and_note
    try:
        trainer.train()
    finally:
        trainer.close()
    assert [[len(part.steps) for part in played.values()] for played in rounds] == [[20, 20], [6, 5]]
    assert trainer.step == 91
    assert trainer.replay.size == 40 + 51
    first = rounds[0]
    assert not np.array_equal(first[0].observation, first[1].observation)  # each has starts of its own
    assert not np.array_equal(first[0].steps[0].action, first[1].steps[0].action)
    saved = Checkpoint(find(tmp_path / "on", ("last",)))
    assert saved.config().training.environments == 2
    assert saved.document("counters")["episodes"] == [3, 3]
    assert len(np.unique(saved.arrays("replay")["rows"], axis=0)) > 40 + 40


@pytest.mark.slow
def test_an_arm_at_fault_takes_no_further_part(two_arms, standin, tmp_path, monkeypatch, capsys):
    run, records, (paths, other) = tmp_path / "run", tmp_path / "records", two_arms
    make_trainer(load_config(REACH, SMALL), run, Quiet()).train()
    at_fault_once_it_plays(monkeypatch, other)
    train(resume=run, robots=paths, out=tmp_path / "on", steps=120, records=records)
    said = " ".join(capsys.readouterr().err.split())
    assert "right takes no further part" in said and "protective stop" in said
    serials = {host: Ledger().latched(serial) for host, serial in serials_of(standin, other).items()}
    assert serials[standin.host] is None
    assert "protective stop" in serials[other.host]
    saved = Checkpoint(find(tmp_path / "on", ("last",)))
    assert saved.document("counters")["step"] == 120


def serials_of(*standins):
    return {each.host: each.config.serial_number for each in standins}
