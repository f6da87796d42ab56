"""The six-file layout of older TD3 programs: what goes out comes back, and nothing but tensors comes in."""

import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from td3robot import load_policy
from td3robot.errors import CheckpointError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.foreign_import import import_foreign
from td3robot.learning.replay import Batch
from td3robot.learning.six_files import export_legacy, to_legacy
from td3robot.learning.td3 import TD3, TRAINED

FILES = [f"{name}{suffix}" for name in TRAINED for suffix in ("", "_optimizer")]


def make_agent(seed: int = 0, updates: int = 0, hidden: tuple[int, ...] = (8, 6)) -> TD3:
    agent = TD3(3, 2, TD3Config(hidden=hidden, device="cpu"), seed)
    draw = torch.Generator().manual_seed(1)
    for _ in range(updates):
        columns = (torch.rand(4, width, generator=draw) for width in (3, 2, 1, 3))
        agent.update(Batch(*columns, torch.zeros(4, 1), torch.full((4, 1), 0.99)))
    return agent


def tensors_of(agent: TD3) -> dict[str, torch.Tensor]:
    return {
        f"{group}/{key}": value.clone() for group, values in agent.tensors().items() for key, value in values.items()
    }


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Six files of a trained agent."""
    export_legacy(make_agent(seed=1, updates=4), f"{tmp_path}/old_")
    return f"{tmp_path}/old_"


def test_export_writes_the_six_files(prefix):
    assert sorted(path.name for path in Path(prefix).parent.iterdir()) == sorted(f"old_{name}" for name in FILES)


def test_what_was_exported_is_imported_exactly(prefix):
    agent, original = make_agent(), make_agent(seed=1, updates=4)
    import_foreign(agent, prefix)
    live = ("actor/", "Q1/", "Q2/", "actor_optimizer/", "Q1_optimizer/", "Q2_optimizer/")
    mine, theirs = tensors_of(agent), tensors_of(original)
    assert_same(*({name: value for name, value in a.items() if name.startswith(live)} for a in (mine, theirs)))
    assert any(name.endswith(".exp_avg_sq") for name in mine)


def test_targets_start_as_copies_of_the_imported_networks(prefix):
    agent = make_agent()
    import_foreign(agent, prefix)
    for name in TRAINED:
        for key, value in agent.networks()[name].state_dict().items():
            assert torch.equal(value, agent.networks()[f"{name}_target"].state_dict()[key])


def test_an_imported_agent_learns_on(prefix):
    agent = make_agent()
    import_foreign(agent, prefix)
    before = tensors_of(agent)
    agent.update(Batch(*(torch.ones(4, width) for width in (3, 2, 1, 3, 1, 1))))
    assert not torch.equal(before["Q1/net.0.weight"], agent.Q1.state_dict()["net.0.weight"])
    assert agent.Q1_optimizer.state[next(agent.Q1.parameters())]["step"].item() == 5


def test_layers_are_matched_by_order_whatever_their_names(prefix):
    for name in TRAINED:
        values = torch.load(f"{prefix}{name}", weights_only=True)
        torch.save(
            OrderedDict((f"l{index}", value) for index, value in enumerate(values.values())),
            f"{prefix}{name}",
        )
    agent, original = make_agent(), make_agent(seed=1, updates=4)
    import_foreign(agent, prefix)
    for name in TRAINED:
        for key, value in original.networks()[name].state_dict().items():
            assert torch.equal(value, agent.networks()[name].state_dict()[key])


@pytest.mark.parametrize("name", FILES)
def test_an_existing_file_is_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(CheckpointError, match=f"{name} exists already"):
        export_legacy(make_agent(), f"{tmp_path}/")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def dump(value: object, path: str) -> None:
    Path(path).write_bytes(pickle.dumps(value, protocol=2))


class Touch:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("save", [torch.save, dump])
def test_a_pickle_with_code_is_refused_and_does_not_run(prefix, tmp_path, name, save):
    save({"net.0.weight": Touch(tmp_path / "ran")}, f"{prefix}{name}")
    with pytest.raises(CheckpointError, match=f"{name} is not a torch.save of plain tensors, so it was not loaded"):
        import_foreign(make_agent(), prefix)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(prefix, name):
    Path(f"{prefix}{name}").unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        import_foreign(make_agent(), prefix)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_other_kind_is_refused(prefix, name):
    torch.save([1, 2], f"{prefix}{name}")
    with pytest.raises(CheckpointError, match=f"{name} holds a list, not a state dict"):
        import_foreign(make_agent(), prefix)


def test_networks_of_other_shapes_are_refused(prefix):
    with pytest.raises(CheckpointError, match=r"actor has tensors of shapes .*\(8, 3\).* has .*\(9, 3\)"):
        import_foreign(make_agent(hidden=(9, 6)), prefix)


@pytest.mark.parametrize("hidden", [(8,), (9, 6), (8, 6, 6)])
def test_moments_of_another_network_are_refused(prefix, hidden):
    torch.save(make_agent(updates=2, hidden=hidden).Q1_optimizer.state_dict(), f"{prefix}Q1_optimizer")
    with pytest.raises(CheckpointError, match="Q1_optimizer"):
        import_foreign(make_agent(), prefix)


def test_moments_of_a_parameter_too_many_are_refused(prefix):
    state = make_agent(updates=2).Q1_optimizer.state_dict()
    state["state"][6] = state["state"][0]
    torch.save(state, f"{prefix}Q1_optimizer")
    with pytest.raises(CheckpointError, match="Q1_optimizer"):
        import_foreign(make_agent(), prefix)


@pytest.mark.parametrize("key", ["exp_avg", "exp_avg_sq"])
def test_a_misshapen_moment_is_refused(prefix, key):
    state = make_agent(updates=2).Q1_optimizer.state_dict()
    state["state"][2][key] = torch.zeros(3)
    torch.save(state, f"{prefix}Q1_optimizer")
    with pytest.raises(CheckpointError, match="Q1_optimizer"):
        import_foreign(make_agent(), prefix)


def test_the_state_of_another_optimizer_is_refused(prefix):
    sgd = torch.optim.SGD(make_agent().Q1.parameters(), 0.1, momentum=0.9)
    torch.save(sgd.state_dict() | {"state": {0: {"momentum_buffer": torch.zeros(8, 5)}}}, f"{prefix}Q1_optimizer")
    with pytest.raises(CheckpointError, match="Q1_optimizer is not the state of an Adam optimizer"):
        import_foreign(make_agent(), prefix)


def test_a_refused_import_leaves_the_agent_as_it_was(prefix):
    agent = make_agent()
    before = tensors_of(agent)
    Path(f"{prefix}Q2_optimizer").unlink()
    with pytest.raises(CheckpointError):
        import_foreign(agent, prefix)
    assert_same(before, tensors_of(agent))


def test_scaling_is_folded_into_the_exported_networks(untrained, tmp_path):
    to_legacy(untrained, f"{tmp_path}/out_", 1.0)
    W1, b1, W2, b2, W3, b3 = torch.load(tmp_path / "out_actor", weights_only=True).values()
    observations = np.random.default_rng(0).normal(3.0, 2.0, (50, 3)).astype(np.float32)
    x = torch.from_numpy(observations)
    for weight, bias in ((W1, b1), (W2, b2)):
        x = torch.relu(x @ weight.T + bias)
    actions = torch.tanh(x @ W3.T + b3).numpy()
    np.testing.assert_allclose(actions, load_policy(untrained).act(observations), rtol=0, atol=1e-5)


def test_critics_are_folded_too_and_their_moments_refused(tmp_path):
    config = TD3Config(hidden=(8,), normalize_observations=True, device="cpu")
    agent, plain = (
        TD3(3, 2, config, seed=1),
        TD3(3, 2, config.model_copy(update={"normalize_observations": False}), 2),
    )
    rng = np.random.default_rng(0)
    agent.normalizer.update(rng.normal(5.0, 3.0, (100, 3)))
    agent.update(Batch(*(torch.ones(4, width) for width in (3, 2, 1, 3, 1, 1))))
    with pytest.raises(CheckpointError, match=r"moments mean nothing for those; add --without-optimizers"):
        export_legacy(agent, f"{tmp_path}/out_")
    assert list(tmp_path.iterdir()) == []
    assert len(export_legacy(agent, f"{tmp_path}/out_", optimizers=False)) == 3
    import_foreign(plain, f"{tmp_path}/out_")
    observation = torch.tensor(rng.normal(5.0, 3.0, (20, 3)), dtype=torch.float32)
    action = torch.tensor(rng.uniform(-1.0, 1.0, (20, 2)), dtype=torch.float32)
    for name in ("Q1", "Q2"):
        expected = agent.networks()[name](agent.normalizer(observation), action)
        torch.testing.assert_close(plain.networks()[name](observation, action), expected, rtol=0, atol=1e-5)
    assert not plain.Q1_optimizer.state


def test_an_agent_that_scales_observations_imports_nothing(prefix):
    config = TD3Config(hidden=(8, 6), normalize_observations=True, device="cpu")
    with pytest.raises(CheckpointError, match=r"agent\.normalize_observations=false"):
        import_foreign(TD3(3, 2, config, seed=0), prefix)


def test_a_checkpoint_is_exported_as_its_networks(pendulum_trainer, tmp_path):
    trainer = pendulum_trainer()
    trainer.save()
    to_legacy(trainer.run_directory, f"{tmp_path}/out_", 1.0)
    values = torch.load(tmp_path / "out_Q2", weights_only=True)
    for key, value in trainer.agent.Q2.state_dict().items():
        assert torch.equal(value, values[key])
