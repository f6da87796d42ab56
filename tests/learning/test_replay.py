"""The replay memory keeps the newest transitions, and keeps each together."""

import numpy as np
import pytest
import torch

from td3robot.errors import CheckpointError
from td3robot.learning.replay import Batch, ReplayBuffer, Transition

CPU = torch.device("cpu")


def transition(number: int) -> Transition:
    """Return a transition whose every number tells which one it is."""
    return Transition(
        [number, -number], [number + 0.5], 2 * number, [number + 1, -number - 1], number % 3 == 0, number / 4
    )


def fill(replay: ReplayBuffer, first: int, stop: int) -> None:
    replay.add([transition(number) for number in range(first, stop)])


def sample(replay: ReplayBuffer, count: int, seed: int = 0) -> Batch:
    return replay.sample(count, np.random.default_rng(seed), CPU)


def test_the_ring_overwrites_the_oldest():
    replay = ReplayBuffer(5, 2, 1)
    fill(replay, 0, 8)
    assert replay.size == 5
    assert sorted({int(number) for number in sample(replay, 200).observation[:, 0]}) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("capacity", [4, 5, 100])
def test_together_transitions_are_stored_as_one_by_one(capacity):
    together, singly = ReplayBuffer(capacity, 2, 1), ReplayBuffer(capacity, 2, 1)
    for first, stop in ((0, 3), (3, 3), (3, 12), (12, 14)):
        fill(together, first, stop)
        for number in range(first, stop):
            fill(singly, number, number + 1)
    np.testing.assert_array_equal(together.rows[: together.size], singly.rows[: singly.size])
    assert together.state()[1] == singly.state()[1]


def test_only_what_was_filled_is_sampled():
    replay = ReplayBuffer(1000, 2, 1)
    fill(replay, 1, 4)
    assert replay.size == 3
    assert sorted({int(number) for number in sample(replay, 100).observation[:, 0]}) == [1, 2, 3]


def test_sampled_columns_belong_together():
    replay = ReplayBuffer(50, 2, 1)
    fill(replay, 0, 80)
    batch = sample(replay, 300)
    assert [tuple(column.shape) for column in batch] == [
        (300, 2),
        (300, 1),
        (300, 1),
        (300, 2),
        (300, 1),
        (300, 1),
        (300, 0),
    ]
    assert all(column.dtype == torch.float32 for column in batch)
    number = batch.observation[:, :1]
    assert torch.equal(batch.observation, torch.hstack([number, -number]))
    assert torch.equal(batch.action, number + 0.5)
    assert torch.equal(batch.reward, 2 * number)
    assert torch.equal(batch.next_observation, torch.hstack([number + 1, -number - 1]))
    assert torch.equal(batch.terminated, (number % 3 == 0).float())
    assert torch.equal(batch.discount, number / 4)


def test_sampling_is_uniform():
    replay = ReplayBuffer(10, 2, 1)
    fill(replay, 0, 10)
    counts = np.bincount(sample(replay, 20_000).observation[:, 0].int().numpy(), minlength=10)
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000)


@pytest.mark.parametrize("filled", [0, 4, 10, 13])
def test_what_state_gives_load_state_takes_exactly(filled):
    replay, other = ReplayBuffer(10, 2, 1), ReplayBuffer(10, 2, 1)
    fill(replay, 0, filled)
    other.load_state(*replay.state())
    fill(replay, filled, filled + 3)
    fill(other, filled, filled + 3)
    assert other.size == replay.size
    for mine, theirs in zip(sample(replay, 50), sample(other, 50), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("capacity", "observation_size"),
    [pytest.param(10, 3, id="other width"), pytest.param(4, 2, id="too small")],
)
def test_a_memory_that_does_not_fit_is_refused(capacity, observation_size):
    replay = ReplayBuffer(10, 2, 1)
    fill(replay, 0, 5)
    with pytest.raises(CheckpointError, match="saved replay holds 5 rows of 8 numbers, but this run has room for"):
        ReplayBuffer(capacity, observation_size, 1).load_state(*replay.state())
