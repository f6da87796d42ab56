"""Faults of an environment: one sentence, its traceback in a file, and a run that resumes as if there had been none."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from same_run import assert_same_run

from td3robot.config import RunConfig, load_config
from td3robot.errors import ConfigError, EnvironmentFaultError, TrainingDivergedError
from td3robot.learning.environments import EnvironmentProcess
from td3robot.learning.run_directory import RunMovedError
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import newest
from td3robot.report.run import read_run
from td3robot.report.run_page import run_page
from td3robot.view.training import Run

TESTS = Path(__file__).parents[1]
CONFIGS = TESTS.parent / "configs"
SMALL = {
    "agent": {"hidden": [8], "batch_size": 16, "replay_capacity": 500},
    "training": {
        "steps": 240, "random_steps": 20, "environments": 2, "threads": 1, "evaluate_every": 80,
        "evaluation_episodes": 1, "checkpoint_every": 80, "log_every": 18, "learner": "reference",
    },
}  # fmt: skip


class Quiet:
    """A listener that keeps the messages."""

    def __init__(self):
        self.messages = []

    def progress(self, step, steps_per_second):
        pass

    def evaluated(self, step, evaluation):
        pass

    def message(self, text):
        self.messages.append(text)


def configuration(**training):
    environment = {"kind": "gymnasium", "id": "faulty_environment:Faulty-v0"}
    values = {"name": "faulty", "environment": environment, **SMALL}
    return RunConfig.model_validate(values | {"training": SMALL["training"] | training})


def train(config, run, resumed=False):
    listener = Quiet()
    with closing(make_trainer(config, run, listener)) as trainer:
        if resumed:
            trainer.resume(newest(run))
        trainer.train()
    return listener.messages


FAULTS = {
    "raise": r"raised ValueError: the simulator lost its marbles \(faulty_environment.py, line \d+\) in step; its "
    r"traceback is in .*environment-fault.txt",
    "exit": r"called sys.exit\(3\) \(faulty_environment.py, line \d+\) in step",
    "shape": r"observation of shape \(2,\) in step; its observation space promises numbers of shape \(3,\)",
    "text": "of type <U1; its observation space promises numbers",
    "reward": "raised ValueError: could not convert string to float: 'three'",
    "nan": "observation number 0 is nan in environment 0",
}


@pytest.mark.quick("raise", "exit")
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_in_a_step_is_one_sentence_and_the_run_resumes_as_if_it_had_not_been(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("FAULT", f"{kind}@61")
    with pytest.raises(EnvironmentFaultError, match=FAULTS[kind]) as caught:
        train(configuration(), tmp_path / "run")
    assert "\n" not in str(caught.value)
    if kind in ("raise", "exit"):
        assert "in fail\n" in (tmp_path / "run" / "environment-fault.txt").read_text()
    assert sorted(path.name for path in (tmp_path / "run").glob("last-*")) == ["last-000000080", "last-000000120"]
    monkeypatch.delenv("FAULT")
    train(configuration(), tmp_path / "run", resumed=True)
    train(configuration(), tmp_path / "straight")
    assert_same_run(tmp_path / "straight", tmp_path / "run")


@pytest.mark.thorough
def test_a_fault_in_the_environments_process_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("FAULT", "raise@61")
    with pytest.raises(EnvironmentFaultError, match=FAULTS["raise"]):
        train(configuration(overlap=True), tmp_path / "run")
    assert "in fail\n" in (tmp_path / "run" / "environment-fault.txt").read_text()
    monkeypatch.delenv("FAULT")
    train(configuration(overlap=True), tmp_path / "run", resumed=True)
    train(configuration(overlap=True), tmp_path / "straight")
    assert_same_run(tmp_path / "straight", tmp_path / "run")


def test_an_environment_that_does_not_answer_is_named_and_ended(monkeypatch):
    monkeypatch.setenv("FAULT", "hang@2")
    from td3robot.build import make_environment

    config = configuration().environment
    process = EnvironmentProcess(make_environment, [config, config])
    for index in range(2):
        process.reset(index, index)
    process.step(1, np.zeros(1, np.float32))
    process._limit_s = 0.5  # not before: a busy machine needs longer to start
    with pytest.raises(EnvironmentFaultError, match=r"environment 1 \(step\) has not answered for 0.5 s, and its"):
        process.step(1, np.zeros(1, np.float32))
    process.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


class StopInEvaluation(Quiet):
    """Asks for a stop in the middle of an evaluation."""

    def __init__(self, trainer):
        super().__init__()
        self.steps, self.trainer = 0, trainer
        environment = trainer.evaluations.evaluator.environments[0]
        self.step, environment.step = environment.step, self.count

    def count(self, action):
        self.steps += 1
        if self.steps == LENGTH + 5:
            self.trainer.request_stop()
        return self.step(action)


LENGTH = 30


def test_an_evaluation_that_is_interrupted_is_done_by_the_resumed_run(tmp_path):
    config, run = configuration(evaluation_episodes=3), tmp_path / "run"
    with closing(make_trainer(config, run, Quiet())) as trainer:
        trainer.listener = stopping = StopInEvaluation(trainer)
        trainer.train()
    assert (trainer.step, stopping.steps) == (80, LENGTH + 5)
    assert not (run / "evaluations.csv").exists()
    train(config, run, resumed=True)
    train(config, tmp_path / "straight")
    assert_same_run(tmp_path / "straight", run)


def test_a_second_request_gives_a_step_up_and_only_a_step(tmp_path):
    with closing(make_trainer(configuration(), tmp_path / "run", Quiet())) as trainer:
        trainer.request_stop()
        trainer.request_stop()  # between two steps: nothing to give up
        trainer.stop_requested, steps = False, []
        environment = trainer.collector.environments.environments[0]
        step = environment.step

        def hang(action):
            steps.append(action)
            if len(steps) == 61:
                trainer.request_stop()
                trainer.request_stop()  # as two signals do
            return step(action)

        environment.step = hang
        trainer.train()
    assert trainer.listener.messages == ["an environment did not end its step, which was given up at step 120"]
    train(configuration(), tmp_path / "run", resumed=True)
    train(configuration(), tmp_path / "straight")
    assert_same_run(tmp_path / "straight", tmp_path / "run")


@pytest.mark.parametrize("gone", ["renamed", "deleted"])
def test_a_run_directory_that_goes_away_ends_the_training(tmp_path, gone):
    run, place = tmp_path / "run", tmp_path / "elsewhere"
    with closing(make_trainer(configuration(), run, Quiet())) as trainer:

        def progress(step, rate):
            if step == 90:
                run.rename(place)
                if gone == "deleted":
                    subprocess.run(["rm", "-r", place], check=True)

        trainer.listener.progress = progress
        with pytest.raises(RunMovedError, match=f"was {gone}"):
            trainer.train()
    assert not run.exists()
    if gone == "renamed":
        assert newest(place).path.name == "last-000000090"
        train(configuration(), place, resumed=True)
        train(configuration(), tmp_path / "straight")
        assert_same_run(tmp_path / "straight", place)


def test_a_policy_that_is_no_longer_finite_is_called_diverged_and_nothing_of_it_is_saved(tmp_path):
    with closing(make_trainer(configuration(), tmp_path / "run", Quiet())) as trainer:

        def progress(step, rate):
            if step >= 90:
                next(iter(trainer.agent.tensors()["actor"].values())).fill_(np.nan)

        trainer.listener.progress = progress
        with pytest.raises(TrainingDivergedError, match=r"is no longer finite at step 90: .*last-000000080 is from"):
            trainer.train()
    assert newest(tmp_path / "run").path.name == "last-000000080"


def test_values_that_no_return_explains_are_called_diverged(tmp_path):
    config = configuration().model_copy(update={"training": configuration(evaluate_every=1000).training})
    with closing(make_trainer(config, tmp_path / "run", Quiet())) as trainer:

        def progress(step, rate):
            if step >= 54:
                list(trainer.agent.tensors()["Q1"].values())[-1].fill_(1e9)

        trainer.listener.progress = progress
        with pytest.raises(TrainingDivergedError, match=r"Q1_mean is .*rewards allow no return above .*begin again"):
            trainer.train()
    assert list((tmp_path / "run").glob("last-*")) == []


def test_a_device_that_is_missing_is_said_before_any_process_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("td3robot.learning.runs.EnvironmentProcesses", None)
    config = configuration(overlap=True)
    config = config.model_copy(update={"agent": config.agent.model_copy(update={"device": "cuda"})})
    with pytest.raises(ConfigError, match="no CUDA device"):
        make_trainer(config, tmp_path / "run", Quiet())


def start(run, *options, out=None, **variables):
    """Start a training on the command line, with its words in a pipe."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    config = run.with_suffix(".yaml")
    config.write_text(
        "name: faulty\nenvironment: {kind: gymnasium, id: 'faulty_environment:Faulty-v0'}\n"
        "agent: {hidden: [8], batch_size: 16, replay_capacity: 500}\n"
        "training: {steps: 100000000, random_steps: 20, threads: 1, evaluate_every: 40, log_every: 20,\n"
        "           evaluation_episodes: 1, checkpoint_every: 100000000}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "td3robot", "train", str(config), "--out", str(run), *options],
        env=os.environ | {"PYTHONPATH": path} | variables,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process, words):
    line = ""
    while words not in line:
        line = process.stderr.readline()
        assert line, process.wait()


