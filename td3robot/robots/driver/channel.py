"""Messages between two processes that must not be lost: settings, orders, and faults."""

import json
import socket
from typing import Any


class ChannelClosedError(Exception):
    """The process at the other end is gone."""


class Channel:
    """JSON messages, one per line, over a local socket that reports at once when the other process is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket, self._buffer = connection, b""

    @classmethod
    def pair(cls) -> tuple["Channel", socket.socket]:
        """Return both ends; the second is for the other process."""
        mine, other = socket.socketpair()
        return cls(mine), other

    def send(self, **message: Any) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: The other process is gone.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except (OSError, ValueError):
            raise ChannelClosedError from None

    def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None if there is none yet.

        Raises:
            ChannelClosedError: The other process is gone, and every message was read.
        """
        try:
            while b"\n" not in self._buffer:
                data = self._socket.recv(65536)
                if not data:
                    raise ChannelClosedError
                self._buffer += data
        except (BlockingIOError, InterruptedError):
            return None
        except (OSError, ValueError):
            raise ChannelClosedError from None
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
