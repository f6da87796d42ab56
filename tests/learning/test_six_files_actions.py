"""Six-file checkpoints of programs that act in [-a_max, a_max]: the same actions and the same values here, and back."""

from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from td3robot.errors import CheckpointError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.foreign_import import import_foreign
from td3robot.learning.replay import Batch
from td3robot.learning.six_files import export_legacy, to_legacy
from td3robot.learning.td3 import TD3, TRAINED
from td3robot.policy.checkpoint import Checkpoint, load_policy, newest

OBSERVATION, ACTION = 5, 3
WIDTHS = [(8,), (8, 6), (400, 300), (16, 16, 16)]
A_MAX = [1.0, 2.0, 0.1, 3.0, 17.5]


class OlderProgram:
    """TD3 as in its authors' code: a tanh times ``a_max``, critics that are shown what was done, Adam."""

    def __init__(self, hidden, a_max, updates, dtype=torch.float32, seed=0):
        torch.manual_seed(seed)
        self.a_max, self.dtype = a_max, dtype
        self.networks = {
            "actor": self._mlp([OBSERVATION, *hidden, ACTION]),
            "Q1": self._mlp([OBSERVATION + ACTION, *hidden, 1]),
            "Q2": self._mlp([OBSERVATION + ACTION, *hidden, 1]),
        }
        self.optimizers = {name: torch.optim.Adam(each.parameters(), 1e-3) for name, each in self.networks.items()}
        for _ in range(updates):
            for name, network in self.networks.items():
                loss = network(torch.randn(32, network.l1.in_features, dtype=dtype)).square().mean()
                self.optimizers[name].zero_grad()
                loss.backward()
                self.optimizers[name].step()

    def _mlp(self, sizes):
        layers = OrderedDict()
        for number, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
            layers[f"l{number}"] = nn.Linear(inputs, outputs)
            if number < len(sizes) - 1:
                layers[f"relu{number}"] = nn.ReLU()
        return nn.Sequential(layers).to(self.dtype)

    def act(self, observation):
        return self.a_max * torch.tanh(self.networks["actor"](observation.to(self.dtype)))

    def value(self, name, observation, action):
        return self.networks[name](torch.cat([observation, action], dim=1).to(self.dtype))

    def save(self, prefix):
        for name, network in self.networks.items():
            torch.save(network.state_dict(), f"{prefix}{name}")
            torch.save(self.optimizers[name].state_dict(), f"{prefix}{name}_optimizer")

    def load(self, prefix):
        for name, network in self.networks.items():
            network.load_state_dict(torch.load(f"{prefix}{name}", weights_only=True))
            self.optimizers[name].load_state_dict(torch.load(f"{prefix}{name}_optimizer", weights_only=True))


def make_agent(hidden=(8, 6), **settings):
    return TD3(OBSERVATION, ACTION, TD3Config(hidden=hidden, device="cpu", **settings), 3)


def some(count=200):
    draw = torch.Generator().manual_seed(7)
    observation = torch.randn(count, OBSERVATION, generator=draw)
    return observation, torch.rand(count, ACTION, generator=draw) * 2.0 - 1.0


def assert_alike(agent, program, exact):
    """Compare actions, and both critics' values; exact but for rounding where a_max is no power of two."""
    observation, action = some()
    with torch.no_grad():
        mine = program.a_max * torch.from_numpy(agent.select_action(observation.numpy(), play=True))
        assert (mine - program.act(observation)).abs().max() <= 1e-6 * max(program.a_max, 1.0)
        for name in ("Q1", "Q2"):
            expected = program.value(name, observation, program.a_max * action).float()
            found = agent.networks()[name](observation, action)
            tolerance = 0.0 if exact else 2e-6 * float(expected.abs().max())
            assert (found - expected).abs().max() <= tolerance, name


@pytest.mark.parametrize("hidden", WIDTHS)
@pytest.mark.parametrize("a_max", A_MAX)
@pytest.mark.parametrize("updates", [0, 3])
def test_an_import_acts_and_judges_as_the_older_program_did(tmp_path, hidden, a_max, updates):
    program, agent = OlderProgram(hidden, a_max, updates), make_agent(hidden)
    program.save(f"{tmp_path}/")
    assert import_foreign(agent, f"{tmp_path}/", a_max) == []
    assert_alike(agent, program, exact=a_max == 1.0)
    assert bool(agent.Q1_optimizer.state) is (updates > 0)