def children_of(pid):
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in tasks.read_text().split()] if tasks.exists() else []


def has_row(run, step):
    path = run / "metrics.csv"
    return path.exists() and any(line.startswith(f"{step},") for line in path.read_text().splitlines())


def has_ended(pid):
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().split()
    except OSError:
        return True


def wait_for(condition):
    end = time.monotonic() + 240.0  # the learner may be compiled first, on a busy machine
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.slow), True])
def test_two_signals_end_a_training_whose_environment_hangs(tmp_path, overlap):
    run = tmp_path / "run"
    process = start(run, f"--set=training.overlap={overlap}", FAULT="hang@50")
    wait_for(lambda: has_row(run, 40))  # and then it hangs
    children = children_of(process.pid)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    read_until(process, "stopping after this step")
    process.send_signal(signal.SIGINT)
    words = process.stderr.read()
    assert process.wait() == 130, words
    assert "did not end its step, which was given up at step 49" in words
    assert newest(run).document("counters")["step"] == 49
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.slow
def test_a_terminal_that_is_closed_saves_the_run(tmp_path):
    run = tmp_path / "run"
    process = start(run)
    wait_for((run / "evaluations.csv").exists)
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    process.wait()
    assert newest(run).document("counters")["step"] >= 40


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
@pytest.mark.slow
def test_environments_that_hang_end_with_a_trainer_that_was_killed(tmp_path):
    run = tmp_path / "run"
    process = start(run, "--set=training.overlap=true", FAULT="hang@50")
    wait_for(lambda: has_row(run, 40))
    children = children_of(process.pid)
    assert len(children) == 2
    time.sleep(0.5)
    process.kill()
    process.wait()
    wait_for(lambda: all(has_ended(child) for child in children))


