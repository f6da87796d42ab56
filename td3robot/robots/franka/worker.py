"""The process that holds the connection to a Franka control box, and nothing else.

It runs one loop at ``stream_hz``: take the measured state, obey orders, judge, hand the next target to the client,
whose 1 kHz generator in Rust limits acceleration and jerk. It ends with the process that started it, and stops the arm
when that process sends no more targets. When it dies itself, the robot misses its commands and stops by itself.

The motion stays open from connecting to leaving: the arm rests on the last target in between. To end one takes the
client half a second, in which it tells no state.
"""

import gc
import os
import socket
import sys
import traceback
from array import array
from dataclasses import replace
from math import inf
from time import monotonic, sleep
from typing import Any, NoReturn

from td3robot.robots.franka.arm import Arm
from td3robot.robots.franka.hand import Hand, connect_hand
from td3robot.robots.franka.shared_memory import (
    Channel,
    ChannelClosedError,
    FrankaState,
    SharedMemory,
    Status,
    quantiles_ms,
)
from td3robot.robots.ur.interpolation import TargetStream
from td3robot.robots.ur.rtde import StoppedError

# A deciding process whose sign of life is older hangs, whatever its targets say [s].
MAX_PARENT_SILENCE_S = 0.5
# Slower than this is at rest, and no stop takes longer [rad/s, s].
AT_REST_RAD_S, SETTLE_S = 0.005, 1.0
# A hand that has not reported for longer is a fault [s].
MAX_HAND_AGE_S = 0.5
# The robot's clock may wait by this against ours before its time counts as slipped: deliveries may be late [s].
CLOCK_SLACK_S = 0.003
# Streaming periods kept for the figures: ten minutes at 250 Hz.
KEPT_PERIODS = 150_000


