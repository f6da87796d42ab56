"""Swift with our own servers: on loopback only, serving nothing but its page and one folder of meshes.

By itself, Swift 2.1 listens on every interface and serves any file that the user may read. Its page refers to
``localhost`` and its ports, so it works on one computer, or with forwarded ports. This module depends on Swift's
internals, which is why its minor version is pinned.
"""

import asyncio
import contextlib
import http.server
from functools import partial
from pathlib import Path
from queue import Empty
from threading import Thread
from time import time
from typing import Any
from urllib.parse import unquote, urlsplit

import swift
from swift.Swift import Swift
from swift.SwiftRoute import SwiftSocket

from td3robot.errors import ConfigError
from td3robot.ports import LOOPBACK

FIRST_PAGE_PORT, PORTS = 52000, 100
PAGE = Path(swift.__file__).parent / "public"
RETRIEVE = "/retrieve/"
# How long a reloaded tab's old connection may take to close, and how often its queue is polled [s].
LEAVE_S = 3.0
POLL_INTERVAL_S = 0.005


class LoopbackSwift(Swift):  # type: ignore[misc]
    """Swift on 127.0.0.1, for one tab at a time, which may be closed and come back.

    Args:
        meshes: The folder that it may read, besides its own page.

    Attributes:
        ports: The page's port, and that of the tab's connection.
    """

    def __init__(self, meshes: Path) -> None:
        super().__init__()
        self._disconnected: Any
        self.headless, self.rate, self.realtime_speed = False, 60, None
        self._run_thread, self.last_time = True, time()
        self._tab = False
        Thread(
            target=OneTab, args=(self.outq, self.inq, self._servers_running, self._disconnected), daemon=True
        ).start()
        socket_port, self.socket = self.inq.get()
        self._http = _listen(partial(_Handler, meshes.resolve(), socket_port))
        Thread(target=self._http.serve_forever, daemon=True).start()
        self.ports = (int(self._http.server_address[1]), int(socket_port))

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://localhost:{self.ports[0]}/?{self.ports[1]}"

    @property
    def has_tab(self) -> bool:
        """Whether a tab shows what was added since it opened."""
        return self._tab and not self._disconnected.is_set()

    def tab_came(self) -> bool:
        """Whether a tab opened since the last one closed; then the scene is empty, and needs everything again."""
        try:
            self.inq.get_nowait()
        except Empty:
            return False
        disconnected: Any = self._disconnected
        self._init()
        self.headless, self.rate, self._disconnected = False, 60, disconnected
        disconnected.clear()
        self._tab = True
        return True

    def tab_left(self) -> None:
        """Drop the messages still queued for the closed tab."""
        self._tab = False
        for queue in (self.outq, self.inq):
            with contextlib.suppress(Empty):
                while True:
                    queue.get_nowait()

    def close(self, clear_cell: bool = False) -> None:
        """End both servers. May be repeated."""
        if self._run_thread:
            self._run_thread = False
            if self.has_tab:
                self._send_socket("close", "0", False)
            self.socket.stop()
            self._http.shutdown()
            self._http.server_close()


class OneTab(SwiftSocket):  # type: ignore[misc]
    """The tab's connection; a second tab is refused, because Swift would confuse their messages."""

    async def serve(self, websocket: Any, path: str | None = None) -> None:
        """Serve one tab."""
        waited = 0.0
        while self.USERS and waited < LEAVE_S:
            await asyncio.sleep(0.05)
            waited += 0.05
        if self.USERS:
            await websocket.close(1013, "td3robot shows Swift in one tab at a time")
            return
        await super().serve(websocket, path)

    async def producer(self) -> Any:
        """Wait for the next message to the tab, on the event loop.

        Swift waits in a thread. If the tab closes while the servers stop, nothing ends that thread, and it keeps the
        program from exiting.
        """
        while True:
            with contextlib.suppress(Empty):
                return self.outq.get_nowait()
            await asyncio.sleep(POLL_INTERVAL_S)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serve Swift's page and, below ``/retrieve/``, the meshes."""

    def __init__(self, meshes: Path, socket_port: int, *args: Any) -> None:
        self._meshes, self._socket_port = meshes, socket_port
        super().__init__(*args, directory=str(PAGE))

    def do_GET(self) -> None:
        """Send a file, or refuse the request."""
        request = urlsplit(self.path)
        if request.path == "/" and not request.query:
            self.send_response(302)
            self.send_header("Location", f"/?{self._socket_port}")
            self.end_headers()
        elif request.path.startswith(RETRIEVE) and not self._is_mesh(Path(self.translate_path(self.path))):
            self.send_error(403, "only the arm's meshes are to be had here")
        else:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                super().do_GET()

    def translate_path(self, path: str) -> str:
        """Return the file of a request: a mesh by its absolute path, or one of Swift's own."""
        request = urlsplit(path).path
        if not request.startswith(RETRIEVE):
            return super().translate_path(path)
        return str(Path(unquote(request[len(RETRIEVE) - 1 :])).resolve())

    def _is_mesh(self, path: Path) -> bool:
        return path.is_relative_to(self._meshes) and path.is_file()

    def list_directory(self, path: Any) -> None:
        """Refuse: there is nothing to list."""
        self.send_error(403)

    def end_headers(self) -> None:
        """Disable caching: the next session has other meshes."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def _listen(handler: Any) -> http.server.ThreadingHTTPServer:
    for port in range(FIRST_PAGE_PORT, FIRST_PAGE_PORT + PORTS):
        try:
            return http.server.ThreadingHTTPServer((LOOPBACK, port), handler)
        except OSError:
            continue
    raise ConfigError(
        f"no port from {FIRST_PAGE_PORT} to {FIRST_PAGE_PORT + PORTS - 1} is free for Swift's page; end another "
        "viewer, or use --with viser"
    )
