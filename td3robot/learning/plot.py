"""One picture of a training run."""

import csv
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from td3robot.errors import CheckpointError, ConfigError

Columns = dict[str, list[tuple[float, float]]]


def plot_run(run: Path, out: Path) -> None:
    """Draw success, returns, losses and guard interventions of a run directory over its steps.

    Raises:
        CheckpointError: The directory holds no metrics.
    """
    metrics = _read(run / "metrics.csv")
    evaluations = _read(run / "evaluations.csv") if (run / "evaluations.csv").is_file() else {}
    shares = {name.removeprefix("guard/"): values for name, values in metrics.items() if name.startswith("guard/")}
    panels: list[tuple[str, Mapping[str, list[tuple[float, float]] | None]]] = [
        ("success rate", {"evaluation": evaluations.get("success_rate"), "training": metrics.get("episode/success")}),
        ("return", {"evaluation": evaluations.get("mean_return"), "training": metrics.get("episode/return")}),
        ("critic loss", {"critic loss": metrics.get("learner/critic_loss")}),
        ("share of steps changed by the guard", shares),
    ]
    drawn = [(title, series) for title, series in panels if any(series.values())]
    rows = (len(drawn) + 1) // 2
    figure = Figure(figsize=(11, 3.6 * max(rows, 1)), layout="constrained")
    figure.suptitle(run.name)
    for place, (title, series) in enumerate(drawn, start=1):
        axes = figure.add_subplot(rows, 2, place)
        axes.set_title(title)
        _lines(axes, series)
        if title == "critic loss":
            axes.set_yscale("log")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(out, dpi=110)
    except ValueError as error:
        raise ConfigError(f"{out} cannot be drawn: {error}") from None


def _lines(axes: Axes, series: Mapping[str, list[tuple[float, float]] | None]) -> None:
    for label, points in series.items():
        if points:
            axes.plot(*zip(*points, strict=True), label=label)
    axes.set_xlabel("environment steps")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()


def _read(path: Path) -> Columns:
    if not path.is_file():
        raise CheckpointError(f"{path.parent} holds no {path.name}, so there is nothing to plot; give a run directory")
    columns: Columns = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for name, value in row.items():
                if name != "step" and value:
                    columns.setdefault(name, []).append((float(row["step"]), float(value)))
    return columns
