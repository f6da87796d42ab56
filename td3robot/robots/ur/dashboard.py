"""Questions to a UR controller's dashboard (port 29999) that change nothing: one line out, one line back."""

import socket
from collections.abc import Sequence
from time import perf_counter, sleep

from td3robot.errors import RobotError

PORT = 29999
TIMEOUT_S = 2.0


class DashboardClient:
    """One connection, as a context manager.

    Args:
        host: The controller.

    Raises:
        RobotError: Nobody is there.
    """

    def __init__(self, host: str) -> None:
        self._where = f"dashboard at {host}, port {PORT}"
        try:
            self._socket = socket.create_connection((host, PORT), timeout=TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._socket.makefile("r", encoding="utf-8", newline="\n")
            self._stream.readline()
        except OSError as error:
            raise RobotError(
                f"there is no UR controller at {host}, port {PORT} ({error.strerror or error}); check ur.host, the "
                "cable and the robot's network settings"
            ) from None

    def ask(self, question: str) -> str:
        """Ask one question.

        Raises:
            RobotError: There was no answer.
        """
        try:
            self._socket.sendall(question.encode() + b"\n")
            answer = self._stream.readline()
        except OSError as error:
            raise RobotError(f"the {self._where} did not answer {question!r}: {error}") from None
        if not answer:
            raise RobotError(f"the {self._where} closed the connection at {question!r}")
        return answer.strip()

    def round_trips(self, count: int, pause_s: float) -> Sequence[float]:
        """Measure how long an answer takes [s], several times."""
        times = []
        for _ in range(count):
            begin = perf_counter()
            self.ask("robotmode")
            times.append(perf_counter() - begin)
            sleep(pause_s)
        return times

    def close(self) -> None:
        """Let go."""
        self._stream.close()
        self._socket.close()
