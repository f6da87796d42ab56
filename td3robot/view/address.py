"""Address of a page, and how to open it."""

import os
import socket
import webbrowser
from collections.abc import Mapping, Sequence

from td3robot.errors import ConfigError

LOOPBACK = "127.0.0.1"
FIRST_PORT = 8080
PORTS = 100


def free_port(host: str, wanted: int | None) -> int:
    """Return a free port: the wanted one, or the first from 8080 on.

    Raises:
        ConfigError: The wanted port is taken, or none is free.
    """
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if wanted is not None:
                    raise ConfigError(
                        f"port {port} cannot be listened on ({error.strerror}): another program has it; choose another "
                        "--port, or leave it out"
                    ) from None
                continue
        return port
    raise ConfigError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free; choose one with --port")


def how_to_get_there(url: str, ports: Sequence[int], environment: Mapping[str, str] = os.environ) -> str:
    """Return one line with the address and, over SSH, how to forward its ports."""
    connection = environment.get("SSH_CONNECTION", "").split()
    if len(connection) < 3:
        return f"view: {url}"
    forward = " ".join(f"-L {port}:{LOOPBACK}:{port}" for port in ports)
    user = environment.get("USER", "you")
    return f"view: {url} (from your own computer: ssh -N {forward} {user}@{connection[2]}, then open it there)"


def open_browser(url: str) -> str | None:
    """Open a page in the person's browser, and return a sentence if there is none."""
    try:
        opened = webbrowser.open(url)
    except webbrowser.Error:
        opened = False
    return None if opened else "no browser could be opened here; open the address yourself"
