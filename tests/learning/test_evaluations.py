"""Evaluations beside the training: the same results wherever and whenever they are played, and nothing lost."""

import csv
import os
import signal
import sys
import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from same_run import assert_same_run, reproducible

from td3robot.build import make_contract, make_environment
from td3robot.config import RunConfig
from td3robot.envs.playing import Evaluation
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.learning.evaluator import Episodes, EvaluatorProcesses, LocalEvaluator
from td3robot.learning.runs import make_trainer
from td3robot.learning.snapshot import play_contents
from td3robot.policy.checkpoint import find, newest
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.policy import Policy
from td3robot.statistics import wilson_interval

FAULTY = {"kind": "gymnasium", "id": "faulty_environment:Faulty-v0"}
REACH = {"kind": "robot", "episode_s": 0.5, "disturbance": "real"}


class Watcher:
    """A listener that does something at a step, and keeps the messages."""

    def __init__(self, at=-1, do=None):
        self.at, self.do, self.messages, self.evaluated_steps = at, do, [], []

    def progress(self, step, steps_per_second):
        if step == self.at:
            self.do()

    def evaluated(self, step, evaluation):
        self.evaluated_steps.append(step)

    def message(self, text):
        self.messages.append(text)


def configuration(environment=FAULTY, **training):
    small = {
        "steps": 240, "random_steps": 20, "environments": 2, "threads": 1, "evaluate_every": 100,
        "evaluation_episodes": 3, "checkpoint_every": 80, "log_every": 18, "learner": "reference", "overlap": True,
    }  # fmt: skip
    agent = {
        "hidden": [8], "batch_size": 16, "replay_capacity": 500,
        "normalize_observations": True, "average_tau": 0.1,
    }  # fmt: skip
    values = {"name": "evaluated", "environment": environment, "agent": agent, "training": small | training}
    return RunConfig.model_validate(values)


def policy_of(contract):
    rng = np.random.default_rng(1)
    sizes = [contract.observation.size, 64, contract.action.size]
    actor = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        actor[f"net.{2 * index}.weight"] = rng.normal(0.0, 0.3, (outputs, inputs)).astype(np.float32)
        actor[f"net.{2 * index}.bias"] = rng.normal(0.0, 0.1, outputs).astype(np.float32)
    scaling = ObservationScaling(np.zeros(sizes[0], np.float32), np.ones(sizes[0], np.float32), np.float32(10.0))
    return Policy(actor, scaling, contract)


def contract_of(environment):
    config = configuration(environment).environment
    with closing(make_environment(config)) as made:
        return make_contract(config, made)


def never():
    return False


@pytest.mark.parametrize("environment", [FAULTY, REACH], ids=["faulty", "reach"])
def test_evaluations_are_the_same_here_and_in_any_number_of_processes(environment):
    config = configuration(environment)
    made = make_environment(config.environment)
    contract = make_contract(config.environment, made)
    policy, other = policy_of(contract), policy_of(contract)
    other.layers[-1] = (-other.layers[-1][0], *other.layers[-1][1:])
    results = []
    with closing(LocalEvaluator(Episodes([made], config.seed), 3)) as here:
        for each in (policy, other):
            here.start(each)
            results.append(here.finish(False, never))
    assert results[0].to_json() != results[1].to_json()
    for count in (1, 2):
        with closing(EvaluatorProcesses(configuration(environment, evaluators=count))) as processes:
            for each, expected in zip((other, policy), reversed(results), strict=True):  # in another order
                processes.start(each)
                assert processes.finish(True, never) == expected
            assert len(processes.pids) == count


@pytest.mark.thorough
@pytest.mark.slow
def test_evaluations_that_step_together_are_the_same_in_any_number_of_environments_and_processes():
    config = configuration(REACH, environments=4, evaluation_episodes=5)
    with closing(make_environment(config.environment)) as made:
        policy = policy_of(make_contract(config.environment, made))
        alone = list(Episodes([made], config.seed).play(policy, range(5), lambda what: None))
    results = []
    for most in (1, 2, 5):
        episodes = Episodes.made(config.environment, config.seed, most)
        assert len(episodes.environments) == most
        with closing(LocalEvaluator(episodes, 5)) as here:
            here.start(policy)
            results.append(here.finish(False, never))
            assert here.finish(False, never) == results[0]
    for count in (1, 3):  # one of three plays a single episode
        many = configuration(REACH, environments=4, evaluation_episodes=5, evaluators=count)
        with closing(EvaluatorProcesses(many)) as processes:
            processes.start(policy)
            results.append(processes.finish(True, never))
    assert all(result == results[0] for result in results)
    assert results[0].mean_steps == 10.0
    assert results[0].mean_return == pytest.approx(np.mean([figures.total_reward for figures in alone]), abs=1e-6)


