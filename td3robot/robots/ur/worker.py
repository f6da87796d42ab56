"""The process that holds the connection to a UR controller, and nothing else.

It runs one loop at the RTDE rate: take the measured state, obey orders, judge, stream the next target. It is started
by ``UrRobot``, ends with it, and stops the arm when the process that started it no longer sends targets or is gone.
Whatever becomes of this process, the controller's own watchdog stops the arm when nothing arrives any more.
"""

import gc
import os
import socket
import sys
import traceback
from array import array
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, NoReturn

from td3robot.robots.ur.interpolation import TargetStream
from td3robot.robots.ur.rtde import ControllerConnection, StoppedError
from td3robot.robots.ur.shared_memory import (
    Channel,
    ChannelClosedError,
    SharedMemory,
    Status,
    WorkerState,
    quantiles_ms,
)

# A deciding process whose sign of life is older hangs, whatever its targets say [s].
MAX_PARENT_SILENCE_S = 0.5
# Slower than this is at rest, and no stop takes longer [rad/s, s].
AT_REST_RAD_S, SETTLE_S = 0.005, 1.0
# The share of the watchdog's period that may pass while the controller ends the servo.
UNFED = 0.25
# Streaming periods kept for the figures: ten minutes at 125 Hz.
KEPT_PERIODS = 75_000