@pytest.mark.parametrize("hidden", WIDTHS)
@pytest.mark.parametrize("a_max", A_MAX)
@pytest.mark.parametrize("updates", [0, 3])
def test_what_is_imported_and_exported_is_what_it_was(tmp_path, hidden, a_max, updates):
    program, again, agent = (
        OlderProgram(hidden, a_max, updates),
        OlderProgram(hidden, a_max, 0, seed=1),
        make_agent(hidden),
    )
    program.save(f"{tmp_path}/in_")
    import_foreign(agent, f"{tmp_path}/in_", a_max)
    names = [f"l{number}" for number in range(1, len(hidden) + 2)]
    export_legacy(agent, f"{tmp_path}/out_", a_max, names)
    again.load(f"{tmp_path}/out_")  # strict: by its own names
    for name, network in program.networks.items():
        for key, value in network.state_dict().items():
            torch.testing.assert_close(again.networks[name].state_dict()[key], value, rtol=2e-7, atol=0.0)
        states = [list(each.optimizers[name].state_dict()["state"].values()) for each in (program, again)]
        assert len(states[0]) == len(states[1])
        for old, new in zip(*states, strict=True):
            for key in ("step", "exp_avg", "exp_avg_sq"):
                torch.testing.assert_close(new[key], old[key], rtol=5e-7, atol=0.0)
    assert_alike(agent, again, exact=a_max in (1.0, 2.0))


