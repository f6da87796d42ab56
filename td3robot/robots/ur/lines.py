"""Lines from a peer that may send anything, each with one deadline and one size limit, however it arrives."""

import socket
from time import monotonic


class LineReader:
    """Read a stream socket line by line.

    Args:
        link: The connected socket; its timeout is set with every read.
        longest: The most bytes without an end of line.
        pause_s: After this long without another byte, a line ends without its newline; None: never [s].
    """

    def __init__(self, link: socket.socket, longest: int, pause_s: float | None = None) -> None:
        self._link, self._longest, self._pause_s = link, longest, pause_s
        self._buffer = b""

    def read(self, timeout_s: float) -> bytes:
        """Return the next line, stripped.

        Raises:
            TimeoutError: It was not complete after ``timeout_s``.
            ConnectionError: It is too long, or the connection was closed.
        """
        end = monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if (left := end - monotonic()) <= 0.0:
                raise TimeoutError
            if len(self._buffer) > self._longest:
                raise ConnectionError(f"it sent more than {self._longest} bytes without the end of a line")
            ends_by_itself = self._pause_s is not None and self._pause_s < left and self._buffer
            self._link.settimeout(self._pause_s if ends_by_itself else left)
            try:
                data = self._link.recv(4096)
            except TimeoutError:
                if not ends_by_itself:
                    raise
                break
            if not data:
                raise ConnectionError("it closed the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.strip()

    def clear(self) -> None:
        """Discard what has arrived and was not read."""
        self._buffer = b""
