"""A picture with what was seen in it, and a page on this computer that shows it live."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cv2
import numpy as np

from td3robot.errors import CameraError
from td3robot.ports import LOOPBACK
from td3robot.vision.eye import Sight
from td3robot.vision.tags import Image

# Colours (blue, green, red) of a tag, and of what is said.
TAG_BGR, TEXT_BGR, LOST_BGR = (80, 200, 60), (60, 160, 20), (40, 40, 220)
BOUNDARY = "frame"
# Without a new picture for this long, a page gets the last one again, to find out whether it is still open [s].
KEEP_S = 1.0


def drawn(image: Image, sight: Sight) -> Image:
    """Return a copy of a picture (height, width, 3) with the tags outlined, and what was found or why not."""
    picture = image.copy() if image.ndim == 3 else np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), np.uint8)
    for tag, corners in sight.corners.items():
        cv2.polylines(picture, [np.rint(corners).astype(np.int32)], True, TAG_BGR, 1, cv2.LINE_AA)
        x, y = np.rint(corners.max(axis=0)).astype(int)
        cv2.putText(picture, str(tag), (int(x), int(y)), cv2.FONT_HERSHEY_SIMPLEX, 0.45, TAG_BGR, 1, cv2.LINE_AA)
    lines = [(f"{name}: {text}", TEXT_BGR) for name, text in _found(sight)]
    lines += [(text, LOST_BGR) for text in sight.lost.values()]
    for row, (text, colour) in enumerate(lines):
        (width, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)
        top = 6 + 22 * row
        cv2.rectangle(picture, (4, top), (width + 16, top + 22), (255, 255, 255), -1)
        cv2.putText(picture, text, (10, top + 16), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1, cv2.LINE_AA)
    return picture


def _found(sight: Sight) -> list[tuple[str, str]]:
    return [
        (
            name,
            ("lies" if seen.is_lying else "lifted") + " at {:.1f} {:.1f} {:.1f} mm".format(*1e3 * seen.pose.position),
        )
        for name, seen in sight.objects.items()
    ]


class LivePage:
    """A page on loopback with the newest picture (Motion JPEG), which any browser shows.

    Args:
        port: Its port; 0 takes a free one.

    Raises:
        CameraError: The port is taken.
    """

    def __init__(self, port: int = 0) -> None:
        self._changed = threading.Condition()
        self._jpeg, self._closing, self._browsers = b"", False, 0
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # http.server's name
                """Send the pictures until the browser is closed."""
                page._serve(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing of requests."""

        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        except OSError as error:
            raise CameraError(f"port {port} cannot be listened on ({error.strerror}); choose another --port") from None
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def watched(self) -> bool:
        """Whether anybody is watching."""
        return self._browsers > 0

    def show(self, image: Image) -> None:
        """Show a picture (height, width, 3)."""
        _, jpeg = cv2.imencode(".jpg", image)
        with self._changed:
            self._jpeg = jpeg.tobytes()
            self._changed.notify_all()

    def close(self) -> None:
        """End the page. May be repeated."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        request.end_headers()
        with self._changed:
            self._browsers += 1
        try:
            while not self._closing:
                with self._changed:
                    self._changed.wait(KEEP_S)
                    jpeg = self._jpeg
                if jpeg:
                    head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                    request.wfile.write(head.encode() + jpeg + b"\r\n")
        except OSError:
            pass  # the browser closed the page
        finally:
            with self._changed:
                self._browsers -= 1
