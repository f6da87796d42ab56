"""What a run writes down: CSV for spreadsheets and plots, TensorBoard for watching."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.tensorboard import SummaryWriter

Row = Mapping[str, float]


class CsvTable:
    """A CSV file whose rows are keyed by ``step``; new columns widen the file."""

    def __init__(self, path: Path, keep_until: int) -> None:
        self._path = path
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                self._columns = list(reader.fieldnames or [])
                self._rows = [row for row in reader if _step(row) <= keep_until]
            self._rewrite()

    def add(self, row: Row) -> None:
        """Append a row, and put it on disk."""
        new = [name for name in row if name not in self._columns]
        self._rows.append(dict(row))
        if new:
            self._columns += new
            self._rewrite()
        else:
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns).writerow(row)

    def _rewrite(self) -> None:
        whole = self._path.with_suffix(".csv.new")
        with whole.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._rows)
        whole.replace(self._path)


def _step(row: dict[str, Any]) -> float:
    """Return a row's step; infinity, so that it is dropped, where a crash or a full disk tore the row."""
    try:
        return float("inf") if None in row else float(row["step"])
    except (TypeError, ValueError):
        return float("inf")


class MetricsWriter:
    """Write training rows and evaluations of a run directory; use as a context manager.

    Args:
        run: The run directory; gets ``metrics.csv``, ``evaluations.csv`` and ``tensorboard/``.
        keep_until: Rows beyond this step, left by a run that was cut off, are dropped: the run goes back to it.
        report: Called with a sentence for a row that could not be written (a full disk); training continues.
    """

    def __init__(self, run: Path, keep_until: int, report: Callable[[str], None]) -> None:
        self._report = report
        self._tables = {name: CsvTable(run / f"{name}.csv", keep_until) for name in ("metrics", "evaluations")}
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=keep_until + 1)

    def add(self, table: str, row: Row) -> None:
        """Write one row to ``metrics`` or ``evaluations``; it must have a ``step``."""
        try:
            self._tables[table].add(row)
        except OSError as error:
            self._report(f"a row of {table}.csv could not be written: {error.strerror or error}")
        try:
            for name, value in row.items():
                if name != "step":
                    tag = name if table == "metrics" else f"evaluation/{name}"
                    self._board.add_scalar(tag, value, int(row["step"]))
        except OSError as error:
            self._report(f"TensorBoard's file could not be written: {error.strerror or error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._board.close()
        except OSError as error:
            self._report(f"TensorBoard's file could not be written: {error.strerror or error}")