def test_after_an_import_critics_learn_as_they_would_have(tmp_path):
    """One Adam step on the same loss, here and there."""
    program, agent = OlderProgram((8, 6), 2.0, 3), make_agent()
    program.save(f"{tmp_path}/")
    import_foreign(agent, f"{tmp_path}/", 2.0)
    observation, action = some()
    for network, optimizer, values in (
        (program.networks["Q1"], program.optimizers["Q1"], program.value("Q1", observation, 2.0 * action)),
        (agent.Q1, agent.Q1_optimizer, agent.Q1(observation, action)),
    ):
        optimizer.zero_grad()
        values.square().mean().backward()
        optimizer.step()
        assert next(network.parameters()).grad is not None
    first = program.networks["Q1"].l1.weight
    torch.testing.assert_close(agent.Q1.net[0].weight[:, :OBSERVATION], first[:, :OBSERVATION], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("a_max", [1.0, 2.0])
def test_networks_in_double_precision_act_within_a_millionth(tmp_path, a_max):
    program, agent = OlderProgram((8, 6), a_max, 3, torch.float64), make_agent()
    program.save(f"{tmp_path}/")
    import_foreign(agent, f"{tmp_path}/", a_max)
    assert_alike(agent, program, exact=False)
    assert {tensor.dtype for group in agent.tensors().values() for tensor in group.values()} == {torch.float32}
    agent.update(Batch(*(torch.ones(4, width) for width in (OBSERVATION, ACTION, 1, OBSERVATION, 1, 1))))


def test_files_that_were_saved_on_a_gpu_are_read_without_one(tmp_path, monkeypatch):
    program, agent = OlderProgram((8, 6), 2.0, 3), make_agent()
    for optimizer in program.optimizers.values():
        optimizer.param_groups[0].update(capturable=True, fused=True)
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
        program.save(f"{tmp_path}/")
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(tmp_path / "Q1", weights_only=True)
    import_foreign(agent, f"{tmp_path}/", 2.0)
    assert_alike(agent, program, exact=True)
    agent.update(Batch(*(torch.ones(4, width) for width in (OBSERVATION, ACTION, 1, OBSERVATION, 1, 1))))


def test_scale_and_bias_beside_the_layers_are_understood(tmp_path):
    low, high = np.array([-1.0, 0.0, -3.0]), np.array([3.0, 0.5, 3.0])
    scale, bias = torch.tensor((high - low) / 2.0).float(), torch.tensor((high + low) / 2.0).float()
    program, agent = OlderProgram((8, 6), 1.0, 3), make_agent()
    program.save(f"{tmp_path}/")
    actor = torch.load(tmp_path / "actor", weights_only=True) | {"action_scale": scale[None], "action_bias": bias[None]}
    torch.save(actor, tmp_path / "actor")
    notes = import_foreign(agent, f"{tmp_path}/", None, (low, high))
    observation, action = some()
    for name in ("Q1", "Q2"):
        expected = program.value(name, observation, scale * action + bias)
        torch.testing.assert_close(agent.networks()[name](observation, action), expected, rtol=1e-5, atol=1e-6)
    assert len(notes) == 2  # moments of shifted actions mean nothing
    assert all("starts afresh" in note for note in notes)
    assert not agent.Q1_optimizer.state
    assert agent.actor_optimizer.state


def test_where_nobody_says_how_large_actions_were_nothing_is_guessed(tmp_path):
    OlderProgram((8, 6), 2.0, 0).save(f"{tmp_path}/")
    two = np.full(ACTION, 2.0)
    with pytest.raises(CheckpointError, match=r"actions go from .*-2\.0.* add --a-max"):
        import_foreign(make_agent(), f"{tmp_path}/", None, (-two, two))
    (note,) = import_foreign(make_agent(), f"{tmp_path}/", 1.0, (-two, two))
    assert "acted from [-1.0, -1.0, -1.0]" in note
    assert import_foreign(make_agent(), f"{tmp_path}/", 2.0, (-two, two)) == []
    actor = torch.load(tmp_path / "actor", weights_only=True) | {"action_scale": torch.tensor(2.0)}
    torch.save(actor, tmp_path / "actor")
    assert import_foreign(make_agent(), f"{tmp_path}/", None, (-two, two)) == []
    with pytest.raises(CheckpointError, match="--a-max is 1, and the actor's file says"):
        import_foreign(make_agent(), f"{tmp_path}/", 1.0, (-two, two))
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(CheckpointError, match="--a-max"):
            export_legacy(make_agent(), f"{tmp_path}/out_", bad)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", [*TRAINED, *(f"{name}_optimizer" for name in TRAINED)])
def test_a_number_that_is_not_finite_is_said_to_be_none(tmp_path, name, value):
    program = OlderProgram((8, 6), 1.0, 3)
    program.save(f"{tmp_path}/")
    values = torch.load(tmp_path / name, weights_only=True)
    tensor = values["state"][0]["exp_avg_sq"] if "optimizer" in name else values["l1.weight"]
    tensor[0, 0] = value
    torch.save(values, tmp_path / name)
    with pytest.raises(
        CheckpointError, match=rf"{name}: .* holds 1 numbers that are not finite, the first one {value}"
    ):
        import_foreign(make_agent(), f"{tmp_path}/", 1.0)


def test_the_actor_that_plays_is_exported(tmp_path):
    agent = make_agent(average_tau=0.1)
    with torch.no_grad():
        for parameter in agent.actor.parameters():
            parameter.add_(0.5)
    export_legacy(agent, f"{tmp_path}/")
    written = torch.load(tmp_path / "actor", weights_only=True)
    for key, value in agent.actor_average.state_dict().items():
        assert torch.equal(written[key], value)
    assert not torch.equal(written["net.0.bias"], agent.actor.state_dict()["net.0.bias"])


def test_the_average_is_exported_with_its_scaling_folded(pendulum_trainer, tmp_path):
    trainer = pendulum_trainer(["agent.normalize_observations=true", "agent.average_tau=0.1"])
    trainer.agent.normalizer.update(np.random.default_rng(1).normal(3.0, 2.0, (50, 3)))
    with torch.no_grad():
        for parameter in trainer.agent.actor.parameters():
            parameter.add_(0.5)
    trainer.save()
    to_legacy(trainer.run_directory, f"{tmp_path}/out_", 2.0, ["fc1", "fc2", "fc3"])
    layers = torch.load(tmp_path / "out_actor", weights_only=True)
    assert list(layers) == [f"fc{number}.{kind}" for number in (1, 2, 3) for kind in ("weight", "bias")]
    observations = np.random.default_rng(0).normal(3.0, 2.0, (50, 3)).astype(np.float32)
    x = torch.from_numpy(observations)
    for name in ("fc1", "fc2"):
        x = torch.relu(x @ layers[f"{name}.weight"].T + layers[f"{name}.bias"])
    actions = torch.tanh(x @ layers["fc3.weight"].T + layers["fc3.bias"]).numpy()
    np.testing.assert_allclose(
        actions, load_policy(newest(trainer.run_directory).path).act(observations), rtol=0, atol=1e-5
    )


def test_layer_normalization_is_refused_and_names_have_to_fit(tmp_path):
    with pytest.raises(CheckpointError, match=r"without layer normalization.*--onnx"):
        export_legacy(make_agent(layer_norm=True), f"{tmp_path}/")
    for names in (["fc1"], ["a", "b", "c", "d"], ["a", "a", "b"], ["", "a", "b"]):
        with pytest.raises(CheckpointError, match=r"--names gives .* and actor has 3 layers"):
            export_legacy(make_agent(), f"{tmp_path}/", 1.0, names)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_says_whether_the_largest_action_has_to_be_given(untrained, tmp_path):
    with pytest.raises(CheckpointError, match=r"'Pendulum-v1' go from \[-2\.0\] to \[2\.0\]; add --a-max"):
        to_legacy(untrained, f"{tmp_path}/out_")
    assert len(to_legacy(untrained, f"{tmp_path}/out_", 2.0)) == 6


def test_a_run_resumed_from_an_import_acts_by_its_policy_from_the_first_step(
    td3robot, pendulum_trainer, tmp_path, set_small
):
    trainer = pendulum_trainer()
    export_legacy(trainer.agent, f"{tmp_path}/old_", 2.0)
    arguments = ["import", f"{tmp_path}/old_", "--config", "gym_pendulum", "--out", tmp_path / "in", *set_small]
    arguments += ["--set=agent.normalize_observations=false", "--set=training.random_steps=40"]
    status, _, err = td3robot(*arguments)
    assert status == 2
    assert "add --a-max" in err
    arguments[5] = tmp_path / "again"
    status, _, err = td3robot(*arguments, "--a-max", "2")
    assert status == 0, err
    saved = newest(tmp_path / "again")
    assert saved.document("counters")["warm_start"] is True
    resumed = pendulum_trainer(["training.steps=5", "training.random_steps=40", "agent.exploration_noise=0"])
    resumed.resume(saved)
    acted = []
    start = resumed.collector.start
    resumed.collector.start = lambda actions: (acted.append((resumed.collector.observations, actions)), start(actions))
    resumed.train()
    assert acted
    for observations, actions in acted:
        np.testing.assert_allclose(actions, resumed.agent.select_action(observations), atol=1e-6)
    assert Checkpoint(saved.path).policy()
