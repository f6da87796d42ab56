"""A faster learner is used only for the algorithm that it was written for: any change of the reference is noticed."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from test_compiled_learner import CASES, LARGER, learner_of, make_agent, make_replay, weights_hash
from torch.nn import functional

from td3robot.learning import td3
from td3robot.learning.learner import DifferentUpdatesError, ReferenceLearner
from td3robot.learning.networks import Actor, Critic, RunningNormalizer
from td3robot.learning.td3 import TD3


def largest_of_both(self, batch, target_Q1, target_Q2):
    return batch.reward + batch.discount * (1.0 - batch.terminated) * torch.max(target_Q1, target_Q2)


def without_the_discount_of_n_steps(self, batch, target_Q1, target_Q2):
    return batch.reward + self.config.gamma * (1.0 - batch.terminated) * torch.min(target_Q1, target_Q2)


@torch.no_grad()
def noise_clipped_further_out(self, batch, noise):
    bound = 1.2 * self.config.noise_clip
    noise = (noise * self.config.policy_noise).clamp_(-bound, bound)
    return (self.actor_target(batch.next_observation) + noise).clamp_(-1.0, 1.0)


@torch.no_grad()
def targets_follow_by_another_share(self):
    torch._foreach_lerp_(self._targets, self._live, 1.01 * self.config.tau)


LEARN, INIT, BEGIN = TD3.learn, TD3.__init__, TD3.begin_update


def targets_before_the_critics(self, batch, noise, with_actor):
    if with_actor:
        self.update_targets()
    metrics = LEARN(self, batch, noise, False)
    return metrics | ({"actor_loss": self.learn_actor(batch)} if with_actor else {})


def actor_at_every_third(self):
    BEGIN(self)
    return self.updates % 3 == 0


def actor_at_every_update_late_in_the_run(self):
    return BEGIN(self) or self.updates > 1000


def with_decoupled_weight_decay(self, *arguments):
    INIT(self, *arguments)
    self.Q1_optimizer = torch.optim.AdamW(self.Q1.parameters(), 1e-3, weight_decay=0.01)


def with_another_metric(self, batch, noise, with_actor):
    return LEARN(self, batch, noise, with_actor) | {"reward_mean": batch.reward.mean()}


def actor_by_both_critics(self, batch):
    action = self.actor(batch.observation)
    loss = -torch.min(self.Q1(batch.observation, action), self.Q2(batch.observation, action)).mean()
    td3._descend(self.actor_optimizer, loss)
    return loss.detach()


CHANGES = {
    "max": (TD3, "td_target", largest_of_both),
    "n-step discount": (TD3, "td_target", without_the_discount_of_n_steps),
    "noise clip": (TD3, "target_action", noise_clipped_further_out),
    "tau": (TD3, "update_targets", targets_follow_by_another_share),
    "loss": (td3, "mse_loss", functional.huber_loss),
    "order": (TD3, "learn", targets_before_the_critics),
    "frequency": (TD3, "begin_update", actor_at_every_third),
    "frequency, late": (TD3, "begin_update", actor_at_every_update_late_in_the_run),
    "optimizer": (TD3, "__init__", with_decoupled_weight_decay),
    "actor's loss": (TD3, "learn_actor", actor_by_both_critics),
    "metric": (TD3, "learn", with_another_metric),
    "network": (Actor, "forward", lambda self, observation: functional.hardtanh(self.net(observation))),
    "scaling": (RunningNormalizer, "__call__", lambda self, observation: (observation - self._shift) * self._scale),
}
CONFIG = {"normalize_observations": True, "layer_norm": True}


@pytest.mark.parametrize("changes", [*CASES.values(), LARGER], ids=[*CASES, "larger"])
def test_the_compiled_learner_passes_and_the_run_is_not_touched(changes):
    agent, untouched = make_agent(**changes), make_agent(**changes)
    state = torch.random.get_rng_state()
    assert learner_of(agent, "auto").name == "compiled"
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(agent.generator.get_state(), untouched.generator.get_state())
    assert agent.updates == 0
    for name, network in untouched.networks().items():
        for key, value in network.state_dict().items():
            assert torch.equal(agent.networks()[name].state_dict()[key], value)


@pytest.mark.parametrize("where", CHANGES.values(), ids=CHANGES)
def test_a_changed_reference_does_the_updates_itself_and_says_so(monkeypatch, where):
    monkeypatch.setattr(*where)
    said = []
    assert learner_of(make_agent(**CONFIG), "auto", report=said.append).name == "reference"
    (sentence,) = said
    assert sentence.startswith("TD3 is not what its faster learner was written for: ")
    assert sentence.endswith("; the reference does the updates, which is slower")


def test_what_was_changed_is_what_a_run_learns(monkeypatch):
    def learned():
        agent = make_agent(**CONFIG)
        learner_of(agent, "auto").learn(make_replay(), np.random.default_rng(0), 10)
        return weights_hash(agent)

    before = learned()
    monkeypatch.setattr(TD3, "td_target", largest_of_both)
    assert learned() != before


class Optimist(TD3):
    td_target = torch.no_grad()(largest_of_both)


class Namesake(TD3):
    """The same updates under another name."""


def test_a_subclass_is_judged_by_its_updates():
    def made(kind):
        return kind(5, 2, make_agent().config, 0)

    assert learner_of(made(Optimist), "auto").name == "reference"
    assert learner_of(made(Namesake), "auto").name == "compiled"


def test_a_learner_that_was_asked_for_is_refused_and_named(monkeypatch):
    monkeypatch.setattr(TD3, "td_target", largest_of_both)
    with pytest.raises(DifferentUpdatesError) as caught:
        learner_of(make_agent(), "compiled")
    assert str(caught.value).startswith("training.learner is 'compiled', and TD3 is not what its faster learner was")
    assert str(caught.value).endswith("; change that learner alike, or add --set training.learner=reference")


def test_a_resumed_run_does_not_go_on_as_another_algorithm(monkeypatch):
    agent = make_agent()
    ReferenceLearner(agent).learn(make_replay(), np.random.default_rng(0), 7)
    assert learner_of(agent, "compiled", "compiled").name == "compiled"
    monkeypatch.setattr(TD3, "td_target", largest_of_both)
    with pytest.raises(DifferentUpdatesError, match=r"with which this run would go on as another algorithm; change "):
        learner_of(agent, "compiled", "compiled")
    assert learner_of(agent, "reference", "compiled").name == "reference"


def test_a_critic_of_another_size_is_found(monkeypatch):
    def with_a_larger_critic(self, *arguments):
        INIT(self, *arguments)
        self.Q2 = Critic(5, 2, (20, 20), layer_norm=False)
        self.Q2_target, self.Q2_optimizer = deepcopy(self.Q2), torch.optim.Adam(self.Q2.parameters())

    monkeypatch.setattr(TD3, "__init__", with_a_larger_critic)
    with pytest.raises(DifferentUpdatesError, match="its networks or attributes are others"):
        learner_of(make_agent(), "compiled")
