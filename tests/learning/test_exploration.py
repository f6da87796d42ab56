import numpy as np
import pytest

from td3robot.learning.exploration import GaussianExploration

COUNT = 20_000


def explore(noise=0.0, share=0.0, seed=0, share_steps=0, greedy=0.0, action_steps=1):
    return GaussianExploration(noise, share, share_steps, action_steps, greedy, np.random.default_rng(seed))


def test_without_noise_and_share_the_policy_s_actions_are_left_alone():
    actions = np.linspace(-1, 1, 30, dtype=np.float32).reshape(10, 3)
    np.testing.assert_array_equal(explore().perturb(actions, 0), actions)


def test_noise_has_its_size_and_stays_in_range():
    noisy = explore(noise=0.1).perturb(np.zeros((COUNT, 2), np.float32), 0)
    assert noisy.std() == pytest.approx(0.1, rel=0.03)
    edge = explore(noise=0.5).perturb(np.ones((COUNT, 2), np.float32), 0)
    assert edge.max() == 1.0 and edge.min() >= -1.0
    assert edge.dtype == np.float32
    assert (edge == 1.0).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_a_share_of_actions_is_uniform_over_the_whole_range(share):
    actions = np.full((COUNT, 3), 0.25, np.float32)
    explored = explore(share=share).perturb(actions, 0)
    random = (explored != 0.25).any(axis=1)
    assert random.mean() == pytest.approx(share, abs=5 * np.sqrt(0.25 / COUNT))
    assert (explored[random] != 0.25).all()  # whole actions, not components
    drawn = explored[random]
    assert drawn.min() >= -1.0 and drawn.max() <= 1.0
    # Uniform over [-1, 1]: mean 0 and variance 1/3, and the components are independent.
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=5 / np.sqrt(3 * random.sum()))
    np.testing.assert_allclose(drawn.var(axis=0), 1 / 3, atol=0.05)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 5 / np.sqrt(random.sum())


def test_the_policy_s_actions_are_not_written_into():
    actions = np.zeros((100, 2), np.float32)
    explore(noise=0.2, share=0.5).perturb(actions, 0)
    assert (actions == 0.0).all()


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_random_actions_are_kept_and_take_up_their_share(share, steps):
    exploration = explore(share=share, action_steps=steps)
    actions = np.full((400, 2), 0.25, np.float32)
    played = np.array([exploration.perturb(actions, 0) for _ in range(400)])[50:]
    random = (played != 0.25).any(axis=2)
    assert random.mean() == pytest.approx(share, rel=0.05)
    changes = (played[1:] != played[:-1]).any(axis=2)
    begun = (changes & random[1:]).sum()
    assert random[1:].sum() / begun == pytest.approx(steps, rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_same_generator_draws_the_same_actions_wherever_it_is_taken_up(share):
    actions = np.zeros((8, 3), np.float32)
    one, other = (explore(0.1, share, seed=3, action_steps=4) for _ in range(2))
    for _ in range(5):
        np.testing.assert_array_equal(one.perturb(actions, 0), other.perturb(actions, 0))
    taken_up = explore(0.1, share, seed=99, action_steps=4)
    taken_up.rng.bit_generator.state = one.rng.bit_generator.state
    taken_up.load_state(one.state())
    np.testing.assert_array_equal(one.perturb(actions, 0), taken_up.perturb(actions, 0))
    assert (one.perturb(actions, 0) != explore(0.1, share, seed=4).perturb(actions, 0)).any()


def test_no_share_draws_nothing_more_than_the_noise():
    """Runs without it go on as they did before there was one."""
    plain = np.random.default_rng(1)
    explored = explore(0.1, seed=1)
    explored.perturb(np.zeros((4, 2), np.float32), 0)
    plain.normal(0.0, 0.1, (4, 2))
    assert explored.rng.bit_generator.state == plain.bit_generator.state


def test_the_share_falls_linearly_and_stays_at_zero():
    exploration = explore(share=0.2, share_steps=1000)
    assert [exploration.random_share(step) for step in (0, 250, 1000, 5000)] == pytest.approx([0.2, 0.15, 0.0, 0.0])
    actions = np.zeros((100, 2), np.float32)
    np.testing.assert_array_equal(exploration.perturb(actions, 1000), actions)
    assert explore(share=0.2).random_share(10**9) == 0.2


def test_the_greedy_share_acts_as_the_policy_does_and_the_others_explore():
    actions = np.full((8, 3), 0.25, np.float32)
    explored = explore(noise=0.1, share=0.5, greedy=0.25).perturb(actions, 0)
    np.testing.assert_array_equal(explored[:2], actions[:2])
    assert (explored[2:] != 0.25).all()
    assert (explore(noise=0.1, greedy=0.25).perturb(actions[:1], 0) != 0.25).all()  # one alone explores
