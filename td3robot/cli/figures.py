"""The figures of sessions, on an arm and in simulation, as tables for people."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "success": lambda side: _percent(side["success_rate"]),
    "mean final distance (mm)": lambda side: f"{1e3 * side['mean_final_distance_m']:.2f}",
    "mean return": lambda side: f"{side['mean_return']:.1f}",
    "tool speed, most (mm/s)": lambda side: f"{1e3 * side['max_tcp_speed_m_s']:.0f}",
    "joint tracking, servo lag included, rms / max (mrad)": lambda side: (
        f"{1e3 * side['tracking']['rms_rad']:.1f} / {1e3 * side['tracking']['max_rad']:.1f}"
    ),
    "joint tracking at the end (mrad)": lambda side: f"{1e3 * side['tracking']['at_end_rad']:.2f}",
    "periods changed by the guard": lambda side: _percent(side["guard_interventions"].get("any", 0.0)),
    "decision, p50 / p99 (ms)": lambda side: f"{side['decide_ms']['p50']:.2f} / {side['decide_ms']['p99']:.2f}",
    "age of the state sent from, p50 / p99 (ms)": lambda side: (
        f"{side['state_age_ms']['p50']:.1f} / {side['state_age_ms']['p99']:.1f}"
    ),
    "missed ticks": lambda side: f"{side['missed_ticks']} of {side['steps']} ({_percent(side['missed_share'])})",
    "episodes ended by": lambda side: ", ".join(f"{name} {count}" for name, count in side["ended"].items()),
}


def cell_text(read: Callable[[dict[str, Any]], str], side: dict[str, Any]) -> str:
    """Format one figure, or a dash where nothing was measured."""
    try:
        return read(side)
    except TypeError:
        return "-"


def figures_table(title: str, sides: Mapping[str, dict[str, Any]]) -> Table:
    """Lay out the figures of sessions side by side, a named column for each."""
    table = Table(title=title)
    for column in ("", *sides):
        table.add_column(column)
    for name, read in ROWS.items():
        table.add_row(name, *(cell_text(read, side) for side in sides.values()))
    return table


def clock_text(clock: dict[str, Any]) -> str:
    """Say how well the stand-in kept its time; where it was late, its figures at the wire may be too high."""
    return (
        f"stand-in: its ticks were late by p50 {1e3 * clock['late_p50_s']:.2f} ms and p99 "
        f"{1e3 * clock['late_p99_s']:.2f} ms in the last 10 s, by {1e3 * clock['late_worst_s']:.1f} ms at worst; "
        f"time given up: {clock['lost_s']:.2f} s"
    )
