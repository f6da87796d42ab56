"""Charts as one image file, drawn by matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from td3robot.atomic import Replacement
from td3robot.errors import CheckpointError, ConfigError
from td3robot.metrics import COLORS, METRICS, Chart, present, read_log, run_charts
from td3robot.policy.checkpoint import Checkpoint, find

# The charts of a run's image.
SHOWN = ("success", "return", "loss", "guard")


def plot_run(run: Path, out: Path) -> None:
    """Plot success, return, critic loss and guard interventions of a run directory over its steps.

    Raises:
        CheckpointError: The directory has no metrics.
        ConfigError: The image cannot be drawn.
    """
    log = read_log(run, *sorted({METRICS, *present(run)}))
    charts = [chart for chart in run_charts([log]) if chart.key in SHOWN]
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with Replacement(out) as temporary:
            draw(charts, _title(run)).savefig(temporary, dpi=110)
    except ValueError as error:
        raise ConfigError(f"{out} cannot be drawn: {error}") from None


def draw(charts: Sequence[Chart], title: str) -> Figure:
    """Draw charts in two columns, or one chart alone."""
    if len(charts) == 1:
        figure = Figure(figsize=(9, 5.5), layout="constrained")
        _draw(figure.add_subplot(), charts[0])
    else:
        rows = (len(charts) + 1) // 2
        figure = Figure(figsize=(11, 3.6 * max(rows, 1)), layout="constrained")
        for place, chart in enumerate(charts, start=1):
            _draw(figure.add_subplot(rows, 2, place), chart)
    if title:
        figure.suptitle(title)
    return figure


def _draw(axes: Axes, chart: Chart) -> None:
    axes.set_title(chart.title)
    for series in chart.series:
        color = COLORS[series.color % len(COLORS)]
        axes.plot(
            series.x, series.y, label=series.label, color=color, linestyle="--" if series.has_dashes else "-",
            marker="o" if series.marked else None, markersize=3,
        )  # fmt: skip
        if series.low is not None and series.high is not None:
            axes.fill_between(series.x, series.low, series.high, alpha=0.18, color=color, label=series.area or None)
    if chart.log:
        axes.set_yscale("log")
    if chart.unit == "%":
        axes.yaxis.set_major_formatter(PercentFormatter(100.0, decimals=None))
    if chart.span is not None:
        low, high = chart.span
        axes.set_ylim(low - 0.03 * (high - low), high + 0.03 * (high - low))
    axes.set_xlabel(chart.over)
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
