"""Follows objects with tags in a camera's frames, and sends their poses to a tracker's port."""

import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time

import cv2
import numpy as np

from td3robot.errors import CameraError, Td3RobotError
from td3robot.processes import Parent, give_way
from td3robot.vision.camera import load_camera
from td3robot.vision.datagram import datagram
from td3robot.vision.eye import Sight, TagEye
from td3robot.vision.frames import Frame, FrameSource
from td3robot.vision.show import LivePage, drawn
from td3robot.vision.tags import load_tags

# How often figures are told [s], and how many frames they are of at most.
EVERY_S, FRAMES = 1.0, 1000


@dataclass(frozen=True, slots=True)
class TrackSettings:
    """What to follow, with what, and whom to tell.

    Attributes:
        source: Number of a camera, path of a video, or URL.
        camera, tags: Files of the camera and of the tags.
        rest_m: Height of each object's centre where it lies [m], by name.
        address: Host and UDP port of the tracker.
        page_port: Port of a page with the frames and what is found in them; None for no page.
    """

    source: str
    camera: Path
    tags: Path
    rest_m: Mapping[str, float]
    address: tuple[str, int]
    page_port: int | None = None


@dataclass(frozen=True, slots=True)
class TrackFigures:
    """Figures of the last frames.

    Attributes:
        frames: How many there were.
        rate_hz: Frames a second.
        latency_ms: Median time from exposure to sending, as well as the exposure is known.
        work_ms: Median time that a frame takes to look at.
        seen: Share of the frames in which each object was seen, by name.
        mismatch: Median of what did not fit of the tags seen, as a share of their contrast; None if none was seen.
        lost: Why an object was last not seen, by name.
    """

    frames: int
    rate_hz: float
    latency_ms: float
    work_ms: float
    seen: dict[str, float]
    mismatch: float | None
    lost: dict[str, str]

    def __str__(self) -> str:
        seen = ", ".join(f"{name} in {100 * share:.0f} %" for name, share in self.seen.items())
        fit = "" if self.mismatch is None else f", mismatch {100 * self.mismatch:.1f} %"
        why = "".join(f"; {text}" for name, text in self.lost.items() if self.seen[name] < 1.0)
        return (
            f"{self.rate_hz:.0f} frames a second, {self.latency_ms:.0f} ms from exposure to sending "
            f"({self.work_ms:.0f} ms of it to look), seen: {seen}{fit}{why}"
        )


class Tracking:
    """The frames of a camera, and what is seen in them; use as an iterator.

    Args:
        settings: What to follow.

    Raises:
        CameraError: The camera cannot be opened, or nothing tells where it is.
        ConfigError: A file cannot be read.
    """

    def __init__(self, settings: TrackSettings) -> None:
        cv2.setNumThreads(1)  # more would take the cores of what controls the arm
        camera = load_camera(settings.camera)
        self._settings = settings
        self._eye = TagEye(camera, load_tags(settings.tags), settings.rest_m, str(settings.camera))
        self._source = FrameSource(settings.source, camera, str(settings.camera))
        self._link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._looks: deque[tuple[float, float, float, Sight]] = deque(maxlen=FRAMES)

    def __iter__(self) -> Iterator[tuple[Frame, Sight]]:
        """Look at each frame, send what is seen, and yield both; end with a file's end."""
        for frame in self._source:
            begun = monotonic()
            sight = self._eye.look(frame.image)
            for name, seen in sight.objects.items():
                self._send(datagram(name, frame.exposed_at, seen.pose))
            self._looks.append((begun, time() - frame.exposed_at, monotonic() - begun, sight))
            yield frame, sight

    def _send(self, message: bytes) -> None:
        try:
            self._link.sendto(message, self._settings.address)
        except ConnectionError:
            pass  # nobody listens yet
        except OSError as error:
            host, port = self._settings.address
            raise CameraError(
                f"poses cannot be sent to {host}, port {port} ({error.strerror}); check the address"
            ) from None

    def figures(self, since: float = 0.0) -> TrackFigures | None:
        """Return the figures of the frames since a monotonic time [s]; None if there were fewer than two."""
        looks = [look for look in self._looks if look[0] >= since]
        if len(looks) < 2:
            return None
        sights = [sight for *_, sight in looks]
        fits = [seen.mismatch for sight in sights for seen in sight.objects.values()]
        lost = {name: text for sight in sights for name, text in sight.lost.items()}
        return TrackFigures(
            frames=len(looks),
            rate_hz=(len(looks) - 1) / max(looks[-1][0] - looks[0][0], 1e-9),
            latency_ms=1e3 * float(np.median([late for _, late, _, _ in looks])),
            work_ms=1e3 * float(np.median([work for _, _, work, _ in looks])),
            seen={name: sum(name in sight.objects for sight in sights) / len(sights) for name in self._settings.rest_m},
            mismatch=float(np.median(fits)) if fits else None,
            lost=lost,
        )

    def close(self) -> None:
        """Release the camera."""
        self._source.close()
        self._link.close()


def track(
    settings: TrackSettings,
    tell: Callable[[TrackFigures], None],
    show: Callable[[Frame, Sight], None] | None = None,
    over: Callable[[], bool] = lambda: False,
) -> TrackFigures | None:
    """Follow objects until a file ends or it is over; return the figures of the last frames.

    Args:
        settings: What to follow.
        tell: Called with the figures of each second.
        show: Called with every frame and what was seen in it.
        over: Whether to end.

    Raises:
        CameraError, ConfigError: As in :class:`Tracking`, or the camera's frames end or cannot be used.
    """
    tracking = Tracking(settings)
    told = monotonic()
    try:
        for frame, sight in tracking:
            if show is not None:
                show(frame, sight)
            if monotonic() - told >= EVERY_S and (figures := tracking.figures(told)) is not None:
                tell(figures)
                told = monotonic()
            if over():
                break
        return tracking.figures()
    finally:
        tracking.close()


def track_for(parent: Parent) -> None:
    """Follow what a parent process asks for, and send it figures, or the sentence that ends it."""
    values = parent.next()
    if values is None:
        return
    give_way()
    settings = TrackSettings(**values)
    try:
        with _page(settings.page_port) as show:
            track(settings, parent.answer, show, lambda: parent.is_gone)
        parent.answer(f"video {settings.source} ended")
    except Td3RobotError as error:
        parent.answer(str(error))


@contextmanager
def _page(port: int | None) -> Iterator[Callable[[Frame, Sight], None] | None]:
    """Serve a page with what is seen; it costs nothing while nobody watches."""
    if port is None:
        yield None
        return
    with closing(LivePage(port)) as page:

        def show(frame: Frame, sight: Sight) -> None:
            """Draw what was seen."""
            if page.watched:
                page.show(drawn(frame.image, sight))

        yield show
