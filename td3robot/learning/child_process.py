"""A training's own child process: it ends with the training, and is ended if it goes silent."""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, NoReturn

from td3robot.errors import EnvironmentFaultError, Td3RobotError
from td3robot.processes import ChannelClosedError, ChildProcess, Parent

# Blocks as large as this go back to the system as soon as they are freed [bytes]. If glibc is not told, it keeps ever
# larger ones for later: 20 to 40 MB after compiling models.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
# How long a process may take to finish its step when it is closed [s].
END_S = 5.0


class TrainingProcess:
    """A child process whose answers, or signs of life, have to come within a limit.

    Args:
        function: What it runs; called with a :class:`Parent`.
        title: Its name in messages.
        limit_s: How long any answer may take [s].
        first: Message sent to it at once.
        variables: Environment variables in addition to this process's.
    """

    def __init__(
        self,
        function: Callable[[Parent], None],
        title: str,
        limit_s: float,
        first: Any,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._title, self._limit_s = title, limit_s
        self._child = ChildProcess(function, variables=RETURNED | dict(variables or {}))
        self.channel, self.pid, self.ask_to_stop = self._child.channel, self._child.pid, self._child.ask_to_stop
        self._waiting = False
        self._sign: tuple[str, float] = "", 0.0
        self._tell(first)

    def close(self) -> None:
        """End the process and its children: at once if an answer was waited for, or else when it has done its work."""
        self._child.close(0.0 if self._waiting else END_S)

    def _ask(self, message: Any) -> None:
        """Send a message that may take long to answer; from now on, the process has to give signs of life."""
        self._sign = "", monotonic()
        self._tell(message)
        self._waiting = True

    def _tell(self, message: Any) -> None:
        try:
            self.channel.send(message)
        except ChannelClosedError:
            self._raise_gone()

    def _receive(self) -> Any:
        """Wait for an answer and return it; raise an error that the process sent."""
        self._waiting = True
        if not self.channel.poll(self._limit_s):
            raise self._overdue()
        answer = self._next_message()
        self._waiting = False
        if isinstance(answer, Td3RobotError):
            raise answer
        return answer

    def _next_message(self) -> Any:
        try:
            return self.channel.receive()
        except ChannelClosedError:
            self._raise_gone()

    def _require_alive(self) -> None:
        """Require that the process's report of its work keeps changing within the limit."""
        said, since = self._sign
        if (now := self._at_work()) != said:
            self._sign = now, monotonic()
        elif monotonic() > since + self._limit_s:
            raise self._overdue()

    def _overdue(self) -> EnvironmentFaultError:
        return EnvironmentFaultError(
            f"{self._at_work()} has not answered for {self._limit_s:g} s, and its process was ended; find out "
            "what it waits for"
        )

    def _at_work(self) -> str:
        return self._child.busy_with or self._title

    def _raise_gone(self) -> NoReturn:
        said = self._at_work()
        self._waiting = False
        self.close()
        raise EnvironmentFaultError(
            f"{self._title} ended with status {self._child.process.returncode}; {said} was at work last, and what it "
            "said is above"
        ) from None
