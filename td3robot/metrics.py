"""A training's log: the one reader of its CSV files, and the charts in which every picture of it is drawn. No torch."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.errors import CheckpointError
from td3robot.format import GUARD_REASONS, capital, name_of
from td3robot.statistics import wilson_interval

Array = NDArray[np.float64]
# By column name: (step, value) of every row that has one. Columns of evaluations begin with ``EVALUATION``.
Log = dict[str, list[tuple[float, float]]]

METRICS, EVALUATIONS = "metrics.csv", "evaluations.csv"
EVALUATION = "evaluation/"
STEPS = "environment steps"
# Eight colours that most kinds of colour blindness tell apart; a report's page has them for light and dark screens.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#a0529b", "#8a6d00", "#2fa3dc", "#6b7280", "#b0305f")
TIMES = {"simulation": "simulation", "learner": "learning", "evaluation": "evaluation", "saving": "saving",
         "other": "everything else"}  # fmt: skip
REWARDS = {"progress": "getting nearer", "precision": "being close", "settled": "resting at the goal",
           "smoothness": "penalty for jerky actions", "guard": "penalty for guard interventions"}  # fmt: skip
# Columns without a chart of their own: counters, and figures that the table of evaluations lists.
UNDRAWN = ("updates", *(f"{EVALUATION}{name}" for name in (
    "episodes", "mean_steps", "mean_final_distance_m", "max_tcp_speed_m_s", "max_joint_speed_rad_s")))  # fmt: skip


def read_log(run: Path, *names: str) -> Log:
    """Read the log of a run directory, without rows that a crash tore or that are still being written.

    Args:
        run: The run directory.
        *names: ``METRICS``, ``EVALUATIONS`` or both.

    Raises:
        CheckpointError: There is no such file, or it is not a table.
    """
    log: Log = {}
    for name in names:
        path, prefix = run / name, EVALUATION if name == EVALUATIONS else ""
        if not path.is_file():
            raise CheckpointError(f"{run} holds no {name}, so there is nothing to plot; give a run directory")
        try:
            text = path.read_text(encoding="utf-8-sig")
            for row in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()):
                _add(log, row, prefix)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from None
    return log


def present(run: Path) -> list[str]:
    """Return which of the log's files a run directory has."""
    return [name for name in (METRICS, EVALUATIONS) if (run / name).is_file()]


