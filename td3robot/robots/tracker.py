"""Object poses for cells that no simulator knows: told by a person, or streamed by any vision system.

A tracker sends UDP datagrams, each one JSON object ``{"name": "object", "stamp": 1767225600.25,
"position_m": [x, y, z], "quaternion_wxyz": [w, x, y, z]}`` with the pose in the arm's base frame, and ``stamp`` the
Unix time of the measurement [s].
"""

import json
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from time import monotonic, sleep, time
from typing import Any

import numpy as np

from td3robot.config.cell import TaughtPose, TrackerConfig
from td3robot.errors import ConfigError, TrackerError, choose
from td3robot.geometry import about_vertical
from td3robot.robots.objects import Objects
from td3robot.state import Array, Pose

# A rotation given as a quaternion of another length than 1 is a mistake, not a rounding.
UNIT_TOLERANCE = 0.01
# Nothing further from the arm's base than this is an object of its cell [m].
FAR_M = 3.0
# How long a tracker may take to show every object when an episode begins [s].
FIRST_SIGHT_S = 2.0
# A datagram is about 150 bytes.
DATAGRAM = 4096


@dataclass(frozen=True, slots=True)
class Sighting:
    """One believed datagram, with the time of its receipt on the monotonic clock [s]."""

    pose: Pose
    stamp: float
    received: float


class ObjectTracker(Objects):
    """The poses that a tracker streams, as long as they are young and plausible.

    Datagrams that make no sense are not believed, and counted in :attr:`refused`; when nothing else comes, silence is
    the fault, and the last refusal is part of its message. A jump is a fault until the next episode begins.

    Args:
        names: The objects that a task knows.
        config: Where to listen, and what to believe.
    """

    def __init__(self, names: Iterable[str], config: TrackerConfig) -> None:
        self.names, self.config = tuple(names), config
        self.refused = 0
        self._lock = threading.Lock()
        self._seen: dict[str, Sighting] = {}
        self._jump: str | None = None
        self._last_refusal = ""
        self._socket: socket.socket | None = None

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Take the objects where they are: an episode begins, and nothing on this side can place them.

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
        return self.read()

    def read(self) -> Mapping[str, Pose]:
        """Give the latest poses.

        Raises:
            TrackerError: An object was not seen for too long, or jumped.
        """
        self._listen()
        now = monotonic()
        with self._lock:
            if self._jump is not None:
                raise TrackerError(self._jump)
            for name in self.names:
                self._require_young(name, now)
            return {name: self._seen[name].pose for name in self.names}

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
        except ValueError as error:
            with self._lock:
                self.refused += 1
                self._last_refusal = str(error)
            return
        with self._lock:
            before = self._seen.get(name)
            if before is not None and self._jump is None:
                way = float(np.linalg.norm(sighting.pose.position - before.pose.position))
                if way > self.config.max_jump_m:
                    self._jump = (
                        f"{name!r} jumped {way:.3f} m within {sighting.stamp - before.stamp:.3f} s "
                        f"(limit {self.config.max_jump_m:g} m from one datagram to the next); see to the tracker"
                    )
            self._seen[name] = sighting

    def _parse(self, datagram: bytes, now: float, clock: float) -> tuple[str, Sighting]:
        """Turn a datagram into a sighting; ``ValueError`` says why it is not believed."""
        try:
            message = json.loads(datagram)
            name, stamp = message["name"], float(message["stamp"])
            position = _numbers(message["position_m"], 3)
            quaternion = _numbers(message["quaternion_wxyz"], 4)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a pose: {error!r}") from None
        if name not in self.names:
            raise ValueError(choose("object", str(name), self.names))
        length = float(np.linalg.norm(quaternion))
        if abs(length - 1.0) > UNIT_TOLERANCE:
            raise ValueError(f"the quaternion of {name!r} has length {length:.3f}, not 1")
        if float(np.linalg.norm(position)) > FAR_M:
            raise ValueError(f"{name!r} at {position.tolist()} m is further than {FAR_M:g} m from the arm's base")
        self._require_plausible_stamp(name, stamp, clock)
        return name, Sighting(Pose(position, _rotation(quaternion / length)), stamp, now)

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

    def _require_young(self, name: str, now: float) -> None:
        hint = f"; it refused {self.refused} datagrams, the last because {self._last_refusal}" if self.refused else ""
        seen, limit = self._seen.get(name), self.config.max_age_s
        if seen is None:
            raise TrackerError(
                f"no pose of {name!r} has arrived at {self.config.host}, port {self.config.port}{hint}; is the object "
                "in view and the tracker running?"
            )
        if now - seen.received > limit:
            raise TrackerError(f"object tracker silent for {now - seen.received:.2f} s (limit {limit:g} s){hint}")


class TaughtObjects(Objects):
    """Objects that lie, and stay, where a person said.

    Args:
        names: The objects that a task knows.
        taught: Where each of them lies.

    Raises:
        ConfigError: A name is unknown, or an object was not taught.
    """

    def __init__(self, names: Iterable[str], taught: Mapping[str, TaughtPose]) -> None:
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

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Give where the objects were said to lie."""
        return self._poses

    def read(self) -> Mapping[str, Pose]:
        """Give where the objects were said to lie, whatever happened since."""
        return self._poses


def taught_from_text(text: str) -> tuple[str, TaughtPose]:
    """Read ``name=x,y,z`` or ``name=x,y,z,yaw`` [m, rad], as given on a command line.

    Raises:
        ConfigError: It has another form.
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


def _rotation(quaternion: Array) -> Array:
    """Compute the rotation matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
