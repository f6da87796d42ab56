"""Tables of session figures, on an arm and in simulation, for people."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from td3robot.format import NONE
from td3robot.report.figures import ROWS

# Rows for a session that only watched: nothing was sent, so the policy achieved nothing.
WATCHED = (
    "Control periods changed by the guard",
    "Time to decide: median / 99th percentile / longest",
    "Age of the measured state: median / 99th percentile / longest",
    "Missed control ticks",
    "Episodes ended by",
)


def figures_table(title: str, sides: Mapping[str, dict[str, Any]], moved: bool = True) -> Table:
    """Return a table of sessions' figures, one named column each, without rows that none of them has.

    Args:
        title: Title of the table.
        sides: The figures of each session.
        moved: Whether anything was sent; if not, what the policy achieved is left out.
    """
    table = Table(title=title)
    for column in ("", *sides):
        table.add_column(column)
    for row in ROWS:
        texts = [row.text(side) for side in sides.values()]
        if (moved or row.title in WATCHED) and set(texts) != {NONE}:
            table.add_row(row.title, *texts)
    return table


# Times that a driver measures, as median, 99th percentile and maximum [ms].
DRIVER_TIMES = {
    "period": "between two targets",
    "tick_late": "the control tick late by",
    "gripper_answer": "the gripper's answer after",
}


def driver_text(figures: Mapping[str, float]) -> str:
    """Return the driver's own timing in words."""
    parts = [f"{figures['streamed']:,} targets sent"] if "streamed" in figures else []
    parts += [
        f"{words} {'/'.join(format(figures[f'{name}_{kind}_ms'], '.2f') for kind in ('p50', 'p99', 'max'))} ms"
        for name, words in DRIVER_TIMES.items()
        if f"{name}_p50_ms" in figures
    ]
    if "stretched_ms" in figures:
        parts.append(f"control periods stretched by {figures['stretched_ms']:.1f} ms in all")
    return f"driver (median/99 %/most): {'; '.join(parts)}"


def clock_text(clock: dict[str, Any]) -> str:
    """Return how well the stand-in kept time, in words; if it was late, its figures at the wire may be too high."""
    return (
        f"simulated controller: its ticks were late by {1e3 * clock['late_p50_s']:.2f} ms (median) and "
        f"{1e3 * clock['late_p99_s']:.2f} ms (99 %) in the last 10 s, by {1e3 * clock['late_worst_s']:.1f} ms at most; "
        f"{clock['lost_s']:.2f} s were skipped to catch up"
    )
