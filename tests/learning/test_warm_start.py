"""A run may begin with another's networks; what does not fit is refused by name, and such a run resumes exactly."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from td3robot.config import load_config
from td3robot.errors import CheckpointError, ContractError
from td3robot.learning.runs import make_trainer
from td3robot.learning.td3 import OPTIMIZERS, TRAINED
from td3robot.policy.checkpoint import Checkpoint, find, newest

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def source(untrained):
    return Checkpoint(untrained)


@pytest.fixture
def fresh(pendulum_trainer, tmp_path):
    """Make a trainer of another seed, whose networks differ from the source's."""

    def make(*overrides):
        trainer = pendulum_trainer(["agent.normalize_observations=true", "seed=5", *overrides])
        trainer.run_directory = tmp_path / "warm"
        return trainer

    return make


def values(module):
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def test_networks_targets_and_normaliser_are_taken_over(fresh, source):
    trainer = fresh()
    before = values(trainer.agent.actor)
    trainer.start_from(source)
    for name in TRAINED:
        theirs = source.arrays(name)
        for key, value in theirs.items():
            np.testing.assert_array_equal(values(getattr(trainer.agent, name))[key], value)
            np.testing.assert_array_equal(values(getattr(trainer.agent, f"{name}_target"))[key], value)
    assert any((before[key] != value).any() for key, value in source.arrays("actor").items())
    for key, value in source.arrays("normalizer").items():
        np.testing.assert_array_equal(trainer.agent.normalizer.state()[key], value)
    assert trainer.agent.normalizer.state()["count"][0] == 50


def test_nothing_else_is_taken_over(fresh, source):
    trainer, other = fresh(), fresh()
    trainer.start_from(source)
    assert (trainer.step, trainer.agent.updates, trainer.replay.size) == (0, 0, 0)
    assert trainer.evaluations.best is None
    assert all(not getattr(trainer.agent, optimizer).state for optimizer in OPTIMIZERS)
    assert trainer.exploration.rng.bit_generator.state == other.exploration.rng.bit_generator.state
    assert torch.equal(trainer.agent.generator.get_state(), other.agent.generator.get_state())


def test_a_warm_run_takes_no_random_actions_and_still_learns_only_after_random_steps(fresh, source):
    trainer = fresh("agent.exploration_noise=0.0", "training.steps=20")
    trainer.start_from(source)
    trainer.train()
    assert trainer.agent.updates == 0
    # Of 20 steps, which are all of training.random_steps, each action is the policy's own.
    observations, actions = stored(trainer)
    policy = newest(trainer.run_directory).policy()
    played = np.array([policy.act(observation) for observation in observations])
    assert len(played) == 20
    # The normaliser goes on learning while the policy plays, so that they agree nearly.
    np.testing.assert_allclose(played, actions, atol=0.1)
    cold = fresh("agent.exploration_noise=0.0", "training.steps=20")
    cold.run_directory = trainer.run_directory.with_name("cold")
    cold.train()
    _, random = stored(cold)
    assert np.abs(random - np.array([policy.act(o) for o in stored(cold)[0]])).max() > 0.5


def stored(trainer):
    """Give the observations and actions in a replay, oldest first."""
    rows = trainer.replay.state()[0]["rows"]
    return rows[:, :3], rows[:, 3:4]  # the pendulum's


def test_a_resumed_warm_run_is_the_run_that_would_have_been(fresh, source, tmp_path):
    def run(name, stop_at=None):
        trainer = fresh()
        trainer.run_directory = tmp_path / name
        trainer.start_from(source)
        if stop_at is not None:

            def progress(step, steps_per_second):
                trainer.stop_requested = step >= stop_at

            trainer.listener.progress = progress
        trainer.train()

    run("straight")
    for stop_at, name in ((20, "early"), (40, "late")):  # while others would act at random, and after
        run(name, stop_at)
        saved = newest(tmp_path / name)
        assert saved.document("counters")["step"] == stop_at
        assert saved.document("counters")["warm_start"] is True
        again = fresh()
        again.run_directory = tmp_path / name
        again.resume(saved)
        assert again.warm
        again.train()
        one, other = newest(tmp_path / "straight").path, newest(tmp_path / name).path
        assert one.name == other.name == "last-000000060"
        files = {file.name for file in one.iterdir()}
        assert [file for file in files if (one / file).read_bytes() != (other / file).read_bytes()] == []


def test_a_cold_run_is_not_warm_after_a_resume(fresh, tmp_path):
    trainer = fresh()
    trainer.save()
    again = fresh()
    again.resume(newest(trainer.run_directory))
    assert again.warm is False


def test_a_best_checkpoint_is_enough_to_start_from(fresh, made):
    best = Checkpoint(find(made, ("best",)))
    assert not best.has("replay")
    trainer = fresh("agent.normalize_observations=false")
    trainer.start_from(best)
    for key, value in best.arrays("actor").items():
        np.testing.assert_array_equal(values(trainer.agent.actor)[key], value)


