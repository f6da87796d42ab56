"""Curves of any length in bounded memory."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Rows that are reduced at a time.
BLOCK = 1024


class Trace:
    """Rows of numbers over time: all of them up to a number, then the smallest and largest of neighbouring rows.

    Args:
        channels: Numbers in a row.
        most: Points that are kept at most, a power of two.

    Attributes:
        rows_per_point: How many rows each point stands for; 1 means that nothing was left out.
    """

    def __init__(self, channels: int, most: int = 2048) -> None:
        self.rows_per_point = 1
        self._most, self._channels = most, channels
        self._pending: list[Sequence[float]] = []
        self._times, self._low, self._high = np.empty(0), np.empty((0, channels)), np.empty((0, channels))

    def add(self, time: float, values: Sequence[float]) -> None:
        """Add a row; NaN for what is not known."""
        self._pending.append((time, *values))
        if len(self._pending) >= max(BLOCK, 2 * self.rows_per_point):
            self._reduce()

    def gap(self, time: float) -> None:
        """Interrupt the curves, where nothing was going on."""
        self.add(time, (np.nan,) * self._channels)

    def __len__(self) -> int:
        return len(self._times) + len(self._pending)

    def points(self) -> tuple[Array, Array, Array]:
        """Return times (k,), and the smallest and largest values (k, channels) of each point's rows."""
        self._reduce()
        return self._times, self._low, self._high

    def curve(self, channel: int) -> tuple[Array, Array]:
        """Return the times and values that draw a channel: both extremes of a point that stands for more rows."""
        times, low, high = self.points()
        if self.rows_per_point == 1:
            return times, low[:, channel]
        return np.repeat(times, 2), np.stack([low[:, channel], high[:, channel]], axis=1).ravel()

    def _reduce(self) -> None:
        if not self._pending:
            return
        rows = np.array(self._pending, np.float64)
        self._pending = []
        self._append(*_merged(rows[:, 0], rows[:, 1:], rows[:, 1:], self.rows_per_point))
        while len(self._times) > self._most:
            self._times, self._low, self._high = _merged(self._times, self._low, self._high, 2)
            self.rows_per_point *= 2

    def _append(self, times: Array, low: Array, high: Array) -> None:
        self._times = np.concatenate([self._times, times])
        self._low, self._high = np.concatenate([self._low, low]), np.concatenate([self._high, high])


def _merged(times: Array, low: Array, high: Array, by: int) -> tuple[Array, Array, Array]:
    """Merge neighbouring points; the last one may have fewer."""
    if by == 1:
        return times, low, high
    starts = np.arange(0, len(times), by)
    return times[starts], np.fmin.reduceat(low, starts, axis=0), np.fmax.reduceat(high, starts, axis=0)


def packed(values: Array) -> dict[str, Any]:
    """Pack numbers as plotly reads them: base64 of 32-bit floats. What is not finite draws nothing."""
    finite = np.where(np.isfinite(values), values, np.nan).astype("<f4")
    return {"dtype": "f4", "bdata": base64.b64encode(finite.tobytes()).decode("ascii")}
