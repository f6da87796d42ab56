"""Which checkpoints of a run are kept."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How many checkpoints of one kind a run keeps.

    Attributes:
        newest: How many of the newest ones.
        every: In addition, every n-th of the periodic ones; 0 keeps none.
        period: Environment steps between two periodic ones.
    """

    newest: int = 1
    every: int = 0
    period: int = 1

    def kept(self, steps: Iterable[int]) -> set[int]:
        """Return the steps of the checkpoints to keep, from those of existing ones."""
        ordered = sorted(steps, reverse=True)
        firsts = {step // self.period: step for step in ordered}  # the first one after each multiple of the period
        spaced = {step for number, step in firsts.items() if self.every and number and number % self.every == 0}
        return {*ordered[: self.newest], *spaced}