def test_what_plays_and_what_warm_runs_begin_with_is_the_average(pendulum_trainer, fresh, tmp_path):
    averaging = ["agent.average_tau=0.01", "agent.normalize_observations=true", "training.steps=200"]
    trainer = pendulum_trainer([*averaging, "training.random_steps=100", "training.evaluate_every=200"])
    trainer.run_directory = tmp_path / "averaging"
    trainer.train()
    average = values(trainer.agent.actor_average)
    assert any((value != average[key]).any() for key, value in values(trainer.agent.actor).items())
    for kind in ("last", "best"):
        saved = Checkpoint(find(tmp_path / "averaging", (kind,)))
        observation = np.ones(saved.contract().observation.size, np.float32)
        with torch.no_grad():
            expected = trainer.agent.select_action(observation[None], play=True)[0]
        np.testing.assert_allclose(saved.policy().act(observation), expected, atol=1e-6)
        warm = fresh("agent.average_tau=0.01")
        warm.start_from(saved)
        for name in ("actor", "actor_target", "actor_average"):
            for key, value in values(getattr(warm.agent, name)).items():
                np.testing.assert_array_equal(value, average[key])


def test_a_checkpoint_without_critics_is_refused_with_what_it_lacks(fresh, made, tmp_path):
    best, old = find(made, ("best",)), tmp_path / "old"
    old.mkdir()
    for file in best.iterdir():
        if not file.name.startswith("Q"):
            (old / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((old / "manifest.json").read_text())
    kept = {name: entry for name, entry in manifest["files"].items() if not name.startswith("Q")}
    (old / "manifest.json").write_text(json.dumps(manifest | {"files": kept}))
    trainer = fresh()
    with pytest.raises(CheckpointError, match="lacks Q1, without which no run can start"):
        trainer.start_from(Checkpoint(old))
    assert not trainer.warm


def test_networks_that_saw_scaled_observations_do_not_go_on_with_plain_ones(fresh, source, made):
    trainer = fresh("agent.normalize_observations=false")
    with pytest.raises(CheckpointError, match=r"agent\.normalize_observations true, and this run sets it to false"):
        trainer.start_from(source)
    with pytest.raises(CheckpointError, match=r"agent\.normalize_observations false, and this run sets it to true"):
        fresh().start_from(newest(made))
    assert not trainer.warm


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("agent.hidden=[8,16]", "actor"),
        ("agent.layer_norm=true", "actor"),
    ],
)
def test_networks_of_another_form_are_refused_and_nothing_is_taken(fresh, source, override, words):
    trainer = fresh(override)
    before = {name: values(getattr(trainer.agent, name)) for name in TRAINED}
    with pytest.raises(CheckpointError, match=words):
        trainer.start_from(source)
    for name in TRAINED:
        for key, value in values(getattr(trainer.agent, name)).items():
            np.testing.assert_array_equal(value, before[name][key])
    assert not trainer.warm
    assert trainer.agent.normalizer.state()["count"][0] == 0


def test_another_layout_is_refused_with_the_field_s_name(source, tmp_path):
    trainer = make_trainer(
        load_config(CONFIGS / "ur5e_reach_quick.yaml", ["training.environments=1"]), tmp_path / "r", None
    )
    with pytest.raises(ContractError, match=r"observation field 0 differs: 'q' \(shoulder_pan_joint"):
        trainer.start_from(source)
    trainer.close()


@pytest.mark.slow
def test_reach_grasp_and_the_kinds_of_action_are_told_apart_by_field(tmp_path):
    def trainer(name, *overrides):
        small = ["agent.hidden=[8,8]", "training.environments=1"]
        return make_trainer(load_config(CONFIGS / f"{name}.yaml", [*small, *overrides]), tmp_path / "run", None)

    made = {
        "reach": trainer("ur5e_reach_quick"),
        "grasp": trainer("ur5e_grasp_quick"),
        "joints": trainer("ur5e_grasp_quick", "environment.action.kind=joint_delta"),
        "small": trainer(
            "ur5e_grasp_quick", "environment.task.object.size_m=[0.03,0.03,0.03]", "environment.disturbance=real"
        ),
    }
    saved = {}
    for name in ("reach", "grasp"):
        made[name].run_directory = tmp_path / name
        made[name].save()
        saved[name] = newest(tmp_path / name)
    with pytest.raises(ContractError, match=r"field 2 differs: 'commanded_position' .* here, 'tcp_position'"):
        made["grasp"].start_from(saved["reach"])
    with pytest.raises(ContractError, match=r"action field 0 differs: 'joint_delta' .* here, 'tcp_delta'"):
        made["joints"].start_from(saved["grasp"])
    # Another object and a disturbance are what fine-tuning is for.
    made["small"].start_from(saved["grasp"])
    assert made["small"].warm
    for one in made.values():
        one.close()