class FollowedLog:
    """The log of a run in training.

    Attributes:
        log: What was read by the last :meth:`refresh`.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._seen: list[tuple[int, int]] = []
        self.log: Log = {}

    def refresh(self) -> None:
        """Read the files again if they have changed; keep what was read if they are damaged now."""
        try:
            stats = [(self._run / name).stat() for name in present(self._run)]
            seen = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
            if seen != self._seen:
                self.log = read_log(self._run, *present(self._run))
                self._seen = seen
        except (CheckpointError, FileNotFoundError):
            return


def evaluations(log: Log) -> list[dict[str, Any]]:
    """Return every evaluation with its ``step`` and, where it has a success rate, ``success_ci95``."""
    rows: dict[float, dict[str, Any]] = {}
    for name, points in log.items():
        if name.startswith(EVALUATION):
            for step, value in points:
                rows.setdefault(step, {"step": int(step)})[name.removeprefix(EVALUATION)] = value
    for row in rows.values():
        episodes = int(row.get("episodes", 0))
        if episodes and "success_rate" in row:
            row["success_ci95"] = wilson_interval(round(row["success_rate"] * episodes), episodes)
    return [rows[step] for step in sorted(rows)]


@dataclass(frozen=True)
class Series:
    """One curve, in the unit of its chart.

    Attributes:
        label: Its name.
        x, y: (points,), with x increasing; NaN where the value is not known.
        low, high: (points,) ends of an area around it, or None.
        area: What the area is.
        color: Index of its colour.
        dashed, marked: Whether the line must be dashed, and whether its points are marked.
    """

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    area: str = ""
    color: int = 0
    dashed: bool = False
    marked: bool = False

    @property
    def has_dashes(self) -> bool:
        """Whether it is drawn dashed: asked for, or since a curve with a lower index has its colour."""
        return self.dashed or self.color // len(COLORS) % 2 == 1


@dataclass(frozen=True)
class Chart:
    """Curves over one axis; whoever shows it decides how it is drawn.

    Attributes:
        title: Title, without the unit.
        series: The curves.
        over: Title of the horizontal axis, with its unit.
        axis: Title of the vertical axis, without the unit.
        unit: Its unit; ``%`` for shares.
        about: A sentence or two on what it shows.
        section: Title of the group of charts to which it belongs.
        key: Its name in code; empty for a column that has no chart of its own.
        span: Lowest and highest value of the vertical axis; None leaves it to the data.
        from_zero, log, stacked: Whether that axis begins at zero or is logarithmic, and whether curves are stacked.
    """

    title: str
    series: Sequence[Series]
    over: str = STEPS
    axis: str = ""
    unit: str = ""
    about: str = ""
    section: str = ""
    key: str = ""
    span: tuple[float, float] | None = None
    from_zero: bool = False
    log: bool = False
    stacked: bool = False


def time_chart(
    title: str, seconds: Array, lines: Mapping[str, Array], unit: str = "", span: tuple[float, float] | None = None
) -> Chart:
    """Return a chart of lines over seconds, by their names."""
    series = [Series(name, seconds, values, color=color) for color, (name, values) in enumerate(lines.items())]
    return Chart(title, series, over="seconds", unit=unit, span=span)


def run_charts(logs: Sequence[Log]) -> list[Chart]:
    """Return the charts of one run, or of the repetitions of a run: medians, from the lowest to the highest.

    Columns that no chart here names get a chart each, at the end.
    """
    drawing = _Drawing(logs)
    series, family = drawing.series, drawing.family
    learning, speed = "Learning curves", "Time and speed"
    training = "training, with exploration"
    evaluated = "Evaluations act without exploration noise"
    charts = [
        Chart(
            "Success", [
                *series("episode/success", training, 6, scale=100.0),
                *series(f"{EVALUATION}success_rate", "evaluation", 0, scale=100.0, marked=True),
            ], axis="successful episodes", unit="%", section=learning, key="success", span=(0.0, 100.0),
            about=f"{evaluated}; the area is their 95 % interval." if len(logs) == 1 else f"{evaluated}.",
        ),
        Chart(
            "Return", [
                *series("episode/return", training, 6),
                *series(f"{EVALUATION}mean_return", "evaluation", 0, marked=True),
            ], axis="return", section=learning, key="return", about="The sum of rewards of an episode, on average.",
        ),
        Chart(
            "Critic loss", series("learner/critic_loss", "critic loss", 1), axis="critic loss", section=learning,
            key="loss", log=True, about="How far the critics are from their targets.",
        ),
        Chart(
            "Value", [
                *series("learner/Q1_mean", "the critic's value", 0),
                *series("learner/target_Q_mean", "its target", 1, dashed=True),
            ], axis="value", section=learning, key="value",
            about="The value that the critic gives to actions in the replay buffer, and the target it learns from.",
        ),
        Chart(
            "Reward terms", family("reward/", REWARDS), axis="reward per step", section="Reward terms", key="reward",
            about="What each term adds to the reward of a step, on average, in training.",
        ),
        Chart(
            "Changed by the guard", family("guard/", GUARD_REASONS, 100.0), axis="share of steps", unit="%",
            section="Guard interventions in training", key="guard", from_zero=True,
            about="In how many training steps the guard changed what the policy asked for, by reason; exploration "
            "included.",
        ),
        Chart(
            "Where the time goes", family("time/", TIMES, 100.0), axis="share of the time", unit="%", section=speed,
            key="time", span=(0.0, 100.0), stacked=True,
        ),
        Chart(
            "Speed", series("steps_per_second", "steps a second", 0), axis="steps a second", section=speed,
            key="speed", from_zero=True,
            about="Environment steps a second, with everything that a run does beside them.",
        ),
        *(
            Chart(title_of(name), series(name, title_of(name), 0), axis=axis_of(name), section="Other metrics")
            for name in drawing.others()
        ),
    ]  # fmt: skip
    return [chart for chart in charts if chart.series]


def axis_of(column: str) -> str:
    """Write what a column counts: ``learner/reward_mean`` is ``reward mean``."""
    return name_of(column.rpartition("/")[2])


def title_of(column: str) -> str:
    """Write a column's heading, with the group that it belongs to: ``Reward mean (learner)``."""
    group, _, _ = column.rpartition("/")
    return capital(axis_of(column)) + (f" ({name_of(group.replace('/', ', '))})" if group else "")


