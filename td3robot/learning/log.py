"""Reads a run's log: the columns of its CSV files. No torch here."""

import csv
from pathlib import Path

from td3robot.errors import CheckpointError

METRICS, EVALUATIONS = "metrics.csv", "evaluations.csv"

# By column name: (step, value) of every row that has one.
Columns = dict[str, list[tuple[float, float]]]


def read_log(run: Path, name: str) -> Columns:
    """Read ``metrics.csv`` or ``evaluations.csv`` of a run directory, without rows torn by a crash.

    Raises:
        CheckpointError: There is no such file, or it is not a table.
    """
    path = run / name
    if not path.is_file():
        raise CheckpointError(f"{run} holds no {name}, so there is nothing to plot; give a run directory")
    columns: Columns = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                _add(columns, row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    return columns


def _add(columns: Columns, row: dict[str, str | None]) -> None:
    """Add a row, unless a crash or a full disk tore it."""
    try:
        if None in row:
            return
        numbers = {name: float(value) for name, value in row.items() if value}
        step = numbers.pop("step")
    except (KeyError, TypeError, ValueError):
        return
    for name, value in numbers.items():
        columns.setdefault(name, []).append((step, value))
