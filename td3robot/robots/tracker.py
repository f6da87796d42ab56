"""Sources of object poses in a physical cell: a vision system that streams them, or a person who gives them.

A tracker sends UDP datagrams, each one JSON object ``{"name": "object", "stamp": 1767225600.25,
"position_m": [x, y, z], "quaternion_wxyz": [w, x, y, z]}`` with the pose in the arm's base frame, and ``stamp`` the
Unix time of the measurement [s].
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from time import monotonic, sleep, time
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from td3robot.config.section import Section, Vector3
from td3robot.errors import ConfigError, TrackerError, choose
from td3robot.geometry import about_vertical, rotation_of
from td3robot.robots.camera_figures import Arrival
from td3robot.robots.object_bounds import ObjectBounds
from td3robot.robots.objects import Objects, Sighting
from td3robot.state import Array, Pose

# A quaternion whose norm is further from 1 than this is a mistake, not rounding.
UNIT_TOLERANCE = 0.01
# A refusal is quoted up to this many characters.
REFUSAL_LENGTH = 200
# No object of the cell is further from the arm's base than this [m].
FAR_M = 3.0
# How long a tracker may take to show every object when an episode begins [s].
FIRST_SIGHT_S = 2.0
# A datagram is about 150 bytes.
DATAGRAM = 4096
# How many datagrams are kept for the camera's figures: some seconds.
ARRIVALS = 1000


Port = Annotated[int, Field(ge=1, le=65535)]


class TrackerConfig(Section):
    """Where object poses arrive as datagrams, and which are accepted.

    Attributes:
        host, port: Address on this computer to listen on.
        max_age_s: How long an object that the hand cannot hide may stay unseen; stamps may differ this much from this
            computer's clock.
        max_jump_m: Largest motion of an object between two datagrams that are at most ``max_age_s`` apart.
    """

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Port = 47300
    max_age_s: Annotated[float, Field(ge=0.01, le=5.0)] = 0.5
    max_jump_m: Annotated[float, Field(ge=0.005, le=0.5)] = 0.05


class TaughtPose(Section):
    """Where an object lies, according to a person.

    Attributes:
        position_m: Position of its centre in the base frame (x, y, z).
        yaw_rad: Its angle about the vertical, at most one turn either way: 90 is no angle in radians.
    """

    position_m: Vector3
    yaw_rad: Annotated[float, Field(ge=-7.0, le=7.0)] = 0.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """One accepted datagram, with the time of its receipt on the monotonic clock [s], and its number."""

    pose: Pose
    stamp: float
    received: float
    number: int


class ObjectTracker(Objects):
    """The poses that a tracker streams, as long as they are recent and plausible.

    An object must first be seen upright where the task's objects lie, and then where the arm can carry it. Poses
    elsewhere and implausible datagrams are refused and counted in :attr:`refused`; if nothing else arrives, silence is
    the fault, and its message has the last refusal. A jump is a fault until the next episode begins.

    Args:
        names: The task's objects.
        config: Where to listen, and what to accept.
        bounds: Where the objects can be; without bounds, poses are accepted anywhere.
    """

    def __init__(self, names: Iterable[str], config: TrackerConfig, bounds: ObjectBounds | None = None) -> None:
        self.names, self.config, self.bounds = tuple(names), config, bounds
        self.refused = 0
        self._lock = threading.Lock()
        self._seen: dict[str, Accepted] = {}
        self._jump: str | None = None
        self._arrivals: deque[Arrival] = deque(maxlen=ARRIVALS)
        self._last_refusal = ""
        self._socket: socket.socket | None = None

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Return where the objects are at the start of an episode; a tracker cannot place them.

        Raises:
            TrackerError: Not every object is seen.
        """
        self._listen()
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
        self._listen()
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
            silent, limit = monotonic() - self._accepted(name).received, self.config.max_age_s
            if silent > limit:
                raise TrackerError(f"object tracker silent for {silent:.2f} s (limit {limit:g} s){self._refusals()}")

    def arrivals(self) -> tuple[Arrival, ...]:
        """Return the datagrams with a pose of the last seconds, accepted or not, oldest first.

        Raises:
            TrackerError: No datagram can be received.
        """
        self._listen()
        with self._lock:
            return tuple(self._arrivals)

    def close(self) -> None:
        """Stop listening. May be repeated."""
        if self._socket is not None:
            self._closing = True
            self._thread.join()
            self._socket.close()
            self._socket = None

    def _listen(self) -> None:
        if self._socket is not None:
            return
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            link.bind((self.config.host, self.config.port))
        except OSError as error:
            link.close()
            raise TrackerError(
                f"poses cannot be received at {self.config.host}, port {self.config.port} ({error.strerror}); is "
                "another program listening there?"
            ) from None
        link.settimeout(0.1)
        self._socket, self._closing = link, False
        self._thread = threading.Thread(target=self._receive, args=(link,), name="tracker", daemon=True)
        self._thread.start()

    def _receive(self, link: socket.socket) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                self._take(link.recv(DATAGRAM), monotonic(), time())

    def _take(self, datagram: bytes, now: float, clock: float) -> None:
        try:
            name, sighting = self._parse(datagram, now, clock)
        except Exception as error:  # noqa: BLE001  # whatever it holds, one bad datagram costs one datagram
            with self._lock:
                self.refused += 1
                self._last_refusal = str(error)[:REFUSAL_LENGTH]
            return
        with self._lock:
            before = self._seen.get(name)
            if before is not None and self._jump is None and now - before.received <= self.config.max_age_s:
                way = float(np.linalg.norm(sighting.pose.position - before.pose.position))
                if way > self.config.max_jump_m:
                    self._jump = (
                        f"{name!r} jumped {way:.3f} m within {sighting.stamp - before.stamp:.3f} s "
                        f"(limit {self.config.max_jump_m:g} m from one datagram to the next); check the tracker"
                    )
            self._seen[name] = sighting

    def _parse(self, datagram: bytes, now: float, clock: float) -> tuple[str, Accepted]:
        """Parse a datagram; ``ValueError`` says why it is refused."""
        try:
            message = json.loads(datagram)
            name, stamp = message["name"], float(message["stamp"])
            position = _numbers(message["position_m"], 3)
            quaternion = _numbers(message["quaternion_wxyz"], 4)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a pose: {error!r}") from None
        if name not in self.names:
            raise ValueError(choose("object", str(name), self.names))
        length = float(np.linalg.norm(quaternion))
        if abs(length - 1.0) > UNIT_TOLERANCE:
            raise ValueError(f"the quaternion of {name!r} has length {length:.3f}, not 1")
        if float(np.linalg.norm(position)) > FAR_M:
            raise ValueError(f"{name!r} at {position.tolist()} m is further than {FAR_M:g} m from the arm's base")
        with self._lock:
            self._arrivals.append(Arrival(name, stamp, clock, now, position))
        self._require_plausible_stamp(name, stamp, clock)
        pose = Pose(position, rotation_of(quaternion / length))
        self._require_believable(name, pose)
        before = self._seen.get(name)
        return name, Accepted(pose, stamp, now, 1 if before is None else before.number + 1)

    def _require_believable(self, name: str, pose: Pose) -> None:
        if self.bounds is None:
            return
        ask = self.bounds.objection_to_carried if name in self._seen else self.bounds.objection_to_lying
        if (objection := ask(name, pose)) is not None:
            raise ValueError(f"the pose of {name!r} is not believed: {objection}")

    def _require_plausible_stamp(self, name: str, stamp: float, clock: float) -> None:
        age, limit = clock - stamp, self.config.max_age_s
        if not isfinite(stamp) or abs(age) > limit:
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
            raise TrackerError(
                f"no pose of {name!r} has arrived at {self.config.host}, port {self.config.port}{self._refusals()}; is "
                "the object in view and the tracker running?"
            )
        return seen

    def _refusals(self) -> str:
        if not self.refused:
            return ""
        return f"; it refused {self.refused} datagrams, the last because {self._last_refusal}"


