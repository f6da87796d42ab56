"""Trackers: sources of object poses in a physical cell, each kind in its own module here.

A cell's file names the kind, ``tracker: {kind: udp, …}``. To add one, add a module with a subclass of
:class:`TrackerConfig` and one of :class:`ObjectTracker`, and register the first in :data:`TRACKERS`.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from threading import Lock
from time import monotonic, sleep, time
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from td3robot import registry
from td3robot.config.section import Section, refused
from td3robot.errors import TrackerError, choose
from td3robot.geometry import rotation_of
from td3robot.registry import Registry
from td3robot.robots.camera_figures import Arrival
from td3robot.robots.objects import ObjectBounds, Objects, Sighting
from td3robot.state import Array, Pose

TRACKERS: Registry[type["TrackerConfig"]] = registry.TRACKERS

# A quaternion whose norm is further from 1 than this is a mistake, not rounding.
UNIT_TOLERANCE = 0.01
# A refusal is quoted up to this many characters.
REFUSAL_LENGTH = 200
# No object of the cell is further from the arm's base than this [m].
FAR_M = 3.0
# How long a tracker may take to show every object when an episode begins [s].
FIRST_SIGHT_S = 2.0
# How many reports are kept for the camera's figures: some seconds.
ARRIVALS = 1000
# What a stamp may count in place of the seconds of Unix time, and how many of it are a second.
OTHER_UNITS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
# A stamp this near to another clock, or to ours in another unit, is of that clock or unit [s]: a day, for bad clocks.
SAME_CLOCK_S = 86_400.0
# The kind of a file that names none.
DEFAULT = "udp"


class TrackerConfig(Section):
    """What every kind of tracker accepts.

    Attributes:
        kind: Which tracker.
        max_age_s: How long an object that the hand cannot hide may stay unseen; stamps may differ this much from this
            computer's clock.
        max_jump_m: Largest motion of an object between two reports that are at most ``max_age_s`` apart.
    """

    kind: str = DEFAULT
    max_age_s: Annotated[float, Field(ge=0.01, le=5.0)] = 0.5
    max_jump_m: Annotated[float, Field(ge=0.005, le=0.5)] = 0.05

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the class of the kind that some values name."""
        name = str(values.get("kind", DEFAULT))
        return TRACKERS[name] if cls is TrackerConfig and name in TRACKERS else cls

    def tracker(self, names: tuple[str, ...], bounds: ObjectBounds | None = None) -> "ObjectTracker":
        """Return the tracker of some objects, which starts at the first use; see :class:`ObjectTracker`."""
        raise NotImplementedError


def chosen_tracker(value: Any) -> Any:
    """Validate a tracker's section with the configuration class of its kind."""
    if not isinstance(value, Mapping):
        return value
    if (kind := str(value.get("kind", DEFAULT))) not in TRACKERS:
        raise refused(TRACKERS.unknown(kind), "kind")
    return TRACKERS[kind].model_validate(value)


@dataclass(frozen=True, slots=True)
class Report:
    """One report of an object's pose, before it is checked.

    Attributes:
        name: The object's.
        stamp: Unix time of the measurement [s].
        position_m: In the arm's base frame (3,).
        quaternion_wxyz: Rotation in that frame (4,).
    """

    name: str
    stamp: float
    position_m: Array
    quaternion_wxyz: Array


@dataclass(frozen=True, slots=True)
class Accepted:
    """One accepted report, with the time of its receipt on the monotonic clock [s], and its number."""

    pose: Pose
    stamp: float
    received: float
    number: int


