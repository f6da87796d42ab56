"""The interface of a program on the controller, whatever its language."""

from abc import ABC, abstractmethod


class Program(ABC):
    """A program on the controller, called once per tick."""

    @abstractmethod
    def begin(self) -> None:
        """Start."""

    @abstractmethod
    def tick(self) -> None:
        """Run for one period."""
