"""What a camera is like, from the datagrams of its tracker: frame rate, lost frames, latency, jitter, noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from td3robot.state import Array

# Fewer frames than this say nothing.
FRAMES = 8
# No camera exposes, reads out and finds an object within this (assumed): a younger stamp was made when sending [s].
FASTEST_S = 0.005
# The frame rate is looked for between these factors of how often frames come: up to 47 % of them may be lost, and its
# double is out of reach.
LEAST, MOST = 0.8, 1.9
# Frames of one rate have phases that point this much the same way, 1 where they are even: those that are late by up to
# half a period have 0.64; of sixteen at random times, one set in a thousand has this.
EVEN = 0.6
# Quantiles that a spread is between: a single late frame is the computer's.
LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True, slots=True)
class Arrival:
    """A datagram that told an object's pose, believed or not.

    Attributes:
        stamp: The sender's Unix time [s].
        clock, received: When it came: this computer's Unix time and its monotonic clock [s].
        position: (3,) in the base frame [m].
    """

    name: str
    stamp: float
    clock: float
    received: float
    position: Array


@runtime_checkable
class Receiver(Protocol):
    """What keeps the latest datagrams of a tracker."""

    def arrivals(self) -> Sequence[Arrival]:
        """Return those of the last seconds, oldest first."""


@dataclass(frozen=True, slots=True)
class CameraFigures:
    """A camera that looks at an object at rest.

    Attributes:
        frames: How many were seen.
        rate_hz: Frames a second: those exposed, where ``lost`` is known, else those that came.
        lost: How many frames did not come in between; None where frames come too unevenly to tell.
        age_s: From a stamp to its arrival, median; below 0 where the clocks differ.
        latency_s: The same of the fastest twentieth; None where that is too little to be a camera's: such stamps were
            made when sending, and cannot tell.
        jitter_s: How much later, or how unevenly, frames come: from the fastest to the slowest twentieth; None where
            neither their stamps nor their times tell.
        noise_m: Standard deviation of the position, along each axis.
    """

    frames: int
    rate_hz: float
    lost: int | None
    age_s: float
    latency_s: float | None
    jitter_s: float | None
    noise_m: float


def camera_figures(arrivals: Sequence[Arrival]) -> CameraFigures | None:
    """Compute the figures from the datagrams of one object at rest; None where they are too few.

    A datagram whose stamp is not newer than the one before is no new frame.
    """
    frames: list[Arrival] = []
    for arrival in arrivals:
        if isfinite(arrival.stamp) and (not frames or arrival.stamp > frames[-1].stamp):
            frames.append(arrival)
    if len(frames) < FRAMES:
        return None
    received, stamps, clock = np.array([(frame.received, frame.stamp, frame.clock) for frame in frames]).T
    ages = clock - stamps
    exposed = bool(np.median(ages) >= FASTEST_S)
    times = stamps if exposed else received
    if not times[-1] > times[0]:
        return None
    numbered = _numbered(times)
    numbers = np.arange(len(frames)) if numbered is None else numbered
    late = ages if exposed else received - np.polynomial.Polynomial.fit(numbers, received, 1)(numbers)
    low, high = np.quantile(late, (LOW, HIGH))
    positions = np.array([frame.position for frame in frames])
    return CameraFigures(
        frames=len(frames),
        rate_hz=float(numbers[-1] / (times[-1] - times[0])),
        lost=None if numbered is None else int(numbers[-1]) + 1 - len(frames),
        age_s=float(np.median(ages)),
        latency_s=float(low) if exposed else None,
        jitter_s=None if numbered is None and not exposed else float(high - low),
        noise_m=float(np.sqrt(positions.var(axis=0, ddof=1).mean())),
    )


def _numbered(times: Array) -> NDArray[np.int64] | None:
    """Number frames by the periods since the first, from their times [s]; None where they come too unevenly to tell.

    Their rate is where the periodogram of their times is highest.
    """
    since = times - times[0]
    often, step = (len(times) - 1) / since[-1], 0.05 / since[-1]
    rates = np.arange(LEAST * often, MOST * often, step)
    phases = np.exp(2j * np.pi * np.outer(rates, since)).mean(axis=1)
    best = int(np.abs(phases).argmax())
    if abs(phases[best]) < EVEN:
        return None
    numbers = np.rint(rates[best] * since - np.angle(phases[best]) / (2.0 * np.pi)).astype(np.int64)
    return numbers - numbers[0] if (np.diff(numbers) > 0).all() else None
