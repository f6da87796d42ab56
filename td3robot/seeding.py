"""Independent named random streams from one run seed."""

from enum import IntEnum
from typing import Any

import numpy as np


class Stream(IntEnum):
    """The purpose of a random stream. Values are part of the saved format: append, never renumber."""

    AGENT = 0
    EXPLORATION = 1
    REPLAY = 2
    TRAINING_EPISODES = 3
    EVALUATION_EPISODES = 4
    SELECTION_EPISODES = 5
    HINDSIGHT = 6


def generator(seed: int, stream: Stream, *keys: int) -> np.random.Generator:
    """Return the generator of one stream of a run, or of one item of the stream."""
    return np.random.default_rng(np.random.SeedSequence([seed, stream, *keys]))


def integer(seed: int, stream: Stream, *keys: int) -> int:
    """Return a 32-bit seed for one item of a stream, such as an environment's n-th episode."""
    return int(np.random.SeedSequence([seed, stream, *keys]).generate_state(1)[0])


def state(rng: np.random.Generator) -> dict[str, Any]:
    """Return a generator's state as plain values."""
    return dict(rng.bit_generator.state)


def restore(rng: np.random.Generator, saved: dict[str, Any]) -> None:
    """Restore what :func:`state` returned."""
    rng.bit_generator.state = saved
