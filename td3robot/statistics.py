"""Statistics of measured figures: confidence intervals of proportions and means, and percentiles of durations."""

from array import array
from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute the 95 % Wilson score interval of a proportion (Wilson 1927)."""
    z = 1.959963984540054
    p = successes / trials
    center = p + z * z / (2 * trials)
    spread = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Compute the 95 % interval of a mean by Student's t distribution (Student 1908), or None of fewer than two."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # takes a fifth of a second, and only evaluations need it

    center = float(np.mean(values))
    spread = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1)) / sqrt(len(values))
    return center - spread, center + spread


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Compute ``p50``, ``p99`` and ``max``, interpolated between neighbours, or None without values."""
    found = np.fromiter(values, np.float64)
    if not len(found):
        return None
    p50, p99 = np.percentile(found, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "max": float(found.max())}


def nearest_percentiles(values: Iterable[float]) -> dict[str, float]:
    """Return ``p50``, ``p99`` and ``max`` from the values themselves, by rank; empty without values.

    Pure Python, for the loop of a real-time process: sorting a few hundred floats needs no array.
    """
    ordered = sorted(values)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for name, share in shares.items()}


class Sample:
    """A bounded sample of values: all of them at first, then every second, every fourth, and so on.

    Args:
        most: How many are kept at most.

    Attributes:
        count: How many values were added.
        largest: The largest of all.
        square: Sum of the squares of all.
    """

    def __init__(self, most: int = 200_000) -> None:
        self.count, self.largest, self.square = 0, float("-inf"), 0.0
        self._most, self._every, self._kept = most, 1, array("d")

    def add(self, values: Sequence[float]) -> None:
        """Add values."""
        if not len(values):
            return
        found = np.asarray(values, np.float64)
        self.largest = max(self.largest, float(found.max()))
        self.square += float(found @ found)
        self._kept.extend(found[-self.count % self._every :: self._every])
        self.count += len(found)
        while len(self._kept) > self._most:
            self._kept, self._every = self._kept[::2], 2 * self._every

    @property
    def every(self) -> int:
        """One in this many values is kept."""
        return self._every

    def values(self) -> NDArray[np.float64]:
        """Return the kept values."""
        return np.array(self._kept)

    def percentiles(self) -> dict[str, float] | None:
        """Compute ``p50`` and ``p99`` of the kept values and ``max`` of all, or None without values."""
        found = percentiles(self._kept)
        return None if found is None else found | {"max": self.largest}
