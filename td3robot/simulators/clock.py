"""Measures how well the stand-in keeps its 500 Hz."""

import resource
import time
from collections import deque
from typing import Any

import numpy as np


class Clock:
    """Count ticks, and how late they were.

    Attributes:
        lost_s: Time that was given up instead of caught up.
    """

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=5000)
        self.worst_s = self.lost_s = 0.0
        self.ticks = 0
        self.is_real_time = False
        self._started, self._used_s = time.monotonic(), _cpu_s()

    def count(self, late_s: float) -> None:
        """Count a tick that was late by ``late_s`` [s]."""
        self.ticks += 1
        self._late.append(late_s)
        self.worst_s = max(self.worst_s, late_s)

    def to_json(self) -> dict[str, Any]:
        """Return the figures; percentiles are those of the last ten seconds."""
        p50, p99 = np.percentile(self._late, [50, 99]) if self._late else (0.0, 0.0)
        wall = time.monotonic() - self._started
        return {
            "ticks": self.ticks,
            "late_p50_s": float(p50),
            "late_p99_s": float(p99),
            "late_worst_s": self.worst_s,
            "lost_s": self.lost_s,
            "real_time_priority": self.is_real_time,
            "cpu_fraction": (_cpu_s() - self._used_s) / wall,
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
