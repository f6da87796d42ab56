"""Notices fingers that something else moved. Plain Python: a worker imports it."""

# Fingers have come to rest if they have not moved for this long, and the last request is this old [s].
STILL_S, RESPONSE_S = 0.3, 1.0
# A robot that is driven repeats its gripper command in every control period; after this long, nobody drives it [s].
DRIVEN_S = 1.0


class FingerWatch:
    """Notices that fingers at rest moved away from what they were told: another program, or a coupling that slipped.

    Fingers that go on towards what they were told do as they should: an object gave way, or is gone.

    Args:
        moved: How far fingers at rest never move away by themselves, in the gripper's own unit.
        noise: By how much the position of fingers at rest may change.
    """

    def __init__(self, moved: float, noise: float = 0.0) -> None:
        self._moved, self._noise = moved, noise
        self._told: float | None = None
        self._told_at = self._changed_at = 0.0
        self._position: float | None = None
        self._rest: float | None = None

    def told(self, position: float | None, now: float) -> None:
        """Note what the fingers are told from now on, or None: nothing."""
        self._told, self._told_at, self._rest = position, now, None

    def moved_from(self, position: float, now: float) -> float | None:
        """Return the position from which fingers now at another moved away by themselves, or None."""
        if self._position is None or abs(position - self._position) > self._noise:
            self._position, self._changed_at = position, now
        if self._told is None:
            return None
        rest = self._rest
        if rest is not None and abs(position - self._told) > abs(rest - self._told) + self._moved:
            return rest
        if now - self._told_at > RESPONSE_S and now - self._changed_at > STILL_S:
            self._rest = position
        return None
