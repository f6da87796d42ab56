"""Quantiles of durations. Plain Python: the worker process imports little."""

from collections.abc import Iterable


def quantiles_ms(name: str, seconds: Iterable[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum of durations as ``<name>_p50_ms`` and so on; empty without any."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {
        f"{name}_{label}_ms": 1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]
        for label, share in shares.items()
    }
