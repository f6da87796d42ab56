"""Another agent costs one file: it is configured, trained, resumed, evaluated and exported by its kind."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from td3robot.config import AgentConfig, parse_config, to_yaml
from td3robot.errors import CheckpointError, ConfigError
from td3robot.learning.agent import Agent, make_agent
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.benchmark import bench_learner
from td3robot.learning.exploration import GaussianExploration
from td3robot.learning.foreign_import import import_foreign
from td3robot.learning.networks import Actor
from td3robot.learning.runs import make_trainer
from td3robot.learning.six_files import to_legacy
from td3robot.learning.td3 import TD3
from td3robot.policy.checkpoint import Checkpoint, find, load_policy, newest
from td3robot.policy.onnx import to_onnx
from td3robot.registry import AGENTS


class CloningConfig(AgentConfig):
    kind: str = "cloning"
    momentum: float = 0.5

    def agent_class(self):
        return Cloning

    def make_exploration(self, rng):
        return GaussianExploration(0.5, 0.0, rng)


class Cloning(Agent):
    """Imitate the actions in the replay buffer: one network, one optimizer."""

    def __init__(self, observation_size, action_size, config, seed):
        super().__init__(observation_size, action_size, config, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = Actor(observation_size, action_size, config.hidden, config.layer_norm)

    @torch.no_grad()
    def select_action(self, observation, play=False):
        return self.actor(self.normalizer(torch.as_tensor(observation, dtype=torch.float32))).numpy()

    def update(self, batch):
        self.updates += 1
        loss = ((self.actor(self.normalizer(batch.observation)) - batch.action) ** 2).mean()
        parameters = list(self.actor.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= self.config.momentum * gradient
        return {"actor_loss": loss.detach()}

    def tensors(self):
        return {"actor": dict(self.actor.state_dict())}

    def load_tensors(self, groups):
        self.actor.load_state_dict(groups["actor"])


@pytest.fixture
def cloning(monkeypatch):
    """Overrides that train with an agent that is called ``cloning``."""
    monkeypatch.setitem(AGENTS._things, "cloning", CloningConfig)
    return "agent.kind=cloning", "agent.momentum=0.25"


def test_the_kind_of_agent_is_td3_unless_a_configuration_says_otherwise():
    assert type(parse_config("name: x\nenvironment: {kind: robot}\n", "x.yaml").agent) is TD3Config
    assert type(make_agent(3, 2, TD3Config(device="cpu"), seed=0)) is TD3


def test_a_configuration_is_read_without_torch_and_without_the_other_agents():
    reads = "td3robot.config.parse_config('name: x\\nenvironment: {kind: robot}', 'x')"
    program = f"import sys, td3robot.config; {reads}; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "False", result.stderr


def test_an_unknown_kind_is_refused_with_the_nearest(pendulum_trainer):
    with pytest.raises(ConfigError, match=r"unknown kind 'td4'; did you mean 'td3'"):
        pendulum_trainer(["agent.kind=td4"])


def test_an_agent_brings_hyperparameters_of_its_own(cloning, pendulum_trainer):
    config = pendulum_trainer(cloning).config
    assert (type(config.agent), config.agent.momentum) == (CloningConfig, 0.25)
    assert parse_config(to_yaml(config), "again") == config
    with pytest.raises(ConfigError, match=r"'agent\.momentun'"):
        pendulum_trainer(["agent.kind=cloning", "agent.momentun=0.25"])
    with pytest.raises(ConfigError, match=r"'agent\.momentum'"):
        pendulum_trainer(["agent.momentum=0.25"])


def test_another_agent_trains_resumes_and_plays(cloning, pendulum_trainer, tmp_path):
    trainer = pendulum_trainer(cloning)
    assert isinstance(trainer.agent, Cloning)
    trainer.train()
    best, last = Checkpoint(find(trainer.run_directory)), newest(trainer.run_directory)
    assert best.has("actor") and not best.has("Q1")

    observation = np.ones((1, 3), np.float32)
    played = load_policy(last.path).act(observation)
    np.testing.assert_allclose(played, trainer.agent.select_action(observation, play=True), atol=1e-6)

    resumed = make_trainer(last.config(), tmp_path / "resumed", trainer.listener)
    resumed.resume(last)
    assert resumed.agent.updates == trainer.agent.updates
    warm = pendulum_trainer([*cloning, "seed=9"])
    warm.start_from(best)
    for agent, saved in ((resumed.agent, last), (warm.agent, best)):
        for name, value in saved.arrays("actor").items():
            np.testing.assert_array_equal(agent.actor.state_dict()[name], value)


def test_another_agent_is_measured_and_exported_as_onnx(cloning, pendulum_trainer, tmp_path):
    trainer = pendulum_trainer(cloning)
    trainer.save()
    assert bench_learner(trainer.config, updates=4).batch_size == 16
    pytest.importorskip("onnxruntime")
    assert to_onnx(trainer.run_directory, tmp_path / "policy.onnx") < 1e-5


def test_the_six_files_are_refused_for_another_agent(cloning, pendulum_trainer, tmp_path):
    trainer = pendulum_trainer(cloning)
    trainer.save()
    sentence = "the six files hold TD3's networks, and this run's agent.kind is 'cloning'"
    with pytest.raises(CheckpointError, match=re.escape(sentence)):
        to_legacy(trainer.run_directory, f"{tmp_path}/out_")
    with pytest.raises(CheckpointError, match=re.escape(sentence)):
        import_foreign(trainer.agent, f"{tmp_path}/out_")
    assert list(tmp_path.glob("out_*")) == []
