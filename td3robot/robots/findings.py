"""Findings of a check: go, optional, attention or no-go, line by line, with measured times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

import numpy as np

from td3robot.errors import RobotError
from td3robot.statistics import percentiles

GO, OPTIONAL, ATTENTION, NO_GO = "go", "optional", "attention", "no-go"
# Bin edges of the histograms [ms].
EDGES_MS = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 40.0, 80.0, 150.0, float("inf"))
# Number of round trips to measure, and the pause between them [s].
QUESTIONS, PAUSE_S = 50, 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes:
        name: What was checked.
        expected, found: In words.
        verdict: ``go``, ``optional`` (only some need it), ``attention`` (a person decides) or ``no-go``.
        advice: What to do, unless the verdict is ``go``.
    """

    name: str
    expected: str
    found: str
    verdict: str
    advice: str = ""


@dataclass(slots=True)
class Check:
    """Collect findings; a driver adds those that only it can make.

    Attributes:
        histograms: Measured times [ms] by name: percentiles, and counts between ``EDGES_MS``.
        facts: What the robot reports about itself; see :class:`~td3robot.robots.physical.PhysicalRobot`.
    """

    findings: list[Finding] = field(default_factory=list)
    histograms: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def go(self) -> bool:
        """Whether no finding is a no-go."""
        return all(finding.verdict != NO_GO for finding in self.findings)

    @property
    def objection(self) -> str | None:
        """The first no-go in one sentence, or None."""
        for finding in self.findings:
            if finding.verdict == NO_GO:
                return f"{finding.name}: {finding.found}, wanted {finding.expected}; {finding.advice}{self._others()}"
        return None

    def _others(self) -> str:
        more = [finding.name for finding in self.findings if finding.verdict == NO_GO][1:]
        return f" (more no-go: {', '.join(more)}; --mode check shows all)" if more else ""

    def add(self, name: str, expected: str, found: str, good: bool, advice: str, otherwise: str = NO_GO) -> None:
        """Add a finding; ``otherwise`` is its verdict if it is not good."""
        self.findings.append(
            Finding(name, expected, found, GO if good else otherwise, "" if good else advice or "see docs/deploy.md")
        )

    def answers(self, name: str, question: Callable[[], None]) -> bool:
        """Ask the robot a question and return whether it answered; a :class:`RobotError` becomes a no-go."""
        try:
            question()
        except RobotError as error:
            self.add(name, "an answer", "no valid answer", False, str(error))
            return False
        return True

    def measured(self, name: str, times_s: Sequence[float]) -> dict[str, float] | None:
        """Add a histogram of times [s] and return its percentiles [ms], or None if there are no times."""
        times = [1e3 * time for time in times_s]
        found = percentiles(times)
        if found is not None:
            counts, _ = np.histogram(times, EDGES_MS)
            self.histograms[name] = found | {"counts": counts.tolist()}
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "go": self.go,
            "findings": [{name: getattr(finding, name) for name in Finding.__slots__} for finding in self.findings],
            "edges_ms": list(EDGES_MS[:-1]),
            "histograms": self.histograms,
            "facts": self.facts,
        }


def in_words(percentiles_ms: dict[str, float]) -> str:
    """Format percentiles [ms] for a finding."""
    return "p50 {p50:.1f}, p99 {p99:.1f}, max {max:.1f} ms".format_map(percentiles_ms)


def round_trips(question: Callable[[], object]) -> list[float]:
    """Return the round-trip times of a question [s], asked :data:`QUESTIONS` times."""
    times = []
    for _ in range(QUESTIONS):
        begin = perf_counter()
        question()
        times.append(perf_counter() - begin)
        sleep(PAUSE_S)
    return times