class Worker:
    """The loop between shared memory and controller."""

    def __init__(self, channel: Channel, memory: SharedMemory, settings: dict[str, Any]) -> None:
        self._channel, self._memory = channel, memory
        self._tick = 1.0 / settings["ur"]["rtde_rate_hz"]
        self._period = settings["period_s"]
        self._deceleration = settings["ur"]["stop_deceleration_rad_s2"]
        self._control = settings["control"]
        self._slow = UNFED * settings["ur"]["servo_stop_deceleration_m_s2"] / settings["ur"]["watchdog_hz"]
        self._ended_at = 0.0
        self._late_periods = settings["ur"]["late_periods"]
        self._min_scaling = settings["ur"]["min_speed_scaling"]
        self._controller = ControllerConnection(settings["ur"], self._control)
        self._state = WorkerState()
        self._fault: StoppedError | None = None
        self._leaving = False
        self._played = 0
        self._periods = array("f")
        self._streamed_at: float | None = None

    def connect(self, unlock_after_s: float | None) -> dict[str, Any]:
        """Open the controller and publish a first state; gives what the controller says of itself."""
        facts = self._controller.connect(unlock_after_s)
        self._stream = TargetStream(facts["q"], self._period, self._tick)
        self._drop_targets()
        now = monotonic()
        first = self._controller.observe(now, self._state)
        self._state = replace(self._state, **({"stamp": now} | first), beat=now, status=Status.HOLDING)
        self._memory.state.write(self._state)
        return facts

    def run(self) -> None:
        """Loop until told to leave, or until nobody is left to tell."""
        due = monotonic()
        while not (self._leaving and self._state.status in (Status.HOLDING, Status.FAILED)):
            now = monotonic()
            try:
                self._state = replace(self._state, beat=now, **self._controller.observe(now, self._state))
                self._obey(now)
                self._controller.require_healthy(self._state, now)
                if self._control:
                    self._drive(now)
            except StoppedError as stop:
                self._fail(stop, now)
            self._memory.state.write(self._state)
            if self._fault is not None and not self._fault.connected:
                return
            due = max(due + self._tick, now)
            sleep(max(0.0, due - monotonic()))
        self._controller.leave()

    def _obey(self, now: float) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                if message["order"] == "figures":
                    self._channel.send(figures=self._figures())
                    continue
                self._leaving = self._leaving or message["order"] == "leave"
                self._stop(now)
                self._state = replace(self._state, orders=self._state.orders + 1)
        except ChannelClosedError:  # the process that decides is gone
            self._leaving = True
            self._stop(now)

    def _drive(self, now: float) -> None:
        status = self._state.status
        if status in (Status.STREAMING, Status.BRAKING):
            if status == Status.STREAMING:
                self._new_target()
                self._require_fit(now)
            self._send(now)
            if status == Status.BRAKING and self._braked(now):
                self._controller.servo_stop()
                self._ended_at = monotonic()
                self._state = replace(self._state, status=Status.SETTLING)
            return
        self._streamed_at = None
        if self._state.program_running:
            self._controller.kick()
        if status == Status.HOLDING and self._new_target():
            self._state = replace(self._state, status=Status.STREAMING)
        elif status == Status.SETTLING and (self._speed() < AT_REST_RAD_S or now - self._ended_at > SETTLE_S):
            self._rest()

    def _new_target(self) -> bool:
        target = self._memory.target.read()
        if target.count == self._played:
            return False
        if self._state.status == Status.HOLDING:
            self._stream.anchor(list(self._state.q))
        # One that was never seen is part of the way to the next.
        self._stream.aim(list(target.q), target.sent_at, target.count - self._played)
        self._played = target.count
        return True

    def _require_fit(self, now: float) -> None:
        if self._stream.idle_s(now) > (self._late_periods - 1.0) * self._period:
            raise StoppedError(
                f"no new target came for {self._late_periods:g} control periods "
                f"({1e3 * self._late_periods * self._period:.0f} ms): the program that decides is late"
            )
        if (behind := self._stream.behind_s(now)) > (self._late_periods - 1.0) * self._period:
            raise StoppedError(
                f"the arm is {1e3 * behind:.0f} ms behind its targets: this computer is too busy to stream them in time"
            )
        if self._state.speed_slider < self._min_scaling:
            raise StoppedError(
                f"the pendant's speed slider went to {100 * self._state.speed_slider:.0f} % while the arm was driven"
            )
        silence = now - self._memory.target.read().beat
        if silence > MAX_PARENT_SILENCE_S:
            raise StoppedError(f"the program that decides gave no sign of life for {silence:.2f} s")

    def _send(self, now: float) -> None:
        q = self._stream.at(now)
        self._controller.servo(q)
        sent = monotonic()
        self._stream.sent(sent)
        if self._streamed_at is not None and len(self._periods) < KEPT_PERIODS:
            self._periods.append(sent - self._streamed_at)
        self._streamed_at = sent
        self._state = replace(self._state, target=tuple(q), slipped_s=self._stream.slipped_s)

    def _stop(self, now: float) -> None:
        self._drop_targets()
        if self._state.status == Status.STREAMING:
            self._stream.brake(now, self._deceleration)
            self._state = replace(self._state, status=Status.BRAKING)

    def _drop_targets(self) -> None:
        """Never play what was sent before the arm was told to stop, or while it did."""
        self._played = self._memory.target.read().count

    def _braked(self, now: float) -> bool:
        """Whether the target rests, and the arm is so slow that ending the servo takes no time.

        While the controller ends it, ur_rtde waits, and nothing feeds the watchdog. The tool of an arm is less than 1 m
        from any joint: its speed [m/s] is below the fastest joint's [rad/s] where one joint moves, and about it else.
        """
        idle = self._stream.idle_s(now)
        return idle > self._tick and (self._speed() < self._slow or idle > SETTLE_S)

    def _speed(self) -> float:
        return max(map(abs, self._state.dq))

    def _rest(self) -> None:
        self._drop_targets()
        self._state = replace(self._state, status=Status.HOLDING if self._fault is None else Status.FAILED)

    def _fail(self, stop: StoppedError, now: float) -> None:
        """Keep the first fault, tell it, and bring the arm to rest as far as that is still in our hands."""
        if self._fault is not None:
            if not stop.connected:
                self._fault = stop
            if self._state.status in (Status.BRAKING, Status.SETTLING):
                self._rest()
            return
        self._fault = stop
        moving = self._state.status == Status.STREAMING
        if moving and stop.connected and self._state.program_running:
            self._stop(now)
        else:
            self._state = replace(self._state, status=Status.FAILED)
        try:
            self._channel.send(fault=stop.reason)
        except ChannelClosedError:
            self._leaving = True

    def _figures(self) -> dict[str, float]:
        """Give the streaming periods so far [ms]."""
        return {"streamed": len(self._periods)} | quantiles_ms("period", self._periods)


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
    settings = _await_settings(channel)
    realtime = _raise_priority(settings["ur"]["realtime_priority"])
    worker = Worker(channel, memory, settings)
    try:
        facts = worker.connect(settings["unlock_after_s"])
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


def _await_settings(channel: Channel) -> dict[str, Any]:
    while True:
        message = channel.receive()
        if message is not None:
            return message
        sleep(0.005)


def _raise_priority(priority: int) -> bool:
    """Ask for SCHED_FIFO, for this thread and those that ur_rtde starts."""
    if priority == 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError:
        return False
    return True


def _end(status: int) -> NoReturn:
    """End without ur_rtde's destructors: they hang or abort where the controller has gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
