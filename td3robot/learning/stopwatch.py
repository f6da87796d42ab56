"""Measures where a training's wall time goes."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

ACTIVITIES = ("simulation", "learner", "evaluation", "saving")


class Stopwatch:
    """Wall time by activity since the last reading; environments in another process count as time spent waiting."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._since = perf_counter()

    def timed(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, add the time it takes to ``name``, and return its result."""
        start = perf_counter()
        try:
            return function(*arguments)
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + perf_counter() - start

    def read(self) -> dict[str, float]:
        """Return the seconds by name since the last reading, with ``other`` and ``all``, and restart."""
        now = perf_counter()
        spent = {name: self._spent.get(name, 0.0) for name in ACTIVITIES}
        whole = now - self._since
        spent |= {"other": whole - sum(spent.values()), "all": whole}
        self._spent, self._since = {}, now
        return spent
