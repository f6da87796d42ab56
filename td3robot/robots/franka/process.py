"""The worker process of a Franka arm, seen from the process that decides."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from td3robot.errors import MissingExtraError, RobotError
from td3robot.robots.franka.shared_memory import (
    Channel,
    ChannelClosedError,
    FrankaState,
    FrankaTarget,
    SharedMemory,
    Status,
)
from td3robot.state import Array
from td3robot.subprocesses import start_python

# How often signs of life are exchanged, and how long a worker may be silent [s].
BEAT_S, MAX_SILENCE_S = 0.02, 0.15
# For interpreter, imports and the robot's answers, beyond what the robot itself is given [s].
START_S = 20.0
# The worker needs a few files and the standard library. Importing the package as users do would bring Gymnasium and
# much else into a process that has to be lean and quick to start, so it gets an empty package of the same name.
WORKER = """
import sys, types
package = sys.modules["td3robot"] = types.ModuleType("td3robot")
package.__path__ = [sys.argv[1]]
from td3robot.robots.franka.worker import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
PACKAGE = str(Path(__file__).resolve().parents[2])
# For braking, settling and the end of servoing [s].
STOP_S, LEAVE_S = 3.0, 2.0


class FrankaProcess:
    """Start the worker, exchange targets and states with it, and notice within 0.2 s when it is gone.

    Args:
        settings: What the worker needs to know; see ``worker.py``.
        on_fault: Called once, from a thread of its own, with the reason for which the arm no longer follows.
    """

    def __init__(self, settings: dict[str, Any], on_fault: Callable[[str], None]) -> None:
        self._settings, self._on_fault = settings, on_fault
        self._lock = threading.Lock()
        self._target = FrankaTarget()
        self._orders = 0
        self._answers: list[dict[str, Any]] = []
        self._closing = threading.Event()

    def start(self) -> dict[str, Any]:
        """Start the worker and have it connect.

        Returns:
            What the robot says of itself.

        Raises:
            RobotError: The robot cannot be reached, or is not ready.
            MissingExtraError: franka-rs is not installed.
        """
        self._memory, descriptor = SharedMemory.create()
        self._channel, other = Channel.pair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = start_python(
            ["-c", WORKER, PACKAGE, str(other.fileno()), str(descriptor)],
            pass_fds=(other.fileno(), descriptor),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )
        other.close()
        os.close(descriptor)
        try:
            facts = self._await_ready()
        except BaseException:
            self._end(grace_s=0.0)
            raise
        self._watch = threading.Thread(target=self._watch_over, name="franka-worker-watch", daemon=True)
        self._watch.start()
        return facts

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def state(self) -> FrankaState:
        """Give what the worker published last."""
        state: FrankaState = self._memory.state.read()
        return state

    def aim(self, q: Array, closed: float) -> None:
        """Publish the next target (n,) [rad], and the hand's closed fraction."""
        now = monotonic()
        with self._lock:
            self._target = FrankaTarget(now, now, self._target.count + 1, tuple(q.tolist()), closed)
            self._memory.target.write(self._target)

    def request_stop(self) -> bool:
        """Have the arm brought to rest, and do not wait for it; gives whether somebody was there to hear it."""
        try:
            self._order("stop")
        except ChannelClosedError:
            return False
        return True

    def stop(self) -> bool:
        """Have the arm brought to rest; gives whether the worker did."""
        if not self.request_stop():
            return False
        end = monotonic() + STOP_S
        while monotonic() < end and self._process.poll() is None:
            state = self.state()
            if state.orders >= self._orders and state.status in (Status.HOLDING, Status.FAILED):
                return True
            sleep(0.002)
        return False

    def figures(self) -> dict[str, float]:
        """Ask for the streaming periods so far.

        Raises:
            RobotError: The worker does not answer.
        """
        try:
            self._channel.send(order="figures")
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
        self._end(LEAVE_S)
        self._watch.join()
        self._channel.close()
        self._output.close()

    def _order(self, name: str) -> None:
        with self._lock:
            self._channel.send(order=name)
            self._orders += 1

    def _await_ready(self) -> dict[str, Any]:
        self._channel.send(**self._settings)
        limit = START_S + float(self._settings["franka"]["connect_timeout_s"])
        end, waiting = monotonic() + limit, False
        try:
            while monotonic() < end:
                message = self._channel.receive()
                if message is None:
                    sleep(0.005)
                elif "connecting" in message:
                    waiting, limit = True, float(self._settings["franka"]["connect_timeout_s"])
                    end = monotonic() + limit
                elif "ready" in message:
                    facts: dict[str, Any] = message["ready"]
                    return facts
                elif "missing" in message:
                    raise MissingExtraError("franka", "driving a Franka arm")
                elif "refused" in message:
                    raise RobotError(message["refused"])
        except ChannelClosedError:
            raise RobotError(f"the arm's worker process ended while it connected ({self._how_it_ended()})") from None
        if waiting:
            raise RobotError(
                f"the control box at {self._settings['franka']['host']} did not let us in within {limit:g} s: it has "
                "room for one client, and another program may be connected; end that first"
            )
        raise RobotError(f"the arm's worker process was not ready within {limit:.0f} s")

    def _watch_over(self) -> None:
        """Exchange signs of life; tell of a fault once, and of every silence."""
        told = False
        while not self._closing.wait(BEAT_S):
            reason = self._look()
            if reason is not None and not told:
                told = True
                self._on_fault(reason)
            with self._lock:
                now = monotonic()
                self._target = replace(self._target, beat=now)
                self._memory.target.write(self._target)

    def _look(self) -> str | None:
        """Read messages and signs of life; gives why the arm no longer follows, or None."""
        try:
            while (message := self._channel.receive()) is not None:
                if "fault" in message:
                    reason: str = message["fault"]
                    return reason
                self._answers.append(message)
        except ChannelClosedError:
            return (
                f"the arm's worker process ended ({self._how_it_ended()}); the robot stops where its commands stay away"
            )
        silence = monotonic() - self.state().beat
        if silence > MAX_SILENCE_S:
            return (
                f"the arm's worker process gave no sign of life for {silence:.2f} s (limit {MAX_SILENCE_S:g} s); "
                "the robot stops where its commands stay away"
            )
        return None

    def _how_it_ended(self) -> str:
        """Give its status, and the last line it wrote: it prints what troubles it."""
        status = self._process.wait()
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"status {status}" + (f"; its last words: {said[-1]}" if said else "")

    def _end(self, grace_s: float) -> None:
        try:
            self._process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
