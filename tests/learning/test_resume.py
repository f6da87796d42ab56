"""A resumed run is the run that would have been, byte for byte, however it was cut off."""

import csv
import multiprocessing
import random
import sys
import time
from pathlib import Path

import pytest

from td3robot.config import RunConfig, load_config
from td3robot.learning import runs
from td3robot.policy.checkpoint import Checkpoint, find, newest

CONFIGS = Path(__file__).parents[2] / "configs"
KILLS = 20

# Children start from a server that has the imports done and no threads.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["td3robot.cli", "td3robot.build", "torch._dynamo", "pytest"])


class StopAt:
    """A listener that asks a trainer to stop at a step, as Ctrl-C does."""

    def __init__(self, step: int | None = None) -> None:
        self.step, self.trainer, self.messages = step, None, []

    def progress(self, step, steps_per_second):
        if self.step is not None and step >= self.step:
            self.trainer.stop_requested = True

    def evaluated(self, step, evaluation):
        pass

    def message(self, text):
        self.messages.append(text)


def configuration(name: str, overlap: bool, *more: str) -> RunConfig:
    return load_config(
        CONFIGS / f"{name}.yaml",
        [
            "agent.actor_hidden=[32,32]", "agent.critic_hidden=[32,32]", "agent.replay_capacity=5000",
            "agent.updates_per_step=0.5", "agent.batch_size=64", f"training.overlap={overlap}",
            "training.steps=1200", "training.random_steps=200", "training.environments=2",
            "training.torch_threads=1", "training.evaluate_every=300", "training.evaluation_episodes=1",
            "training.checkpoint_every=300", "training.log_every=100", "agent.random_share=0.3",
            "agent.random_action_steps=4", *more,
        ],
    )  # fmt: skip


def train(config: RunConfig, run: Path, stop_at: int | None = None) -> None:
    listener = StopAt(stop_at)
    listener.trainer = runs.make_trainer(config, run, listener)
    listener.trainer.train()
    listener.trainer.close()


def resume(run: Path) -> None:
    saved = newest(run)
    listener = StopAt()
    trainer = runs.make_trainer(saved.config(), run, listener)
    trainer.resume(saved)
    assert listener.messages == []
    trainer.train()
    trainer.close()


def in_a_fresh_process(function, *arguments) -> None:
    process = CHILDREN.Process(target=function, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == 0


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def assert_same_run(straight: Path, resumed: Path) -> None:
    for kind in ("last", "best"):
        one, other = find(straight, (kind,)), find(resumed, (kind,))
        assert one.name == other.name
        mine, theirs = files_of(one), files_of(other)
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if mine[name] != theirs[name]] == []
    assert (straight / "evaluations.csv").read_bytes() == (resumed / "evaluations.csv").read_bytes()


@pytest.mark.parametrize("overlap", [False, True])
def test_a_resumed_reach_run_is_the_run_that_would_have_been(tmp_path, overlap):
    config = configuration("ur5e_reach", overlap)
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=600)
    assert newest(tmp_path / "resumed").path.name == "last-000000600"
    in_a_fresh_process(resume, tmp_path / "resumed")
    assert newest(tmp_path / "resumed").path.name == "last-000001200"
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    "agent",
    [
        pytest.param([], id="plain"),
        pytest.param(["agent.replay_capacity=250"], id="the ring has come round"),
        pytest.param(
            [
                "agent.n_step=3",
                "agent.layer_norm=true",
                "agent.normalize_observations=true",
                "agent.average_tau=0.01",
            ],
            id="all options",
        ),
    ],
)
def test_a_resumed_pendulum_run_is_the_run_that_would_have_been(tmp_path, agent, overlap):
    shorter = ("training.steps=600", "training.evaluate_every=150", "training.checkpoint_every=150")
    config = configuration("gym_pendulum", overlap, *shorter, *agent)
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=400)  # between two checkpoints
    resume(tmp_path / "resumed")
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