@pytest.mark.slow
def test_figures_are_alone_on_standard_output_when_an_environment_prints(tmp_path):
    run, config = tmp_path / "run", tmp_path / "run.yaml"
    for overlap in (False, True):
        talking = "--set=environment.kwargs.talks=true", f"--set=training.overlap={overlap}"
        with start(run, "--json", "--steps=40", *talking, out=subprocess.PIPE) as process:
            out, words = process.communicate()
        assert process.returncode == 0, words
        assert json.loads(out)["step"] == 40
        assert "the environment says something\n" in words and "and so does its library\n" in words
        shutil.rmtree(run)
    assert config.exists()


def test_a_run_tells_what_it_trains_before_its_first_checkpoint(tmp_path):
    run = tmp_path / "run"
    config = load_config(CONFIGS / "ur5e_reach_quick.yaml", ["training.overlap=false", "training.environments=1"])
    with closing(make_trainer(config, run, Quiet())) as trainer:
        trainer._run = lambda writer: None
        trainer.save = lambda strict=False: None
        trainer.train()
    told = read_run(run)
    assert run_page(told).title == "Reach with a UR5e and a Robotiq 2F-85"
    assert told.config["environment"]["robot"]["arm"] == "ur5e"
    shown = Run(run)
    assert shown.workcell is not None and "No checkpoint yet: the arm rests" in shown.status
    first = shown.advance().state.q
    for _ in range(5):
        last = shown.advance().state.q
    np.testing.assert_allclose(last, first, atol=1e-3)
    shown.close()
