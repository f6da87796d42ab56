"""Trackers: sources of object poses in a physical cell, each kind in its own module here.

A cell's file names the kind, ``tracker: {kind: udp, …}``. To add one, add a module with a subclass of
:class:`TrackerConfig` and one of :class:`ObjectTracker`, and register the first in :data:`TRACKERS`.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from threading import Lock
from time import monotonic, sleep, time
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo

from td3robot import registry
from td3robot.config.section import Section, refused
from td3robot.errors import TrackerError, choose
from td3robot.geometry import UNIT_TOLERANCE, rotation_of
from td3robot.registry import Registry
from td3robot.robots.camera_figures import Arrival
from td3robot.robots.objects import ObjectBounds, Objects, Sighting
from td3robot.state import Array, Pose

TRACKERS: Registry[type["TrackerConfig"]] = registry.TRACKERS

# A refusal is quoted up to this many characters.
REFUSAL_LENGTH = 200
# No object of the cell is further from the arm's base than this [m].
FAR_M = 3.0
# When an episode begins, an object lies where so many sightings in a row are no further apart than this [m]; a tracker
# may take this long to show every object so [s].
AGREEING, AGREE_M, FIRST_SIGHT_S = 3, 0.02, 2.0
# How many reports are kept for the camera's figures: some seconds.
ARRIVALS = 1000
# What a stamp may count in place of the seconds of Unix time, and how many of it are a second.
OTHER_UNITS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
# A stamp this near to another clock, or to ours in another unit, is of that clock or unit [s]: a day, for bad clocks.
SAME_CLOCK_S = 86_400.0
# The kind of a file that names none.
DEFAULT = "udp"
# A camera that measures never finds the same pose twice, to the last digit. If the first of these many reports had no
# more than one such pair in a row, as many equal ones are one old picture.
FIRST_REPORTS, STANDS_STILL = 20, 4


class TrackerConfig(Section):
    """What every kind of tracker accepts.

    Attributes:
        kind: Which tracker.
        max_age_s: How long an object that the hand cannot hide may stay unseen; stamps may differ this much from this
            computer's clock.
    """

    kind: str = DEFAULT
    max_age_s: Annotated[float, Field(ge=0.01, le=5.0)] = 0.5

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the class of the kind that some values name."""
        name = str(values.get("kind", DEFAULT))
        return TRACKERS[name] if cls is TrackerConfig and name in TRACKERS else cls

    def tracker(self, names: tuple[str, ...], bounds: ObjectBounds | None = None) -> "ObjectTracker":
        """Return the tracker of some objects, which starts at the first use; see :class:`ObjectTracker`."""
        raise NotImplementedError


def chosen_tracker(value: Any, info: ValidationInfo) -> Any:
    """Validate a tracker's section with the configuration class of its kind."""
    if not isinstance(value, Mapping):
        return value
    if (kind := str(value.get("kind", DEFAULT))) not in TRACKERS:
        raise refused(TRACKERS.unknown(kind), "kind")
    return TRACKERS[kind].model_validate(value, context=info.context)


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
    """One accepted report.

    Attributes:
        pose: Pose in the base frame.
        stamp: Unix time of the measurement [s].
        received: Time of its receipt on the monotonic clock [s].
        number: How many were accepted so far.
        agreeing: How many in a row have the object at one place; once they are enough, it may move.
        off_m: How far it is from the one before.
    """

    pose: Pose
    stamp: float
    received: float
    number: int
    agreeing: int
    off_m: float


class Repeats:
    """Finds out whether reports repeat one old picture, although their stamps move on.

    A tracker that rounds its poses repeats itself from the start; of such a one, nothing can be said.
    """

    def __init__(self) -> None:
        self._last: tuple[float, ...] | None = None
        self._reports = self._alike = self._most_alike = 0

    def count(self, values: tuple[float, ...]) -> bool:
        """Count a report with these numbers, and return whether the picture stands still."""
        self._alike = self._alike + 1 if values == self._last else 0
        self._last = values
        self._reports += 1
        if self._reports <= FIRST_REPORTS:
            self._most_alike = max(self._most_alike, self._alike)
        return self._reports > FIRST_REPORTS and self._most_alike <= 1 and self._alike >= STANDS_STILL


