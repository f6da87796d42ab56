"""One thread for everything: sockets are served between the ticks of a clock, and faults make the network late."""

import random
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from td3robot.errors import RobotError
from td3robot.simulators.presets import NOMINAL_CELL, NetworkModel

# A client that does not read is dropped beyond this [bytes]; ur_rtde never reads port 30003, where nothing is sent.
MAX_PENDING = 1 << 20
# The most bytes without an end of line.
MAX_LINE = 1 << 16


# The port of the lab, which network faults do not affect.
LAB = "lab"


class Handler(ABC):
    """A service's handler of one connection."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Handle received data."""

    def closed(self) -> None:  # noqa: B027  # most have nothing to give back
        """Release what the connection held, now that it is gone."""

    def tick(self) -> None:  # noqa: B027  # most only answer
        """Send what is due in this period."""


class LineHandler(Handler):
    """A handler of a protocol of lines. A client that sends no end of line is dropped."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._buffer = b""

    def received(self, data: bytes) -> None:
        """Answer every complete line, those that came together in one piece."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE:
            self._connection.close()
        answers = b""
        for line in lines:
            if self._connection.is_open:
                answers += self._answer(line)
        if self._connection.is_open:
            self._connection.send(answers)

    @abstractmethod
    def _answer(self, line: bytes) -> bytes:
        """Return what to send in answer to a line; nothing sends nothing."""


class Connection:
    """A connected client."""

    def __init__(self, loop: "Loop", sock: socket.socket, service: str) -> None:
        self.loop, self.service = loop, service
        self.peer = "{}:{}".format(*sock.getpeername()[:2])
        self._sock: socket.socket | None = sock
        self._pending = bytearray()
        self.handler: Handler | None = None

    @property
    def pending(self) -> int:
        """Bytes that the client has not received yet."""
        return len(self._pending)

    @property
    def is_open(self) -> bool:
        """Whether anything can be sent."""
        return self._sock is not None

    def send(self, data: bytes) -> None:
        """Send what the socket accepts now, and keep the rest."""
        if self._sock is None:
            return
        self._pending += data
        if len(self._pending) > MAX_PENDING:
            self.close()
            return
        self.flush()

    def flush(self) -> None:
        """Send what is left."""
        if self._sock is None:
            return
        try:
            while self._pending:
                del self._pending[: self._sock.send(self._pending)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self.loop.watch(self._sock, self.ready, bool(self._pending))

    def ready(self, events: int) -> None:
        """Send and receive what the socket is ready for."""
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            self._receive()

    def _receive(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        elif self.handler is not None:
            self.handler.received(data)

    def close(self) -> None:
        """Close the connection, once."""
        if self._sock is None:
            return
        sock, self._sock = self._sock, None
        self.loop.forget(sock, self)
        sock.close()
        if self.handler is not None:
            self.handler.closed()


class Service:
    """A listening port."""

    def __init__(self, name: str, port: int, make: Callable[[Connection], Handler]) -> None:
        self.name, self.port, self.make = name, port, make
        self.accepting = True
        self.listener: socket.socket | None = None


Ready = Callable[[int], None]


class Loop:
    """Listen, and serve every connection between two ticks."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._selector = selectors.SelectSelector()  # its timeout is finer than a millisecond
        self.connections: list[Connection] = []
        self.services: list[Service] = []

    def listen(self, service: Service) -> None:
        """Open a port.

        Raises:
            RobotError: It is taken, or the address is not this computer's.
        """
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, service.port))
            listener.listen(16)
        except OSError as error:
            listener.close()
            raise RobotError(
                f"the stand-in cannot listen on {self.host}:{service.port}: {error.strerror}; is another stand-in "
                "running there? choose another --host, such as 127.0.0.3"
            ) from None
        listener.setblocking(False)
        service.listener = listener
        self.services.append(service)
        self._selector.register(listener, selectors.EVENT_READ, lambda _events: self._accept(service))

    def watch_file(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call a function whenever a file can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, lambda _events: ready())

    def watch(self, sock: socket.socket, ready: Ready, writing: bool) -> None:
        """Watch a connection for input, and for space to write if ``writing``."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        if self._selector.get_key(sock).events != events:
            self._selector.modify(sock, events, ready)

    def forget(self, sock: socket.socket, connection: Connection) -> None:
        """Drop a connection."""
        self._selector.unregister(sock)
        self.connections.remove(connection)

    def close_connections(self, service: str) -> None:
        """Close every connection to a service, or with ``all``, to every service but the lab's."""
        for connection in list(self.connections):
            if connection.service == service or (service == "all" and connection.service != LAB):
                connection.close()

    def set_accepting(self, service: str, accepting: bool) -> None:
        """Make a service, or with ``all``, every service but the lab's, refuse or accept new connections."""
        for item in self.services:
            if item.name == service or (service == "all" and item.name != LAB):
                item.accepting = accepting

    def poll(self, until: float) -> None:
        """Serve sockets until a time on the monotonic clock, at least once."""
        first = True
        while True:
            left = until - time.monotonic()
            if left <= 0 and not first:
                return
            first = False
            for key, events in self._selector.select(max(left, 0.0)):
                key.data(events)

    def tick(self) -> None:
        """Make every connection send what is due."""
        for connection in list(self.connections):
            if connection.handler is not None:
                connection.handler.tick()

    def close(self) -> None:
        """Close everything."""
        for connection in list(self.connections):
            connection.close()
        for service in self.services:
            if service.listener is not None:
                service.listener.close()
        self._selector.close()

    def _accept(self, service: Service) -> None:
        assert service.listener is not None
        try:
            sock, _ = service.listener.accept()
        except OSError:
            return
        if not service.accepting:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, sock, service.name)
        self.connections.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection.ready)
        connection.handler = service.make(connection)


