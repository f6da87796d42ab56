"""Interpolates from one target per control period to one per tick, as streamed to a controller's servo.

Plain Python on lists of six numbers: this runs in a loop of 2 to 8 ms, in a process that imports little.
"""

from collections import deque
from math import inf

# The first target after a rest is played this share of a period late, so that later ones may arrive that much after
# their tick without the streamed target ever standing still in between.
SLACK = 0.1
# If a tick is late by up to this, its target is where it would have been on time; beyond that, the arm's own time
# waits. So at most a hundredth of any tenth of a second is made up for [s].
TOLERANCE_S = 0.001

# Above this share of the limit, targets are played slower: by GAIN times the excess. The tool responds within a servo's
# lag of 0.1 s, so a loop of this gain and 8 ms does not oscillate.
BEGINS_AT, GAIN = 0.92, 5.0
# Lower bound: the control process waits as much longer in its next period, and one period does not make a target late.
SLOWEST = 0.5


class TargetStream:
    """Play targets in straight lines over exactly one control period each, as the simulation does.

    No segment is ever played faster than planned. A target that arrives late begins late, and so do those after it. If
    a tick or its sending is late, the segment waits for it: the arm's own time slips, but its speed does not rise.
    Targets wait for the end of the segment before them, and are played one by one.

    Args:
        q: (n,) the posture in which the arm rests [rad].
        period_s: The control period.
        tick_s: Time between two streamed targets.

    Attributes:
        slipped_s: How much the arm's own time has slipped in total.
        slowed_s: How much of that came from playing targets slower.
    """

    def __init__(self, q: list[float], period_s: float, tick_s: float) -> None:
        self._period, self._tick = period_s, tick_s
        self.slipped_s = self.slowed_s = 0.0
        self.anchor(q)

    def anchor(self, q: list[float]) -> None:
        """Rest at q (n,) [rad], and drop the waiting targets."""
        self._start, self._end = list(q), list(q)
        self._begins = self._ends = self._behind = 0.0
        self._seen = inf
        self._waiting: deque[tuple[list[float], float, float]] = deque()
        self._rested = True
        self._braking = False

    def aim(self, q: list[float], sent_at: float, periods: int = 1) -> None:
        """Queue a target q (n,) [rad], sent at ``sent_at`` [s], to be played over this many control periods."""
        if not self._braking:
            self._waiting.append((list(q), sent_at, periods * self._period))

    def at(self, now: float, speed_scale: float = 1.0) -> list[float]:
        """Return the target (n,) [rad] at a time [s], which must not run backwards.

        Args:
            now: Time [s].
            speed_scale: Factor, at most 1, on the speed at which the time since the last call is played.
        """
        self.slip(now - self._seen - self._tick)
        passed = min(abs(now - self._seen), self._tick + TOLERANCE_S)  # at first, nothing was seen
        self._slow((1.0 - speed_scale) * passed)
        self._seen = now
        while self._waiting and now >= self._ends:
            self._begin(now - passed)
        if now >= self._ends:
            return list(self._end)
        share = min(max((now - self._begins) / (self._ends - self._begins), 0.0), 1.0)
        if self._braking:
            share = share * (2.0 - share)  # from full speed to rest
        return [a + share * (b - a) for a, b in zip(self._start, self._end, strict=True)]

    def sent(self, now: float) -> None:
        """Report that the last result of :meth:`at` was sent by a time [s]."""
        self.slip(now - self._seen)
        if now - self._seen > TOLERANCE_S:
            self._seen = now

    def behind_s(self, now: float) -> float:
        """Return how far the target played at a time [s] is behind schedule [s]."""
        return self._behind if now < self._ends else 0.0

    def idle_s(self, now: float) -> float:
        """Return how long ago the last segment ended, with nothing to follow it [s]."""
        return 0.0 if self._waiting else max(0.0, now - self._ends)

    def brake(self, now: float, deceleration: float) -> None:
        """Brake to rest along the line of the current segment.

        Args:
            now: Time [s].
            deceleration: Deceleration of the fastest joint [rad/s^2]; the others slow in proportion.
        """
        if self._braking:
            return
        q = self.at(now)
        moving = self._begins <= now < self._ends
        velocity = [
            (b - a) / max(self._ends - self._begins, self._tick) * moving
            for a, b in zip(self._start, self._end, strict=True)
        ]
        duration = max(abs(v) for v in velocity) / deceleration
        self._waiting.clear()
        self._braking = True
        self._start, self._end = q, [p + v * duration / 2.0 for p, v in zip(q, velocity, strict=True)]
        self._begins, self._ends = now, now + duration

    def slip(self, late: float) -> None:
        """Shift the current segment by a delay [s], if that is too long to make up for."""
        if late > TOLERANCE_S:
            self._wait(late)

    def _slow(self, wait: float) -> None:
        if wait > 0.0 and not self._braking:
            self.slowed_s += self._wait(wait)

    def _wait(self, wait: float) -> float:
        """Shift the current segment, and return by how much [s]."""
        if self._seen >= self._ends:
            return 0.0
        self._begins += wait
        self._ends += wait
        self._behind += wait
        self.slipped_s += wait
        return wait

    def _begin(self, earliest: float) -> None:
        self._start, (self._end, sent_at, duration) = self._end, self._waiting.popleft()
        on_time = sent_at + SLACK * self._period
        self._begins = max(on_time if self._rested else sent_at, self._ends, earliest)
        self._behind = self._begins - on_time
        self._rested = False
        self._ends = self._begins + duration


def speed_scale(speed: float, limit: float) -> float:
    """Return the factor, at most 1, on the planned speed at which targets are played.

    The guard bounds commands, and the arm as its servo's lag predicts it. A real arm may overshoot, and its joints may
    catch up unevenly, so that its tool is faster than any of its commands. Playing the commands slower asks less of it.

    Args:
        speed: Measured tool speed [m/s].
        limit: Limit that it should stay below [m/s].
    """
    return min(1.0, max(SLOWEST, 1.0 - GAIN * (speed / limit - BEGINS_AT)))
