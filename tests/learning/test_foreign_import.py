"""TD3 checkpoints of other programs: they act and judge here as there, and nothing in their files is run."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from td3robot.errors import CheckpointError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.foreign_files import read_foreign
from td3robot.learning.foreign_import import import_foreign, read_scaling
from td3robot.learning.td3 import TD3
from td3robot.policy.checkpoint import load_policy, newest

OBSERVATION, ACTION, A_MAX = 3, 1, 2.0
TWO = np.full(ACTION, A_MAX)
BOUNDS = (-TWO, TWO)


class Both(nn.Module):
    """Both critics in one network, as TD3's authors keep them."""

    def __init__(self, hidden):
        super().__init__()
        sizes = [OBSERVATION + ACTION, *hidden, 1]
        for number in range(6):
            setattr(self, f"l{number + 1}", nn.Linear(*sizes[number % 3 : number % 3 + 2]))

    def forward(self, both):
        values = []
        for first in (1, 4):
            x = both
            for number in (first, first + 1):
                x = torch.relu(getattr(self, f"l{number}")(x))
            values.append(getattr(self, f"l{first + 2}")(x))
        return values


class Other(nn.Module):
    """An actor with three layers of the given names; buffers as CleanRL's if it has a bias."""

    def __init__(self, hidden, names, sizes=(OBSERVATION, ACTION), bias=None):
        super().__init__()
        widths = [sizes[0], *hidden, sizes[1]]
        self.names = names
        for name, *pair in zip(names, widths, widths[1:], strict=False):
            setattr(self, name, nn.Linear(*pair))
        if bias is not None:
            self.register_buffer("action_scale", torch.full((ACTION,), A_MAX))
            self.register_buffer("action_bias", torch.full((ACTION,), bias))

    def forward(self, x):
        for name in self.names[:-1]:
            x = torch.relu(getattr(self, name)(x))
        return getattr(self, self.names[-1])(x)


def make_agent(hidden=(16, 12), **settings):
    return TD3(OBSERVATION, ACTION, TD3Config(hidden=hidden, device="cpu", **settings), 3)


def some(count=300):
    draw = torch.Generator().manual_seed(7)
    return torch.randn(count, OBSERVATION, generator=draw) * 3.0, torch.rand(count, ACTION, generator=draw) * 2.0 - 1.0


