"""Figures of a camera from its tracker's datagrams: frame rate, lost frames, latency, jitter, noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from td3robot.state import Array

# Fewer frames than this are not enough for figures.
FRAMES = 8
# No camera exposes, reads out and finds an object faster than this (assumed): a younger stamp was made on sending [s].
FASTEST_S = 0.005
# Frames are even if the steps between them are multiples of their median, within this share of it, for this share of
# the steps.
WHOLE, MOSTLY = 0.35, 0.9
# Otherwise their rate is searched between these multiples of their arrival rate: up to 47 % of them may be lost, and
# twice the rate is out of range.
LEAST, MOST = 0.8, 1.9
# Frames of one rate have phases that agree this well; 1 if they are even, 0.64 if they are late by up to half a period.
# One in a thousand sets of sixteen random times gets this far.
ALIKE = 0.6
# Quantiles between which a spread is measured: a single late frame is the computer's.
LOW, HIGH = 0.05, 0.95
# If frames are late by up to J, uniformly, the steps between them spread more between these quantiles than the delays
# do, by this factor: 2 (1 - sqrt(0.1)) J against 0.9 J.
STEPS_SPREAD = 2.0 * (1.0 - 0.1**0.5) / 0.9


@dataclass(frozen=True, slots=True)
class Arrival:
    """A datagram with an object's pose, accepted or not.

    Attributes:
        stamp: The sender's Unix time [s].
        clock, received: When it arrived: this computer's Unix time and its monotonic clock [s].
        position: (3,) in the base frame [m].
    """

    name: str
    stamp: float
    clock: float
    received: float
    position: Array


@dataclass(frozen=True, slots=True)
class CameraFigures:
    """Figures of a camera that looks at an object at rest.

    Attributes:
        frames: How many arrived.
        rate_hz: Frames a second: those exposed if ``lost`` is known, otherwise those that arrived.
        lost: How many frames in between did not arrive; None if frames arrive too unevenly to tell.
        age_s: Median time from a stamp to its arrival; negative if the clocks differ.
        latency_s: The same for the fastest twentieth; None if that is too short for a camera: such stamps were made on
            sending and say nothing.
        jitter_s: Spread of the delays, or of the intervals, from the fastest to the slowest twentieth; None if neither
            stamps nor arrival times tell.
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
    """Compute the figures from the datagrams of one object at rest, or None if they are too few.

    A datagram whose stamp is not newer than the last one is no new frame.
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
    rate = float(numbers[-1] / (times[-1] - times[0]))
    jitter = None if numbered is None else _spread(np.diff(received) - np.diff(numbers) / rate) / STEPS_SPREAD
    positions = np.array([frame.position for frame in frames])
    return CameraFigures(
        frames=len(frames),
        rate_hz=rate,
        lost=None if numbered is None else int(numbers[-1]) + 1 - len(frames),
        age_s=float(np.median(ages)),
        latency_s=float(np.quantile(ages, LOW)) if exposed else None,
        jitter_s=_spread(ages) if exposed else jitter,
        noise_m=float(np.sqrt(positions.var(axis=0, ddof=1).mean())),
    )


def _numbered(times: Array) -> NDArray[np.int64] | None:
    """Number frames by the periods since the first, from their times [s]; None if they come too unevenly to tell."""
    steps = np.diff(times)
    counts = steps / max(float(np.median(steps)), 1e-9)
    whole = np.maximum(np.rint(counts), 1.0)
    if np.mean(np.abs(counts - whole) <= WHOLE) >= MOSTLY:
        return np.concatenate(([0], np.cumsum(whole))).astype(np.int64)
    return _numbered_by_phase(times - times[0])


def _numbered_by_phase(since: Array) -> NDArray[np.int64] | None:
    """Number frames at the rate where the periodogram of their times [s] is highest."""
    often, step = (len(since) - 1) / since[-1], 0.05 / since[-1]
    rates = np.arange(LEAST * often, MOST * often, step)
    phases = np.exp(2j * np.pi * np.outer(rates, since)).mean(axis=1)
    best = int(np.abs(phases).argmax())
    if abs(phases[best]) < ALIKE:
        return None
    numbers = np.rint(rates[best] * since - np.angle(phases[best]) / (2.0 * np.pi)).astype(np.int64)
    return numbers - numbers[0] if (np.diff(numbers) > 0).all() else None


def _spread(values: Array) -> float:
    low, high = np.quantile(values, (LOW, HIGH))
    return float(high - low)
