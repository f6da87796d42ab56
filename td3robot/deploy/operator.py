"""The person beside the arm: asked before anything surprising, and heard within one control period."""

import os
import select
import signal
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self

from td3robot.errors import ConfigError, RobotError, Td3RobotError
from td3robot.processes import STOP_SIGNALS

STOP_KEYS, YES_KEYS, ENTER = " q\x1b", "\r\ny", "\n"
# How long a key of ``confirm`` lets the arm move [s]: long enough to be seen at a tenth of the speed; t is one period.
MOVES_S = {ENTER: 0.5, "s": 2.0, "t": 0.0}
# What stopped the arm: a key, or a signal.
BY_KEY = "the operator stopped the arm"
STOPPED_BY = {
    "SIGTERM": "another program asked this one to end (SIGTERM), which stopped the arm",
    "SIGHUP": "the terminal of this program was closed (SIGHUP), which stopped the arm",
}


class OperatorStop(Td3RobotError):  # noqa: N818  # stopping an arm is not an error
    """The operator stopped the arm."""


class Operator(ABC):
    """A person, or a substitute for one.

    Attributes:
        present: Whether somebody is there who can be asked and can stop the arm.
        stop_reason: What stopped the arm, in a sentence.
    """

    present: ClassVar[bool] = True
    stop_reason = BY_KEY

    @abstractmethod
    def say(self, text: str) -> None:
        """Show one sentence."""

    @abstractmethod
    def stop_wanted(self) -> bool:
        """Whether the arm should stop; called in every control period."""

    @abstractmethod
    def agree(self, what: str) -> None:
        """Ask for agreement before something moves.

        Raises:
            OperatorStop: The answer is no.
        """

    @abstractmethod
    def take(self, what: str) -> None:
        """Ask the operator to take what the gripper holds.

        Raises:
            OperatorStop: The answer is no.
            RobotError: Nobody is there.
        """

    @abstractmethod
    def accepts(self, offer: str) -> bool:
        """Offer something that need not be done, and return whether the operator wants it; nobody does not."""

    @abstractmethod
    def next_periods(self, rate_hz: float, ahead: str) -> int:
        """Show what is ahead, wait for a key, and return how many control periods the arm may move now.

        Args:
            rate_hz: Control periods in a second.
            ahead: What the policy wants, in words.

        Raises:
            OperatorStop: The operator refuses.
        """

    @abstractmethod
    def require_keys(self) -> None:
        """Require a keyboard.

        Raises:
            ConfigError: There is none.
        """

    def raise_if_stopped(self) -> None:
        """Raise if the arm should stop.

        Raises:
            OperatorStop: It should.
        """
        if self.stop_wanted():
            raise OperatorStop(self.stop_reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027  # most change nothing
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore what ``__enter__`` changed."""


class Signals(Operator):
    """No keyboard: SIGINT, SIGTERM and SIGHUP stop the arm, and a second one ends the program at once."""

    present: ClassVar[bool] = False

    def __init__(self) -> None:
        self._stopped = False
        self._previous: dict[int, Any] = {}

    def say(self, text: str) -> None:
        """Write to standard error, if that is still open."""
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def stop_wanted(self) -> bool:
        """Whether a signal arrived."""
        return self._stopped

    def agree(self, what: str) -> None:
        """Show the sentence and continue: ``--unattended`` is agreement."""
        self.say(what)

    def take(self, what: str) -> None:
        """Refuse: nobody is there."""
        raise RobotError(f"{what}; nobody is at a keyboard to do so, and nothing was moved")

    def accepts(self, offer: str) -> bool:
        """Decline: nobody is there."""
        return False

    def next_periods(self, rate_hz: float, ahead: str) -> int:
        """Refuse: nobody can press a key."""
        self.require_keys()
        return 0

    def require_keys(self) -> None:
        """Refuse: there is no terminal."""
        raise ConfigError("--mode confirm waits for key presses, and standard input is no terminal; start it from one")

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped, self.stop_reason = True, STOPPED_BY.get(signal.Signals(number).name, BY_KEY)


class Keyboard(Signals):
    """A person at a terminal: Space, q, Escape and Ctrl-C stop the arm."""

    present: ClassVar[bool] = True

    def __enter__(self) -> Self:
        import termios  # not on Windows
        import tty

        super().__enter__()
        self._descriptor = sys.stdin.fileno()
        self._settings = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        with suppress(OSError, termios.error):  # the terminal may be gone
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._settings)
        super().__exit__(kind, error, trace)

    def stop_wanted(self) -> bool:
        """Whether a stop key was pressed or a signal arrived."""
        while (key := self._key(0.0)) is not None:
            self._stopped = self._stopped or key in STOP_KEYS
        return self._stopped

    def require_keys(self) -> None:
        """Do nothing: there is a keyboard."""

    def agree(self, what: str) -> None:
        """Wait for Enter; a stop key refuses."""
        self._drop_keys()
        self.say(f"{what} [Enter: continue, Space: stop]")
        while (key := self._wait()) not in YES_KEYS:
            self._refuse(key)

    def take(self, what: str) -> None:
        """Wait for Enter."""
        self.agree(what)

    def accepts(self, offer: str) -> bool:
        """Wait for Enter, or for a stop key, which declines and stops nothing else."""
        self._drop_keys()
        self.say(f"{offer} [Enter: yes, Space: no]")
        while (key := self._wait()) not in YES_KEYS:
            if key in STOP_KEYS:
                return False
        return True

    def next_periods(self, rate_hz: float, ahead: str) -> int:
        """Wait for a key of :data:`MOVES_S`."""
        self._drop_keys()
        self.say(f"{ahead} [Enter: move for {MOVES_S[ENTER]:g} s, s: {MOVES_S['s']:g} s, t: one tick, Space: stop]")
        while True:
            key = self._wait()
            if (seconds := MOVES_S.get(ENTER if key in "\r\n" else key)) is not None:
                return max(1, round(seconds * rate_hz))
            self._refuse(key)

    def _wait(self) -> str:
        while True:
            key = self._key(0.05)
            if key is not None:
                return key
            if self._stopped:
                return STOP_KEYS[0]

    def _refuse(self, key: str) -> None:
        if key in STOP_KEYS:
            self._stopped = True
            raise OperatorStop(self.stop_reason)

    def _drop_keys(self) -> None:
        """Discard keys pressed before the question."""
        while self._key(0.0) is not None:
            pass

    def _key(self, wait_s: float) -> str | None:
        ready, _, _ = select.select([self._descriptor], [], [], wait_s)
        if not ready:
            return None
        try:
            return os.read(self._descriptor, 1).decode("latin-1") or STOP_KEYS[0]  # a closed terminal stops the arm
        except OSError:
            return STOP_KEYS[0]


def present_operator() -> Operator:
    """Return a keyboard if standard input is a terminal, otherwise signals alone."""
    return Keyboard() if sys.stdin.isatty() else Signals()
