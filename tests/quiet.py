"""A listener for trainings in tests."""

from td3robot.envs.playing import Evaluation


class Quiet:
    """A listener that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def progress(self, step: int, steps_per_second: float) -> None:
        """Ignore."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Keep."""
        self.messages.append(text)
