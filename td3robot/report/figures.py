"""The figures of episodes, in simulation, in a rehearsal and on an arm: their titles and units, and what differs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from td3robot.format import NONE, capital, ended_by, failures, guard_reason, interval, number, percent, succeeded
from td3robot.report.html import Table

Figures = dict[str, Any]
# Smallest relative difference that is mentioned.
NOTABLE = 0.05


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that is compared.

    Attributes:
        name: Its column's title.
        figures: Those of :func:`td3robot.deploy.report.summarize` or of an ``Evaluation``; what is missing is a dash.
    """

    name: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        value: The number that is compared, in ``unit``; None where it was not measured.
        noun: What a sentence calls it.
        show: How a table shows it, where the number alone does not do.
        least: A difference below this is not worth a sentence, in ``unit``.
    """

    title: str
    value: Callable[[Figures], float | None]
    unit: str = ""
    noun: str = ""
    show: Callable[[Figures], str] | None = None
    least: float = 0.0

    def text(self, figures: Figures) -> str:
        """Write it."""
        return self.show(figures) if self.show else number(self.value(figures), unit=self.unit)


def _inner(*keys: str, scale: float = 1.0) -> Callable[[Figures], float | None]:
    def read(figures: Figures) -> float | None:
        """Return the number at the keys, scaled; None if it is not known."""
        value: Any = figures
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return scale * value if isinstance(value, int | float) else None

    return read


def _pair(key: str) -> Callable[[Figures], str]:
    def show(figures: Figures) -> str:
        """Write median, 99th percentile and maximum."""
        found = figures.get(key)
        return f"{number(found['p50'])} / {number(found['p99'])} / {number(found['max'])} ms" if found else NONE

    return show


def _changed(figures: Figures) -> float | None:
    found = figures.get("guard_interventions")
    return None if found is None else 100.0 * float(found.get("any", 0.0))


def _beside_training(key: str, unit: str, scale: float) -> Callable[[Figures], str]:
    value = _inner("gripper", key, scale=scale)

    def show(figures: Figures) -> str:
        """Write a figure of the gripper, and the range of training."""
        found, text = figures.get("gripper"), number(value(figures), unit=unit)
        if found is None or (trained := found.get(f"trained_{key}")) is None:
            return text
        low, high = (number(scale * bound) for bound in trained)
        return f"{text} (trained with {low if low == high else f'{low} to {high}'})"

    return show


ROWS = (
    Row("Successful episodes, with 95 % interval", _inner("success_rate"), show=succeeded),
    Row("Why episodes failed", lambda figures: None, show=failures),
    Row("Mean distance from the goal at the end", _inner("mean_final_distance_m", scale=1e3), "mm",
        "the distance from the goal at the end", least=0.5),
    Row("Mean return", _inner("mean_return"), noun="the mean return"),
    Row("Fastest tool motion", _inner("max_tcp_speed_m_s", scale=1e3), "mm/s", "the fastest tool motion"),
    Row("Fastest joint motion", _inner("max_joint_speed_rad_s"), "rad/s", "the fastest joint motion"),
    Row("Objects pushed before the grip, 95th percentile (simulation only)",
        _inner("handling", "push_p95_m", scale=1e3), "mm", "the push before the grip", least=1.0),
    Row("Largest force of a finger on an object before the grip (simulation only)",
        _inner("handling", "max_force_before_grip_n"), "N", "the force before the grip", least=1.0),
    Row("Largest force at the tool, by the robot's own estimate", _inner("max_tool_force_n"), "N",
        "the force at the tool", least=5.0),
    Row("Joint tracking error while moving, rms (servo lag included)", _inner("tracking", "rms_rad", scale=1e3), "mrad",
        "the joint tracking error"),
    Row("Joint tracking error, largest", _inner("tracking", "max_rad", scale=1e3), "mrad"),
    Row("Joint tracking error at the end of episodes", _inner("tracking", "at_end_rad", scale=1e3), "mrad"),
    Row("Gripper: from a new position to its first motion", _inner("gripper", "delay_s", scale=1e3), "ms",
        "the gripper's delay", _beside_training("delay_s", "ms", 1e3), least=20.0),
    Row("Gripper: speed of closing, of its fastest", _inner("gripper", "speed", scale=100.0), "%",
        "the gripper's speed of closing", _beside_training("speed", "%", 100.0), least=5.0),
    Row("Control periods changed by the guard", _changed, "%", "the share of periods changed by the guard", least=0.5),
    Row("Time to decide: median / 99th percentile / longest", _inner("decide_ms", "p50"), "ms", "the time to decide",
        _pair("decide_ms"), least=0.5),
    Row("Age of the measured state: median / 99th percentile / longest", _inner("state_age_ms", "p50"), "ms",
        "the age of the measured state", _pair("state_age_ms"), least=0.5),
    Row("Missed control ticks", _inner("missed_ticks"), noun="the number of missed ticks",
        show=lambda figures: f"{figures['missed_ticks']} of {figures['steps']}" if "missed_ticks" in figures else NONE),
    Row("Episodes ended by", lambda figures: None, show=lambda figures: ended_by(figures.get("ended"))),
)  # fmt: skip


def comparison_table(subjects: Sequence[Subject]) -> Table:
    """Lay figures out side by side; rows that nobody has are left out."""
    rows = [[row.title, *(row.text(subject.figures) for subject in subjects)] for row in ROWS]
    return Table(
        ["", *(capital(subject.name) for subject in subjects)], [row for row in rows if set(row[1:]) != {NONE}], [0]
    )


def differences(subjects: Sequence[Subject]) -> list[str]:
    """Return a sentence for each notable difference, the success rate first."""
    measured = [subject for subject in subjects if subject.figures.get("success_ci95")]
    found = [_success_sentence(measured)] if len(measured) > 1 else []
    for row in ROWS[1:]:
        values = [(subject.name, value) for subject in subjects if (value := row.value(subject.figures)) is not None]
        if row.noun and len(values) > 1 and (sentence := _difference(row, values)):
            found.append(sentence)
    return found


def _success_sentence(subjects: Sequence[Subject]) -> str:
    ordered = sorted(subjects, key=lambda subject: subject.figures["success_rate"])
    worst, best = ordered[0], ordered[-1]
    if best.figures["success_rate"] == worst.figures["success_rate"]:
        return f"All succeed equally often: {percent(best.figures['success_rate'])} of their episodes."
    overlap = worst.figures["success_ci95"][1] >= best.figures["success_ci95"][0]
    certainty = (
        "; the 95 % intervals overlap, so this may be chance" if overlap else "; the 95 % intervals do not overlap"
    )
    return capital(
        f"{best.name} succeeds more often than {worst.name}: {percent(best.figures['success_rate'])} "
        f"({interval(best.figures['success_ci95'])}) against {percent(worst.figures['success_rate'])} "
        f"({interval(worst.figures['success_ci95'])}){certainty}."
    )


def _difference(row: Row, values: Sequence[tuple[str, float]]) -> str | None:
    (low_name, low), (high_name, high) = min(values, key=lambda v: v[1]), max(values, key=lambda v: v[1])
    larger = max(abs(low), abs(high))
    if high - low <= max(NOTABLE * larger, row.least):
        return None
    share = f", {100 * (high - low) / low:.0f} % more" if low > 0 and (high - low) / low < 3 else ""
    noun = capital(row.noun)
    least, most = number(low, unit=row.unit), number(high, unit=row.unit)
    return f"{noun} is larger for {high_name} than for {low_name}: {most} against {least}{share}."


def interventions_table(figures: Figures) -> Table | None:
    """List the share of periods that the guard changed, by reason; None where there is no guard."""
    shares = figures.get("guard_interventions")
    if not shares:
        return None
    order = sorted(shares, key=lambda name: (name != "any", -shares[name]))
    rows = [[capital(guard_reason(name)), percent(shares[name])] for name in order]
    return Table(["Why the guard changed what the policy asked for", "Share of control periods"], rows)
