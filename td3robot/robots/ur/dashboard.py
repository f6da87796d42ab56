"""Queries to a UR controller's dashboard (port 29999) that change nothing: one line out, one line back."""

import socket
from collections.abc import Sequence
from time import perf_counter, sleep

from td3robot.errors import RobotError
from td3robot.robots.ur.absence import connection_refused_message
from td3robot.robots.ur.lines import LineReader

PORT = 29999
# Timeout of one answer [s], and the most bytes of it.
TIMEOUT_S, LONGEST = 2.0, 4096


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
            self.ask("robotmode")
            times.append(perf_counter() - begin)
            sleep(pause_s)
        return times

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _line(self) -> str:
        return self._lines.read(TIMEOUT_S).decode("utf-8")
