"""The plots of a report, as plotly takes them. Colours are names of CSS variables, which a page's script fills in."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.report.trace import packed

Array = NDArray[np.float64]

# Eight colours that most kinds of colour blindness tell apart; their values, for light and dark, are in page.css.
COLORS = tuple(f"--c{number}" for number in range(1, 9))


def color(index: int) -> str:
    """Return the colour of a series, as a CSS variable."""
    return COLORS[index % len(COLORS)]


def soft(name: str) -> str:
    """Return the same colour, for areas."""
    return f"{name}-soft"


def label(text: str) -> str:
    """Take out what plotly would read as markup."""
    return text.translate({ord("<"): "(", ord(">"): ")", ord("&"): "+"})


def line(
    x: Array, y: Array, name: str, paint: str, *, width: float = 2.0, dash: str = "solid", marks: bool = False
) -> dict[str, Any]:
    """Draw one curve."""
    return {
        "type": "scatter", "mode": "lines+markers" if marks else "lines", "name": label(name),
        "x": packed(x), "y": packed(y),
        "line": {"color": paint, "width": width, "dash": dash}, "marker": {"color": paint, "size": 7},
    }  # fmt: skip


def band(x: Array, low: Array, high: Array, name: str, paint: str) -> list[dict[str, Any]]:
    """Fill between two curves."""
    edge = {"type": "scatter", "mode": "lines", "x": packed(x), "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        edge | {"y": packed(low), "showlegend": False},
        edge | {"y": packed(high), "fill": "tonexty", "fillcolor": soft(paint), "name": label(name)},
    ]


def dots(x: Array, y: Array, name: str, paint: str, symbol: str = "circle", size: int = 8) -> dict[str, Any]:
    """Draw points."""
    return {
        "type": "scatter", "mode": "markers", "name": label(name), "x": packed(x), "y": packed(y),
        "marker": {"color": paint, "size": size, "symbol": symbol},
    }  # fmt: skip


def histogram(values: Array, name: str, paint: str, bins: int = 60) -> dict[str, Any]:
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
    traces: Sequence[dict[str, Any]],
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
