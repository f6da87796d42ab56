"""The policy for play is the learner's policy, without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from td3robot.errors import ContractError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.networks import RunningNormalizer
from td3robot.learning.td3 import TD3
from td3robot.policy.contract import Contract
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.policy import Policy, _layer_norm

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)


def policy_of(agent: TD3) -> Policy:
    actor = {name: tensor.numpy() for name, tensor in agent.actor.state_dict().items()}
    return Policy(actor, ObservationScaling.from_moments(agent.normalizer.state()), Contract({}))


def make_agent(layer_norm: bool = False, normalize: bool = False, hidden: tuple[int, ...] = (32, 16)) -> TD3:
    config = TD3Config(hidden=hidden, layer_norm=layer_norm, normalize_observations=normalize, device="cpu")
    agent = TD3(5, 2, config, seed=2)
    agent.normalizer.update(RNG.normal(3.0, [0.01, 0.1, 1.0, 10.0, 0.0], (200, 5)))
    with torch.no_grad():  # layer norms start as the identity, which would hide a swap of weight and bias
        for parameter in agent.actor.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return agent


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("hidden", [(32,), (32, 16), (16, 16, 16)])
def test_the_policy_is_the_actor_behind_its_normaliser(layer_norm, normalize, hidden):
    agent = make_agent(layer_norm, normalize, hidden)
    observations = RNG.normal(3.0, 3.0, (100, 5)).astype(np.float32)
    policy = policy_of(agent)
    np.testing.assert_allclose(policy.act(observations), agent.select_action(observations), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(128,), (8, 128), (5, 7)])
def test_a_layer_norm_has_the_bits_of_numpy_s_mean_and_variance(shape):
    """Released policies have to give the same actions bit for bit."""
    for _ in range(100):
        x = (RNG.normal(size=shape) * RNG.uniform(0.1, 30.0)).astype(np.float32)
        weight, bias = RNG.normal(size=(2, shape[-1])).astype(np.float32)
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        expected = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * weight + bias
        np.testing.assert_array_equal(_layer_norm(x, weight, bias), expected)


def test_one_observation_gives_one_action():
    policy = policy_of(make_agent(normalize=True))
    observations = RNG.normal(3.0, 3.0, (4, 5))
    assert policy.act(observations[0]).shape == (2,)
    assert policy.act(observations[0]).dtype == np.float32
    np.testing.assert_allclose(policy.act(observations[0]), policy.act(observations)[0], rtol=0, atol=1e-6)


def test_the_scaling_clips_far_observations_as_the_learner_does():
    agent = make_agent(normalize=True)
    far = np.array([[1e6, -1e6, 1e6, -1e6, 1e6]], np.float32)
    np.testing.assert_allclose(policy_of(agent).act(far), agent.select_action(far), rtol=0, atol=1e-6)


@pytest.mark.parametrize("length", [4, 6])
def test_an_observation_of_wrong_length_is_refused(length):
    with pytest.raises(ContractError, match=f"wants observations of 5 numbers and was given {length}"):
        policy_of(make_agent()).act(np.zeros(length))


def test_mean_and_variance_are_those_of_all_data_merged_in_odd_batches():
    data = RNG.normal([1e3, 0.0, -5.0], [1e-2, 1.0, 30.0], (1009, 3))
    normalizer = RunningNormalizer(3, True, CPU)
    for batch in np.split(data, [1, 2, 7, 90, 500]):
        normalizer.update(batch)
    moments = normalizer.state()
    assert moments["count"][0] == len(data)
    np.testing.assert_allclose(moments["mean"], data.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments["variance"], data.var(axis=0), rtol=1e-9)


def test_scaled_data_has_zero_mean_and_unit_variance():
    data = RNG.normal(-7.0, 4.0, (5000, 2))
    normalizer = RunningNormalizer(2, True, CPU)
    normalizer.update(data)
    scaled = normalizer(torch.tensor(data, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, atol=1e-4)


def test_a_disabled_normaliser_leaves_observations_alone_and_learns_nothing():
    normalizer = RunningNormalizer(2, False, CPU)
    normalizer.update(RNG.normal(5.0, 5.0, (10, 2)))
    observations = torch.tensor([[1e5, -3.0]])
    assert torch.equal(normalizer(observations), observations)
    assert normalizer.state()["count"][0] == 0


@pytest.mark.parametrize("enabled", [False, True])
def test_a_saved_normaliser_round_trips_exactly(enabled):
    normalizer, other = RunningNormalizer(3, enabled, CPU), RunningNormalizer(3, not enabled, CPU)
    normalizer.update(RNG.normal(2.0, 3.0, (10, 3)))
    other.load_state(normalizer.state())
    for one in (normalizer, other):
        one.update(np.arange(6.0).reshape(2, 3))
    for name, value in normalizer.state().items():
        np.testing.assert_array_equal(value, other.state()[name])


def test_play_needs_no_torch():
    program = "import sys, td3robot; from td3robot import load_policy; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
