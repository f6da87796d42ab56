"""The plots of a page, as plotly takes them, and curves of any length in bounded memory.

Colours are names of CSS variables, which a page's script fills in.
"""

import base64
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.metrics import STEPS, Chart, Log, run_charts
from td3robot.report.html import Plot, Plots, Section, Text

Array = NDArray[np.float64]
Trace = dict[str, Any]

# Eight colours that most kinds of colour blindness tell apart; their values, for light and dark, are in page.css.
COLORS = tuple(f"--c{number}" for number in range(1, 9))
# Rows that are reduced at a time.
BLOCK = 1024
# Heights of charts that are lower than others [pixels].
HEIGHTS = {"loss": 260, "value": 260, "time": 280, "speed": 240, "": 240}


def color(index: int) -> str:
    """Return the colour of a series, as a CSS variable."""
    return COLORS[index % len(COLORS)]


def label(text: str) -> str:
    """Take out what plotly would read as markup."""
    return text.translate({ord("<"): "(", ord(">"): ")", ord("&"): "+"})


def packed(values: Array) -> dict[str, Any]:
    """Pack numbers as plotly reads them: base64 of 32-bit floats. What is not finite draws nothing."""
    finite = np.where(np.isfinite(values), values, np.nan).astype("<f4")
    return {"dtype": "f4", "bdata": base64.b64encode(finite.tobytes()).decode("ascii")}


def line(
    x: Array, y: Array, name: str, paint: str, *, width: float = 2.0, dash: str = "solid", marks: bool = False
) -> Trace:
    """Draw one curve."""
    return {
        "type": "scatter", "mode": "lines+markers" if marks else "lines", "name": label(name),
        "x": packed(x), "y": packed(y),
        "line": {"color": paint, "width": width, "dash": dash}, "marker": {"color": paint, "size": 7},
    }  # fmt: skip


def band(x: Array, low: Array, high: Array, name: str, paint: str) -> list[Trace]:
    """Fill between two curves; without a name, it is not in the legend."""
    edge = {"type": "scatter", "mode": "lines", "x": packed(x), "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        edge | {"y": packed(low), "showlegend": False},
        edge | {"y": packed(high), "fill": "tonexty", "fillcolor": f"{paint}-soft", "name": label(name),
                "showlegend": bool(name)},
    ]  # fmt: skip


def dots(x: Array, y: Array, name: str, paint: str, symbol: str = "circle", size: int = 8) -> Trace:
    """Draw points."""
    return {
        "type": "scatter", "mode": "markers", "name": label(name), "x": packed(x), "y": packed(y),
        "marker": {"color": paint, "size": size, "symbol": symbol},
    }  # fmt: skip


def histogram(values: Array, name: str, paint: str, bins: int = 60) -> Trace:
    """Draw how often which values occurred; the rarest percent at the top shares the last bar."""
    top = float(np.percentile(values, 99.5))
    low = float(values.min())
    edges = np.linspace(low, top if top > low else low + 1.0, bins + 1)
    counts, _ = np.histogram(np.minimum(values, edges[-1]), edges)
    return {
        "type": "bar", "name": label(name), "x": packed((edges[1:] + edges[:-1]) / 2),
        "y": packed(counts.astype(float)),
        "width": float(edges[1] - edges[0]), "marker": {"color": paint, "line": {"width": 0}},
    }  # fmt: skip


