"""Plots a training run as one image."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from td3robot.errors import CheckpointError, ConfigError
from td3robot.learning.log import EVALUATIONS, METRICS, Columns, read_log
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.statistics import wilson_interval

Points = list[tuple[float, float]]


def plot_run(run: Path, out: Path) -> None:
    """Plot success, return, critic loss and guard interventions of a run directory over its steps.

    Raises:
        CheckpointError: The directory has no metrics.
    """
    metrics = read_log(run, METRICS)
    evaluations = read_log(run, EVALUATIONS) if (run / EVALUATIONS).is_file() else {}
    returns = {"evaluation": evaluations.get("mean_return"), "training": metrics.get("episode/return")}
    panels: list[tuple[str, Mapping[str, Points | None]]] = [
        ("success", {"evaluation": evaluations.get("success_rate"), "training": metrics.get("episode/success")}),
        ("return of an episode", returns),
        ("critic loss", {"critic loss": metrics.get("learner/critic_loss")}),
        ("steps changed by the guard", _reasons(metrics)),
    ]
    drawn = [(title, series) for title, series in panels if any(series.values())]
    rows = (len(drawn) + 1) // 2
    figure = Figure(figsize=(11, 3.6 * max(rows, 1)), layout="constrained")
    figure.suptitle(_title(run))
    for place, (title, series) in enumerate(drawn, start=1):
        axes = figure.add_subplot(rows, 2, place)
        axes.set_title(title)
        _lines(axes, series)
        if title == "critic loss":
            axes.set_yscale("log")
        if title.startswith(("success", "steps")):
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        if title == "success":
            axes.set_ylim(-0.03, 1.03)
            _interval(axes, evaluations)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(out, dpi=110)
    except ValueError as error:
        raise ConfigError(f"{out} cannot be drawn: {error}") from None


def over_steps(axes: Axes) -> None:
    """Lay out the axis of environment steps, the grid, and the legend of the lines present."""
    axes.set_xlabel("environment steps")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()


def _title(run: Path) -> str:
    """Return a title of what was trained, or the directory's name if it has no checkpoint."""
    try:
        config = Checkpoint(find(run)).config()
    except (CheckpointError, ConfigError):
        return run.resolve().name
    return f"{config.environment.title} (seed {config.seed})"


def _reasons(metrics: Columns) -> Columns:
    """Return the share of steps that the guard changed, by reason, from the first row on; missing counts are 0."""
    steps = sorted({step for points in metrics.values() for step, _ in points})
    found = {name.removeprefix("guard/"): dict(points) for name, points in metrics.items() if name.startswith("guard/")}
    return {name.replace("_", " "): [(step, values.get(step, 0.0)) for step in steps] for name, values in found.items()}


def _interval(axes: Axes, evaluations: Columns) -> None:
    """Shade the 95 % interval of each evaluation's success."""
    rates, episodes = evaluations.get("success_rate"), dict(evaluations.get("episodes", []))
    if not rates or not all(step in episodes for step, _ in rates):
        return
    bounds = [wilson_interval(round(rate * episodes[step]), round(episodes[step])) for step, rate in rates]
    low, high = zip(*bounds, strict=True)
    axes.fill_between([step for step, _ in rates], low, high, alpha=0.2, label="evaluation, 95 % interval")
    axes.legend(loc="lower right")


def _lines(axes: Axes, series: Mapping[str, Points | None]) -> None:
    for label, points in series.items():
        if points:
            axes.plot(*zip(*points, strict=True), label=label)
    over_steps(axes)