def test_a_policy_that_is_replaced_leaves_nothing_behind():
    with closing(EvaluatorProcesses(configuration())) as processes:
        policy, results = policy_of(contract_of(FAULTY)), []
        for _ in range(2):
            processes.start(policy)
            results.append(processes.finish(True, never))
        processes.start(policy)
        processes.start(policy)  # as a training that is stopped, and trained again
        results.append(processes.finish(True, never))
    assert results[0] == results[1] == results[2]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks /proc what a process has loaded")
def test_a_process_of_evaluations_has_no_torch():
    with closing(EvaluatorProcesses(configuration(REACH))) as processes:
        processes.start(policy_of(contract_of(REACH)))
        assert processes.finish(True, never).episodes == 3
        loaded = Path(f"/proc/{processes.pids[0]}/maps").read_text()
    assert "libmujoco" in loaded
    assert "torch" not in loaded


def test_an_environment_that_cannot_be_made_says_why():
    missing = {"kind": "gymnasium", "id": "Nowhere-v7"}
    with closing(EvaluatorProcesses(configuration(missing))) as processes, pytest.raises(ConfigError, match="Nowhere"):
        processes.start(policy_of(contract_of(FAULTY)))
        processes.finish(True, never)


def test_what_is_evaluated_is_the_actor_that_plays(tmp_path):
    with closing(make_trainer(configuration(), tmp_path, Watcher())) as trainer:
        rng = np.random.default_rng(0)
        trainer.agent.normalizer.update(rng.normal(3.0, 2.0, (50, 3)))
        next(iter(trainer.agent.actor_average.parameters())).data.mul_(1.5)
        contents = play_contents(trainer)
        scaling = ObservationScaling.from_moments(contents.arrays["normalizer"])
        policy = Policy(contents.arrays["actor"], scaling, trainer.contract)
        observations = rng.normal(3.0, 2.0, (20, 3)).astype(np.float32)
        by_torch = trainer.agent.select_action(observations, play=True)
        np.testing.assert_allclose(policy.act(observations), by_torch, atol=1e-6)
        assert np.abs(by_torch - trainer.agent.select_action(observations)).max() > 1e-3
        next(iter(trainer.agent.actor_average.parameters())).data.zero_()
        np.testing.assert_allclose(policy.act(observations), by_torch, atol=1e-6)  # a copy


