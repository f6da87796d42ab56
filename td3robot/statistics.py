"""Statistics of measured figures: a proportion's interval, and the percentiles of durations."""

from collections.abc import Iterable
from math import sqrt

import numpy as np


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute the 95 % Wilson score interval of a proportion (Wilson 1927)."""
    z = 1.959963984540054
    p = successes / trials
    center = p + z * z / (2 * trials)
    spread = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Compute ``p50``, ``p99`` and ``max``, interpolated between neighbours; None without values."""
    found = np.fromiter(values, np.float64)
    if not len(found):
        return None
    p50, p99 = np.percentile(found, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "max": float(found.max())}


def nearest_percentiles(values: Iterable[float]) -> dict[str, float]:
    """Pick ``p50``, ``p99`` and ``max`` among the values themselves, by rank; empty without values.

    Pure Python, for the loop of a real-time process: sorting a few hundred floats needs no array.
    """
    ordered = sorted(values)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for name, share in shares.items()}
