"""Observation scaling by running mean and variance, for the learner."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from td3robot.policy.observation_scaling import Moments, ObservationScaling


class RunningNormalizer:
    """Scale each observation component to zero mean and unit variance over all observations so far.

    Mean and variance are merged batch by batch in float64 (Chan, Golub and LeVeque 1983). A disabled
    normaliser leaves observations unchanged and is saved like any other, so that play needs no special case.

    Attributes:
        scaling: The current scaling.
    """

    def __init__(self, size: int, enabled: bool, device: torch.device) -> None:
        self._device = device
        self._moments: Moments = {
            "enabled": np.array([float(enabled)]),
            "count": np.zeros(1),
            "mean": np.zeros(size),
            "variance": np.ones(size),
        }
        self.enabled = enabled
        self._publish()

    def update(self, observations: ArrayLike) -> None:
        """Merge a batch of observations (batch, size)."""
        if not self.enabled:
            return
        batch = np.asarray(observations, dtype=np.float64)
        moments = self._moments
        seen, mean, variance = moments["count"][0], moments["mean"], moments["variance"]
        total = seen + len(batch)
        delta = batch.mean(axis=0) - mean
        squares = variance * seen + batch.var(axis=0) * len(batch) + delta**2 * (seen * len(batch) / total)
        self._moments = moments | {
            "count": np.array([total]),
            "mean": mean + delta * (len(batch) / total),
            "variance": squares / total,
        }
        self._publish()

    def __call__(self, observation: Tensor) -> Tensor:
        """Scale observations (batch, size)."""
        if not self.enabled:
            return observation
        return ((observation - self._shift) * self._scale).clamp_(-self._clip, self._clip)

    def state(self) -> Moments:
        """Return mean, variance, count and whether it is enabled, for a checkpoint."""
        return self._moments

    def load_state(self, moments: Moments) -> None:
        """Restore what :meth:`state` returned."""
        self._moments = {name: value.copy() for name, value in moments.items()}
        self.enabled = bool(moments["enabled"][0])
        self._publish()

    def _publish(self) -> None:
        self.scaling = scaling = ObservationScaling.from_moments(self._moments)
        self._shift = torch.from_numpy(scaling.shift).to(self._device)
        self._scale = torch.from_numpy(scaling.scale).to(self._device)
        self._clip = float(scaling.clip)
