"""A tracker in another program, such as a vision system, that sends UDP datagrams.

Each is one JSON object ``{"name": "object", "stamp": 1767225600.25, "position_m": [x, y, z],
"quaternion_wxyz": [w, x, y, z]}`` with the pose in the arm's base frame, and ``stamp`` the Unix time of the measurement
[s].
"""

import json
import socket
import threading
from contextlib import suppress
from time import monotonic, time
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from td3robot.errors import TrackerError
from td3robot.ports import LOOPBACK
from td3robot.robots.objects import ObjectBounds
from td3robot.robots.trackers import TRACKERS, ObjectTracker, Report, TrackerConfig
from td3robot.state import Array

# A datagram is about 150 bytes.
DATAGRAM = 4096


class DatagramConfig(TrackerConfig):
    """A tracker whose poses arrive as datagrams."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on this computer to listen on; port 0 is a free one."""
        raise NotImplementedError


class UdpTrackerConfig(DatagramConfig):
    """Where object poses arrive as datagrams, and which are accepted.

    Attributes:
        host, port: Address on this computer to listen on.
    """

    kind: Literal["udp"] = "udp"
    host: Annotated[str, Field(min_length=1)] = LOOPBACK
    port: Annotated[int, Field(ge=1, le=65535)] = 47300

    def tracker(self, names: tuple[str, ...], bounds: ObjectBounds | None = None) -> "UdpTracker":
        """Return the tracker of some objects."""
        return UdpTracker(names, self, bounds)

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen."""
        return self.host, self.port


class UdpTracker(ObjectTracker):
    """The poses in datagrams; see :class:`ObjectTracker`."""

    def __init__(
        self,
        names: tuple[str, ...],
        config: DatagramConfig,
        bounds: ObjectBounds | None = None,
    ) -> None:
        super().__init__(names, config, bounds)
        self.config, self._address = config, config.address
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """Stop listening. May be repeated."""
        if self._socket is not None:
            self._closing = True
            self._thread.join()
            self._socket.close()
            self._socket = None

    @property
    def _where(self) -> str:
        host, port = self._address
        return f"{host}, port {port}"

    def _start(self) -> None:
        if self._socket is not None:
            return
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            link.bind(self._address)
        except OSError as error:
            link.close()
            raise TrackerError(
                f"poses cannot be received at {self._where} ({error.strerror}); is another program listening there?"
            ) from None
        self._address = link.getsockname()
        link.settimeout(0.1)
        self._socket, self._closing = link, False
        self._thread = threading.Thread(target=self._receive, args=(link,), name="tracker", daemon=True)
        self._thread.start()

    def _receive(self, link: socket.socket) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                self._take(link.recv(DATAGRAM), monotonic(), time())

    def _parse(self, raw: Any) -> Report:
        try:
            message = json.loads(raw)
            name, stamp = message["name"], float(message["stamp"])
            return Report(name, stamp, _numbers(message["position_m"], 3), _numbers(message["quaternion_wxyz"], 4))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a pose: {error!r}") from None


def _numbers(values: Any, count: int) -> Array:
    numbers = np.array(values, dtype=np.float64)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(f"{values} is not {count} finite numbers")
    return numbers


TRACKERS.register("udp", UdpTrackerConfig)
