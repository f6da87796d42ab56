"""The curves of one training run, or of several with one setting: repetitions with other seeds."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.report import plots
from td3robot.report.blocks import Plot, Section, Text
from td3robot.report.run import Run, evaluations
from td3robot.report.words import REASONS, sentence_case

Array = NDArray[np.float64]
Columns = dict[str, list[tuple[float, float]]]

PERCENT_AXIS = {"range": [-3, 103], "ticksuffix": " %"}
TIMES = {"simulation": "simulation", "learner": "learning", "evaluation": "evaluation", "saving": "saving",
         "other": "everything else"}  # fmt: skip
REWARDS = {"progress": "getting nearer", "precision": "being close", "settled": "resting at the goal",
           "smoothness": "penalty for jerky actions", "guard": "penalty for guard interventions"}  # fmt: skip


def curves(runs: Sequence[Run]) -> list[Section | None]:
    """Draw what was logged of one run, or the median and spread of several."""
    if not any(run.metrics or run.evaluations for run in runs):
        return []
    blocks: list[Any] = []
    if len(runs) > 1:
        blocks.append(
            Text(f"Lines are the median of {len(runs)} runs, areas reach from the lowest to the highest.", "note")
        )
    success = [
        *_intervals(runs),
        *_series(runs, "metrics", "episode/success", "training, with exploration", "--c7", 100.0),
        *_series(runs, "evaluations", "success_rate", "evaluation", "--c1", 100.0, marks=True),
    ]
    if success:
        about = "Evaluations act without exploration noise"
        about += "; the area is their 95 % interval." if len(runs) == 1 else "."
        figure = over_steps(runs, success, "successful episodes", y_axis=PERCENT_AXIS)
        blocks.append(Plot("Success", figure, about, "steps"))
    returns = [
        *_series(runs, "metrics", "episode/return", "training, with exploration", "--c7"),
        *_series(runs, "evaluations", "mean_return", "evaluation", "--c1", marks=True),
    ]
    if returns:
        about = "The sum of rewards of an episode, on average."
        blocks.append(Plot("Return", over_steps(runs, returns, "return"), about, "steps"))
    return [
        Section("Learning curves", [*blocks, *_losses(runs)]), _rewards(runs), _interventions(runs), _times(runs),
    ]  # fmt: skip


def over_steps(runs: Sequence[Run], traces: Sequence[dict[str, Any]], title: str, **more: Any) -> dict[str, Any]:
    """Put curves into a plot over all steps that the runs logged, whatever part of them a curve covers.

    Args:
        runs: All runs of the page.
        traces: The curves.
        title: Of the other axis.
        more: As of :func:`td3robot.report.plots.figure`.
    """
    columns = [values for run in runs for table in (run.metrics, run.evaluations) for values in table.values()]
    steps = [step for values in columns for step, _ in values]
    room = 0.02 * (max(steps) - min(steps))
    axis = {"range": [min(steps) - room, max(steps) + room]} if room else {}
    return plots.figure(traces, "environment steps", title, x_axis=axis, **more)


def _losses(runs: Sequence[Run]) -> list[Plot]:
    blocks = []
    if loss := _series(runs, "metrics", "learner/critic_loss", "critic loss", "--c2"):
        figure = over_steps(runs, loss, "critic loss", height=260, y_axis=_log_axis(runs))
        blocks.append(Plot("Critic loss", figure, "How far the critics are from their targets.", "steps"))
    values = [
        *_series(runs, "metrics", "learner/Q1_mean", "the critic's value", "--c1"),
        *_series(runs, "metrics", "learner/target_Q_mean", "its target", "--c2", dash="dash"),
    ]
    if values:
        about = "The value that the critic gives to actions in the replay buffer, and the target it learns from."
        blocks.append(Plot("Value", over_steps(runs, values, "value", height=260), about, "steps"))
    return blocks


def _log_axis(runs: Sequence[Run]) -> dict[str, Any]:
    """Choose the ticks of the critic loss: powers of ten, 1, 2 and 5 of each, or, for less than a power, any."""
    values = [value for run in runs for _, value in run.metrics.get("learner/critic_loss", ()) if value > 0]
    ratio = max(values) / min(values) if values else 1.0
    ticks = {"dtick": 1} if ratio > 100 else {"dtick": "D2"} if ratio > 10 else {}
    return {"type": "log", "tickformat": "~g"} | ticks  # without a format, 0.02 is written as 2


def _rewards(runs: Sequence[Run]) -> Section | None:
    traces = _family(runs, "reward/", lambda name: REWARDS.get(name, sentence_case(name).lower()))
    if not traces:
        return None
    figure = over_steps(runs, traces, "reward per step")
    about = "What each term adds to the reward of a step, on average, in training."
    return Section("Reward terms", [Plot("", figure, about, "steps")])


def _interventions(runs: Sequence[Run]) -> Section | None:
    traces = _family(runs, "guard/", lambda name: REASONS.get(name, name), 100.0)
    if not traces:
        return None
    figure = over_steps(runs, traces, "share of steps", y_axis={"ticksuffix": " %", "rangemode": "tozero"})
    about = "In how many training steps the guard changed what the policy asked for, by reason; exploration included."
    return Section("Guard interventions in training", [Plot("", figure, about, "steps")])


def _times(runs: Sequence[Run]) -> Section | None:
    blocks = []
    shares: list[Any] = []
    for index, (key, name) in enumerate(TIMES.items()):
        points = _median(runs, "metrics", f"time/{key}", 0.0)
        if points is not None:
            steps, values = points
            shares.append(
                plots.line(steps, 100 * values, name, plots.color(index), width=0.5)
                | {"stackgroup": "time", "fillcolor": plots.soft(plots.color(index))}
            )
    if shares:
        axis = {"range": [0, 100], "ticksuffix": " %"}
        figure = over_steps(runs, shares, "share of the time", height=280, y_axis=axis)
        blocks.append(Plot("Where the time goes", figure, "", "steps"))
    if speed := _series(runs, "metrics", "steps_per_second", "steps a second", "--c1"):
        figure = over_steps(runs, speed, "steps a second", height=240, y_axis={"rangemode": "tozero"})
        about = "Environment steps a second, with everything that a run does beside them."
        blocks.append(Plot("Speed", figure, about, "steps"))
    return Section("Time and speed", blocks) if blocks else None


def _columns(run: Run, table: str) -> Columns:
    columns: Columns = getattr(run, table)
    return columns


def _median(runs: Sequence[Run], table: str, key: str, filled: float | None = None) -> tuple[Array, Array] | None:
    found = _stacked(runs, table, key, filled)
    return None if found is None else (found[0], np.nanmedian(found[1], axis=0))


def _stacked(runs: Sequence[Run], table: str, key: str, filled: float | None = None) -> tuple[Array, Array] | None:
    """Return steps (k,) and values (runs, k), interpolated to common steps; NaN where a run has no values.

    Args:
        runs: Those that have the column count.
        table: ``metrics`` or ``evaluations``.
        key: Which column of it.
        filled: What a row without a value means; None to leave such rows out.
    """
    found = [points for run in runs if (points := _points(_columns(run, table), key, filled))]
    if not found:
        return None
    steps = np.unique([step for points in found for step, _ in points])
    rows = []
    for points in found:
        x, y = (np.array(each, np.float64) for each in zip(*points, strict=True))
        rows.append(np.interp(steps, x, y, left=np.nan if filled is None else filled, right=np.nan))
    return steps, np.array(rows)


def _points(columns: Columns, key: str, filled: float | None) -> list[tuple[float, float]]:
    """Return the known values of a column by step, in order; none where no row has one."""
    known = {step: value for step, value in columns.get(key, ()) if not isnan(value)}
    if known and filled is not None:
        known = {step: filled for step, _ in _rows(columns)} | known
    return sorted(known.items())


def _rows(columns: Columns) -> list[tuple[float, float]]:
    """Return the longest column: its steps are those of every row."""
    return max(columns.values(), key=len)


def _series(
    runs: Sequence[Run], table: str, key: str, name: str, paint: str, scale: float = 1.0, marks: bool = False,
    filled: float | None = None, dash: str = "solid",
) -> list[dict[str, Any]]:  # fmt: skip
    """Draw a column: the line of one run, or the median of several over the area that they cover."""
    found = _stacked(runs, table, key, filled)
    if found is None:
        return []
    steps, values = found
    traces = [plots.line(steps, scale * np.nanmedian(values, axis=0), name, paint, marks=marks, dash=dash)]
    if len(values) > 1:
        low, high = scale * np.nanmin(values, axis=0), scale * np.nanmax(values, axis=0)
        spread = plots.band(steps, low, high, f"{name}, lowest to highest", paint)
        traces = [*(trace | {"showlegend": False} for trace in spread), *traces]
    return traces


def _family(runs: Sequence[Run], prefix: str, title: Callable[[str], str], scale: float = 1.0) -> list[dict[str, Any]]:
    """Draw every column whose name begins so; what was not counted before it first came up was zero."""
    keys = sorted({key for run in runs for key in run.metrics if key.startswith(prefix)})
    traces = []
    for index, key in enumerate(keys):
        name = title(key.removeprefix(prefix))
        traces += _series(runs, "metrics", key, name, plots.color(index), scale, filled=0.0)
    return traces


def _intervals(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Draw the 95 % interval of the evaluations of one run."""
    if len(runs) != 1:
        return []
    rows = [row for row in evaluations(runs[0]) if "success_ci95" in row]
    if not rows:
        return []
    steps = np.array([row["step"] for row in rows], np.float64)
    low, high = (100 * np.array([row["success_ci95"][side] for row in rows]) for side in (0, 1))
    return plots.band(steps, low, high, "95 % interval", "--c1")
