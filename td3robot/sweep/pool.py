"""Pools that train the runs of a sweep: processes on this machine's cores, or a Ray cluster.

The cluster's scheduler places runs and restarts them elsewhere. All nodes share the sweep's directory and have the same
td3robot installed.
"""

import signal
import socket
import subprocess
from contextlib import suppress
from typing import Any, Protocol

from td3robot import processes, ray_cluster
from td3robot.errors import CheckpointError, ConfigError
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, ending, wait_until_released

# How often Ray restarts a run whose node or worker died.
RETRIES = 10
# How many runs may wait in the cluster, which schedules them.
WAITING = 64


class Pool(Protocol):
    """Train jobs, several at a time."""

    def free_slots(self) -> int:
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

    def free_slots(self) -> int:
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


class RayPool:
    """Train on a Ray cluster.

    Args:
        address: Its head, as ``HOST:PORT``; ``auto`` for the cluster of this machine.
        cores: Number of cores per run.

    Raises:
        ConfigError: The cluster does not answer, or no node has this many cores.
        MissingExtraError: Ray is not installed.
    """

    def __init__(self, address: str, cores: int) -> None:
        self._ray = ray = ray_cluster.join(address, "a sweep on a cluster")
        most = max(ray_cluster.cores_of_nodes(ray), default=0.0)
        if cores > most:
            ray.shutdown()
            raise ConfigError(f"--cores {cores} is more than any node of {address} has ({most:g}); no run could start")
        options: dict[str, Any] = {"num_cpus": cores, "max_retries": RETRIES, "retry_exceptions": False}
        self._cores, self._train = cores, ray.remote(**options)(_train_on_node)
        self._running: dict[Any, Job] = {}

    def free_slots(self) -> int:
        """Return how many more runs the cluster accepts; they wait there for cores."""
        return WAITING - len(self._running)

    def start(self, job: Job) -> None:
        """Hand the job to the cluster."""
        self._running[self._train.remote(job, self._cores, ray_cluster.installed_version())] = job

    def ended(self) -> list[tuple[Job, Ending]]:
        """Return the jobs that the cluster has finished or given up."""
        if not self._running:
            return []
        done, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [(self._running.pop(task), self._ending(task)) for task in done]

    def stop(self, job: Job) -> None:
        """Have the cluster interrupt the job."""
        for task, running in self._running.items():
            if running == job:
                self._ray.cancel(task)

    def close(self) -> None:
        """Leave the cluster, which ends the jobs still running."""
        self._ray.shutdown()

    def _ending(self, task: Any) -> Ending:
        try:
            found = self._ray.get(task)
        except (self._ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Ending(STOPPED)
        except self._ray.exceptions.RayError as error:
            return Ending(1, f"Ray gave it up: {ray_cluster.first_line(error)}")
        assert isinstance(found, Ending)
        return found


def _train_on_node(job: Job, cores: int, version: str) -> Ending:
    """Train a job, or resume it where another node left it."""
    shared, node = job.directory.parent, socket.gethostname()
    if not shared.is_dir():
        return Ending(REFUSED, f"node {node} does not see {shared}; a sweep needs a directory that all nodes share")
    if (other := ray_cluster.another_version(version)) is not None:
        return Ending(REFUSED, other)
    wait_until_released(job.directory)
    return train_here(job, cores)
