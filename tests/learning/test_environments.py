"""Environments in a process of their own: the same answers bit for bit, errors that arrive, and ends of either side."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from td3robot.build import make_environment
from td3robot.config import (
    GymnasiumEnvironmentConfig,
    RobotConfig,
    RobotEnvironmentConfig,
    TrainingConfig,
    load_config,
)
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.learning.environments import (
    EnvironmentProcess,
    EnvironmentProcesses,
    LocalEnvironments,
    environment_processes,
)
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import newest
from td3robot.tasks.grasp import GraspConfig

PENDULUM = GymnasiumEnvironmentConfig(kind="gymnasium", id="Pendulum-v1")
REACH = RobotEnvironmentConfig()
CONFIGS = Path(__file__).parents[2] / "configs"


def same(one, other):
    np.testing.assert_array_equal(one.observation, other.observation)
    assert (one.reward, one.terminated, one.truncated) == (other.reward, other.terminated, other.truncated)
    assert (one.success, one.reward_terms, one.interventions) == (
        other.success,
        other.reward_terms,
        other.interventions,
    )


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 6), (64, 6)])
def test_cores_say_how_many_processes_share_the_environments(monkeypatch, cores, processes):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.delenv("TD3ROBOT_CORES", raising=False)
    assert environment_processes(TrainingConfig(environments=24)) == processes
    assert environment_processes(TrainingConfig(environments=3)) == 1


@pytest.mark.quick("pendulum-2", "reach-1")
@pytest.mark.parametrize("processes", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("config", [PENDULUM, REACH], ids=["pendulum", "reach"])
def test_processes_answer_as_environments_here_do(config, processes):
    rng = np.random.default_rng(0)
    make = partial(make_environment, practice=True)
    here = LocalEnvironments([make(config) for _ in range(3)])
    with closing(here), closing(EnvironmentProcesses(make, [config] * 3, processes)) as there:
        assert len(there.pids) == min(processes, 3)
        assert (there.facts.count, there.facts.action_shape) == (3, here.facts.action_shape)
        layouts = there.facts.observation_layout, here.facts.observation_layout
        assert layouts == (None, None) or layouts[0].to_json() == layouts[1].to_json()
        for index in range(3):
            np.testing.assert_array_equal(there.reset(index, 5 + index), here.reset(index, 5 + index))
        for _ in range(10):
            actions = rng.uniform(-1, 1, (3, *here.facts.action_shape)).astype(np.float32)
            for each in (here, there):
                each.start(actions)
            for one, other in zip(here.finish(), there.finish(), strict=True):
                same(one, other)
        there.start(actions)
        here.start(actions)
        here.finish()  # what an interrupted training left unread is not taken for what comes next
        same(here.step(2, actions[0]), there.step(2, actions[0]))


def test_an_environment_that_does_not_answer_has_its_own_number():
    processes = EnvironmentProcesses(make_environment, [PENDULUM] * 3, 2)
    with closing(processes):
        for index in range(3):
            processes.reset(index, 0)
        processes.start(np.zeros((3, *processes.facts.action_shape), np.float32))
        processes.finish()
        os.kill(processes.pids[1], signal.SIGSTOP)
        for process in processes._processes:  # not before: a busy machine needs longer to start
            process._limit_s = 1.0
        processes.start(np.zeros((3, *processes.facts.action_shape), np.float32))
        with pytest.raises(EnvironmentFaultError, match=r"environment 2 \(step\) has not answered for 1 s"):
            processes.finish()


def test_environments_that_cannot_be_made_say_why():
    config = REACH.model_copy(update={"task": GraspConfig(), "robot": RobotConfig(backend="kinematic")})
    with (
        closing(EnvironmentProcess(make_environment, [config])) as process,
        pytest.raises(ConfigError, match="'kinematic' has no contacts"),
    ):
        _ = process.facts


def test_an_error_of_an_environment_arrives_and_the_process_lives_on():
    with closing(EnvironmentProcess(make_environment, [REACH])) as process:
        process.reset(0, 1)
        with pytest.raises(EnvironmentFaultError, match="nothing was sent"):
            process.step(0, np.full(process.facts.action_shape, np.nan, np.float32))
        assert not process.step(0, np.zeros(process.facts.action_shape, np.float32)).truncated


def test_a_process_that_nobody_waits_for_any_more_ends_without_a_word(capfd):
    process = EnvironmentProcess(make_environment, [PENDULUM])
    process.channel.close()  # as by a Ctrl-C while the environments are made
    assert process._child.process.wait(60) == 0
    process.close()
    assert capfd.readouterr().err == ""


class KillAt:
    """A listener that ends the environments' process in the middle of a training."""

    def progress(self, step, steps_per_second):
        if step == 200:
            os.kill(self.trainer.collector.environments.pids[0], signal.SIGKILL)

    def evaluated(self, step, evaluation):
        pass

    def message(self, text):
        pass


def test_a_stop_that_reaches_both_processes_is_the_trainer_s_to_answer():
    with closing(EnvironmentProcess(make_environment, [PENDULUM])) as process:
        process.reset(0, 1)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(process.pid, number)
        process.reset(0, 1)


def test_a_training_whose_environments_are_killed_is_saved_and_goes_on(tmp_path):
    config = load_config(
        CONFIGS / "gym_pendulum.yaml",
        [
            "training.overlap=true", "training.steps=400", "training.random_steps=50", "training.environments=2",
            "training.log_every=100", "agent.batch_size=16", "agent.hidden=[16]",
        ],
    )  # fmt: skip
    listener = KillAt()
    listener.trainer = trainer = make_trainer(config, tmp_path, listener)
    with closing(trainer), pytest.raises(EnvironmentFaultError, match="ended with status -9"):
        trainer.train()
    saved = newest(tmp_path)
    assert saved.document("counters")["step"] == 200
    with closing(make_trainer(config, tmp_path, None)) as following:
        following.listener = KillAt()
        following.resume(saved)
        following.train()
        assert following.step == 400


STARTER = """
import sys, time
from td3robot.build import make_environment
from td3robot.config import GymnasiumEnvironmentConfig
from td3robot.learning.environments import EnvironmentProcess
process = EnvironmentProcess(make_environment, [GymnasiumEnvironmentConfig(kind="gymnasium", id="Pendulum-v1")])
process.facts
print(process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc whether a process runs")
def test_the_process_ends_with_the_one_that_started_it():
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    pid = int(starter.stdout.readline())
    os.kill(pid, 0)
    starter.kill()
    starter.communicate()
    end = time.monotonic() + 10.0
    while time.monotonic() < end and is_running(pid):
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
