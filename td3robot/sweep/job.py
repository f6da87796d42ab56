"""One run of a sweep: its directory, its training's output, and the process that trains it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import monotonic, sleep

from td3robot.config import load_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.learning.run_directory import RunLock, different_settings
from td3robot.metrics import EVALUATIONS, METRICS, Log, evaluations, read_log
from td3robot.policy import checkpoint
from td3robot.processes import CORES, end_with_parent, start_python

# Exit statuses of a training: stopped on request and saved; refused with a message.
STOPPED, REFUSED = 130, 2
# What a run's process does after its imports.
COMMAND = "follow_parent(); from td3robot.cli import main; main()"
# How long a killed training may keep its directory locked [s].
RELEASE_S = 20.0
# How much of a log's end to read for its last line [bytes].
TAIL = 4096


@dataclass(frozen=True)
class Job:
    """A run to train; can be pickled, and is valid on every machine that shares the directory.

    Attributes:
        directory: Absolute path of the run directory.
        config: Absolute path of the configuration.
        overrides: As given to ``--set``, including the seed.
    """

    directory: Path
    config: Path
    overrides: tuple[str, ...]

    @property
    def log(self) -> Path:
        """The file of the training's output."""
        return self.directory.with_name(f"{self.directory.name}.log")

    def arguments(self) -> list[str]:
        """Return the arguments of ``td3robot`` that begin the run, or resume it where it was saved."""
        if has_checkpoint(self.directory):
            return [
                "train",
                "--resume",
                str(self.directory),
                "--trust",
            ]  # as it began, with the sweep's own environment
        changes = [part for override in self.overrides for part in ("--set", override)]
        return ["train", str(self.config), "--out", str(self.directory), *changes]

    def start(self, cores: int) -> "subprocess.Popen[bytes]":
        """Start the training in a process that ends with this one.

        Args:
            cores: How many cores it may use.

        Raises:
            CheckpointError: Another training is using the directory.
        """
        set_aside_unsaved(self.directory)
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return start_python(
                ["-c", f"from {__name__} import follow_parent; {COMMAND}", str(os.getpid()), *self.arguments()],
                {CORES: str(cores)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def require_same_settings(self) -> None:
        """Refuse a run directory that contains a run with other settings.

        Raises:
            ConfigError: It does, or cannot be read.
        """
        made = self.directory / "config.yaml"
        if not made.is_file():
            return
        differ = different_settings(load_config(self.config, self.overrides), load_config(made))
        if differ:
            name, (wanted, found) = next(iter(differ.items()))
            raise ConfigError(
                f"{self.directory} was trained with {name} {found}, and this sweep wants {wanted} there; move it away"
            )

    def last_log_line(self) -> str:
        """Return the last line of the training's log, without the program's name."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].removeprefix("td3robot: ") if lines else ""


@dataclass(frozen=True)
class Ending:
    """How a training's process ended.

    Attributes:
        status: 0 for done, ``STOPPED``, ``REFUSED``, any other for a process that died.
        reason: Why, if it was neither done nor stopped.
    """

    status: int
    reason: str = ""

    @property
    def died(self) -> bool:
        """Whether the process died, so that another attempt may succeed."""
        return self.status not in (0, STOPPED, REFUSED)


@dataclass
class Progress:
    """A run's progress, from its files.

    Attributes:
        step: The step that its training has reached.
        steps: The steps of its evaluations.
        success: Their success rates; empty if the environment has none.
        returns: Their mean returns.
    """

    step: int = 0
    steps: list[int] = field(default_factory=list)
    success: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """The values by which evaluations are compared: success or, without it, return."""
        return self.success or self.returns

    @property
    def best(self) -> float | None:
        """The best of these values, or None without an evaluation."""
        return max(self.values, default=None)

    @property
    def last(self) -> float | None:
        """The last of these values, or None without an evaluation."""
        return self.values[-1] if self.values else None

    @property
    def score(self) -> float | None:
        """Their mean, or None without an evaluation: high if the run learned soon and well."""
        return fmean(self.values) if self.values else None


def follow_parent() -> None:
    """End this process with its parent, whose id is the first argument, and stop on the parent's SIGINT.

    Ray blocks the signal in its workers, and shells ignore it in background processes; both are inherited.
    """
    end_with_parent(int(sys.argv.pop(1)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def ending(job: Job, status: int) -> Ending:
    """Return how a job's process ended."""
    if status in (0, STOPPED):
        return Ending(status)
    if status == REFUSED:
        return Ending(status, job.last_log_line() or "it said nothing")
    if -status in set(signal.Signals):
        return Ending(status, f"its process ended with signal {signal.Signals(-status).name}")
    return Ending(status, f"its process ended with status {status} ({job.last_log_line()})")


def saved_step(directory: Path) -> int | None:
    """Return the step at which a run was saved and can be resumed, or None if it was not saved yet."""
    try:
        saved = checkpoint.newest(directory)
        return int(saved.document("counters")["step"]) if saved.has("replay") else None
    except CheckpointError:
        return None


def has_checkpoint(directory: Path) -> bool:
    """Whether a run was saved, even if the checkpoint is damaged."""
    return any(directory.glob("last-*"))


def set_aside_unsaved(directory: Path) -> None:
    """Rename what was left by a training that died before its first save, so that the run can begin again.

    Raises:
        CheckpointError: Another training is using the directory.
    """
    if not directory.is_dir() or not any(directory.iterdir()) or has_checkpoint(directory):
        return
    with RunLock(directory):
        number = 1
        while (place := directory.with_name(f"{directory.name}.unsaved-{number}")).exists():
            number += 1
        directory.rename(place)


def progress(directory: Path) -> Progress:
    """Return a run's progress, which is empty if it has not begun."""
    log: Log = {}
    for name in (METRICS, EVALUATIONS):
        with suppress(CheckpointError):
            log |= read_log(directory, name)
    rows = evaluations(log)
    return Progress(
        step=int(max((points[-1][0] for points in log.values()), default=0)),
        steps=[row["step"] for row in rows],
        success=[row["success_rate"] for row in rows if "success_rate" in row],
        returns=[row["mean_return"] for row in rows if "mean_return" in row],
    )


def wait_until_released(directory: Path) -> None:
    """Wait until no training has a directory locked; a killed one takes a moment to release it."""
    until = monotonic() + RELEASE_S
    while directory.is_dir() and monotonic() < until:
        try:
            RunLock(directory).close()
            return
        except CheckpointError:
            sleep(0.2)
