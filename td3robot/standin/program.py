"""What the controller runs: a program, whatever its language."""

from abc import ABC, abstractmethod


class Program(ABC):
    """A program on the controller, asked once a tick."""

    @abstractmethod
    def begin(self) -> None:
        """Start."""

    @abstractmethod
    def tick(self) -> None:
        """Run for one period."""