def train(config, run, listener=None, resumed=False):
    with closing(make_trainer(config, run, listener or Watcher())) as trainer:
        if resumed:
            trainer.resume(newest(run))
        trainer.train()
    return trainer


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Give the directory of a training that nothing disturbed."""
    run = tmp_path_factory.mktemp("runs") / "straight"
    listener = Watcher()
    train(configuration(), run, listener)
    assert listener.evaluated_steps == [100, 200, 240]
    return run


@pytest.mark.slow
def test_a_longer_run_forgets_the_evaluation_of_a_shorter_one_s_end(tmp_path):
    """Even the best policy: the run that was never interrupted has no such evaluation."""
    script = {100: 30, 200: 30, 240: 10}
    for name, ends in (("straight", [240]), ("parts", [90, 140, 240])):
        run = tmp_path / name
        for steps in ends:
            with closing(make_trainer(configuration(steps=steps), run, Watcher())) as trainer:
                if run.exists() and list(run.glob("last-*")):
                    trainer.resume(newest(run))
                evaluator = trainer.evaluations.evaluator = ScriptedEvaluator([])
                evaluator.start = lambda policy, of=trainer, by=evaluator: by.play(script.get(of.step, 50), 1.0, 0.1)
                trainer.train()
            assert find(run, ("best",)).name == f"best-{200 if steps == 240 else steps:09d}"
            assert (run / "evaluations.csv").read_text().splitlines()[-1].startswith(f"{steps},")
        assert sorted(path.name for path in run.glob("best-*")) == ["best-000000100", "best-000000200"]
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


class ScriptedEvaluator:
    """Evaluations of 50 episodes with given successes, mean returns, and half widths of their intervals."""

    def __init__(self, script):
        self.script = iter(script)

    def prepare(self):
        pass

    close = prepare

    def start(self, policy):
        self.play(*next(self.script))

    def play(self, successes, mean, half):
        self.evaluation = Evaluation(
            success_rate=successes / 50, success_ci95=wilson_interval(successes, 50), episodes=50, mean_return=mean,
            mean_steps=10.0, mean_final_distance_m=None, max_tcp_speed_m_s=None, max_joint_speed_rad_s=None,
            guard_interventions=None, mean_return_ci95=(mean - half, mean + half),
        )  # fmt: skip

    def finish(self, patient, stopped):
        return self.evaluation


@pytest.mark.parametrize(
    ("script", "chosen"),
    [
        ([(0, 1.0, 0.1), (45, 9.0, 0.5), (46, 8.7, 0.5)], 120),  # of policies within chance, the later
        ([(0, 1.0, 0.1), (45, 9.0, 0.5), (46, 8.4, 0.5)], 80),
        ([(50, 10.0, 0.5), (50, 9.7, 0.5), (50, 9.4, 0.5), (50, 9.1, 0.5), (50, 8.8, 0.5)], 80),  # no drift downwards
        ([(50, 10.0, 0.5), (30, 12.0, 0.5)], 40),  # a higher return that is paid for with success
        ([(30, 12.0, 0.5), (50, 10.0, 0.5), (50, 9.9, 0.5)], 120),
    ],
)
def test_the_best_policy_is_the_latest_that_none_before_it_beats(tmp_path, script, chosen):
    config = configuration(overlap=False, evaluate_every=40, checkpoint_every=40, steps=40 * len(script))
    whole = ScriptedEvaluator(script)
    with closing(make_trainer(config, tmp_path / "whole", Watcher())) as trainer:
        trainer.evaluations.evaluator = whole
        trainer.train()
    assert trainer.evaluations.best_step == chosen
    assert find(tmp_path / "whole", ("best",)).name == f"best-{chosen:09d}"

    stopped = ScriptedEvaluator(script)
    for _ in script:  # resumed after every evaluation
        with closing(make_trainer(config, tmp_path / "parts", Watcher())) as trainer:
            trainer.evaluations.evaluator = stopped
            if trainer.run_directory.exists() and list(trainer.run_directory.glob("last-*")):
                trainer.resume(newest(trainer.run_directory))
            trainer.listener = Watcher(trainer.step + 40, trainer.request_stop)
            trainer.train()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def hold(trainer):
    """Stop the evaluator's process before it can play anything."""
    trainer.evaluations.evaluator.prepare()
    (pid,) = trainer.evaluations.evaluator.pids
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_a_stop_during_an_evaluation_leaves_it_to_the_resumed_run(tmp_path, straight):
    run = tmp_path / "run"
    with closing(make_trainer(configuration(), run, Watcher())) as trainer:
        hold(trainer)
        trainer.listener = Watcher(126, trainer.request_stop)
        trainer.train()
        assert (trainer.step, trainer.evaluations.running.step) == (126, 100)  # it had gone on meanwhile
    assert newest(run).path.name == "last-000000126"
    assert not (run / "evaluations.csv").exists()
    (run / "evaluations.csv").write_text("step,episodes\n100,3\n")  # as after a kill, later than that save
    train(configuration(), run, resumed=True)
    assert_same_run(straight, run)


@pytest.mark.slow
def test_a_stop_while_one_evaluation_waits_for_another_leaves_both(tmp_path, straight):
    run = tmp_path / "run"
    with closing(make_trainer(configuration(), run, Watcher())) as trainer:
        hold(trainer)
        evaluations = trainer.evaluations

        def stop_once_it_waits():
            while not (evaluations.due and evaluations.running is not None and evaluations.running.step == 100):
                time.sleep(0.01)
            trainer.request_stop()

        thread = threading.Thread(target=stop_once_it_waits)
        thread.start()
        trainer.config = configuration(checkpoint_every=1000)  # a save would wait before that
        trainer.train()
        thread.join()
        assert (trainer.step, evaluations.due, evaluations.running.step) == (200, True, 100)
    train(configuration(), run, resumed=True)
    assert_same_run(straight, run)


def test_a_save_waits_for_an_earlier_evaluation(tmp_path, straight):
    saved = Watcher()
    with closing(make_trainer(configuration(), tmp_path, saved)) as trainer:
        pid = hold(trainer)
        trainer.listener.at, trainer.listener.do = 144, lambda: os.kill(pid, signal.SIGCONT)
        save = trainer.save
        begun = []
        trainer.save = lambda strict=False: (begun.append(trainer.evaluations.running), save(strict))
        trainer.train()
    assert begun == [None, None, None]  # at 80, 160 and 240
    assert_same_run(straight, tmp_path)