def step(network, optimizer, width, times=3):
    for _ in range(times):
        values = network(torch.randn(32, width))
        loss = sum(each.square().mean() for each in (values if isinstance(values, list) else [values]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def authors(prefix, hidden=(16, 12), optimizers=True):
    """Save files as TD3's authors do, and return actor, both critics and their optimizer."""
    torch.manual_seed(1)
    actor, critics = Other(hidden, ("l1", "l2", "l3")), Both(hidden)
    adam, adam2 = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critics.parameters())
    step(actor, adam, OBSERVATION)
    step(critics, adam2, OBSERVATION + ACTION)
    for name, network, optimizer in (("actor", actor, adam), ("critic", critics, adam2)):
        torch.save(network.state_dict(), f"{prefix}_{name}")
        if optimizers:
            torch.save(optimizer.state_dict(), f"{prefix}_{name}_optimizer")
    return actor, critics, adam2


def test_the_authors_files_act_judge_and_learn_as_there(tmp_path):
    actor, critics, adam = authors(f"{tmp_path}/TD3_Pendulum_0")
    agent = make_agent()
    assert import_foreign(agent, f"{tmp_path}/TD3_Pendulum_0", A_MAX, BOUNDS) == []
    observation, action = some()
    with torch.no_grad():
        mine = A_MAX * torch.from_numpy(agent.select_action(observation.numpy(), play=True))
        assert (mine - A_MAX * torch.tanh(actor(observation))).abs().max() <= 1e-6
        for name, expected in zip(("Q1", "Q2"), critics(torch.cat([observation, A_MAX * action], dim=1)), strict=True):
            torch.testing.assert_close(agent.networks()[name](observation, action), expected, rtol=1e-5, atol=1e-6)
    theirs = list(adam.state_dict()["state"].values())
    for name, part in (("Q1", theirs[:6]), ("Q2", theirs[6:])):
        mine = list(getattr(agent, f"{name}_optimizer").state_dict()["state"].values())
        for old, new in zip(part[1:], mine[1:], strict=True):  # the first has its columns scaled
            assert torch.equal(old["exp_avg_sq"], new["exp_avg_sq"])
            assert old["step"] == new["step"]


def test_the_authors_files_may_lack_optimizers_but_not_one_of_them(tmp_path):
    authors(f"{tmp_path}/a", optimizers=False)
    agent = make_agent()
    import_foreign(agent, f"{tmp_path}/a", A_MAX, BOUNDS)
    assert not agent.Q1_optimizer.state
    authors(f"{tmp_path}/b")
    (tmp_path / "b_actor_optimizer").unlink()
    with pytest.raises(CheckpointError, match="b_actor_optimizer is missing"):
        import_foreign(make_agent(), f"{tmp_path}/b", A_MAX, BOUNDS)


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_a_cleanrl_model_acts_and_judges_as_there(tmp_path, bias):
    torch.manual_seed(2)
    names, file = ("fc1", "fc2", "fc3"), tmp_path / "td3.cleanrl_model"
    actor = Other((16, 12), ("fc1", "fc2", "fc_mu"), bias=bias)
    critics = [Other((16, 12), names, (OBSERVATION + ACTION, 1)) for _ in range(2)]
    torch.save((actor.state_dict(), *(each.state_dict() for each in critics)), file)
    agent = make_agent()
    assert import_foreign(agent, str(file), None, (TWO * 0 + bias - A_MAX, TWO * 0 + bias + A_MAX)) == []
    observation, action = some()
    with torch.no_grad():
        mine = torch.from_numpy(agent.select_action(observation.numpy(), play=True))
        assert (mine - torch.tanh(actor(observation))).abs().max() <= 1e-6
        for name, critic in zip(("Q1", "Q2"), critics, strict=True):
            expected = critic(torch.cat([observation, A_MAX * action + bias], dim=1))
            torch.testing.assert_close(agent.networks()[name](observation, action), expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def stable_baselines(tmp_path_factory):
    """A TD3 of the real library after some updates, and its file."""
    library = pytest.importorskip("stable_baselines3")
    model = library.TD3(
        "MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [16, 12]}, learning_starts=10, buffer_size=100, seed=1
    )
    model.learn(40)
    path = tmp_path_factory.mktemp("sb3") / "td3.zip"
    model.save(path)
    return model, path


def test_a_zip_of_stable_baselines_acts_judges_and_resumes_as_there(stable_baselines):
    model, path = stable_baselines
    agent = make_agent()
    assert import_foreign(agent, str(path), None, BOUNDS) == []
    observation, action = some()
    expected, _ = model.predict(observation.numpy(), deterministic=True)
    np.testing.assert_allclose(A_MAX * agent.select_action(observation.numpy(), play=True), expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        for kind, there in (("", model.critic), ("_target", model.critic_target)):
            for name, value in zip(("Q1", "Q2"), there(observation, action), strict=True):
                torch.testing.assert_close(
                    agent.networks()[f"{name}{kind}"](observation, action), value, rtol=1e-5, atol=1e-6
                )
    states = model.critic.optimizer.state_dict()["state"]
    mine = list(agent.Q2_optimizer.state_dict()["state"].values())
    assert torch.equal(mine[1]["exp_avg"], states[7]["exp_avg"])


def test_the_scaling_of_a_vecnormalize_comes_with_it(stable_baselines, tmp_path):
    model, path = stable_baselines
    from stable_baselines3.common.vec_env import VecNormalize

    venv = VecNormalize(model.get_env())
    rng = np.random.default_rng(0)
    venv.obs_rms.mean, venv.obs_rms.var = rng.normal(size=OBSERVATION), rng.uniform(0.1, 9.0, OBSERVATION)
    np.savez(
        tmp_path / "scaling.npz", mean=venv.obs_rms.mean, var=venv.obs_rms.var, count=venv.obs_rms.count,
        epsilon=venv.epsilon, clip_obs=venv.clip_obs,
    )  # fmt: skip
    agent = make_agent(normalize_observations=True)
    import_foreign(agent, str(path), None, BOUNDS, tmp_path / "scaling.npz")
    observation = rng.normal(0.0, 10.0, (300, OBSERVATION)).astype(np.float32)
    expected, _ = model.predict(venv.normalize_obs(observation), deterministic=True)
    np.testing.assert_allclose(A_MAX * agent.select_action(observation, play=True), expected, rtol=0, atol=2e-6)


SCALING = {"mean": np.zeros(3), "var": np.ones(3)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mean": None}, "is not a scaling"),
        ({"var": np.array([1.0, -1.0, 1.0])}, "a variance or the count is negative"),
        ({"mean": np.array([1.0, np.nan, 1.0])}, "a number beyond"),
        ({"mean": np.zeros(2), "var": np.ones(2)}, "scales 2 numbers, and an observation here has 3"),
        ({"clip_obs": 5.0}, r"clips scaled observations at 5, and td3robot at 10"),
        ({"var": np.array([1.0, 1e-9, 1.0])}, r"divides components \[1\] by as little as"),
        ({"var": np.array([object()] * 3)}, "a pickle, which could run code"),
    ],
)
def test_a_scaling_that_cannot_be_the_same_here_is_refused(tmp_path, change, said):
    values = {name: value for name, value in (SCALING | change).items() if value is not None}
    np.savez(tmp_path / "scaling.npz", **values)
    with pytest.raises(CheckpointError, match=said):
        read_scaling(tmp_path / "scaling.npz", 3)


def test_a_pickled_vecnormalize_is_not_opened_and_the_way_is_named(tmp_path):
    import pickle

    class Touch:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "vec.pkl").write_bytes(pickle.dumps(Touch()))
    with pytest.raises(CheckpointError, match=r"a pickle, which could run code.*np\.savez"):
        read_scaling(tmp_path / "vec.pkl", 3)
    assert not (tmp_path / "ran").exists()


def changed(path, out, change):
    """Copy a zip with its JSON changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "data":
                values = json.loads(data)
                change(values)
                data = json.dumps(values).encode()
            new.writestr(name, data)
    return str(out)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"activation_fn": "<class 'torch.nn.modules.activation.Tanh'>"}, "has the activation .*Tanh"),
        ({"activation_fn": "<class 'torch.nn.modules.activation.LeakyReLU'>"}, "has the activation .*LeakyReLU"),
        ({"n_critics": 1}, "has n_critics 1"),
    ],
)
def test_settings_under_which_the_same_weights_act_otherwise_are_refused(stable_baselines, tmp_path, options, said):
    out = changed(stable_baselines[1], tmp_path / "x.zip", lambda values: values["policy_kwargs"].update(options))
    with pytest.raises(CheckpointError, match=said):
        read_foreign(out)


def test_pickles_in_the_json_of_a_zip_are_never_opened(stable_baselines, tmp_path, monkeypatch):
    """Any unpickling but torch's restricted one would raise here."""
    import pickle

    def never(*_, **__):
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "loads", never)
    monkeypatch.setattr(pickle, "load", never)
    assert read_foreign(str(stable_baselines[1])).hidden == [16, 12]


