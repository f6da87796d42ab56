"""What deployment needs from every physical robot of any make: checks, status, control, recovery.

A driver is one class that implements :class:`PhysicalRobot`, and one cell type that makes it
(:mod:`td3robot.robots.cells`). Nothing above knows the vendor.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter, sleep
from typing import Any, ClassVar

import numpy as np

from td3robot.errors import RobotError
from td3robot.robots.interface import Robot, RobotSpec
from td3robot.state import Array, Pose
from td3robot.statistics import percentiles

GO, OPTIONAL, ATTENTION, NO_GO = "go", "optional", "attention", "no-go"
# Bin edges of the histograms [ms].
EDGES_MS = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 40.0, 80.0, 150.0, float("inf"))
# Number of round trips to measure, and the pause between them [s].
QUESTIONS, PAUSE_S = 50, 0.01
# A payload that is off by more than this makes the arm sag and its collision detection err.
PAYLOAD_KG = 0.3


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

    def payload(self, found_kg: float, mass_kg: float, advice: str) -> None:
        """Compare the payload set at the controller with the gripper's mass."""
        good = abs(found_kg - mass_kg) < PAYLOAD_KG
        self.add("payload", f"{mass_kg:g} kg, within {PAYLOAD_KG:g}", f"{found_kg:.2f} kg", good, advice)

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


@dataclass(frozen=True, slots=True)
class Status:
    """What every driver reports besides a :class:`~td3robot.state.RobotState`; a driver may add its own fields.

    Attributes:
        stamp: When the latest state was received, on this computer's monotonic clock [s].
        controller_time: Time of the latest state, on the controller's clock [s].
        state_age_s: Time since the latest state was received.
        missed_ticks: Control periods that were over before ``advance`` was called, since ``connect``.
        fault: The latched reason why nothing is sent any more, or None.
    """

    stamp: float
    controller_time: float
    state_age_s: float
    missed_ticks: int
    fault: str | None


class PhysicalRobot(Robot):
    """An arm that keeps its own time, and that people stand next to. A stand-in is driven by the same driver.

    It is opened for reading (``passive``) or for control. Reading starts no program on the controller and moves
    nothing, not even the gripper; :meth:`take_control` goes from reading to control.

    Faults latch: after the first, ``read``, ``send``, ``advance`` and ``take_control`` raise its reason until the
    operator calls :meth:`recover`; nothing else ever clears an error of the robot. ``stop`` and ``close`` are always
    legal.

    Args:
        spec: The robot that it has to be.
        passive: Open for reading only.

    Attributes:
        facts: Plain values that the controller reports about itself, known once connected. ``serial_number`` names
            the robot in the ledger, and is the only key that everything needs; people read the others in records.
        console: Where people configure the controller, in words: "the pendant".
        max_contact_force_n: The guard's limit of the force at the tool, set before the robot is opened for control; a
            driver whose robot estimates no force leaves it.
    """

    max_contact_force_n: float = inf
    teleports: ClassVar[bool] = False
    console: ClassVar[str] = "the pendant"

    def __init__(self, spec: RobotSpec, passive: bool) -> None:
        super().__init__(spec)
        self.passive = passive
        self.facts: dict[str, Any] = {}

    @property
    @abstractmethod
    def fault(self) -> str | None:
        """The latched reason why nothing is sent any more, or None. Readable from any thread, without waiting."""

    @property
    @abstractmethod
    def state_period_s(self) -> float:
        """Nominal time between two measured states."""

    @property
    @abstractmethod
    def max_state_age_s(self) -> float:
        """Age of the latest state above which the driver reports a fault."""

    @abstractmethod
    def status(self) -> Status:
        """Return the latest status; a fault is reported in it, not raised.

        Raises:
            RobotError: The robot is not connected.
        """

    @abstractmethod
    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles (n,) [rad], and the tool pose that the controller itself computes for them.

        The pose is that of the tool centre point set at the controller, in the base frame, in the convention of
        ``spec``: z out of the tool, x along the pads' closing direction.

        Raises:
            RobotError: The robot is not connected.
        """

    @abstractmethod
    def take_control(self) -> None:
        """Get ready to send commands: connect, or go from reading to control. The arm does not move.

        Raises:
            RobotError: A fault is latched, or the controller refuses control.
        """

    @abstractmethod
    def activate_gripper(self) -> None:
        """Activate the gripper, which may close and open its fingers; only while the robot is not connected.

        Raises:
            RobotError: It is in use, or did not become ready.
        """

    @abstractmethod
    def recover(self, activate_gripper: bool = False) -> None:
        """Recover the robot from a fault at the operator's explicit word, and take control.

        The arm does not move. With ``activate_gripper``, the fingers may move and drop what they hold.

        Raises:
            RobotError: The cause is still there, or needs hands at the controller; the fault stays.
        """

    @abstractmethod
    def check_controller(self, check: Check) -> bool:
        """Add findings made before connecting: identity, modes, safety state, response times.

        All checks are made, whatever they find.

        Returns:
            Whether connecting makes sense.
        """

    @abstractmethod
    def check_settings(self, check: Check) -> None:
        """Add findings that only this driver can make once connected: settings, payload, calibration of the gripper.

        What applies to every robot is checked elsewhere: contract, stream of states, posture, tool pose, objects.
        """
