"""What a trainer saves and restores, value by value: a resume that skips one of them is caught here at once."""

import numpy as np
import pytest
import torch

from td3robot import seeding
from td3robot.errors import TrainingDivergedError
from td3robot.policy.checkpoint import Checkpoint, find, newest

OPTIONS = (
    "training.evaluate_every=20",
    "agent.normalize_observations=true",
    "agent.average_tau=0.1",
)


@pytest.fixture
def trained(pendulum_trainer):
    trainer = pendulum_trainer(OPTIONS)
    trainer.train()
    return trainer


@pytest.fixture
def resumed(trained, pendulum_trainer):
    """A trainer of another seed, resumed from the trained one."""
    trainer = pendulum_trainer([*OPTIONS, "seed=3"])
    trainer.resume(newest(trained.run_directory))
    return trainer


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_every_tensor_comes_back(trained, resumed):
    mine, saved = resumed.agent.tensors(), trained.agent.tensors()
    assert mine.keys() == saved.keys()
    for name in mine:
        assert_same(mine[name], saved[name])
    assert_same(resumed.agent.normalizer.state(), trained.agent.normalizer.state())
    assert resumed.agent.normalizer.state()["count"][0] == 60


def test_every_random_state_comes_back(trained, resumed):
    assert torch.equal(resumed.agent.generator.get_state(), trained.agent.generator.get_state())
    assert seeding.state(resumed.exploration.rng) == seeding.state(trained.exploration.rng)
    assert seeding.state(resumed.replay_rng) == seeding.state(trained.replay_rng)


def test_every_counter_comes_back(trained, resumed):
    assert (resumed.step, resumed.agent.updates) == (60, trained.agent.updates)
    assert trained.agent.updates == 40
    assert trained.evaluations.best is not None
    assert (resumed.evaluations.best_step, resumed.evaluations.best.to_json()) == (
        trained.evaluations.best_step,
        trained.evaluations.best.to_json(),
    )
    (rows, place), (saved_rows, saved_place) = resumed.replay.state(), trained.replay.state()
    assert_same(rows, saved_rows)
    assert place == saved_place == {"next": 60}


def test_the_networks_for_play_are_those_of_the_best_evaluation(trained):
    best = Checkpoint(find(trained.run_directory, ("best",)))
    assert {path.name for path in best.path.glob("*.safetensors")} == {
        "actor.safetensors", "Q1.safetensors", "Q2.safetensors", "normalizer.safetensors",
    }  # fmt: skip
    assert best.document("evaluation") == trained.evaluations.best.to_json() | {"success_ci95": None}
    assert (
        best.document("counters")["evaluated_step"]
        == best.document("counters")["step"]
        == trained.evaluations.best_step
    )


@pytest.mark.parametrize("group", ["actor", "Q2_target", "Q1_optimizer", "normalizer"])
def test_a_value_that_is_not_finite_is_never_saved(trained, group):
    before = newest(trained.run_directory).path
    if group == "normalizer":
        trained.agent.normalizer.state()["mean"][0] = np.nan
    else:
        next(iter(trained.agent.tensors()[group].values())).fill_(torch.inf)
    trained.step += 1
    with pytest.raises(TrainingDivergedError, match=f"{group} is no longer finite at step 61"):
        trained.save()
    assert newest(trained.run_directory).path == before


def test_an_episode_that_could_not_be_replayed_is_reported(trained, pendulum_trainer, monkeypatch):
    trainer = pendulum_trainer(OPTIONS)
    monkeypatch.setattr(trainer.collector, "load_state", lambda arrays, indices: [0])
    trainer.resume(newest(trained.run_directory))
    (message,) = trainer.listener.messages
    assert message.startswith("1 of 1 unfinished episodes did not repeat, and were dropped")