def compared_charts(logs: Mapping[str, Log]) -> list[Chart]:
    """Return the charts of success and return in evaluations with a curve for each run, by the runs' names."""
    charts = [
        Chart(
            title, [
                replace(series, low=None, high=None)
                for color, (name, log) in enumerate(logs.items())
                for series in _Drawing([log]).series(EVALUATION + column, name, color, scale=scale, marked=True)
            ], axis=title.split()[0].lower(), unit=unit, section="Learning curves", key=key, span=span,
        )
        for title, column, key, unit, scale, span in (
            ("Success in evaluations", "success_rate", "success", "%", 100.0, (0.0, 100.0)),
            ("Return in evaluations", "mean_return", "return", "", 1.0, None),
        )
    ]  # fmt: skip
    return [chart for chart in charts if chart.series]


class _Drawing:
    """Makes curves of runs' logs, and remembers which columns were drawn."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs, self._drawn = logs, set(UNDRAWN)

    def others(self) -> list[str]:
        """Return the columns that were not drawn yet."""
        return [name for name in dict.fromkeys(name for log in self._logs for name in log) if name not in self._drawn]

    def series(
        self, column: str, label: str, color: int, *, scale: float = 1.0, filled: float | None = None,
        dashed: bool = False, marked: bool = False,
    ) -> list[Series]:  # fmt: skip
        """Return the curve of a column: of one run, or the median of several over the area that they cover.

        Args:
            column: The column; runs without values of it are left out, and without any run there is no curve.
            label: Its name.
            color: Index of its colour.
            scale: Factor to the chart's unit.
            filled: What a row without a value means; None to leave such rows out.
            dashed: Whether the line is dashed.
            marked: Whether its points are marked.
        """
        self._drawn.add(column)
        found = [points for log in self._logs if (points := _points(log, column, filled))]
        if not found:
            return []
        x = np.unique([step for points in found for step, _ in points])
        left = np.nan if filled is None else filled
        curves = [np.array(points, np.float64).T for points in found]
        rows = [np.interp(x, steps, values, left=left, right=np.nan) for steps, values in curves]
        low, high, area = None, None, ""
        if len(rows) > 1:
            low, high = scale * np.nanmin(rows, axis=0), scale * np.nanmax(rows, axis=0)
            area = f"{label}, lowest to highest"
        elif column == f"{EVALUATION}success_rate" and len(self._logs) == 1:
            rated = {row["step"]: row["success_ci95"] for row in evaluations(self._logs[0]) if "success_ci95" in row}
            low, high = scale * np.array([rated.get(step, (np.nan, np.nan)) for step in x]).T
            area = "95 % interval" if rated else ""
        return [Series(label, x, scale * np.nanmedian(rows, axis=0), low, high, area, color, dashed, marked)]

    def family(self, prefix: str, words: Mapping[str, str], scale: float = 1.0) -> list[Series]:
        """Return the curves of all columns with a prefix, those with words first; a missing value counts as 0."""
        order = list(words)
        names = {key.removeprefix(prefix) for log in self._logs for key in log if key.startswith(prefix)}
        ordered = sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))
        return [
            series
            for color, name in enumerate(ordered)
            for series in self.series(prefix + name, words.get(name, name_of(name)), color, scale=scale, filled=0.0)
        ]


def _points(log: Log, key: str, filled: float | None) -> list[tuple[float, float]]:
    """Return the known values of a column by step, in order; none where no row has one."""
    known = {step: value for step, value in log.get(key, ()) if not isnan(value)}
    if known and filled is not None:  # the steps of every row are those of the longest column
        every = max((log[name] for name in log if not name.startswith(EVALUATION)), key=len)
        known = {step: filled for step, _ in every} | known
    return sorted(known.items())


def _add(log: Log, row: Mapping[str | None, str | None], prefix: str) -> None:
    """Add a row, unless a crash or a full disk tore it."""
    try:
        if None in row:
            return
        numbers = {str(name): float(value) for name, value in row.items() if value}
        step = numbers.pop("step")
    except (KeyError, TypeError, ValueError):
        return
    for name, value in numbers.items():
        log.setdefault(prefix + name, []).append((step, value))
