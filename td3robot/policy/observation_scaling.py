"""Scaling of observations before a network sees them; plain NumPy, so that play needs no torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Moments = dict[str, NDArray[np.float64]]
# Groups of a checkpoint: the scaling of observations, and that of what only critics see.
NORMALIZER, PRIVILEGED = "normalizer", "privileged_normalizer"

# Keeps a component that hardly moved in training from being blown up: a simulated gripper rests within 0.1 mrad of one
# angle, and a real one, a few milliradians off, would saturate the networks.
MIN_DEVIATION = 0.02
CLIP = 10.0
# Bound of any observation's mean or variance; its square still fits a float32.
LARGEST = 1e18


@dataclass(frozen=True, slots=True)
class ObservationScaling:
    """``clip((observation - shift) * scale, -clip, clip)``; ``shift`` and ``scale`` are (observation,) float32."""

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]
    clip: np.float32

    @classmethod
    def from_moments(cls, moments: Moments) -> "ObservationScaling":
        """Return the scaling of a normaliser's saved state: the identity if it was disabled."""
        mean, variance = moments["mean"], moments["variance"]
        if not moments["enabled"][0]:
            size = len(mean)
            return cls(np.zeros(size, np.float32), np.ones(size, np.float32), np.float32(np.inf))
        scale = 1.0 / np.maximum(np.sqrt(variance), MIN_DEVIATION)
        return cls(mean.astype(np.float32), scale.astype(np.float32), np.float32(CLIP))

    def __call__(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scaled observations (..., observation)."""
        scaled: NDArray[np.float32] = np.clip((observation - self.shift) * self.scale, -self.clip, self.clip)
        return scaled


def columns(moments: Moments, which: slice) -> Moments:
    """Return a normaliser's state for some components alone."""
    return moments | {name: moments[name][which] for name in ("mean", "variance")}


def joined(first: Moments, second: Moments) -> Moments:
    """Return one normaliser's state for the components of two that saw the same moments."""
    return first | {name: np.concatenate([first[name], second[name]]) for name in ("mean", "variance")}


def require_moments(moments: Moments) -> None:
    """Refuse arrays that are not a normaliser's state.

    Raises:
        ValueError: Naming what is missing, misshapen or impossible.
    """
    for name, size in (("enabled", 1), ("count", 1), ("mean", None), ("variance", None)):
        if name not in moments:
            raise ValueError(f"{name} is missing")
        array = moments[name]
        if array.ndim != 1 or (size is not None and len(array) != size):
            raise ValueError(f"{name} has shape {array.shape}")
        if array.dtype.kind not in "fb" or not (np.abs(array.astype(np.float64)) < LARGEST).all():
            raise ValueError(f"{name} is of type {array.dtype}, or holds a number beyond {LARGEST:g}")
    if len(moments["mean"]) != len(moments["variance"]):
        raise ValueError(f"mean has {len(moments['mean'])} numbers and variance {len(moments['variance'])}")
    if (moments["variance"] < 0.0).any() or moments["count"][0] < 0.0:
        raise ValueError("a variance or the count is negative")
    if moments["enabled"][0] not in (0.0, 1.0):
        raise ValueError(f"enabled is {moments['enabled'][0]:g}, which is neither 0 nor 1")
