"""A resumed run is the run that would have been, byte for byte, however it was cut off."""

import csv
import random
from pathlib import Path

import pytest
from kills import CHILDREN, Killer, moments
from same_run import assert_same_run, reproducible

from td3robot.config import RunConfig, load_config
from td3robot.learning import runs
from td3robot.learning.trainer import DROPPED_SHARE
from td3robot.policy.checkpoint import newest

CONFIGS = Path(__file__).parents[2] / "configs"


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
            "agent.hidden=[32,32]", "agent.replay_capacity=5000",
            "agent.updates_per_step=0.5", "agent.batch_size=64", f"training.overlap={overlap}",
            "training.steps=1200", "training.random_steps=200", "training.environments=2",
            "training.threads=1", "training.evaluate_every=300", "training.evaluation_episodes=1",
            "training.checkpoint_every=300", "training.log_every=100",
            "training.learner=reference", *more,
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


def test_a_run_with_another_schedule_of_updates_can_be_resumed(tmp_path, monkeypatch):
    """What is due is said once: whoever changes it changes what a checkpoint may hold."""
    monkeypatch.setattr(RunConfig, "updates_due", lambda self, step: 0 if step <= 200 else 5 * step)
    config = configuration("gym_pendulum", False, "training.steps=400", "training.evaluate_every=10000")
    train(config, tmp_path / "run", stop_at=300)
    assert newest(tmp_path / "run").document("counters")["updates"] > 1000
    resume(tmp_path / "run")
    assert newest(tmp_path / "run").document("counters")["updates"] == 2000


@pytest.mark.parametrize(
    ("overlap", "learner"),
    [
        (False, "reference"),
        (True, "reference"),
        (True, "compiled"),
    ],
)
@pytest.mark.slow
def test_a_resumed_reach_run_is_the_run_that_would_have_been(tmp_path, overlap, learner):
    shorter = ("training.steps=600", "training.evaluate_every=150", "training.checkpoint_every=150")
    config = configuration("ur5e_reach_quick", overlap, *shorter, f"training.learner={learner}")
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=400)
    assert newest(tmp_path / "resumed").path.name == "last-000000400"
    in_a_fresh_process(resume, tmp_path / "resumed")
    assert newest(tmp_path / "resumed").path.name == "last-000000600"
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ur5e_grasp_quick", pytest.param("ur5e_grasp_any", marks=pytest.mark.slow)])
def test_a_resumed_grasp_run_whose_environments_step_together_is_the_run_that_would_have_been(tmp_path, name):
    """Their episodes in progress are replayed one by one, and have delays, noise and a camera."""
    config = configuration(
        name, True, "training.environments=4", "environment.disturbance=real",
        "training.undisturbed_share=0.5", "training.steps=480", "training.random_steps=100",
        "training.evaluate_every=480", "training.checkpoint_every=240",
    )  # fmt: skip
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=300)
    in_a_fresh_process(resume, tmp_path / "resumed")
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


def test_a_resumed_run_that_imitates_is_the_run_that_would_have_been(tmp_path):
    guided = ("training.guided_share=0.5", "agent.imitation=0.4", "agent.n_step=2")
    shorter = ("training.steps=400", "training.evaluate_every=200", "training.checkpoint_every=100")
    config = configuration("ur5e_reach_quick", False, *guided, *shorter)
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=300)
    assert newest(tmp_path / "resumed").path.name == "last-000000300"
    resume(tmp_path / "resumed")
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