class Worker:
    """The loop between shared memory and robot."""

    def __init__(self, channel: Channel, memory: SharedMemory, settings: dict[str, Any]) -> None:
        self._channel, self._memory = channel, memory
        self._settings, self._control = settings["franka"], settings["control"]
        self._tick, self._period = 1.0 / self._settings["stream_hz"], settings["period_s"]
        self._arm = Arm(self._settings, self._control)
        self._hand: Hand | None = None
        self._state = FrankaState()
        self._fault: StoppedError | None = None
        self._leaving, self._played, self._rests_at = False, 0, 0.0
        self._periods = array("f")
        self._streamed_at: float | None = None
        self._clock_offset, self._clock_slipped = inf, 0.0

    def connect(self, recover: bool) -> dict[str, Any]:
        """Open arm and hand and publish a first state; gives what the robot says of itself."""
        self._channel.send(connecting=True)
        facts = self._arm.connect(recover)
        if self._settings["hand"]:
            self._hand = connect_hand(self._settings)
        self._stream = TargetStream(facts["q"], self._period, self._tick)
        self._played = self._memory.target.read().count
        now = monotonic()
        first: dict[str, Any] = {"stamp": now, "q": tuple(facts["q"]), "target": tuple(facts["q"])} | self._arm.observe(
            now
        )
        self._state = replace(self._state, **first, **self._fingers(), beat=now, status=Status.HOLDING)
        self._memory.state.write(self._state)
        return facts

    def run(self) -> None:
        """Loop until told to leave, or until nobody is left to tell."""
        due = monotonic()
        while not (self._leaving and self._state.status in (Status.HOLDING, Status.FAILED)):
            now = monotonic()
            try:
                if self._fault is None or self._fault.connected:
                    self._state = replace(self._state, **self._arm.observe(now))
                self._state = replace(self._state, **self._fingers(), beat=now)
                self._obey(now)
                if self._fault is None:
                    self._judge(now)
                if self._control and self._state.status != Status.FAILED:
                    self._drive(now)
            except StoppedError as stop:
                self._fail(stop, now)
            self._memory.state.write(self._state)
            if self._fault is not None and not self._fault.connected:
                return
            due = max(due + self._tick, now)
            sleep(max(0.0, due - monotonic()))
        self._arm.leave()

    def _fingers(self) -> dict[str, Any]:
        hand = self._hand
        return {} if hand is None else {"width": hand.width, "grasped": int(hand.grasped), "hand_stamp": hand.stamp}

    def _obey(self, now: float) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                if message["order"] == "figures":
                    self._channel.send(figures={"streamed": len(self._periods)} | quantiles_ms("period", self._periods))
                    continue
                self._leaving = self._leaving or message["order"] == "leave"
                self._stop(now)
                self._state = replace(self._state, orders=self._state.orders + 1)
        except ChannelClosedError:  # the process that decides is gone
            self._leaving = True
            self._stop(now)

    def _judge(self, now: float) -> None:
        self._arm.require_healthy(self._state, now)
        if self._hand is not None and (self._hand.fault is not None or now - self._hand.stamp > MAX_HAND_AGE_S):
            raise StoppedError(self._hand.fault or f"the hand has not reported for {now - self._hand.stamp:.2f} s")

    def _drive(self, now: float) -> None:
        status = self._state.status
        if status == Status.HOLDING and self._new_target():
            self._state = replace(self._state, status=Status.STREAMING)
        elif status == Status.STREAMING:
            self._new_target()
            self._require_fit(now)
        elif status == Status.BRAKING and self._stream.idle_s(now) > self._tick:
            self._state, self._rests_at = replace(self._state, status=Status.SETTLING), now
        elif status == Status.SETTLING and (self._speed() < AT_REST_RAD_S or now - self._rests_at > SETTLE_S):
            self._rest()
        if self._state.status in (Status.STREAMING, Status.BRAKING):
            self._send(now)
        else:
            self._streamed_at = None

    def _new_target(self) -> bool:
        target = self._memory.target.read()
        if target.count == self._played:
            return False
        if self._state.status == Status.HOLDING:
            self._stream.anchor(list(self._state.target))
        # One that was never seen is part of the way to the next.
        self._stream.aim(list(target.q), target.sent_at, target.count - self._played)
        self._played = target.count
        if self._hand is not None:
            self._hand.want(target.closed)
        return True

    def _require_fit(self, now: float) -> None:
        late = self._settings["late_periods"]
        if self._stream.idle_s(now) > (late - 1.0) * self._period:
            raise StoppedError(
                f"no new target came for {late:g} control periods ({1e3 * late * self._period:.0f} ms): the program "
                "that decides is late"
            )
        if (behind := self._stream.behind_s(now)) > (late - 1.0) * self._period:
            raise StoppedError(f"the arm is {1e3 * behind:.0f} ms behind its targets: this computer is too busy")
        silence = now - self._memory.target.read().beat
        if silence > MAX_PARENT_SILENCE_S:
            raise StoppedError(f"the program that decides gave no sign of life for {silence:.2f} s")

    def _keep_robot_time(self) -> None:
        """Shift what is played where the robot's own clock waited, so that the arm has nothing to catch up with.

        A robot's clock does not wait; that of a stand-in on a busy computer does. The smallest distance between the two
        clocks is that of an answer in time.
        """
        offset = self._state.stamp - self._state.robot_time
        self._clock_offset = min(self._clock_offset, offset)
        late = offset - self._clock_offset - self._clock_slipped
        if late > CLOCK_SLACK_S:
            self._clock_slipped += late
            self._stream.slip(late)

    def _send(self, now: float) -> None:
        self._keep_robot_time()
        q = self._stream.at(now)
        self._arm.aim(q)
        sent = monotonic()
        self._stream.sent(sent)
        if self._streamed_at is not None and len(self._periods) < KEPT_PERIODS:
            self._periods.append(sent - self._streamed_at)
        self._streamed_at = sent
        self._state = replace(self._state, target=tuple(q), slipped_s=self._stream.slipped_s)

    def _stop(self, now: float) -> None:
        self._played = self._memory.target.read().count  # never play what was sent before
        if self._state.status == Status.STREAMING:
            self._stream.brake(now, self._settings["stop_deceleration_rad_s2"])
            self._state = replace(self._state, status=Status.BRAKING)

    def _speed(self) -> float:
        return max(map(abs, self._state.dq))

    def _rest(self) -> None:
        self._played = self._memory.target.read().count
        self._state = replace(self._state, status=Status.HOLDING if self._fault is None else Status.FAILED)

    def _fail(self, stop: StoppedError, now: float) -> None:
        """Keep the first fault, tell it, and bring the arm to rest as far as that is still in our hands."""
        if self._fault is not None:
            self._fault = self._fault if stop.connected else stop
            self._state = replace(self._state, status=Status.FAILED)
            return
        self._fault = stop
        if self._state.status == Status.STREAMING and stop.connected and self._arm.moves():
            self._stop(now)
        else:
            self._state = replace(self._state, status=Status.FAILED)
        try:
            self._channel.send(fault=stop.reason)
        except ChannelClosedError:
            self._leaving = True


def main(channel_descriptor: int, memory_descriptor: int) -> None:
    """Run the worker on the two descriptors that it inherited; never returns."""
    channel = Channel(socket.socket(fileno=channel_descriptor))
    try:
        _work(channel, SharedMemory(memory_descriptor))
    except ChannelClosedError:  # nobody is there to work for
        pass
    except BaseException:  # noqa: BLE001  # the process that decides shows it as our last words
        traceback.print_exc()
        _end(1)
    _end(0)


def _work(channel: Channel, memory: SharedMemory) -> None:
    while (settings := channel.receive()) is None:
        sleep(0.005)
    realtime = _raise_priority(settings["franka"]["realtime_priority"])
    worker = Worker(channel, memory, settings)
    try:
        facts = worker.connect(settings["recover"])
    except StoppedError as stop:
        channel.send(refused=stop.reason)
        return
    except ImportError:
        channel.send(missing=True)
        return
    channel.send(ready=facts | {"realtime": realtime})
    gc.freeze()
    gc.disable()
    worker.run()


def _raise_priority(priority: int) -> bool:
    """Ask for SCHED_FIFO, for this thread and those that the client starts."""
    if priority == 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError:
        return False
    return True


def _end(status: int) -> NoReturn:
    """End at once: the client's threads need no farewell."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
