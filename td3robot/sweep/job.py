"""One run of a sweep: its directory, what its training wrote there, and the process that trains it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from td3robot.config import load_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.learning.changes import different_settings
from td3robot.learning.log import EVALUATIONS, METRICS, read_log
from td3robot.learning.run_lock import RunLock
from td3robot.policy import checkpoint
from td3robot.subprocesses import end_with_parent, start_python

# A training that was told to stop saves and ends with this status; one that refuses says why and ends with the other.
STOPPED, REFUSED = 130, 2
# What a run's process does: obey, and be the command line.
COMMAND = "obey(); from td3robot.cli import main; main()"
# How long a directory may be in use by a training whose process was just killed [s].
RELEASE_S = 20.0
# How much of a log's end holds its last line [bytes].
TAIL = 4096


@dataclass(frozen=True)
class Job:
    """What is trained: it pickles, and means the same on every machine that has the directory.

    Attributes:
        directory: The run directory, absolute.
        config: The file of the configuration, absolute.
        overrides: As ``--set`` has them; the seed is among them.
    """

    directory: Path
    config: Path
    overrides: tuple[str, ...]

    @property
    def log(self) -> Path:
        """What the training says."""
        return self.directory.with_name(f"{self.directory.name}.log")

    def arguments(self) -> list[str]:
        """Return those of ``td3robot`` that begin the run, or resume it where it was saved."""
        if has_checkpoint(self.directory):
            return ["train", "--resume", str(self.directory)]
        changes = [part for override in self.overrides for part in ("--set", override)]
        return ["train", str(self.config), "--out", str(self.directory), *changes]

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the training in a process that ends with this one.

        Raises:
            CheckpointError: Another training is at work in the directory.
        """
        set_aside_unsaved(self.directory)
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return start_python(
                ["-c", f"from {__name__} import obey; {COMMAND}", str(os.getpid()), *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def require_same_settings(self) -> None:
        """Refuse a run directory that holds a run of other settings.

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

    def said_last(self) -> str:
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
        words: Why, where it was neither done nor stopped.
    """

    status: int
    words: str = ""

    @property
    def died(self) -> bool:
        """Whether it ended in a way that a new process could mend."""
        return self.status not in (0, STOPPED, REFUSED)


@dataclass
class Progress:
    """What a run's files say.

    Attributes:
        step: Up to where it has been trained.
        steps: The steps of its evaluations.
        success: Their success rates; empty where the environment has none.
        returns: Their mean returns.
    """

    step: int = 0
    steps: list[int] = field(default_factory=list)
    success: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """What evaluations are compared by: success or, without one, return."""
        return self.success or self.returns


def obey() -> None:
    """Have this process end with the one that its first argument names, and stop when that sends SIGINT.

    Ray blocks the signal in its workers, and shells ignore it in what they start in the background; both are inherited.
    """
    end_with_parent(int(sys.argv.pop(1)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def ending(job: Job, status: int) -> Ending:
    """Say how a job's process ended."""
    if status in (0, STOPPED):
        return Ending(status)
    if status == REFUSED:
        return Ending(status, job.said_last() or "it said nothing")
    if -status in set(signal.Signals):
        return Ending(status, f"its process ended with signal {signal.Signals(-status).name}")
    return Ending(status, f"its process ended with status {status} ({job.said_last()})")


def saved_step(directory: Path) -> int | None:
    """Return the step that a run was saved at, and can be resumed from; None where it was not saved yet."""
    try:
        saved = checkpoint.newest(directory)
        return int(saved.document("counters")["step"]) if saved.has("replay") else None
    except CheckpointError:
        return None


def has_checkpoint(directory: Path) -> bool:
    """Whether a run was saved, whatever has become of what was."""
    return any(directory.glob("last-*"))


def set_aside_unsaved(directory: Path) -> None:
    """Rename what a training left that died before it first saved, so that the run can begin again.

    Raises:
        CheckpointError: Another training is at work there.
    """
    if not directory.is_dir() or not any(directory.iterdir()) or has_checkpoint(directory):
        return
    with RunLock(directory):
        number = 1
        while (place := directory.with_name(f"{directory.name}.unsaved-{number}")).exists():
            number += 1
        directory.rename(place)


def progress(directory: Path) -> Progress:
    """Read how far a run is; nothing where it has not begun."""
    found = Progress()
    with suppress(CheckpointError):
        found.step = int(max((points[-1][0] for points in read_log(directory, METRICS).values()), default=0))
    with suppress(CheckpointError):
        columns = read_log(directory, EVALUATIONS)
        found.steps = [int(step) for step, _ in columns.get("mean_return", [])]
        found.returns = [value for _, value in columns.get("mean_return", [])]
        found.success = [value for _, value in columns.get("success_rate", [])]
    found.step = max([found.step, *found.steps])
    return found


def wait_until_released(directory: Path) -> None:
    """Wait until no training holds a directory any more: one that was killed on this machine takes a moment."""
    until = monotonic() + RELEASE_S
    while directory.is_dir() and monotonic() < until:
        try:
            RunLock(directory).close()
            return
        except CheckpointError:
            sleep(0.2)
