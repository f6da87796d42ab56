"""The learner that replays TD3's update as a CUDA graph.

Where there is no GPU, its program runs without being captured: the same calls on the same memory.
"""

import numpy as np
import pytest
import torch
from test_compiled_learner import CASES, differences, learner_of, make_agent, make_replay

from td3robot.learning.cuda_graph import UPDATES_PER_COPY, CudaGraphLearner
from td3robot.learning.learner import LearnerUnavailableError, ReferenceLearner
from td3robot.learning.td3 import TD3

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and PyTorch sees none here")


class Uncaptured(CudaGraphLearner):
    """Call the update where the graph would be replayed, into the same memory, all on the CPU in order."""

    @staticmethod
    def _run_aside(program):
        program()

    def _sent(self, values):
        return values

    def _capture(self, with_actor):
        kept = {}

        def replay():
            for name, value in self._update(with_actor).items():
                kept.setdefault(name, torch.zeros_like(value)).copy_(value)
            return kept

        return replay


def taught(learner, count: int, seed: int = 5, imitates: bool = False):
    """Do some updates in rounds, and return the metrics of those that updated the actor."""
    replay = make_replay(imitates=imitates)
    rng, found = np.random.default_rng(seed), []
    while count > 0:
        found += learner.learn(replay, rng, min(count, UPDATES_PER_COPY + 3))
        count -= UPDATES_PER_COPY + 3
    return found


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
@pytest.mark.quick("plain", "three layers")
def test_its_updates_are_those_of_the_reference(changes):
    reference, agent = make_agent(**changes), make_agent(**changes)
    imitates = "imitation" in changes
    expected = taught(ReferenceLearner(reference), 100, imitates=imitates)
    metrics = taught(Uncaptured(agent), 100, imitates=imitates)
    assert max(differences(reference, agent).values()) < 1e-6  # a rate in single precision is rounded differently
    assert agent.updates == reference.updates == 100
    assert len(metrics) == len(expected) > 0
    for one, other in zip(metrics, expected, strict=True):
        assert {name: pytest.approx(value.item(), abs=1e-5) for name, value in other.items()} == {
            name: value.item() for name, value in one.items()
        }


def test_what_it_learned_while_it_warmed_up_is_undone():
    agent, untouched = make_agent(layer_norm=True, average_tau=0.1), make_agent(layer_norm=True, average_tau=0.1)
    Uncaptured(agent)
    assert agent.updates == 0
    for name, group in untouched.tensors().items():
        for key, value in group.items():
            assert torch.equal(value, agent.tensors()[name][key])
    assert all(not value.any() for value in agent.tensors()["Q1_optimizer"].values())


def test_a_run_in_progress_keeps_its_moments():
    agent, other = make_agent(), make_agent()
    for each in (agent, other):
        taught(ReferenceLearner(each), 20)
    taught(Uncaptured(agent), 20, seed=6)
    taught(ReferenceLearner(other), 20, seed=6)
    assert max(differences(agent, other).values()) < 1e-6


def test_its_learning_rates_may_drop():
    agent, other = make_agent(), make_agent()
    for each, learner in ((agent, Uncaptured(agent)), (other, ReferenceLearner(other))):
        taught(learner, 20)
        each.learning_rate_share = 0.2
        taught(learner, 20, seed=6)
    assert max(differences(agent, other).values()) < 1e-6


def test_on_a_cpu_it_is_refused_and_a_resumed_run_goes_on_with_the_reference():
    with pytest.raises(
        LearnerUnavailableError, match=r"'cuda_graph', and TD3 on cpu has no such learner; use 'auto' or 'reference'$"
    ):
        learner_of(make_agent(), "cuda_graph")
    said = []
    assert learner_of(make_agent(), "cuda_graph", "cuda_graph", said.append).name == "reference"
    assert "the reference does the updates" in said[0]


@on_gpu
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_a_captured_graph_does_the_reference_s_updates(changes):
    reference, agent = make_agent(**changes | {"device": "cuda"}), make_agent(**changes | {"device": "cuda"})
    learner = learner_of(agent, "auto")
    assert learner.name == "cuda_graph"
    taught(ReferenceLearner(reference), 100, imitates="imitation" in changes)
    taught(learner, 100, imitates="imitation" in changes)
    assert max(differences(reference, agent).values()) < 1e-5


@on_gpu
def test_a_captured_graph_repeats_bit_for_bit():
    def once() -> TD3:
        agent = make_agent(device="cuda", layer_norm=True)
        taught(learner_of(agent, "cuda_graph"), 50)
        return agent

    assert max(differences(once(), once()).values()) == 0.0