class ObjectTracker(Objects):
    """The poses that a tracker reports, as long as they are recent and those of a picture that moves.

    An object must first be seen upright where the task's objects lie, and several times at the same place: the goal
    follows from it. Poses elsewhere and reports that cannot be one are refused and counted in :attr:`refused`; if
    nothing else arrives, silence is the fault, and its message has the last refusal. What is believed during an episode
    is up to :class:`ObjectMemory`.

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
        self._repeats: dict[str, Repeats] = {name: Repeats() for name in names}
        self._last_refused: dict[str, float] = {}
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
            TrackerError: Not every object is seen, or not where it was a moment before.
        """
        self._start()
        with self._lock:
            self._seen.clear()
            self._last_refused.clear()
        end = self._now() + FIRST_SIGHT_S
        while self._now() < end and not all(self._lies(name) for name in self.names):
            sleep(0.005)
        found = self.read()
        for name in self.names:
            self.require_recent(name)
            self._require_agreement(name)
        return {name: seen.pose for name, seen in found.items()}

    def read(self) -> Mapping[str, Sighting]:
        """Return the last sightings; ages are by the stamps, and 0 for a stamp ahead of this computer's clock.

        Raises:
            TrackerError: An object was never seen.
        """
        self._start()
        clock = self._clock()
        with self._lock:
            found = {name: self._accepted(name) for name in self.names}
            refused = {name: self._last_refused.get(name, -inf) > it.received for name, it in found.items()}
        return {
            name: Sighting(it.pose, max(clock - it.stamp, 0.0), it.number, refused[name]) for name, it in found.items()
        }

    def require_recent(self, name: str) -> None:
        """Refuse an object that has not been seen for ``max_age_s``.

        Raises:
            TrackerError: Saying for how long, and what was refused meanwhile.
        """
        with self._lock:
            silent, limit = self._now() - self._accepted(name).received, self._limits.max_age_s
            if silent > limit:
                raise TrackerError(f"object tracker silent for {silent:.2f} s (limit {limit:g} s){self._refusals()}")

    def require_possible(self, name: str, pose: Pose) -> None:
        """Refuse to go on with an object that is where none can be, for longer than an odd picture lasts.

        Raises:
            TrackerError: Saying where.
        """
        if self.bounds is not None and (objection := self.bounds.objection_to_carried(name, pose)) is not None:
            raise TrackerError(f"{name!r} is seen where it cannot be: {objection}; put it back, or check the tracker")

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
        name = ""
        try:
            report = self._parse(raw)
            name = str(report.name)
            sighting = self._check(report, now, clock)
        except Exception as error:  # noqa: BLE001  # it comes from another program
            with self._lock:
                self.refused += 1
                self._last_refusal = str(error)[:REFUSAL_LENGTH]
                self._last_refused[name] = now
            return
        with self._lock:
            self._seen[report.name] = sighting

    def _now(self) -> float:
        """Return the monotonic clock's time [s]."""
        return monotonic()

    def _clock(self) -> float:
        """Return Unix time [s]."""
        return time()

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
        if self._repeats[name].count((*position.tolist(), *report.quaternion_wxyz.tolist())):
            raise ValueError(
                f"the pose of {name!r} is that of the last reports to the last digit, so its picture is old; check "
                "that the camera still sends new ones"
            )
        pose = Pose(position, rotation_of(report.quaternion_wxyz / length))
        before = self._seen.get(name)
        if not self._lies(name):
            self._require_lying(name, pose)
        if before is None:
            return Accepted(pose, report.stamp, now, 1, 1, 0.0)
        off = float(np.linalg.norm(position - before.pose.position))
        agreeing = before.agreeing + 1 if off <= AGREE_M or self._lies(name) else 1
        return Accepted(pose, report.stamp, now, before.number + 1, agreeing, off)

    def _lies(self, name: str) -> bool:
        """Return whether enough sightings in a row had the object at one place."""
        seen = self._seen.get(name)
        return seen is not None and seen.agreeing >= AGREEING

    def _require_agreement(self, name: str) -> None:
        """Refuse to begin an episode with an object whose sightings do not agree.

        Raises:
            TrackerError: Saying how far they are apart.
        """
        with self._lock:
            seen = self._accepted(name)
        if seen.agreeing < AGREEING:
            raise TrackerError(
                f"{name!r} was seen {seen.number} times in {FIRST_SIGHT_S:g} s, the last time "
                f"{1e3 * seen.off_m:.0f} mm from the one before, and {AGREEING} sightings in a row must be within "
                f"{1e3 * AGREE_M:g} mm; let it lie still, and check the tracker"
            )

    def _require_lying(self, name: str, pose: Pose) -> None:
        if self.bounds is not None and (objection := self.bounds.objection_to_lying(name, pose)) is not None:
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
            since = "has arrived" if last is None else f"was accepted; the last arrived {self._now() - last:.1f} s ago"
            raise TrackerError(
                f"no pose of {name!r} {since} at {self._where}{self._refusals()}; is the object in view and the "
                "tracker running?"
            )
        return seen

    def _refusals(self) -> str:
        if not self.refused:
            return ""
        return f"; it refused {self.refused} poses, the last because {self._last_refusal}"
