"""Joins a Ray cluster, or explains why it cannot."""

import logging
import os
import socket
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from td3robot.errors import ConfigError, require_extra
from td3robot.processes import end_process, start_python

# How long an address may take to accept a connection, and a cluster to answer [s].
ACCEPT_S, ANSWER_S = 5.0, 30.0


@dataclass(frozen=True, slots=True)
class Workers:
    """A number of processes on a cluster.

    Attributes:
        address: Address of the cluster's head, as ``HOST:PORT``; ``auto`` for the cluster of this machine.
        count: How many.
    """

    address: str
    count: int


def join(address: str, purpose: str) -> Any:
    """Join a cluster and return the module ``ray``, whose ``shutdown`` leaves the cluster.

    Args:
        address: Address of its head, as ``HOST:PORT``; ``auto`` for the cluster of this machine.
        purpose: What needs it, as the beginning of a sentence.

    Raises:
        ConfigError: The address has another form, or the cluster does not answer.
        MissingExtraError: Ray is not installed.
    """
    if ":" not in address and address != "auto":
        raise ConfigError(f"--ray {address!r} is not of the form HOST:PORT, nor auto")
    require_extra("ray", purpose, "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _require_answer(address)
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    return ray


def cores_of_nodes(ray: Any) -> list[float]:
    """Return the number of cores of each node."""
    return [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]


def installed_version() -> str:
    """Return the version of td3robot and of what else determines its numbers; every node must have the same."""
    return ", ".join(f"{name} {version(name)}" for name in ("td3robot", "numpy", "mujoco", "gymnasium"))


def another_version(theirs: str) -> str | None:
    """Return a sentence if this node's td3robot differs from the caller's, or None if it is the same."""
    if theirs == installed_version():
        return None
    return f"node {socket.gethostname()} has {installed_version()}, and not {theirs}; install the same on all"


def first_line(error: BaseException) -> str:
    """Return the first line of one of Ray's errors; the rest is another process's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _require_answer(address: str) -> None:
    """Require that a cluster answers soon: Ray itself would wait for minutes, and then end the calling process."""
    host, colon, port = address.rpartition(":")
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
        end_process(asked)
    if not answered:
        raise ConfigError(
            f"no Ray cluster answers at --ray {address} within {ANSWER_S:g} s (or one of another version of Ray or "
            "Python); see there: ray status"
        )
