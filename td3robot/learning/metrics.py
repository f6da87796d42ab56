"""A run's metrics: what happened since the last row, and the log: CSV for spreadsheets, TensorBoard for watching.

Services of ``training.loggers`` get the same rows.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from os import getpid
from pathlib import Path
from socket import gethostname
from time import perf_counter, time
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import hparams, scalar, text

from td3robot.atomic import Replacement
from td3robot.config import RunConfig, to_yaml
from td3robot.learning.collector import CollectedSteps
from td3robot.learning.loggers import Logger

T = TypeVar("T")
Row = Mapping[str, float]
ACTIVITIES = ("simulation", "learner", "evaluation", "saving")
NUMBERS = count()
# TensorBoard sorts cards by name, capitals first: what people look for leads.
FIRST = {"success_rate": "Success/evaluation", "episode/success": "Success/training"}


class Stopwatch:
    """Wall time by activity since the last reading; environments in another process count as time spent waiting."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._since = perf_counter()

    def timed(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, add the time it takes to ``name``, and return its result."""
        start = perf_counter()
        try:
            return function(*arguments)
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + perf_counter() - start

    def read(self) -> dict[str, float]:
        """Return the seconds by name since the last reading, with ``other`` and ``all``, and restart."""
        now = perf_counter()
        spent = {name: self._spent.get(name, 0.0) for name in ACTIVITIES}
        whole = now - self._since
        spent |= {"other": whole - sum(spent.values()), "all": whole}
        self._spent, self._since = {}, now
        return spent


class Window:
    """What happened since the last row of metrics; saved with a run, so that a resumed one writes the same row.

    A figure with a new name becomes a column of its own.

    Args:
        names: Means over steps that are reported even if nothing adds to them.

    Attributes:
        losses: Metrics of the learner's updates, by name, on its device.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._steps = 0
        self._sums: defaultdict[str, float] = defaultdict(float, dict.fromkeys(names, 0.0))
        self._finished: list[dict[str, float]] = []
        self.losses: list[dict[str, torch.Tensor]] = []

    def following(self) -> "Window":
        """Return the window of the next row, which has at least the means of this one."""
        return Window(self._sums)

    def add(self, taken: CollectedSteps) -> None:
        """Add steps, and the episodes that ended with one of them."""
        self._finished += taken.finished
        if not taken.steps:
            return
        self._steps += len(taken.steps)
        sizes = np.abs([step.action for step in taken.steps])
        self._sums["action/mean_abs"] += float(sizes.mean(axis=1).sum())
        self._sums["action/saturated"] += float((sizes > 0.99).mean(axis=1).sum())
        for step in taken.steps:
            for name, value in step.reward_terms.items():
                self._sums[f"reward/{name}"] += value
            for reason in step.interventions:
                self._sums[f"guard/{reason}"] += 1.0

    def figures(self) -> dict[str, float]:
        """Return the means over episodes, updates and steps, by column name of the row."""
        episodes = {f"episode/{name}": float(np.mean(values)) for name, values in _columns(self._rated()).items()}
        losses = {f"learner/{name}": float(values.mean()) for name, values in self._losses().items()}
        return episodes | losses | {name: value / max(self._steps, 1) for name, value in self._sums.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays; names are numbered to keep their order."""
        arrays = {"steps": np.array([self._steps], np.int64)}
        kinds: dict[str, dict[str, Any]] = {
            "sum": {name: [value] for name, value in self._sums.items()},
            "episode": _columns(self._rated()),
            "loss": {name: values.detach().cpu().numpy() for name, values in self._losses().items()},
        }
        for kind, columns in kinds.items():
            for index, (name, values) in enumerate(columns.items()):
                arrays[f"{kind}.{index:03d}.{name}"] = np.array(values)
        return arrays

    @classmethod
    def of_state(cls, arrays: Mapping[str, NDArray[Any]], device: torch.device) -> Self:
        """Return the window whose :meth:`state` some arrays are."""
        window = cls()
        window._steps = int(arrays["steps"][0])
        window._sums.update({name: float(value[0]) for name, value in _numbered("sum", arrays)})
        window._finished = _rows({name: values.tolist() for name, values in _numbered("episode", arrays)})
        window.losses = _rows({name: torch.from_numpy(values).to(device) for name, values in _numbered("loss", arrays)})
        return window

    def _rated(self) -> list[dict[str, float]]:
        """Return the finished episodes; one that says nothing about success is a failure if any other does."""
        rated = any("success" in figures for figures in self._finished)
        return [figures | {"success": figures.get("success", 0.0)} if rated else figures for figures in self._finished]

    def _losses(self) -> dict[str, torch.Tensor]:
        return {name: torch.stack(values) for name, values in _columns(self.losses).items()}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows with the same names column by column."""
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return columns of the same length row by row."""
    count = min(map(len, columns.values()), default=0)
    return [{name: values[index] for name, values in columns.items()} for index in range(count)]


def _numbered(kind: str, arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, NDArray[Any]]]:
    """Return the arrays of a kind with their names, in the order of their numbers."""
    found = [name for name in sorted(arrays) if name.startswith(f"{kind}.")]
    return [(name.split(".", 2)[2], arrays[name]) for name in found]


class CsvTable:
    """A CSV file whose rows are keyed by ``step``; new columns widen the file.

    Args:
        path: The file; one that another program made unreadable is set aside and kept.
        keep_until: Rows beyond this step are dropped.
        report: Called with a sentence if a file was set aside.
    """

    def __init__(self, path: Path, keep_until: int, report: Callable[[str], None]) -> None:
        self._path = path
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._torn = False  # whether the file may lack rows, or end in the middle of one
        if path.exists():
            try:
                self._read(keep_until)
            except (UnicodeDecodeError, csv.Error, ValueError) as error:
                self._columns, self._rows = [], []
                report(f"{path} is no longer the table of this run ({error}); it is kept as {self._set_aside()}")
            else:
                self._rewrite()

    def _read(self, keep_until: int) -> None:
        """Read the existing file; ``ValueError`` says why it is not this run's."""
        with self._path.open(newline="", encoding="utf-8-sig") as file:  # a spreadsheet may have added the mark
            reader = csv.DictReader(file)
            self._columns = list(reader.fieldnames or [])
            if self._columns and "step" not in self._columns:
                raise ValueError("its first line names no column 'step'")
            self._rows = [row for row in reader if _step(row) <= keep_until]

    def _set_aside(self) -> Path:
        names = (self._path.with_name(f"{self._path.stem}-set-aside-{number}.csv") for number in count(1))
        free = next(name for name in names if not name.exists())
        self._path.rename(free)
        return free

    def add(self, row: Row) -> None:
        """Append a row to the file, with earlier ones that could not be written.

        Raises:
            OSError: It could not be written; it is kept for the next call.
        """
        new = [name for name in row if name not in self._columns]
        self._rows.append(dict(row))
        self._columns += new
        torn, self._torn = self._torn, True  # until the row is on disk
        if new or torn:
            self._rewrite()
        else:
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns).writerow(row)
        self._torn = False

    def _rewrite(self) -> None:
        with Replacement(self._path) as whole, whole.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._rows)