class TaughtObjects(Objects):
    """Objects that lie where a person said, as if each had just been seen there once.

    Args:
        names: The task's objects.
        taught: Where each of them lies.
        bounds: Where objects can lie; without bounds, anywhere.

    Raises:
        ConfigError: A name is unknown, an object was not taught, or it cannot lie there.
    """

    def __init__(
        self, names: Iterable[str], taught: Mapping[str, TaughtPose], bounds: ObjectBounds | None = None
    ) -> None:
        known = tuple(names)
        for name in taught:
            if name not in known:
                raise ConfigError(choose("object", name, known))
        for name in known:
            if name not in taught:
                raise ConfigError(
                    f"the cell does not say where {name!r} lies; give it a tracker, or a pose under taught, or with "
                    f"--object {name}=X,Y,Z,YAW"
                )
        self._poses = {
            name: Pose(np.array(pose.position_m), about_vertical(pose.yaw_rad)) for name, pose in taught.items()
        }
        if bounds is not None:
            for name, pose in self._poses.items():
                _require_lying(name, pose, bounds)

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Return the taught poses."""
        return self._poses

    def read(self) -> Mapping[str, Sighting]:
        """Return the taught poses, whatever happened since."""
        return {name: Sighting(pose, 0.0, 1) for name, pose in self._poses.items()}


def _require_lying(name: str, pose: Pose, bounds: ObjectBounds) -> None:
    if (objection := bounds.objection_to_lying(name, pose)) is not None:
        nearest = ",".join(f"{value:.4g}" for value in bounds.nearest(name, pose.position))
        raise ConfigError(
            f"{name!r} cannot lie where it was said to: {objection}; positions are in metres, in the arm's base frame, "
            f"and the nearest admissible one is {name}={nearest}"
        )


def taught_from_text(text: str) -> tuple[str, TaughtPose]:
    """Parse ``name=x,y,z`` or ``name=x,y,z,yaw`` [m, rad] from a command line.

    Raises:
        ConfigError: The text has another form.
    """
    name, equals, numbers = text.partition("=")
    try:
        x, y, z, yaw = (*map(float, numbers.split(",")), 0.0)[:4] if numbers.count(",") in (2, 3) else ()
    except ValueError:
        raise ConfigError(f"--object {text!r} is not of the form name=x,y,z or name=x,y,z,yaw [m, rad]") from None
    if not (name and equals and all(map(isfinite, (x, y, z, yaw)))):
        raise ConfigError(f"--object {text!r} is not of the form name=x,y,z or name=x,y,z,yaw [m, rad]")
    return name, TaughtPose(position_m=(x, y, z), yaw_rad=yaw)


def _numbers(values: Any, count: int) -> Array:
    numbers = np.array(values, dtype=np.float64)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(f"{values} is not {count} finite numbers")
    return numbers
