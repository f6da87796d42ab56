"""The replay buffer: a ring that overwrites its oldest transition."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from td3robot.errors import CheckpointError, ConfigError


class Transition(NamedTuple):
    """One transition, or the sum of n steps; see :class:`Batch`.

    Attributes:
        observation, next_observation: (observation,).
        action: (action,).
        guide_action: (action,) of the hand-written policy for the observation, where the policy imitates it.
    """

    observation: ArrayLike
    action: ArrayLike
    reward: float
    next_observation: ArrayLike
    terminated: bool
    discount: float
    guide_action: ArrayLike = ()


class Batch(NamedTuple):
    """Transitions as float32 columns with ``batch`` rows each.

    ``reward`` may be the discounted sum over n steps. ``discount`` is then gamma to the power of that number of steps,
    so the target is ``reward + discount * (1 - terminated) * Q``. ``guide_action`` has no columns unless the policy
    imitates.
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    terminated: Tensor
    discount: Tensor
    guide_action: Tensor = torch.empty(0)

    @classmethod
    def of(cls, rows: Tensor, observation_size: int, action_size: int) -> "Batch":
        """Return the columns of packed rows (batch, width), as views."""
        imitates = rows.shape[1] > sum(row_widths(observation_size, action_size))
        return cls(*torch.split(rows, row_widths(observation_size, action_size, imitates), dim=1))


def row_widths(observation_size: int, action_size: int, imitates: bool = False) -> list[int]:
    """Return how many numbers of a packed row each column of a :class:`Batch` has."""
    return [observation_size, action_size, 1, observation_size, 1, 1, action_size if imitates else 0]


class ReplayBuffer:
    """Keep up to ``capacity`` transitions, each packed into one float32 row so that sampling is one gather.

    Memory is used as the buffer fills: 4 * (2 * observation + action + 3) bytes per transition, 4 * action more where a
    policy ``imitates``.
    """

    def __init__(self, capacity: int, observation_size: int, action_size: int, imitates: bool = False) -> None:
        self.capacity = capacity
        self._sizes = observation_size, action_size
        self._edges = np.cumsum([0, *row_widths(*self._sizes, imitates)])
        width = int(self._edges[-1])
        try:
            self._rows = np.empty((capacity, width), dtype=np.float32)
        except MemoryError:
            raise ConfigError(
                f"a replay of {capacity} transitions needs {4e-9 * capacity * width:.3g} GB, more than there is; "
                "lower agent.replay_capacity"
            ) from None
        self.size = 0
        self._next = 0

    def add(self, transitions: Sequence[Transition]) -> None:
        """Store transitions, in order, each in place of the oldest."""
        for first in range(0, len(transitions), self.capacity):
            self._add(transitions[first : first + self.capacity])

    def _add(self, transitions: Sequence[Transition]) -> None:
        """Store transitions, at most ``capacity`` of them."""
        places = (self._next + np.arange(len(transitions))) % self.capacity
        for (start, stop), column in zip(pairwise(self._edges), zip(*transitions, strict=True), strict=True):
            if stop > start:
                self._rows[places, start:stop] = np.array(column, np.float32).reshape(len(transitions), -1)
        self._next = (self._next + len(transitions)) % self.capacity
        self.size = min(self.size + len(transitions), self.capacity)

    @property
    def rows(self) -> NDArray[np.float32]:
        """All rows (capacity, width), packed in the order of a :class:`Batch`; only the first ``size`` are filled."""
        return self._rows

    def draw(self, batch_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the row indices of a batch uniformly, with replacement."""
        return rng.integers(0, self.size, batch_size)

    def sample(self, batch_size: int, rng: np.random.Generator, device: torch.device) -> Batch:
        """Draw transitions uniformly, with replacement."""
        rows = torch.from_numpy(self._rows.take(self.draw(batch_size, rng), axis=0)).to(device)
        return Batch.of(rows, *self._sizes)

    @property
    def largest_reward(self) -> float:
        """Largest magnitude of a stored reward; 0 while the buffer is empty."""
        rewards = self._rows[: self.size, self._edges[2]]
        return float(np.abs(rewards).max()) if self.size else 0.0

    def state(self) -> tuple[dict[str, NDArray[np.float32]], dict[str, int]]:
        """Return the filled rows (the oldest is overwritten in place, not rotated) and the index of the next write."""
        return {"rows": self._rows[: self.size]}, {"next": self._next}

    def load_state(self, arrays: dict[str, NDArray[np.float32]], counters: dict[str, int]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            CheckpointError: The rows have another width, or exceed this capacity.
        """
        rows = arrays["rows"]
        if rows.shape[1] != self._rows.shape[1] or len(rows) > self.capacity:
            raise CheckpointError(
                f"the saved replay holds {rows.shape[0]} rows of {rows.shape[1]} numbers, but this run has room "
                f"for {self.capacity} rows of {self._rows.shape[1]}; resume with the run's own configuration"
            )
        if self.size == 0 and len(rows) == self.capacity:
            self._rows = np.ascontiguousarray(rows)
        else:
            self._rows[: len(rows)] = rows
        self.size = len(rows)
        self._next = counters["next"]
