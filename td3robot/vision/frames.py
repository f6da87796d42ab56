"""Frames from a camera, a video file or a network stream, with the time of their exposure."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from types import TracebackType
from typing import Self

import cv2
import numpy as np

from td3robot.errors import CameraError
from td3robot.vision.camera import Camera
from td3robot.vision.tags import Image

# Without a frame for this long, a camera is gone [s]; and how long it may take to begin.
SILENT_S, OPENING_S = 2.0, 10.0
# A camera that repeats a frame for this long is frozen [s]: even a dark frame has noise. And as many times at least.
FROZEN_S, FROZEN_FRAMES = 1.0, 10
# A driver's stamp that is older than this, or in the future, is of another clock [s].
OLDEST_S = 1.0
# A frame whose pixels are darker or brighter than this, for this share of them, shows nothing [of 255].
DARK, BRIGHT, SHARE = 25, 250, 0.8


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    Attributes:
        image: (height, width, 3) blue, green, red, or (height, width) grey.
        exposed_at: Unix time of its exposure, as well as it is known [s].
        number: Counts the frames of its source from 1; a gap is a frame that nobody waited for.
    """

    image: Image
    exposed_at: float
    number: int


def is_live(source: str) -> bool:
    """Whether a source is a camera or a stream, and no file."""
    return source.isdecimal() or "://" in source


def exposure_fault(image: Image) -> str | None:
    """Return why nothing can be seen in an image, or None."""
    sample = image[::8, ::8]
    if float(np.mean(sample < DARK)) > SHARE:
        return "the picture is underexposed; add light, open the lens, or expose for longer"
    if float(np.mean(sample > BRIGHT)) > SHARE:
        return "the picture is overexposed; take away light, close the lens, or expose for less time"
    return None


class FrameSource:
    """The frames of one camera; use as a context manager.

    A live camera is read by a thread that keeps its newest frame only. A file's frames come in its own pace, and all.

    Args:
        source: Number of a device, path of a file, or URL.
        camera: What the frames have to be; None accepts any size.
        title: Names the camera's file in messages.

    Raises:
        CameraError: It cannot be opened.
    """

    def __init__(self, source: str, camera: Camera | None = None, title: str = "its calibration") -> None:
        self.source = source
        self._camera, self._title = camera, title
        self.is_live = is_live(source)
        if not self.is_live and not Path(source).exists() and "%" not in source:
            raise CameraError(f"there is no video file {source}; give a file, a camera's number such as 0, or a URL")
        self._capture = cv2.VideoCapture(int(source)) if source.isdecimal() else cv2.VideoCapture(source)
        if not self._capture.isOpened():
            raise CameraError(f"{self} cannot be opened; {self._advice()}")
        self._prepare()
        self._changed = threading.Condition()
        self._newest: Frame | None = None
        self._ended = self._closing = False
        self._last_sample: Image | None = None
        self._repeats, self._same_since = 0, monotonic()
        self._period_s, self._due = 1.0 / (self._capture.get(cv2.CAP_PROP_FPS) or 30.0), 0.0
        self._count = 0
        self._thread = threading.Thread(target=self._grab, name="camera", daemon=True)
        if self.is_live:
            self._thread.start()

    def __str__(self) -> str:
        return f"camera {self.source}" if self.is_live else f"video {self.source}"

    def read(self, after: int = 0) -> Frame | None:
        """Return the newest frame with a number above ``after``, waiting for it; None after the end of a file.

        Raises:
            CameraError: None comes, the frames are of another size, or always the same.
        """
        frame = self._wait(after) if self.is_live else self._next()
        if frame is not None:
            self._require_size(frame.image)
            self._require_motion(frame.image)
        return frame

    def __iter__(self) -> Iterator[Frame]:
        """Yield every new frame, until a file's end."""
        number = 0
        while (frame := self.read(number)) is not None:
            number = frame.number
            yield frame

    def close(self) -> None:
        """Release the camera. May be repeated."""
        self._closing = True
        if self._thread.is_alive():
            self._thread.join(SILENT_S)
        if not self._thread.is_alive():
            self._capture.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _advice(self) -> str:
        if self.source.isdecimal():
            return "is it plugged in, and used by no other program?"
        return "does the address answer in a browser?" if self.is_live else "is it a video that OpenCV can read?"

    def _prepare(self) -> None:
        """Ask a device for the calibrated size and rate, and for no queue of frames."""
        if not self.source.isdecimal():
            return
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        if self._camera is not None:
            self._capture.set(cv2.CAP_PROP_FRAME_WIDTH, self._camera.width)
            self._capture.set(cv2.CAP_PROP_FRAME_HEIGHT, self._camera.height)
            self._capture.set(cv2.CAP_PROP_FPS, self._camera.rate_hz)

    def _grab(self) -> None:
        """Keep the newest frame of a live camera."""
        while not self._closing:
            if not self._capture.grab():
                break
            stamp = self._exposed_at()
            done, image = self._capture.retrieve()
            if not done:
                break
            with self._changed:
                self._count += 1
                self._newest = Frame(np.asarray(image, np.uint8), stamp, self._count)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _exposed_at(self) -> float:
        """Return the Unix time of the exposure of the frame that was just grabbed.

        Linux stamps a device's frames on its monotonic clock; elsewhere, it is the time of arrival less the latency
        that was measured.
        """
        now, latency = time(), 0.0 if self._camera is None else self._camera.latency_s
        if self.source.isdecimal():
            age = monotonic() - self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1e3
            if 0.0 < age < OLDEST_S:
                return now - max(age, latency)
        return now - latency

    def _wait(self, after: int) -> Frame:
        limit = OPENING_S if self._newest is None else SILENT_S
        with self._changed:
            fresh = self._changed.wait_for(
                lambda: self._ended or (self._newest is not None and self._newest.number > after), limit
            )
            if self._newest is not None and self._newest.number > after:
                return self._newest
        if fresh:
            raise CameraError(f"{self} stopped sending frames; was it unplugged?")
        raise CameraError(f"{self} sent no frame for {limit:g} s; is it plugged in, and switched on?")

    def _next(self) -> Frame | None:
        done, image = self._capture.read()
        if not done:
            if self._count == 0:
                raise CameraError(f"{self} has no frame; is it a video that OpenCV can read?")
            return None
        now = monotonic()
        self._due = max(self._due + self._period_s, now - self._period_s)
        sleep(max(0.0, self._due - now))
        self._count += 1
        return Frame(np.asarray(image, np.uint8), time(), self._count)

    def _require_size(self, image: Image) -> None:
        height, width = image.shape[:2]
        camera = self._camera
        if camera is not None and (width, height) != (camera.width, camera.height):
            raise CameraError(
                f"{self} sends frames of {width}x{height}, and {self._title} is for {camera.width}x{camera.height}; "
                "set that resolution, or calibrate the camera again at this one"
            )

    def _require_motion(self, image: Image) -> None:
        sample, now = image[::4, ::4].copy(), monotonic()
        if self._last_sample is None or not np.array_equal(sample, self._last_sample):
            self._last_sample, self._repeats, self._same_since = sample, 0, now
            return
        self._repeats += 1
        if self._repeats >= FROZEN_FRAMES and now - self._same_since >= FROZEN_S:
            seconds = now - self._same_since
            raise CameraError(
                f"{self} is frozen: it sent the same frame {self._repeats + 1} times in {seconds:.1f} s; unplug it and "
                "plug it in again"
            )