def test_resuming_twice_changes_nothing(tmp_path):
    config = configuration("gym_pendulum", False, "training.log_every=50", "training.steps=600")
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=250)
    for stop_at in (450, None):
        saved, listener = newest(tmp_path / "resumed"), StopAt(stop_at)
        listener.trainer = runs.make_trainer(config, tmp_path / "resumed", listener)
        listener.trainer.resume(saved)
        listener.trainer.train()
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


def test_rows_beyond_the_checkpoint_are_dropped_and_written_again(tmp_path):
    config = configuration("gym_pendulum", False, "training.steps=400", "training.checkpoint_every=200")
    train(config, tmp_path, stop_at=200)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("300,1\n")  # a row of a session that was killed before it saved again
    resume(tmp_path)
    assert steps_in(tmp_path / "metrics.csv") == [100, 200, 300, 400]


def steps_in(path: Path) -> list[int]:
    with path.open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def command_line(arguments: list[str], log: Path) -> None:
    """Run ``td3robot`` with arguments in this process, with its output in a file."""
    from td3robot.cli import main

    sys.argv = ["td3robot", *arguments]
    with log.open("a") as sys.stderr:
        main()


def start_command(arguments: list[str], log: Path):
    process = CHILDREN.Process(target=command_line, args=(arguments, log))
    process.start()
    return process


def kill_soon_after_the_next_save(process, run: Path, after: int, delay: float) -> None:
    """Wait for a checkpoint beyond a step, then some moments, then kill -9."""
    deadline = time.monotonic() + 30
    while _newest_step(run) <= after:
        assert process.is_alive(), "the training ended before it saved"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(delay)
    assert process.is_alive(), "the training ended before it was killed"
    process.kill()
    process.join()


def _newest_step(run: Path) -> int:
    return max((int(path.name.removeprefix("last-")) for path in run.glob("last-*")), default=-1)


def test_twenty_kills_at_random_moments_leave_a_whole_checkpoint_each_time(tmp_path):
    run, straight, log, draw = tmp_path / "run", tmp_path / "straight", tmp_path / "log", random.Random(0)
    quick = [
        "--set=agent.actor_hidden=[8,8]", "--set=agent.critic_hidden=[8,8]",
        "--set=agent.replay_capacity=400", "--set=agent.batch_size=16",
        "--set=agent.updates_per_step=0.1", "--set=training.random_steps=20",
        "--set=training.torch_threads=1", "--set=training.evaluate_every=70",
        "--set=training.evaluation_episodes=1", "--set=training.log_every=10",
    ]  # fmt: skip
    config, often, far = (
        str(CONFIGS / "gym_pendulum.yaml"),
        "--set=training.checkpoint_every=5",
        "--steps=1000000",
    )

    process = start_command(["train", config, "--out", str(run), far, often, *quick], log)
    step = -1
    for _ in range(KILLS):
        kill_soon_after_the_next_save(process, run, step, draw.uniform(0.0, 0.15))
        saved = newest(run)
        assert saved.document("counters")["step"] > step
        step = saved.document("counters")["step"]
        if list(run.glob("best-*")):
            Checkpoint(find(run, ("best",))).policy()
        process = start_command(["train", "--resume", str(run), far], log)
    kill_soon_after_the_next_save(process, run, step, 0.0)

    end = newest(run).document("counters")["step"] + 30
    assert run_to_the_end(["train", "--resume", str(run), f"--steps={end}"], log) == 0, log.read_text()
    saved = newest(run)
    assert saved.document("counters")["step"] == end
    assert steps_in(run / "metrics.csv") == list(range(10, end + 1, 10))

    # Killed twenty times, and still the run that would have been.
    assert run_to_the_end(["train", config, "--out", str(straight), f"--steps={end}", *quick], log) == 0
    mine, theirs = files_of(saved.path), files_of(newest(straight).path)
    assert {name for name in mine if mine[name] != theirs[name]} == {"config.yaml", "manifest.json"}

    # And nothing half saved or half deleted lies about.
    assert [path.name for path in run.glob("last-*")] == [saved.path.name]
    assert list(run.glob(".*")) == []


def run_to_the_end(arguments: list[str], log: Path) -> int | None:
    process = start_command(arguments, log)
    process.join(60)
    return process.exitcode
