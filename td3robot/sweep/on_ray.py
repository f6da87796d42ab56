"""Trains the runs of a sweep on a Ray cluster, whose scheduler places them and restarts them elsewhere.

All nodes share the sweep's directory and have the same td3robot installed.
"""

import socket
from typing import Any

from td3robot import cluster
from td3robot.errors import ConfigError
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, wait_until_released
from td3robot.sweep.pool import train_here

# How often Ray restarts a run whose node or worker died.
RETRIES = 10
# The cluster decides what runs when; this many runs wait in it.
WAITING = 64


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
        self._ray = ray = cluster.join(address, "a sweep on a cluster")
        most = max(cluster.cores_of_nodes(ray), default=0.0)
        if cores > most:
            ray.shutdown()
            raise ConfigError(f"--cores {cores} is more than any node of {address} has ({most:g}); no run could start")
        options: dict[str, Any] = {"num_cpus": cores, "max_retries": RETRIES, "retry_exceptions": False}
        self._cores, self._train = cores, ray.remote(**options)(_train_on_node)
        self._running: dict[Any, Job] = {}

    def room(self) -> int:
        """Return how many more runs the cluster accepts; they wait there for cores."""
        return WAITING - len(self._running)

    def start(self, job: Job) -> None:
        """Hand the job to the cluster."""
        self._running[self._train.remote(job, self._cores, cluster.installed_version())] = job

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
            return Ending(1, f"Ray gave it up: {cluster.first_line(error)}")
        assert isinstance(found, Ending)
        return found


def _train_on_node(job: Job, cores: int, version: str) -> Ending:
    """Train a job, or resume it where another node left it."""
    shared, node = job.directory.parent, socket.gethostname()
    if not shared.is_dir():
        return Ending(REFUSED, f"node {node} does not see {shared}; a sweep needs a directory that all nodes share")
    if (other := cluster.another_version(version)) is not None:
        return Ending(REFUSED, other)
    wait_until_released(job.directory)
    return train_here(job, cores)
