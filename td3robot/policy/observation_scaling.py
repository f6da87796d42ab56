"""How an observation is scaled before a network sees it; plain NumPy, so that play needs no torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Moments = dict[str, NDArray[np.float64]]

# A component that hardly moved in training is not blown up: a simulated gripper rests within 0.1 mrad of one angle, and
# a real one, a few milliradians off, would saturate the networks.
MIN_DEVIATION = 0.02
CLIP = 10.0


@dataclass(frozen=True, slots=True)
class ObservationScaling:
    """``clip((observation - shift) * scale, -clip, clip)``; ``shift`` and ``scale`` are (observation,) float32."""

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]
    clip: np.float32

    @classmethod
    def from_moments(cls, moments: Moments) -> "ObservationScaling":
        """Make the scaling of a normaliser's saved state: the identity where it was disabled."""
        mean, variance = moments["mean"], moments["variance"]
        if not moments["enabled"][0]:
            size = len(mean)
            return cls(np.zeros(size, np.float32), np.ones(size, np.float32), np.float32(np.inf))
        scale = 1.0 / np.maximum(np.sqrt(variance), MIN_DEVIATION)
        return cls(mean.astype(np.float32), scale.astype(np.float32), np.float32(CLIP))

    def __call__(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale observations (..., observation)."""
        scaled: NDArray[np.float32] = np.clip((observation - self.shift) * self.scale, -self.clip, self.clip)
        return scaled
