"""Train the runs of a sweep on a Ray cluster, whose scheduler places them and starts them anew elsewhere.

All nodes share the sweep's directory, and have the same td3robot installed.
"""

import logging
import os
import socket
import subprocess
from typing import Any

from td3robot.errors import ConfigError
from td3robot.extras import require_extra
from td3robot.subprocesses import start_python
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, wait_until_released
from td3robot.sweep.pool import train_here

# How long an address may take to accept a connection, and a cluster to answer [s].
ACCEPT_S, ANSWER_S = 5.0, 30.0
# How often Ray starts a run anew whose node or worker died.
RETRIES = 10
# The cluster decides what runs when; so many runs wait in it.
WAITING = 64


class RayPool:
    """Train on a Ray cluster.

    Args:
        address: Its head, as ``HOST:PORT``; ``auto`` for the one that this machine belongs to.
        cores: How many each run gets.

    Raises:
        ConfigError: Nobody answers there, or no node has so many cores.
        MissingExtraError: Ray is not installed.
    """

    def __init__(self, address: str, cores: int) -> None:
        require_extra("ray", "a sweep on a cluster", "ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        _require_answer(address)
        import ray

        self._ray = ray
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        most = max((node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]), default=0.0)
        if cores > most:
            ray.shutdown()
            raise ConfigError(f"--cores {cores} is more than any node of {address} has ({most:g}); no run could start")
        options: dict[str, Any] = {"num_cpus": cores, "max_retries": RETRIES, "retry_exceptions": False}
        self._train = ray.remote(**options)(_train_on_node)
        self._running: dict[Any, Job] = {}

    def room(self) -> int:
        """Return how many more runs it takes; they wait there for cores."""
        return WAITING - len(self._running)

    def start(self, job: Job) -> None:
        """Hand it to the cluster."""
        self._running[self._train.remote(job, _version())] = job

    def ended(self) -> list[tuple[Job, Ending]]:
        """Return those that the cluster has finished, or given up."""
        if not self._running:
            return []
        done, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [(self._running.pop(task), self._ending(task)) for task in done]

    def stop(self, job: Job) -> None:
        """Have the cluster interrupt it."""
        for task, running in self._running.items():
            if running == job:
                self._ray.cancel(task)

    def close(self) -> None:
        """Leave the cluster, which ends what still runs."""
        self._ray.shutdown()

    def _ending(self, task: Any) -> Ending:
        try:
            found = self._ray.get(task)
        except (self._ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Ending(STOPPED)
        except self._ray.exceptions.RayError as error:
            return Ending(1, f"Ray gave it up: {_first_line(error)}")
        assert isinstance(found, Ending)
        return found


def _train_on_node(job: Job, version: str) -> Ending:
    """Train a job, or resume it where another node left it."""
    shared, node = job.directory.parent, socket.gethostname()
    if not shared.is_dir():
        return Ending(REFUSED, f"node {node} does not see {shared}; a sweep needs a directory that all nodes share")
    if version != _version():
        return Ending(REFUSED, f"node {node} has td3robot {_version()}, and not {version}; install the same on all")
    wait_until_released(job.directory)
    return train_here(job)


def _require_answer(address: str) -> None:
    """Require that a cluster answers, soon: Ray itself would wait for minutes, and then end the process that asks."""
    host, colon, port = address.rpartition(":")
    if not colon and address != "auto":
        raise ConfigError(f"--ray {address!r} is not of the form HOST:PORT, nor auto")
    try:
        if colon:
            socket.create_connection((host, int(port)), ACCEPT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"nobody answers at --ray {address} ({error}); start the cluster's head with: ray start --head --port PORT"
        ) from None
    joined = f"import ray; ray.init(address={address!r}, log_to_driver=False)"
    asked = start_python(["-c", joined], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        answered = asked.wait(ANSWER_S) == 0
    except subprocess.TimeoutExpired:
        answered = False
    finally:
        asked.kill()
        asked.wait()
    if not answered:
        raise ConfigError(
            f"no Ray cluster answers at --ray {address} within {ANSWER_S:g} s (or one of another version of Ray or "
            "Python); see there: ray status"
        )


def _version() -> str:
    from importlib.metadata import version

    return version("td3robot")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