def _board_folder(run: Path) -> Path:
    """Return TensorBoard's folder, named like the run, because TensorBoard shows that name; older runs keep theirs."""
    folder = run / "tensorboard"
    return folder if any(folder.glob("events.*")) else folder / run.resolve().name


def _description(config: RunConfig) -> list[Summary]:
    """Show the configuration as text and as hyperparameters."""
    lines = "\n".join(f"    {line}" for line in to_yaml(config).splitlines())
    agent = config.agent.model_dump(mode="json") | {"seed": config.seed}
    values = {name: value if isinstance(value, int | float | str) else str(value) for name, value in agent.items()}
    shown = text("configuration", f"{config.environment.title}\n\n{lines}")  # type: ignore[no-untyped-call]
    return [shown, *hparams(values, {FIRST["success_rate"]: 0.0})]  # type: ignore[no-untyped-call]


def _step(row: dict[str, Any]) -> float:
    """Return a row's step, or infinity, so that it is dropped, if a crash or a full disk tore the row."""
    try:
        return float("inf") if None in row else float(row["step"])
    except (TypeError, ValueError):
        return float("inf")


class EventFile:
    """A new event file of TensorBoard, written by the caller.

    TensorBoard's own writer leaves that to a thread: where a file cannot be written, it prints the thread's traceback,
    and what it was given shows after two minutes only.

    Args:
        folder: Where it goes; made where it is missing.
        purge_step: TensorBoard drops what earlier files of the folder have from this step on.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, folder: Path, purge_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time()):010d}.{gethostname()}.{getpid()}.{next(NUMBERS)}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._write(
            [
                Event(file_version="brain.Event:2", step=purge_step),
                Event(session_log=SessionLog(status=SessionLog.START), step=purge_step),
            ]
        )

    def add(self, summaries: Iterable[Summary], step: int) -> None:
        """Write summaries of a step to the disk.

        Raises:
            OSError: They could not be written. The file is closed, because nothing is read behind a torn record.
        """
        self._write(Event(summary=summary, step=step) for summary in summaries)

    def close(self) -> None:
        """Close the file. May be repeated."""
        self._file.close()

    def _write(self, events: Iterable[Event]) -> None:
        try:
            for event in events:
                event.wall_time = time()
                self._records.write(event.SerializeToString())
            self._file.flush()
        except OSError:
            with suppress(OSError):
                self._file.close()
            raise


class MetricsWriter:
    """Write training rows and evaluations of a run directory; use as a context manager.

    Args:
        run: The run directory; gets ``metrics.csv``, ``evaluations.csv`` and ``tensorboard/``.
        keep_until: Rows beyond this step, left by an interrupted run, are dropped: the run goes back to it.
        report: Called with a sentence for a row that could not be written (a full disk); training continues.
        config: The run's configuration, which TensorBoard shows as text and as hyperparameters.
        evaluated_until: The same for evaluations, of which fewer are kept: those in progress are done again.
    """

    def __init__(
        self,
        run: Path,
        keep_until: int,
        report: Callable[[str], None],
        config: RunConfig,
        evaluated_until: int | None = None,
    ) -> None:
        self._report, self._run, self._config = report, run, config
        kept = {"metrics": keep_until, "evaluations": keep_until if evaluated_until is None else evaluated_until}
        self._tables = {name: CsvTable(run / f"{name}.csv", until, report) for name, until in kept.items()}
        self._board: EventFile | None = None
        self._open_board(keep_until)
        self._loggers = [Logger(name, config, run, report) for name in dict.fromkeys(config.training.loggers)]

    def _open_board(self, step: int) -> None:
        """Begin a new TensorBoard file, which purges what an earlier one has beyond the step."""
        try:
            self._board = EventFile(_board_folder(self._run), step + 1)
            self._board.add(_description(self._config), step)
        except OSError as error:
            self._lose_board(error)

    def _lose_board(self, error: OSError) -> None:
        """Report that TensorBoard's file could not be written; its next one follows with the next row."""
        self._report(f"TensorBoard's file could not be written: {error.strerror or error}; a new one follows")
        self._board = None

    def add(self, table: str, row: Row) -> None:
        """Write one row to ``metrics`` or ``evaluations``; it must have a ``step``."""
        try:
            self._tables[table].add(row)
        except OSError as error:
            self._report(f"a row of {table}.csv could not be written: {error.strerror or error}")
        step = int(row["step"])
        prefix = "" if table == "metrics" else "evaluation/"
        for logger in self._loggers:
            logger.add({prefix + name: value for name, value in row.items() if name != "step"}, step)
        if self._board is None:
            self._open_board(step - 1)
        if self._board is None:
            return
        try:
            self._board.add(
                [
                    scalar(FIRST.get(name, prefix + name), value)  # type: ignore[no-untyped-call]
                    for name, value in row.items()
                    if name != "step"
                ],
                step,
            )
        except OSError as error:
            self._lose_board(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for logger in self._loggers:
            logger.close()
        if self._board is not None:
            self._board.close()