class ObjectTracker(Objects):
    """The poses that a tracker reports, as long as they are recent and plausible.

    An object must first be seen upright where the task's objects lie, and then where the arm can carry it. Poses
    elsewhere and implausible reports are refused and counted in :attr:`refused`; if nothing else arrives, silence is
    the fault, and its message has the last refusal. A jump is a fault until the next episode begins.

    A kind implements :meth:`_start`, :meth:`close` and :attr:`_where`, and calls :meth:`_take` from its own thread.

    Args:
        names: The task's objects.
        config: What to accept.
        bounds: Where the objects can be; without bounds, poses are accepted anywhere.
    """

    def __init__(self, names: tuple[str, ...], config: TrackerConfig, bounds: ObjectBounds | None = None) -> None:
        self.names, self.bounds = names, bounds
        self.refused = 0
        self._limits = config
        self._lock = Lock()
        self._seen: dict[str, Accepted] = {}
        self._jump: str | None = None
        self._arrivals: deque[Arrival] = deque(maxlen=ARRIVALS)
        self._last_refusal = ""

    @property
    @abstractmethod
    def _where(self) -> str:
        """Where its reports arrive, for messages."""

    @abstractmethod
    def _start(self) -> None:
        """Start to take reports, unless that was done already.

        Raises:
            TrackerError: That is not possible.
        """

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Return where the objects are at the start of an episode; a tracker cannot place them.

        Raises:
            TrackerError: Not every object is seen.
        """
        self._start()
        with self._lock:
            self._jump = None
            self._seen.clear()
        end = monotonic() + FIRST_SIGHT_S
        while monotonic() < end and len(self._seen) < len(self.names):
            sleep(0.005)
        found = self.read()
        for name in self.names:
            self.require_recent(name)
        return {name: seen.pose for name, seen in found.items()}

    def read(self) -> Mapping[str, Sighting]:
        """Return the last sightings; ages are by the stamps, and 0 for a stamp ahead of this computer's clock.

        Raises:
            TrackerError: An object was never seen, or jumped.
        """
        self._start()
        clock = time()
        with self._lock:
            if self._jump is not None:
                raise TrackerError(self._jump)
            found = {name: self._accepted(name) for name in self.names}
        return {name: Sighting(it.pose, max(clock - it.stamp, 0.0), it.number) for name, it in found.items()}

    def require_recent(self, name: str) -> None:
        """Refuse an object that has not been seen for ``max_age_s``.

        Raises:
            TrackerError: Saying for how long, and what was refused meanwhile.
        """
        with self._lock:
            silent, limit = monotonic() - self._accepted(name).received, self._limits.max_age_s
            if silent > limit:
                raise TrackerError(f"object tracker silent for {silent:.2f} s (limit {limit:g} s){self._refusals()}")

    def arrivals(self) -> tuple[Arrival, ...]:
        """Return the reports with a pose of the last seconds, accepted or not, oldest first.

        Raises:
            TrackerError: No report can be received.
        """
        self._start()
        with self._lock:
            return tuple(self._arrivals)

    def _take(self, raw: Any, now: float, clock: float) -> None:
        """Check one report and keep its pose; whatever it holds, one bad report costs one report.

        Args:
            raw: As :meth:`_parse` takes it.
            now: Time of receipt on the monotonic clock [s].
            clock: Unix time of receipt [s].
        """
        try:
            report = self._parse(raw)
            sighting = self._check(report, now, clock)
        except Exception as error:  # noqa: BLE001  # it comes from another program
            with self._lock:
                self.refused += 1
                self._last_refusal = str(error)[:REFUSAL_LENGTH]
            return
        with self._lock:
            before = self._seen.get(report.name)
            if before is not None and self._jump is None and now - before.received <= self._limits.max_age_s:
                distance = float(np.linalg.norm(sighting.pose.position - before.pose.position))
                if distance > self._limits.max_jump_m:
                    self._jump = (
                        f"{report.name!r} jumped {distance:.3f} m within {sighting.stamp - before.stamp:.3f} s "
                        f"(limit {self._limits.max_jump_m:g} m from one pose to the next); check the tracker"
                    )
            self._seen[report.name] = sighting

    @abstractmethod
    def _parse(self, raw: Any) -> Report:
        """Return what a raw report says; ``ValueError`` says why it is none."""

    def _check(self, report: Report, now: float, clock: float) -> Accepted:
        """Return a report's pose; ``ValueError`` says why it is refused."""
        name, position = report.name, report.position_m
        if name not in self.names:
            raise ValueError(choose("object", str(name), self.names))
        length = float(np.linalg.norm(report.quaternion_wxyz))
        if abs(length - 1.0) > UNIT_TOLERANCE:
            raise ValueError(f"the quaternion of {name!r} has length {length:.3f}, not 1")
        if float(np.linalg.norm(position)) > FAR_M:
            raise ValueError(
                f"{name!r} at {np.round(position, 3).tolist()} m is further than {FAR_M:g} m from the arm's base"
            )
        self._require_unix_seconds(name, report.stamp, now, clock)
        with self._lock:
            self._arrivals.append(Arrival(name, report.stamp, clock, now, position))
        self._require_plausible_stamp(name, report.stamp, clock)
        pose = Pose(position, rotation_of(report.quaternion_wxyz / length))
        self._require_believable(name, pose)
        before = self._seen.get(name)
        return Accepted(pose, report.stamp, now, 1 if before is None else before.number + 1)

    def _require_believable(self, name: str, pose: Pose) -> None:
        if self.bounds is None:
            return
        ask = self.bounds.objection_to_carried if name in self._seen else self.bounds.objection_to_lying
        if (objection := ask(name, pose)) is not None:
            raise ValueError(f"the pose of {name!r} is not believed: {objection}")

    def _require_unix_seconds(self, name: str, stamp: float, now: float, clock: float) -> None:
        """Require a stamp in seconds of Unix time, however far off; ``ValueError`` says what it is instead."""
        what = "not finite"
        if isfinite(stamp):
            if abs(stamp - clock) < SAME_CLOCK_S:
                return
            unit = next((unit for unit, n in OTHER_UNITS.items() if abs(stamp / n - clock) < SAME_CLOCK_S), None)
            what = "far from this computer's clock"
            if unit is not None:
                what = f"Unix time in {unit}"
            elif 0.0 <= stamp < clock / 10.0 and abs(stamp - now) < SAME_CLOCK_S:
                what = "of a monotonic clock, which counts from when the computer was started"
        raise ValueError(
            f"the stamp of {name!r}, {stamp:.10g}, is {what}; send seconds of Unix time, as time.time() has"
        )

    def _require_plausible_stamp(self, name: str, stamp: float, clock: float) -> None:
        age, limit = clock - stamp, self._limits.max_age_s
        if abs(age) > limit:
            raise ValueError(
                f"the stamp of {name!r} is {age:.3f} s behind this computer's clock (limit {limit:g} s either way); "
                "set both clocks by the network"
            )
        before = self._seen.get(name)
        if before is not None and stamp <= before.stamp:
            raise ValueError(f"the stamp of {name!r} did not move on: {stamp:.3f} s after {before.stamp:.3f} s")

    def _accepted(self, name: str) -> Accepted:
        seen = self._seen.get(name)
        if seen is None:
            last = max((arrival.received for arrival in self._arrivals if arrival.name == name), default=None)
            since = "has arrived" if last is None else f"was accepted; the last arrived {monotonic() - last:.1f} s ago"
            raise TrackerError(
                f"no pose of {name!r} {since} at {self._where}{self._refusals()}; is the object in view and the "
                "tracker running?"
            )
        return seen

    def _refusals(self) -> str:
        if not self.refused:
            return ""
        return f"; it refused {self.refused} poses, the last because {self._last_refusal}"
