"""The network between controller and client, which faults make late, lossy or frozen."""

import random
from collections import deque
from collections.abc import Callable

from td3robot.simulators.cell_model import NOMINAL, NetworkModel
from td3robot.simulators.loop import Connection

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

    def __init__(self, clock: Callable[[], float], seed: int, model: NetworkModel = NOMINAL.network) -> None:
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
