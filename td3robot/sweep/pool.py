"""What carries out the runs of a sweep: here, processes on the cores of this machine."""

import os
import signal
import subprocess
from contextlib import suppress
from typing import Protocol

from td3robot.errors import CheckpointError
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, ending


class Pool(Protocol):
    """What carries out jobs, several at a time."""

    def room(self) -> int:
        """Return how many more jobs can be given to it now."""

    def start(self, job: Job) -> None:
        """Train a job, or wait for room where it belongs to others, too."""

    def ended(self) -> list[tuple[Job, Ending]]:
        """Return the jobs that have ended since this was asked last."""

    def stop(self, job: Job) -> None:
        """Have a job save and stop; asked again, give up what it waits for, and then end it."""

    def close(self) -> None:
        """End whatever still runs."""


class LocalPool:
    """Train in processes of this machine.

    Args:
        cores: How many each run gets.
    """

    def __init__(self, cores: int) -> None:
        self._slots = max(1, len(os.sched_getaffinity(0)) // cores)
        self._running: dict[Job, subprocess.Popen[bytes]] = {}

    def room(self) -> int:
        """Return how many more runs have cores of their own."""
        return self._slots - len(self._running)

    def start(self, job: Job) -> None:
        """Start its process."""
        self._running[job] = job.start()

    def ended(self) -> list[tuple[Job, Ending]]:
        """Return those whose processes have ended."""
        done = [(job, process.poll()) for job, process in self._running.items()]
        found = [(job, ending(job, status)) for job, status in done if status is not None]
        for job, _ in found:
            self._running.pop(job)
        return found

    def stop(self, job: Job) -> None:
        """Send it what Ctrl-C sends."""
        if job in self._running:
            self._running[job].send_signal(signal.SIGINT)

    def close(self) -> None:
        """Kill what still runs; it was saved periodically."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


def train_here(job: Job, stop_s: float = 60.0) -> Ending:
    """Train a job in a process of this machine, and wait for it; a ``KeyboardInterrupt`` stops it, saved.

    Args:
        job: What to train.
        stop_s: How long it may take to save and stop [s].
    """
    try:
        process = job.start()
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
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait in short stretches, between which an interrupt is heard."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