def test_a_fault_in_training_during_an_evaluation_loses_neither(tmp_path, straight, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setenv("FAULT", "raise@61")
    with closing(make_trainer(configuration(), run, Watcher())) as trainer:
        hold(trainer)
        with pytest.raises(EnvironmentFaultError, match="lost its marbles"):
            trainer.train()
        assert (trainer.step, trainer.evaluations.running.step) == (120, 100)
    monkeypatch.delenv("FAULT")
    train(configuration(), run, resumed=True)
    assert_same_run(straight, run)


def test_a_process_of_evaluations_that_is_killed_is_one_sentence_and_nothing_is_lost(tmp_path, straight):
    run = tmp_path / "run"
    with closing(make_trainer(configuration(), run, Watcher())) as trainer:
        pid = hold(trainer)
        trainer.listener = Watcher(126, lambda: os.kill(pid, signal.SIGKILL))
        with pytest.raises(EnvironmentFaultError, match="the process of the training's evaluations ended with") as said:
            trainer.train()
        assert "status -9" in str(said.value) and "\n" not in str(said.value)
    assert newest(run).document("counters")["step"] >= 126
    train(configuration(), run, resumed=True)
    assert_same_run(straight, run)


def test_a_fault_in_an_evaluation_is_one_sentence_and_the_run_resumes_as_if_it_had_not_been(
    tmp_path, straight, monkeypatch
):
    run = tmp_path / "run"
    monkeypatch.setenv("FAULT", "raise@71")  # in the third episode; in training, beyond step 140
    with closing(make_trainer(configuration(checkpoint_every=120), run, Watcher())) as trainer:
        with pytest.raises(EnvironmentFaultError, match=r"lost its marbles .* in step; its traceback is in"):
            trainer.train()
        assert trainer.step <= 120  # where a save waited for it
        assert trainer.evaluations.running.step == 100
    monkeypatch.delenv("FAULT")
    train(configuration(), run, resumed=True)
    assert_same_run(straight, run)


@pytest.mark.slow
def test_an_evaluation_that_does_not_answer_is_named_and_ended(tmp_path, straight, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setenv("FAULT", "hang@71")
    with closing(make_trainer(configuration(checkpoint_every=120), run, Watcher())) as trainer:
        trainer.evaluations.evaluator.prepare()
        (process,) = trainer.evaluations.evaluator._processes
        process._limit_s = 3.0
        said = r"evaluation's episode 2 \(step 10\) has not answered for 3 s, and its process was ended"
        with pytest.raises(EnvironmentFaultError, match=said):
            trainer.train()
        assert trainer.step == 120
    assert has_ended(process.pid)
    monkeypatch.delenv("FAULT")
    train(configuration(), run, resumed=True)
    assert_same_run(straight, run)


def has_ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_the_numbers_of_processes_may_differ_in_a_resumed_run(tmp_path, straight):
    train(configuration(evaluators=0, steps=120), tmp_path)
    train(configuration(evaluators=2, steps=240), tmp_path, resumed=True)
    assert (straight / "evaluations.csv").read_bytes() == (tmp_path / "evaluations.csv").read_bytes()
    for kind, name in (("best", "actor.safetensors"), ("last", "Q1_optimizer.safetensors")):
        mine, theirs = (find(run, (kind,)) / name for run in (tmp_path, straight))
        assert mine.read_bytes() == theirs.read_bytes()


def test_waiting_for_an_evaluation_counts_as_evaluation(tmp_path):
    config = configuration(evaluate_every=20, log_every=20, steps=60, checkpoint_every=1000)
    with closing(make_trainer(config, tmp_path, Watcher())) as trainer:
        pid = hold(trainer)
        held_s = 0.5

        def release():
            while not trainer.evaluations.due:  # step 40 waits for step 20
                time.sleep(0.01)
            time.sleep(held_s)
            os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=release)
        thread.start()
        trainer.train()
        thread.join()
    rows = reproducible(tmp_path)
    assert [row["step"] for row in rows] == ["20", "40", "60"]
    with (tmp_path / "metrics.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    seconds = 20 / float(last["steps_per_second"])
    assert float(last["time/evaluation"]) * seconds >= 0.9 * held_s


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are held by signals")
