import numpy as np
import pytest

from td3robot.learning.exploration import GaussianExploration

COUNT = 20_000


def explore(noise=0.0, seed=0, greedy=0.0):
    return GaussianExploration(noise, greedy, np.random.default_rng(seed))


def test_without_noise_the_policy_s_actions_are_left_alone():
    actions = np.linspace(-1, 1, 30, dtype=np.float32).reshape(10, 3)
    np.testing.assert_array_equal(explore().perturb(actions), actions)


def test_noise_has_its_size_and_stays_in_range():
    noisy = explore(noise=0.1).perturb(np.zeros((COUNT, 2), np.float32))
    assert noisy.std() == pytest.approx(0.1, rel=0.03)
    edge = explore(noise=0.5).perturb(np.ones((COUNT, 2), np.float32))
    assert edge.max() == 1.0 and edge.min() >= -1.0
    assert edge.dtype == np.float32
    assert (edge == 1.0).mean() == pytest.approx(0.5, abs=0.02)


def test_the_policy_s_actions_are_not_written_into():
    actions = np.zeros((100, 2), np.float32)
    explore(noise=0.2).perturb(actions)
    assert (actions == 0.0).all()


def test_the_same_generator_draws_the_same_actions_wherever_it_is_taken_up():
    actions = np.zeros((8, 3), np.float32)
    one, other = (explore(0.1, seed=3) for _ in range(2))
    for _ in range(5):
        np.testing.assert_array_equal(one.perturb(actions), other.perturb(actions))
    taken_up = explore(0.1, seed=99)
    taken_up.rng.bit_generator.state = one.rng.bit_generator.state
    np.testing.assert_array_equal(one.perturb(actions), taken_up.perturb(actions))
    assert (one.perturb(actions) != explore(0.1, seed=4).perturb(actions)).any()


def test_the_greedy_share_acts_as_the_policy_does_and_the_others_explore():
    actions = np.full((8, 3), 0.25, np.float32)
    explored = explore(noise=0.1, greedy=0.25).perturb(actions)
    np.testing.assert_array_equal(explored[:2], actions[:2])
    assert (explored[2:] != 0.25).all()
    assert (explore(noise=0.1, greedy=0.25).perturb(actions[:1]) != 0.25).all()  # one alone explores