def figure(
    traces: Sequence[Trace],
    x: str,
    y: str,
    *,
    height: int = 320,
    legend: bool | None = None,
    y_axis: dict[str, Any] | None = None,
    x_axis: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Put curves into a plot with titles on both axes; there is a legend where there is more than one name."""
    names = [trace for trace in traces if trace.get("showlegend", True)]
    layout: dict[str, Any] = {
        "height": height,
        "showlegend": len(names) > 1 if legend is None else legend,
        "xaxis": {"title": {"text": x}} | (x_axis or {}),
        "yaxis": {"title": {"text": y}} | (y_axis or {}),
    }
    return {"data": list(traces), "layout": layout | (more or {})}


def chart_sections(logs: Sequence[Log]) -> list[Section]:
    """Draw the log of one run, or the median and spread of the repetitions of a run, in sections."""
    sections = []
    for title, group in groupby(run_charts(logs), key=lambda chart: chart.section):
        charts = list(group)
        plots = [chart_plot(chart, logs, chart.title if len(charts) > 1 else "") for chart in charts]
        sections.append(Section(title, plots if charts[0].key else [Plots(plots)]))
    if len(logs) > 1 and sections:
        note = f"Lines are the median of {len(logs)} runs, areas reach from the lowest to the highest."
        sections[0] = Section(sections[0].title, [Text(note, "note"), *sections[0].blocks])
    return sections


def chart_plot(chart: Chart, logs: Sequence[Log], title: str) -> Plot:
    """Draw a chart over all steps that the runs logged, whatever part of them it covers."""
    steps = [step for log in logs for points in log.values() for step, _ in points]
    margin = 0.02 * (max(steps) - min(steps))
    x_axis = {"range": [min(steps) - margin, max(steps) + margin]} if margin else {}
    areas, lines = list[Trace](), list[Trace]()
    for series in chart.series:
        paint = color(series.color)
        drawn = line(
            series.x, series.y, series.label, paint, width=0.5 if chart.stacked else 2.0,
            dash="dash" if series.has_dashes else "solid", marks=series.marked,
        )  # fmt: skip
        lines.append(drawn | ({"stackgroup": "all", "fillcolor": f"{paint}-soft"} if chart.stacked else {}))
        if series.low is not None and series.high is not None and not chart.stacked:
            areas += band(series.x, series.low, series.high, series.area, paint)
    drawn = figure(
        [*areas, *lines], STEPS, label(chart.axis), height=HEIGHTS.get(chart.key, 320), x_axis=x_axis,
        y_axis=_vertical_axis(chart),
    )  # fmt: skip
    return Plot(title, drawn, chart.about, "steps")


def _vertical_axis(chart: Chart) -> dict[str, Any]:
    if chart.log:
        return _log_axis(np.concatenate([series.y for series in chart.series]))
    axis: dict[str, Any] = {"ticksuffix": f" {chart.unit}"} if chart.unit else {}
    if chart.span is not None:
        low, high = chart.span
        margin = 0.0 if chart.stacked else 0.03 * (high - low)
        axis["range"] = [low - margin, high + margin]
    elif chart.from_zero:
        axis["rangemode"] = "tozero"
    return axis


def _log_axis(values: Array) -> dict[str, Any]:
    """Choose the ticks of a logarithmic axis: powers of ten, 1, 2 and 5 of each, or, for less than a power, any."""
    known = values[values > 0]
    ratio = known.max() / known.min() if len(known) else 1.0
    ticks = {"dtick": 1} if ratio > 100 else {"dtick": "D2"} if ratio > 10 else {}
    return {"type": "log", "tickformat": "~g"} | ticks  # without a format, 0.02 is written as 2


class LongCurves:
    """Rows of numbers over time: all of them up to a number, then the smallest and largest of neighbouring rows.

    Args:
        channels: Numbers in a row.
        most: Points that are kept at most, a power of two.

    Attributes:
        rows_per_point: How many rows each point stands for; 1 means that nothing was left out.
    """

    def __init__(self, channels: int, most: int = 2048) -> None:
        self.rows_per_point = 1
        self._most, self._channels = most, channels
        self._pending: list[Sequence[float]] = []
        self._times, self._low, self._high = np.empty(0), np.empty((0, channels)), np.empty((0, channels))

    def add(self, time: float, values: Sequence[float]) -> None:
        """Add a row; NaN for what is not known."""
        self._pending.append((time, *values))
        if len(self._pending) >= max(BLOCK, 2 * self.rows_per_point):
            self._reduce()

    def gap(self, time: float) -> None:
        """Interrupt the curves, where nothing was going on."""
        self.add(time, (np.nan,) * self._channels)

    def __len__(self) -> int:
        return len(self._times) + len(self._pending)

    def points(self) -> tuple[Array, Array, Array]:
        """Return times (k,), and the smallest and largest values (k, channels) of each point's rows."""
        self._reduce()
        return self._times, self._low, self._high

    def curve(self, channel: int) -> tuple[Array, Array]:
        """Return the times and values that draw a channel: both extremes of a point that stands for more rows."""
        times, low, high = self.points()
        if self.rows_per_point == 1:
            return times, low[:, channel]
        return np.repeat(times, 2), np.stack([low[:, channel], high[:, channel]], axis=1).ravel()

    def left_out(self, noun: str) -> str:
        """Return a sentence if each point stands for several rows, or an empty text if not."""
        if self.rows_per_point == 1:
            return ""
        return (
            f"Each point stands for {self.rows_per_point:,} {noun}s in a row: their smallest and largest values are "
            "drawn."
        )

    def _reduce(self) -> None:
        if not self._pending:
            return
        rows = np.array(self._pending, np.float64)
        self._pending = []
        times, low, high = _merged(rows[:, 0], rows[:, 1:], rows[:, 1:], self.rows_per_point)
        self._times = np.concatenate([self._times, times])
        self._low, self._high = np.concatenate([self._low, low]), np.concatenate([self._high, high])
        while len(self._times) > self._most:
            self._times, self._low, self._high = _merged(self._times, self._low, self._high, 2)
            self.rows_per_point *= 2


def _merged(times: Array, low: Array, high: Array, by: int) -> tuple[Array, Array, Array]:
    """Merge neighbouring points; the last one may have fewer."""
    if by == 1:
        return times, low, high
    starts = np.arange(0, len(times), by)
    return times[starts], np.fmin.reduceat(low, starts, axis=0), np.fmax.reduceat(high, starts, axis=0)
