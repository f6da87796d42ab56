"""Object poses as a vision system would send them: JSON datagrams, one per object and frame."""

import random
import socket
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.presets import NOMINAL_CELL, CameraModel
from td3robot.state import Pose
from td3robot.vision.datagram import datagram


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    Attributes:
        due_s: When its datagrams are sent, by the controller's time.
        exposed_at: Unix time of its exposure [s].
        poses: Poses of the objects that were seen.
    """

    due_s: float
    exposed_at: float
    poses: dict[str, Pose]


class VisionSystem:
    """Send the poses of the objects to a tracker.

    Args:
        arm: Knows where they are.
        address: ``HOST:PORT`` of the tracker; None sends nothing.
        model: How it reports poses.
        seed: Seed of jitter, noise and lost frames.

    Attributes:
        silent: Send nothing.
        frozen: Send what was seen last.
        offset_m: Added to every position, in addition to the camera's own.
    """

    def __init__(
        self, arm: SimulatedArm, address: str | None, model: CameraModel = NOMINAL_CELL.camera, seed: int = 0
    ) -> None:
        self._arm, self._model = arm, model
        self._address: tuple[str, int] | None = None
        self.silent = self.frozen = False
        self._last: dict[str, Pose] = {}
        self.offset_m = (0.0, 0.0, 0.0)
        self._random = random.Random(seed)
        self._now_s = self._next_s = 0.0
        self._coming: deque[Frame] = deque()
        if address is not None:
            host, _, port = address.partition(":")
            self._address = (host, int(port))
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def tick(self) -> None:
        """Expose a frame and send another, each when it is due."""
        if self._address is None:
            return
        if self._now_s >= self._next_s:
            self._next_s += 1.0 / self._model.rate_hz
            self._expose()
        while self._coming and self._coming[0].due_s <= self._now_s:
            self._send(self._coming.popleft())
        self._now_s += PERIOD_S

    def _expose(self) -> None:
        model = self._model
        lost = self._random.random() < model.drop
        late = model.latency_s + self._random.uniform(0.0, model.jitter_s)
        if lost or self.silent:
            return
        due = self._now_s + late
        if self._coming:
            due = max(due, self._coming[-1].due_s)  # frames are processed in order
        if not self.frozen:
            self._last = self._seen()
        self._coming.append(Frame(due, time.time(), self._last))

    def _seen(self) -> dict[str, Pose]:
        """Return the poses of the objects that the hand does not hide, as the camera measures them."""
        model, tool = self._model, self._arm.tcp().position
        away = np.array(model.offset_m) + self.offset_m
        return {
            name: Pose(pose.position + away + self._noise(), pose.rotation)
            for name, pose in self._arm.object_poses().items()
            if float(np.linalg.norm(pose.position - tool)) >= model.hidden_m
        }

    def _noise(self) -> list[float]:
        sigma = self._model.noise_m
        return [self._random.gauss(0.0, sigma) if sigma else 0.0 for _ in range(3)]

    def _send(self, frame: Frame) -> None:
        stamp = frame.exposed_at if self._model.stamped == "exposed" else time.time()
        for name, pose in frame.poses.items():
            assert self._address is not None
            try:
                self._socket.sendto(datagram(name, stamp, pose), self._address)
            except OSError:
                return  # nothing listens, or the buffer is full: a datagram may be lost
