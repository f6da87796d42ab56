"""The interface for reporting the progress of a training."""

from typing import Protocol

from td3robot.envs.playing import Evaluation


class Listener(Protocol):
    """Report the progress of a training: the command line's progress bar, for example."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Report the steps taken so far."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Report an evaluation."""

    def message(self, text: str) -> None:
        """Report anything else that the user should know."""
