"""Pools that train the runs of a sweep: here, processes on the cores of this machine."""

import signal
import subprocess
from contextlib import suppress
from typing import Protocol

from td3robot import processes
from td3robot.errors import CheckpointError
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, ending


class Pool(Protocol):
    """Train jobs, several at a time."""

    def room(self) -> int:
        """Return how many more jobs it accepts now."""

    def start(self, job: Job) -> None:
        """Train a job, or queue it if the pool is shared with others."""

    def ended(self) -> list[tuple[Job, Ending]]:
        """Return the jobs that have ended since the last call."""

    def stop(self, job: Job) -> None:
        """Make a job save and stop; if called again, make it give up what it waits for, then end it."""

    def close(self) -> None:
        """End the jobs still running."""


class LocalPool:
    """Train in processes on this machine.

    Args:
        cores: Number of cores per run.
    """

    def __init__(self, cores: int) -> None:
        self._cores, self._slots = cores, max(1, processes.cores() // cores)
        self._running: dict[Job, subprocess.Popen[bytes]] = {}

    def room(self) -> int:
        """Return how many more runs can have their own cores."""
        return self._slots - len(self._running)

    def start(self, job: Job) -> None:
        """Start the job's process."""
        self._running[job] = job.start(self._cores)

    def ended(self) -> list[tuple[Job, Ending]]:
        """Return the jobs whose processes have ended."""
        done = [(job, process.poll()) for job, process in self._running.items()]
        found = [(job, ending(job, status)) for job, status in done if status is not None]
        for job, _ in found:
            self._running.pop(job)
        return found

    def stop(self, job: Job) -> None:
        """Send the job the signal of Ctrl-C."""
        if job in self._running:
            self._running[job].send_signal(signal.SIGINT)

    def close(self) -> None:
        """Kill the jobs still running; they were saved periodically."""
        for process in self._running.values():
            processes.end_process(process)
        self._running.clear()


def train_here(job: Job, cores: int, stop_s: float = 60.0) -> Ending:
    """Train a job in a process on this machine, and wait for it; a ``KeyboardInterrupt`` saves and stops it.

    Args:
        job: What to train.
        cores: How many cores it may use.
        stop_s: How long it may take to save and stop [s].
    """
    try:
        process = job.start(cores)
    except CheckpointError as error:
        return Ending(REFUSED, str(error))
    try:
        return ending(job, _wait(process))
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return ending(job, process.wait(stop_s))
        return Ending(STOPPED)
    finally:
        processes.end_process(process)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait in short intervals, between which an interrupt is handled, and return the exit status."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
