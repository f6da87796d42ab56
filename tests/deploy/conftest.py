"""A stand-in with its cell, a checkpoint that nobody trained, and an operator who plays a part."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import GuardConfig, RobotEnvironmentConfig, load_config, to_yaml
from td3robot.deploy import deployment, hand_eye, rehearsal
from td3robot.deploy.deployment import CHECK_BEFORE_PLAY_S
from td3robot.deploy.loaded_policy import open_checkpoint
from td3robot.deploy.operator import OperatorStop
from td3robot.deploy.scripted_operator import ScriptedOperator
from td3robot.errors import RobotError
from td3robot.policy.checkpoint_writer import CheckpointData, write
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.robot import UrRobot
from td3robot.robots.ur.urcap import ACTIVE
from td3robot.simulators.process import start_ur_simulator

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach_quick.yaml"
# A busy host may stand still for so long [s], which is no fault here.
PATIENCE_S = 0.5
COUNTERS = {"step": 0, "updates": 0, "evaluated_step": 0, "warm_start": False}


@pytest.fixture(scope="session")
def own_host():
    """Give loopback addresses that no other test process uses."""
    pid = os.getpid()
    return lambda number: f"127.{61 + number}.{pid // 250 % 250}.{1 + pid % 250}"


def make_cell(host):
    """Describe the cell, with patience for a computer that runs other tests."""
    return CellConfig.model_validate(
        {
            "ur": {
                "host": host,
                "connect_timeout_s": 5.0,
                "late_periods": 10.0,
                "max_state_age_s": PATIENCE_S,
                "watchdog_hz": 2.0,
            },
            "gripper": {"max_age_s": 5.0, "answer_timeout_s": 2.0},
        }
    )


@pytest.fixture(autouse=True)
def patient_guard(monkeypatch):
    """Give commands that load no policy a guard with the patience of the policies here."""
    patient = partial(RobotEnvironmentConfig, guard=GuardConfig(max_state_age_s=PATIENCE_S))
    for module in (deployment, hand_eye):
        monkeypatch.setattr(module, "RobotEnvironmentConfig", patient)


@pytest.fixture(autouse=True)
def brief_checks(monkeypatch):
    """Watch a robot's states for a second, as before each session that moves it."""
    for module in (deployment, rehearsal):
        monkeypatch.setattr(module, "CHECK_S", CHECK_BEFORE_PLAY_S)


@pytest.fixture(scope="session")
def stood_in(own_host, ends_with):
    pytest.importorskip("rtde_control")
    with start_ur_simulator(own_host(0)) as standin:
        ends_with(Path(__file__).parent, standin)
        yield standin


@pytest.fixture
def standin(stood_in):
    """Give the stand-in at home, without faults, its gripper active."""
    stood_in.reset()
    stood_in.ask(remote=True, speed_slider=1.0)
    if stood_in.state()["gripper"]["STA"] != ACTIVE:
        cell = make_cell(stood_in.host)
        UrRobot(robot_spec(cell.robot), cell).gripper.activate()
    stood_in.ask(reset_wire=True)
    return stood_in


@pytest.fixture
def cell(standin):
    return make_cell(standin.host)


@pytest.fixture(scope="session")
def write_checkpoint():
    return save_checkpoint


def save_checkpoint(path, config):
    """Write a policy of random weights, which moves the tool somewhere."""
    rng = np.random.default_rng(0)
    agent = config.agent.model_copy(update={"hidden": (16,)})
    config = config.model_copy(update={"agent": agent})
    environment = make_robot_env(config.environment)
    contract = environment.contract()
    environment.close()
    inputs, outputs = contract.observation.size, contract.action.size
    actor = {
        "net.0.weight": rng.normal(size=(16, inputs)) / 4, "net.0.bias": np.zeros(16),
        "net.2.weight": rng.normal(size=(outputs, 16)) / 4, "net.2.bias": np.zeros(outputs),
    }  # fmt: skip
    moments = {
        "mean": np.zeros(inputs),
        "variance": np.ones(inputs),
        "enabled": np.array([True]),
        "count": np.array([1.0]),
    }
    write(
        path,
        CheckpointData(
            to_yaml(config),
            {"contract": dict(contract.terms), "counters": COUNTERS, "evaluation": None},
            {"actor": {name: value.astype(np.float32) for name, value in actor.items()}, "normalizer": moments},
        ),
    )
    return path


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    patient = ["environment.episode_s=2", f"environment.guard.max_state_age_s={PATIENCE_S}"]
    return save_checkpoint(tmp_path_factory.mktemp("policy") / "policy", load_config(REACH, patient))


@pytest.fixture(scope="session")
def loaded(checkpoint):
    return open_checkpoint(checkpoint)


class Person(ScriptedOperator):
    """Agrees, presses the given keys and then the one that stops, and stops the arm after so many looks."""

    def __init__(self, keys=(), stop_after=None):
        super().__init__(None, lambda text: None)
        self.keys, self.looks, self.stop_after = list(keys), 0, stop_after
        self.agreed, self.took = [], []

    def stop_wanted(self):
        self.looks += 1
        return self.stop_after is not None and self.looks > self.stop_after

    def agree(self, what):
        self.agreed.append(what)

    def take(self, what):
        self.took.append(what)
        raise RobotError(what)

    def next_periods(self, rate_hz, ahead):
        self.say(ahead)
        if not self.keys:
            raise OperatorStop("the operator stopped the arm")
        return self.keys.pop(0)


@pytest.fixture
def person():
    return Person()