@pytest.mark.parametrize("member", ["policy.pth", "critic.optimizer.pth"])
def test_code_in_a_zip_is_refused_without_torch_s_advice_to_run_it(stable_baselines, tmp_path, member):
    class Touch:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"a": Touch()}, tmp_path / "bad")
    out = tmp_path / "x.zip"
    with zipfile.ZipFile(stable_baselines[1]) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, (tmp_path / "bad").read_bytes() if name == member else old.read(name))
    with pytest.raises(CheckpointError) as refusal:
        import_foreign(make_agent(), str(out), None, BOUNDS)
    assert "which would be run" in str(refusal.value)
    assert "weights_only" not in str(refusal.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"\x80\x02junk"),
        lambda path: path.write_bytes(b""),
        lambda path: torch.save(nn.Linear(2, 2), path),
        lambda path: torch.save([1, 2], path),
        lambda path: torch.save(nn.Linear(2, 2).state_dict(), path),
        lambda path: path.write_text("a text"),
        lambda path: path.write_bytes(b"PK\x03\x04" + bytes(100)),
    ],
)
def test_another_file_is_refused_in_a_sentence_without_torch_s_advice(tmp_path, write):
    write(tmp_path / "model.pt")
    with pytest.raises(CheckpointError) as refusal:
        read_foreign(str(tmp_path / "model.pt"))
    assert "\n" not in str(refusal.value)
    assert "weights_only" not in str(refusal.value)
    assert "trust" not in str(refusal.value)


def test_the_command_takes_sizes_and_scaling_from_the_files(td3robot, stable_baselines, tmp_path, set_small):
    model, path = stable_baselines
    np.savez(tmp_path / "scaling.npz", mean=np.full(3, 0.5), var=np.full(3, 4.0))
    arguments = ["import", path, "--config", "gym_pendulum", "--scaling", tmp_path / "scaling.npz"]
    small = [option for option in set_small if "agent.hidden" not in option]
    status, _, err = td3robot(*arguments, "--out", tmp_path / "run", *small)
    assert status == 0, err
    assert "note: agent.hidden is [16, 12], as in the files" in err
    saved = newest(tmp_path / "run")
    assert saved.config().agent.normalize_observations
    observation = np.random.default_rng(1).normal(0.0, 3.0, (50, 3)).astype(np.float32)
    expected, _ = model.predict((observation - 0.5) / 2.0, deterministic=True)
    np.testing.assert_allclose(A_MAX * load_policy(saved.path).act(observation), expected, rtol=0, atol=2e-6)
