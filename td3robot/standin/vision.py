"""Object poses as a vision system would send them: JSON datagrams at 60 Hz."""

import json
import socket
import time

from td3robot.geometry import quaternion
from td3robot.standin.arm import RATE_HZ, SimulatedArm

VISION_HZ = 60.0


class VisionSystem:
    """Sends where the objects are, to whatever tracks them.

    Attributes:
        silent: Send nothing.
        offset_m: Added to every position.
    """

    def __init__(self, arm: SimulatedArm, address: str | None) -> None:
        self._arm = arm
        self._address: tuple[str, int] | None = None
        self.silent = False
        self.offset_m = (0.0, 0.0, 0.0)
        self._due = 0.0
        if address is not None:
            host, _, port = address.partition(":")
            self._address = (host, int(port))
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def tick(self) -> None:
        """Send every pose when its time has come."""
        if self._address is None:
            return
        self._due -= 1.0
        if self._due > 0.0:
            return
        self._due += RATE_HZ / VISION_HZ
        if self.silent:
            return
        for datagram in self._datagrams():
            try:
                self._socket.sendto(datagram, self._address)
            except OSError:
                return  # nobody listens, or the buffer is full: a datagram may be lost

    def _datagrams(self) -> list[bytes]:
        stamp = time.time()
        found = []
        for name, pose in self._arm.object_poses().items():
            message = {
                "name": name,
                "stamp": stamp,
                "position_m": (pose.position + self.offset_m).tolist(),
                "quaternion_wxyz": quaternion(pose.rotation).tolist(),
            }
            found.append(json.dumps(message).encode())
        return found
