"""The control process's view of its worker process."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Any, Generic

from td3robot.errors import MissingExtraError, RobotError
from td3robot.processes import ChannelClosedError, ChildProcess, end_process
from td3robot.robots.driver.link import ArmLink, StreamSettings
from td3robot.robots.driver.shared_memory import S, SharedMemory, Status, Target
from td3robot.robots.driver.worker import run_worker
from td3robot.state import Array

# How often signs of life are exchanged, and how long a worker may be silent [s].
BEAT_S, MAX_SILENCE_S = 0.02, 0.15
# A control process that stalled for longer than this has only itself to blame for what it missed recently [s].
MAX_STALL_S, STALL_COUNTS_S = 0.25, 1.0
# Time for interpreter and imports, on top of the controller's own [s].
START_S = 20.0
# Time for braking, settling and the end of servoing [s].
STOP_S, LEAVE_S = 3.0, 2.0


@dataclass(frozen=True, slots=True)
class WorkerSpec(Generic[S]):
    """The link that a worker process drives, and the words for its errors.

    Attributes:
        link: Drives the controller. Vendors' clients are imported when it connects, so they stay out of the control
            process.
        settings: The vendor's configuration, as plain values.
        stream: How the worker streams.
        extra, purpose: The extra that has the vendor's client, and what it is for.
        connect_s: How long connecting may take.
        too_slow: Why it may take longer, as a sentence.
        when_gone: What happens to the arm without its worker, as a clause.
    """

    link: type[ArmLink]
    settings: dict[str, Any]
    stream: StreamSettings
    extra: str
    purpose: str
    connect_s: float
    too_slow: str
    when_gone: str


class WorkerProcess(Generic[S]):
    """Start a worker, exchange targets and states with it, and notice within 0.2 s when it is gone.

    Args:
        worker: Which worker.
        on_fault: Called once, from its own thread, with the reason why the arm no longer follows.
    """

    def __init__(self, worker: WorkerSpec[S], on_fault: Callable[[str], None]) -> None:
        self._worker, self._on_fault = worker, on_fault
        self._lock = threading.Lock()
        self._target = Target(q=worker.link.first.q)
        self._orders = 0
        self._answers: list[dict[str, Any]] = []
        self._closing = threading.Event()
        self._watched_at = monotonic()
        self._stall_s, self._stalled_at = 0.0, 0.0

    def start(self) -> dict[str, Any]:
        """Start the worker and have it connect.

        Returns:
            What the robot reports about itself.

        Raises:
            RobotError: The robot cannot be reached, or is not ready.
            MissingExtraError: The vendor's client is not installed.
        """
        first: Any = self._worker.link.first
        memory: tuple[SharedMemory[S], int] = SharedMemory.create(first)
        self._memory, descriptor = memory
        self._child = ChildProcess(run_worker, files=[descriptor], ends_itself=True, lean=True, keep_output=True)
        os.close(descriptor)
        try:
            facts = self._await_ready(descriptor)
        except BaseException:
            self._child.close()
            raise
        self._watch = threading.Thread(target=self._watch_worker, name="worker-watch", daemon=True)
        self._watch.start()
        return facts

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._child.pid

    @property
    def ended(self) -> bool:
        """Whether the worker has ended."""
        return self._child.ended

    @property
    def when_gone(self) -> str:
        """What happens to the arm without its worker, as a clause."""
        return self._worker.when_gone

    @property
    def stall_s(self) -> float | None:
        """How long this process just stalled, its own threads not running, or None if it did not [s]."""
        now = monotonic()
        if (silence := now - self._watched_at) > MAX_STALL_S:
            return silence
        return self._stall_s if self._stall_s and now - self._stalled_at < STALL_COUNTS_S else None

    def state(self) -> S:
        """Return the state that the worker published last."""
        return self._memory.state.read()

    def aim(self, q: Array, closed: float = -1.0) -> None:
        """Publish the next target (n,) [rad], and the closed fraction of a gripper that the worker drives."""
        now = monotonic()
        with self._lock:
            self._target = Target(now, now, self._target.count + 1, tuple(q.tolist()), closed)
            self._memory.target.write(self._target)

    def send_kinematics(self, links: Sequence[Sequence[float]]) -> None:
        """Have the tool's pose checked from now on; for links see :class:`ToolCheck`."""
        with suppress(ChannelClosedError):  # the watch says so, and why
            self._child.channel.send({"order": "kinematics", "links": links})

    def request_stop(self) -> bool:
        """Have the arm brought to rest without waiting for it, and return whether the worker was there."""
        try:
            self._order("stop")
        except ChannelClosedError:
            return False
        return True

    def stop(self) -> bool:
        """Have the arm brought to rest, and return whether the worker did so."""
        if not self.request_stop():
            return False
        end = monotonic() + STOP_S
        while monotonic() < end and not self.ended:
            state = self.state()
            if state.orders >= self._orders and state.status in (Status.HOLDING, Status.FAILED):
                return True
            sleep(0.002)
        return False

    def kill(self) -> None:
        """End the worker at once, so that the controller loses its client and stops the arm."""
        self._child.kill()

    def figures(self) -> dict[str, float]:
        """Return figures of the streaming periods so far.

        Raises:
            RobotError: The worker does not answer.
        """
        try:
            self._child.channel.send({"order": "figures"})
        except ChannelClosedError:
            raise RobotError("the arm's worker process is gone and has no figures") from None
        end = monotonic() + 1.0
        while monotonic() < end:
            if self._answers:
                answer: dict[str, float] = self._answers.pop()["figures"]
                return answer
            sleep(0.002)
        raise RobotError("the arm's worker process did not answer within 1 s")

    def close(self) -> None:
        """Have the worker bring the arm to rest and leave; end it if it does not."""
        self._closing.set()
        with suppress(ChannelClosedError):
            self._order("leave")
        end_process(self._child.process, LEAVE_S)
        self._watch.join()
        self._child.close()

    def _order(self, name: str) -> None:
        with self._lock:
            self._child.channel.send({"order": name})
            self._orders += 1

    def _await_ready(self, memory: int) -> dict[str, Any]:
        worker, channel = self._worker, self._child.channel
        end, too_slow = monotonic() + START_S, f"the arm's worker process was not ready within {START_S:g} s"
        try:
            channel.send((worker.link, worker.settings, worker.stream, memory))
            while channel.poll(max(end - monotonic(), 0.0)):
                message = channel.receive()
                if "connecting" in message:
                    end, too_slow = monotonic() + worker.connect_s, worker.too_slow
                elif "ready" in message:
                    facts: dict[str, Any] = message["ready"]
                    return facts
                elif "missing" in message:
                    raise MissingExtraError(worker.extra, worker.purpose)
                elif "refused" in message:
                    raise RobotError(message["refused"])
        except ChannelClosedError:
            raise RobotError(f"the arm's worker process ended while it connected ({self._how_it_ended()})") from None
        raise RobotError(too_slow)

    def _watch_worker(self) -> None:
        """Exchange signs of life; report a fault once, and every silence."""
        reported = False
        self._watched_at = monotonic()
        while not self._closing.wait(BEAT_S):
            now = monotonic()
            if now - self._watched_at > MAX_STALL_S:
                self._stall_s, self._stalled_at = now - self._watched_at, now
            self._watched_at = now
            reason = self._find_fault()
            if reason is not None and not reported:
                reported = True
                self._on_fault(reason)
            with self._lock:
                now = monotonic()
                self._target = replace(self._target, beat=now)
                self._memory.target.write(self._target)

    def _find_fault(self) -> str | None:
        """Read messages and signs of life, and return why the arm no longer follows, or None."""
        try:
            while self._child.channel.poll():
                message = self._child.channel.receive()
                if "fault" in message:
                    reason: str = message["fault"]
                    return reason
                self._answers.append(message)
        except ChannelClosedError:
            return f"the arm's worker process ended ({self._how_it_ended()}); {self._worker.when_gone}"
        silence = monotonic() - self.state().beat
        if silence > MAX_SILENCE_S:
            return (
                f"the arm's worker process gave no sign of life for {silence:.2f} s (limit {MAX_SILENCE_S:g} s); "
                f"{self._worker.when_gone}"
            )
        return None

    def _how_it_ended(self) -> str:
        """Return the worker's exit status and the last line it wrote: clients print their errors."""
        status, said = self._child.process.wait(), self._child.last_words()
        return f"status {status}" + (f"; its last words: {said}" if said else "")
