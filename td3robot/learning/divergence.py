"""Detects a diverged learner: values that are not finite, or that no return can explain."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from td3robot.errors import CheckpointError, TrainingDivergedError
from td3robot.learning.agent import Agent
from td3robot.policy.checkpoint import find

# Q values beyond the largest possible return by this factor are no longer an estimate. Critics that have not learned
# yet are off by less: their outputs are about as large as their observations.
FACTOR = 1e4


def require_finite(agent: Agent, step: int, run: Path) -> None:
    """Require that every learned number of the agent is finite.

    Raises:
        TrainingDivergedError: Naming the first network or optimizer with one that is not.
    """
    groups = agent.tensors()
    groups["normalizer"] = {name: torch.from_numpy(values) for name, values in agent.normalizer.state().items()}
    for name, tensors in groups.items():
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise diverged(f"{name} is no longer finite", step, run)


def require_finite_actions(actions: NDArray[np.floating], step: int, run: Path) -> None:
    """Require that the policy's actions are finite; otherwise the environment would be blamed for the consequences.

    Raises:
        TrainingDivergedError: One is not.
    """
    if not np.isfinite(actions).all():
        raise diverged("the policy's action is no longer finite", step, run)


def require_converging(figures: Mapping[str, float], largest_reward: float, gamma: float, step: int, run: Path) -> None:
    """Require that the learner's figures are finite, and its Q values not far beyond any possible return.

    Args:
        figures: Figures of a row of metrics.
        largest_reward: The largest magnitude of a reward in the replay buffer.
        gamma: Discount factor per step.
        step: The run's step.
        run: Its directory.

    Raises:
        TrainingDivergedError: Naming the figure.
    """
    bound = FACTOR * (1.0 + largest_reward / (1.0 - gamma))
    for name, value in figures.items():
        if name.startswith("learner/") and not np.isfinite(value):
            raise diverged(f"{name} is {value}", step, run)
        if name == "learner/Q1_mean" and abs(value) > bound:
            raise diverged(f"{name} is {value:.3g}, and rewards allow no return above {bound / FACTOR:.3g},", step, run)


def diverged(what: str, step: int, run: Path) -> TrainingDivergedError:
    """Return the error that says what diverged, and what to do."""
    slower = "--set agent.learning_rate=..."
    try:
        good = find(run, ("last",))
    except CheckpointError:
        advice = f"begin again with a lower learning rate ({slower})"
    else:
        advice = (
            f"{good.name} is from before; resume it with a lower learning rate: td3robot train --resume {run} {slower} "
            '--changed "it diverged"'
        )
    return TrainingDivergedError(
        f"{what} at step {step}: the learner diverged, and nothing of that was saved; {advice}"
    )
