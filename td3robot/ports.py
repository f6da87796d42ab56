"""This computer's own address, and its free ports."""

import socket

from td3robot.errors import ConfigError

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 8080, 100


def free_port(host: str, requested: int | None) -> int:
    """Return a free port: the requested one, or the first from 8080 on.

    Raises:
        ConfigError: The wanted port is taken, or none is free.
    """
    for port in [requested] if requested is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if requested is not None:
                    raise ConfigError(
                        f"port {port} cannot be listened on ({error.strerror}): another program has it; choose another "
                        "--port, or leave it out"
                    ) from None
                continue
        return port
    raise ConfigError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free; choose one with --port")