AGENTS = {
    "plain": (),
    "the ring has come round": ("agent.replay_capacity=250",),
    "all options": (
        "agent.n_step=3", "agent.layer_norm=true", "agent.normalize_observations=true", "agent.average_tau=0.01",
        "agent.learning_rate_drop_step=300",
    ),
    "compiled": ("training.learner=compiled", "agent.average_tau=0.01"),
    "compiled, more options": (
        "training.learner=compiled", "agent.n_step=3", "agent.layer_norm=true", "agent.normalize_observations=true",
    ),
}  # fmt: skip
# Each agent is resumed at least once, and there are both kinds of overlap.
SELDOM = {
    ("plain", False), ("compiled", True), ("the ring has come round", True),
    ("all options", False), ("compiled, more options", False), ("compiled, more options", True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("agent", "overlap"),
    [
        pytest.param(options, overlap, id=f"{name}-{overlap}", marks=[pytest.mark.slow] * ((name, overlap) in SELDOM))
        for name, options in AGENTS.items()
        for overlap in (False, True)
    ],
)
@pytest.mark.quick("compiled-False")
def test_a_resumed_pendulum_run_is_the_run_that_would_have_been(tmp_path, agent, overlap):
    shorter = ("training.steps=600", "training.evaluate_every=150", "training.checkpoint_every=150")
    config = configuration("gym_pendulum", overlap, *shorter, *agent)
    train(config, tmp_path / "straight")
    train(config, tmp_path / "resumed", stop_at=400)  # between two checkpoints
    resume(tmp_path / "resumed")
    assert_same_run(tmp_path / "straight", tmp_path / "resumed")


@pytest.mark.parametrize("learner", ["reference", "compiled"])
@pytest.mark.quick("compiled")
def test_a_drop_of_the_learning_rates_is_a_resume_with_lower_rates(tmp_path, learner):
    shorter = ("training.steps=600", "training.evaluate_every=300", "training.checkpoint_every=300")
    config = configuration("gym_pendulum", False, *shorter, f"training.learner={learner}")
    agent, drop = config.agent, {"learning_rate_drop_step": 300}
    train(config.model_copy(update={"agent": agent.model_copy(update=drop)}), tmp_path / "dropped")
    train(config, tmp_path / "constant")
    train(config, tmp_path / "resumed", stop_at=300)
    lower = {"learning_rate": DROPPED_SHARE * agent.learning_rate}
    resumed_by(config.model_copy(update={"agent": agent.model_copy(update=lower)}), tmp_path / "resumed", 600)
    networks = {name: networks_of(tmp_path / name) for name in ("dropped", "constant", "resumed")}
    assert networks["dropped"] == networks["resumed"] != networks["constant"]


@pytest.mark.thorough
def test_a_step_that_begins_before_the_last_one_is_stored_changes_nothing(tmp_path):
    for name, saved in (("ahead", 150), ("in turn", 2)):  # a step that is saved is stored before the next begins
        options = "training.steps=150", f"training.checkpoint_every={saved}", "agent.normalize_observations=true"
        train(configuration("gym_pendulum", True, *options), tmp_path / name)
    assert networks_of(tmp_path / "ahead") == networks_of(tmp_path / "in turn")
    assert reproducible(tmp_path / "ahead") == reproducible(tmp_path / "in turn")


def networks_of(run: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in newest(run).path.glob("*.safetensors") if "replay" not in path.name
    }


def resumed_by(config: RunConfig, run: Path, steps: int) -> tuple[str, list[str]]:
    """Resume with a configuration, and give the learner that the checkpoint names then, and what was said."""
    listener = StopAt()
    longer = config.model_copy(update={"training": config.training.model_copy(update={"steps": steps})})
    trainer = runs.make_trainer(longer, run, listener)
    trainer.resume(newest(run))
    trainer.train()
    return newest(run).config().training.learner, listener.messages


@pytest.mark.thorough
def test_a_run_keeps_the_learner_that_it_began_with_unless_it_is_asked_for_another(tmp_path):
    def config(learner: str) -> RunConfig:
        return configuration("gym_pendulum", False, "training.steps=240", f"training.learner={learner}")

    train(config("reference"), tmp_path)
    assert resumed_by(newest(tmp_path).config(), tmp_path, 250) == ("reference", [])
    name, messages = resumed_by(config("compiled"), tmp_path, 260)
    assert name == "compiled"
    assert [text for text in messages if "compiling" not in text] == [
        "the compiled learner continues what the reference learner began: the same updates, but rounded differently, "
        "so this resume is not exact"
    ]
    assert resumed_by(newest(tmp_path).config(), tmp_path, 270) == ("compiled", [])


def test_a_new_run_records_what_auto_found_and_an_older_run_stays_with_the_reference(tmp_path, sign):
    config = configuration("gym_pendulum", False, "training.steps=240", "training.learner=auto")
    train(config, tmp_path)
    saved = newest(tmp_path)
    assert saved.config().training.learner == "compiled"
    path = saved.path / "config.yaml"
    path.write_text(path.read_text().replace("  learner: compiled\n", ""))  # as one saved before there was a choice
    sign(saved.path, "config.yaml")
    older = newest(tmp_path).config()
    assert older.training.learner == "auto"
    assert resumed_by(older, tmp_path, 250) == ("reference", [])


@pytest.mark.thorough
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


@pytest.mark.parametrize(
    ("scene", "kills"), [pytest.param("pendulum", 6, marks=pytest.mark.slow), ("pendulum, overlap", 3)]
)
@pytest.mark.quick("pendulum, overlap-3")
def test_kills_at_random_moments_lose_nothing(tmp_path, scene, kills):
    draw = random.Random(0)
    killer = Killer(tmp_path, scene, draw)
    outcome = killer.kill(moments(kills, "overlap" in scene, 1 / 3, draw))
    assert (outcome.kills, outcome.in_a_save) == (kills, kills // 3)
    assert outcome.of_the_environment == ("overlap" in scene) * kills // 3
    assert (outcome.differing, outcome.left_behind, outcome.lost) == ([], [], [])
    assert steps_in(killer.run / "metrics.csv") == list(range(10, outcome.steps + 1, 10))
    assert len(list(killer.run.glob("last-*"))) == 2
