"""Text sockets of a UR controller, and queries to its dashboard that change nothing."""

import socket
from collections.abc import Sequence
from time import monotonic, perf_counter, sleep

from td3robot.errors import RobotError
from td3robot.robots.ur.generations import DASHBOARD_PORT as PORT
from td3robot.robots.ur.generations import POLYSCOPE_5
from td3robot.robots.ur.messages import connection_refused_message

# Timeout of one answer [s], and the most bytes of it.
TIMEOUT_S, LONGEST = 2.0, 4096


class LineReader:
    """Read lines from a peer that may send anything, each with one deadline and one size limit, however it arrives.

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


class DashboardClient:
    """One connection, as a context manager.

    Args:
        host: The controller.
        arm: The arm it should control, by its name in the catalogue of arms.

    Raises:
        RobotError: Nothing listens there, or what does is not a dashboard.
    """

    def __init__(self, host: str, arm: str = "ARM") -> None:
        self._where = f"dashboard at {host}, port {PORT}"
        try:
            self._socket = socket.create_connection((host, PORT), timeout=TIMEOUT_S)
        except OSError as error:
            services = ", and that the dashboard server is enabled under Settings, Security, Services"
            raise RobotError(connection_refused_message(host, PORT, error, services, arm)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = LineReader(self._socket, LONGEST)
        try:
            self._line()
        except (OSError, UnicodeDecodeError) as error:
            self._socket.close()
            why = f"said nothing for {TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else f"failed: {error}"
            raise RobotError(
                f"the {self._where} accepted the connection and {why}: the dashboard hangs, or something else answers "
                "there; close other programs that use it, or restart the controller, and check ur.host"
            ) from None

    def ask(self, question: str) -> str:
        """Return the answer to one question.

        Raises:
            RobotError: There was no answer.
        """
        try:
            self._socket.sendall(question.encode() + b"\n")
            return self._line()
        except TimeoutError:
            raise RobotError(f"the {self._where} did not answer {question!r} within {TIMEOUT_S:g} s") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RobotError(f"the {self._where} did not answer {question!r} as a dashboard does: {error}") from None

    def round_trips(self, count: int, pause_s: float) -> Sequence[float]:
        """Return several measured response times [s]."""
        times = []
        for _ in range(count):
            begin = perf_counter()
            self.ask(POLYSCOPE_5.commands["robot_mode"])
            times.append(perf_counter() - begin)
            sleep(pause_s)
        return times

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _line(self) -> str:
        return self._lines.read(TIMEOUT_S).decode("utf-8")
