"""Messages between two processes that must not be lost: settings, orders, and what went wrong."""

import json
import socket
from typing import Any


class ChannelClosedError(Exception):
    """The process at the other end is gone."""


class Channel:
    """Messages as JSON objects, one a line, over a local socket that says at once when the other process is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket, self._buffer = connection, b""

    @classmethod
    def pair(cls) -> tuple["Channel", socket.socket]:
        """Make both ends; the second is for the other process."""
        mine, other = socket.socketpair()
        return cls(mine), other

    def send(self, **message: Any) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: Nobody is there any more.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except (OSError, ValueError):
            raise ChannelClosedError from None

    def receive(self) -> dict[str, Any] | None:
        """Give the next message, or None where there is none yet.

        Raises:
            ChannelClosedError: Nobody is there any more, and every message was read.
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
        """Let go."""
        self._socket.close()