Action = Callable[[], None]


class Line:
    """Carry data packages both ways. Late packages keep their order, as with TCP.

    Args:
        clock: The controller's time [s].
        seed: Seed of the random draws.
        model: The network's behaviour without faults.

    Attributes:
        model: The network's behaviour without faults.
        delay_s, jitter_s: Delay and jitter of every package, each way.
        drop: Probability that a package vanishes.
        hiccup, hiccup_s: Probability that a package, and with it all that follow, is late by this much.
        frozen: Nothing leaves.
        repeating: The last package of each connection is sent again and again.
    """

    def __init__(self, clock: Callable[[], float], seed: int, model: NetworkModel = NOMINAL_CELL.network) -> None:
        self._clock, self.model = clock, model
        self._random = random.Random(seed)
        self._out: deque[tuple[float, Action]] = deque()
        self._in: deque[tuple[float, Action]] = deque()
        self._last: dict[Connection, bytes] = {}
        self.delay_s, self.jitter_s = model.delay_s, model.jitter_s
        self.hiccup, self.hiccup_s = model.hiccup, model.hiccup_s
        self.drop = 0.0
        self.frozen = self.repeating = False

    def send(self, connection: Connection, package: bytes) -> None:
        """Send a data package to a client, sooner, later or never."""
        if self.frozen:
            return
        if self.repeating:
            package = self._last.setdefault(connection, package)
        else:
            self._last.pop(connection, None)
        self._carry(self._out, lambda: connection.send(package))

    def receive(self, action: Action) -> None:
        """Process a data package from a client, sooner, later or never."""
        self._carry(self._in, action)

    def tick(self) -> None:
        """Deliver what is due."""
        now = self._clock()
        for queue in (self._out, self._in):
            while queue and queue[0][0] <= now:
                queue.popleft()[1]()

    def _carry(self, queue: deque[tuple[float, Action]], action: Action) -> None:
        if self.drop and self._random.random() < self.drop:
            return
        due = self._clock() + self.delay_s
        if self.jitter_s:
            due += self._random.uniform(0.0, self.jitter_s)
        if self.hiccup and self._random.random() < self.hiccup:
            due += self.hiccup_s
        if queue:
            due = max(due, queue[-1][0])
        if queue or due > self._clock():
            queue.append((due, action))
        else:
            action()
