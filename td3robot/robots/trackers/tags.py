"""A tracker of this computer: a process of its own that sees tags with a camera.

It sends the same datagrams as other vision systems do, on loopback; nothing that it does holds up the control process.
"""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from td3robot.config.section import CellPath
from td3robot.errors import TrackerError, require_extra
from td3robot.ports import LOOPBACK
from td3robot.processes import ONE_THREAD, ChannelClosedError, ChildProcess
from td3robot.robots.objects import ObjectBounds
from td3robot.robots.trackers import TRACKERS
from td3robot.robots.trackers.udp import DatagramConfig, UdpTracker

# How long the process may take to start and to open the camera before silence counts [s].
FIRST_FIGURES_S = 20.0
# What runs in the process; it imports OpenCV, which the control process does without.
PROGRAM = "td3robot.vision.track:track_for"


class TagTrackerConfig(DatagramConfig):
    """Which camera sees which tags.

    Attributes:
        source: Number of the camera, path of a video, or URL.
        camera: The camera's file, from its calibration.
        tags: The file of the tags, as ``td3robot tags`` writes it.
        page_port: Port on this computer of a page with the frames and what is found in them, which ``td3robot view``
            shows beside the scene; without one, there is no page.
    """

    kind: Literal["tags"] = "tags"
    source: Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)] = "0"
    camera: CellPath
    tags: CellPath
    page_port: Annotated[int, Field(ge=1024, le=65535)] | None = None

    def tracker(self, names: tuple[str, ...], bounds: ObjectBounds | None = None) -> "TagTracker":
        """Return the tracker of some objects."""
        require_extra("vision", "seeing tags", "cv2")
        if bounds is None:
            raise TrackerError("a tracker of tags has to know where the objects lie")
        return TagTracker(names, self, bounds)

    @property
    def address(self) -> tuple[str, int]:
        """A free port: only this computer's own process sends there."""
        return LOOPBACK, 0


class TagTracker(UdpTracker):
    """The poses that a process of this computer sees; see :class:`ObjectTracker`."""

    def __init__(self, names: tuple[str, ...], config: TagTrackerConfig, bounds: ObjectBounds) -> None:
        super().__init__(names, config, bounds)
        self._tags, self._rest_m = config, {name: bounds.rest_m[name] for name in names}
        self._child: ChildProcess | None = None
        self._said = ""
        self._seconds: list[Any] = []

    def figures(self) -> dict[str, Any] | None:
        """Return the figures of all frames so far: how many, their rate and latency, and where objects were seen."""
        if not self._seconds:
            return None
        frames = np.array([each.frames for each in self._seconds])
        return {
            "frames": int(frames.sum()),
            "rate_hz": float(frames.sum() / sum(each.frames / each.rate_hz for each in self._seconds)),
            "latency_ms": float(np.median([each.latency_ms for each in self._seconds])),
            "work_ms": float(np.median([each.work_ms for each in self._seconds])),
            "seen": {
                name: float(frames @ [each.seen[name] for each in self._seconds] / frames.sum()) for name in self.names
            },
        }

    def close(self) -> None:
        """End the process. May be repeated."""
        if self._child is not None:
            self._child.close()
            self._child = None
        super().close()

    @property
    def _where(self) -> str:
        return f"camera {self._tags.source}"

    def _start(self) -> None:
        if self._child is None:
            super()._start()
            self._child = ChildProcess(PROGRAM, variables=ONE_THREAD)
            settings = {
                "source": self._tags.source,
                "camera": self._tags.camera,
                "tags": self._tags.tags,
                "rest_m": self._rest_m,
                "address": self._address,
                "page_port": self._tags.page_port,
            }
            self._child.channel.send(settings)
            if not self._child.channel.poll(FIRST_FIGURES_S):
                raise TrackerError(f"{self._where} showed nothing within {FIRST_FIGURES_S:g} s; see td3robot track")
        self._listen()

    def _listen(self) -> None:
        """Take what the process says: figures of each second, or why it ended.

        Raises:
            TrackerError: It ended.
        """
        assert self._child is not None
        while self._child.channel.poll():
            try:
                said = self._child.channel.receive()
            except ChannelClosedError:
                raise TrackerError(
                    f"{self._where} is no longer looked at: {self._said or 'its process ended'}"
                ) from None
            if isinstance(said, str):
                self._said = said
                continue
            self._said = "; ".join(said.lost.values())
            self._seconds.append(said)

    def _refusals(self) -> str:
        said = f"; the camera's process says: {self._said}" if self._said else ""
        return super()._refusals() + said


TRACKERS.register("tags", TagTrackerConfig)
