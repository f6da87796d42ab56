"""Loopback addresses for stand-ins."""

import secrets
import socket
from collections.abc import Sequence

from td3robot.errors import RobotError


def free_host(ports: Sequence[int]) -> str:
    """Return a loopback address at which nothing listens on some ports; programs that start together differ.

    Raises:
        RobotError: All of them are taken.
    """
    for number in secrets.SystemRandom().sample(range(2, 255), 253):
        host = f"127.0.0.{number}"
        if all(_is_free(host, port) for port in ports):
            return host
    raise RobotError(f"no address from 127.0.0.2 to 127.0.0.254 has its ports {', '.join(map(str, ports))} free")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
