"""How a gripper's motor moves its fingers: at constant speed, after a delay."""

from collections import deque


class Fingers:
    """The motor's target for the fingers, as a closed fraction.

    Args:
        rate: Largest change of the closed fraction [1/s].

    Attributes:
        share: Share of that rate to use.
        delay_s: From a new position to the first motion.
        fraction: 0 open to 1 closed; it runs ahead of fingers that an object stops, which is what squeezes the object.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.share, self.delay_s = 1.0, 0.0
        self.place(0.0)

    def place(self, closed: float) -> None:
        """Place the fingers at a closed fraction, at rest."""
        self.fraction = self._goal = self._asked = closed
        self._coming: deque[tuple[float, float]] = deque()
        self._now_s = 0.0

    def go_to(self, closed: float) -> None:
        """Request a closed fraction, which takes effect after the delay."""
        if closed != self._asked:
            self._asked = closed
            self._coming.append((self._now_s + self.delay_s, closed))

    def advance(self, seconds: float, measured: float) -> float:
        """Advance time with the fingers at ``measured``, and return :attr:`fraction`."""
        end = self._now_s + seconds
        while self._coming and self._coming[0][0] < end - 1e-9:
            at, goal = self._coming.popleft()
            self._approach(max(at - self._now_s, 0.0))
            self._now_s = max(at, self._now_s)
            self._goal = goal
            if (goal - measured) * (self.fraction - measured) < 0.0:
                self.fraction = measured  # go back from where the fingers are, not from the target that squeezes
        self._approach(end - self._now_s)
        self._now_s = end
        return self.fraction

    def _approach(self, seconds: float) -> None:
        reach = self.share * self._rate * seconds
        self.fraction += min(max(self._goal - self.fraction, -reach), reach)
