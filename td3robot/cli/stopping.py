"""Signals that stop a training: the first saves it, the second abandons a step, the third ends the process."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from td3robot.learning.trainer import Trainer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORDS = (
    "stopping after this step; saving",
    "giving up the environment's step, where it has not ended; saving (once more ends this process without)",
)


@contextmanager
def signals_call(handle: Callable[[], None]) -> Iterator[None]:
    """Make every signal that asks this process to stop call a function instead.

    A signal that this process ignores, such as SIGHUP under ``nohup``, stays ignored.
    """
    previous = {number: signal.signal(number, lambda *_: handle()) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals(trainer: "Trainer") -> Iterator[None]:
    """Make the first signal stop a training after its step, the second abandon the step, the third end the process."""
    heard = 0

    def handle() -> None:
        """Print what this signal does, and do it."""
        nonlocal heard
        heard += 1
        if heard == len(WORDS):
            for number in _heeded():
                signal.signal(number, signal.SIG_DFL)
        trainer.listener.message(WORDS[heard - 1])
        trainer.request_stop()

    with signals_call(handle):
        yield


def _heeded() -> list[signal.Signals]:
    return [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
