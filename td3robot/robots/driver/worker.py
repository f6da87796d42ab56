"""The process that holds the connection to a controller, and nothing else.

It runs one loop at the link's rate: read the measured state, carry out orders, check, stream the next target. It ends
with the process that started it, and stops the arm when that process sends no more targets or is gone. Whatever becomes
of this process, the controller stops the arm by itself when nothing arrives any more.
"""

import gc
import os
import sys
import traceback
from array import array
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, NoReturn

from td3robot.errors import Td3RobotError, require_open_file
from td3robot.processes import Channel, ChannelClosedError, Parent, raise_priority
from td3robot.robots.driver.contact import ContactLimit
from td3robot.robots.driver.interpolation import TargetStream, speed_scale
from td3robot.robots.driver.link import ArmLink, StoppedError, StreamSettings, connection_lost, quantiles_ms
from td3robot.robots.driver.plausibility import Plausibility, ToolCheck
from td3robot.robots.driver.shared_memory import SharedMemory, Status, WorkerState

# A control process whose sign of life is older than this hangs, whatever its targets say [s].
MAX_PARENT_SILENCE_S = 0.5
# Below this speed the arm is at rest, and no stop takes longer than this [rad/s, s].
AT_REST_RAD_S, SETTLE_S = 0.005, 1.0
# Streaming periods kept for the figures: ten minutes at 250 Hz.
KEPT_PERIODS = 150_000


class Worker:
    """The loop between shared memory and a controller."""

    def __init__(self, channel: Channel, memory: SharedMemory[Any], link: ArmLink, settings: StreamSettings) -> None:
        self._channel, self._memory, self._link, self._settings = channel, memory, link, settings
        self._plausibility = Plausibility(settings)
        self._tick, self._period = 1.0 / settings.rate_hz, settings.period_s
        self._ended_at = 0.0
        self._state: WorkerState = link.first
        self._contact = ContactLimit(settings.max_contact_force_n)
        self._fault: StoppedError | None = None
        self._leaving = False
        self._played = 0
        self._periods = array("f")
        self._streamed_at: float | None = None

    def connect(self) -> dict[str, Any]:
        """Open the controller, publish a first state, and return what the controller reports about itself."""
        facts = self._link.connect()
        q = tuple(facts["q"])
        self._stream = TargetStream(list(q), self._period, self._tick)
        self._drop_targets()
        now = monotonic()
        first: dict[str, Any] = {"stamp": now, "q": q, "target": q} | self._link.observe(now, self._state)
        self._state = replace(self._state, **first, beat=now, status=Status.HOLDING)
        self._memory.state.write(self._state)
        return facts

    def run(self) -> None:
        """Loop until ordered to leave, or until the control process is gone."""
        due = monotonic()
        while not (self._leaving and self._state.status in (Status.HOLDING, Status.FAILED)):
            now = monotonic()
            try:
                self._state = replace(self._state, beat=now, **self._link.observe(now, self._state))
                self._take_orders(now)
                self._link.require_healthy(self._state, now)
                if self._fault is None:  # an arm that is braked needs no measurement for it
                    self._plausibility.check(self._state, self._state.status in (Status.STREAMING, Status.BRAKING))
                if self._fault is None and self._state.status == Status.STREAMING:
                    self._contact.check(self._state)
                if self._settings.control:
                    self._drive(now)
            except StoppedError as stop:
                self._fail(stop, now)
            except self._link.client_errors as error:
                self._fail(connection_lost(str(error)), now)
            self._memory.state.write(self._state)
            if self._fault is not None and not self._fault.connected:
                return
            due = max(due + self._tick, now)
            sleep(max(0.0, due - monotonic()))
        self._link.leave()

    def _take_orders(self, now: float) -> None:
        try:
            while self._channel.poll():
                message = self._channel.receive()
                if message["order"] == "figures":
                    self._channel.send({"figures": self._figures()})
                    continue
                if message["order"] == "kinematics":
                    self._plausibility.tool = ToolCheck(message["links"])
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
                self._link.servo_stop()
                self._ended_at = monotonic()
                self._state = replace(self._state, status=Status.SETTLING)
            return
        self._streamed_at = None
        self._link.feed_watchdog(self._state)
        if status == Status.HOLDING and self._new_target():
            self._state = replace(self._state, status=Status.STREAMING)
        elif status == Status.SETTLING and (self._speed() < AT_REST_RAD_S or now - self._ended_at > SETTLE_S):
            self._rest()

    def _new_target(self) -> bool:
        target = self._memory.target.read()
        if target.count == self._played:
            return False
        if self._state.status == Status.HOLDING:
            q = self._link.resting(self._state)
            self._plausibility.require_tool(self._state)
            self._stream.anchor(list(q))
            self._state = replace(self._state, target=q)
        # A target that was never seen is part of the way to the next one.
        self._stream.aim(list(target.q), target.sent_at, target.count - self._played)
        self._played = target.count
        self._link.grip(target.closed)
        return True

    def _require_fit(self, now: float) -> None:
        late = self._settings.late_periods
        if self._stream.idle_s(now) > (late - 1.0) * self._period:
            raise StoppedError(
                f"no new target came for {late:g} control periods ({1e3 * late * self._period:.0f} ms): the program "
                "that decides is late"
            )
        if (behind := self._stream.behind_s(now)) > (late - 1.0) * self._period:
            why = "this computer is too busy to stream them in time"
            if (age := now - self._state.stamp) > self._period:
                why = f"the controller has sent no state for {age:.2f} s, and targets wait for it"
            if self._speed_scale() < 1.0:
                why = "its tool is so fast that it is slowed down, and the program that decides does not wait for it"
            raise StoppedError(f"the arm is {1e3 * behind:.0f} ms behind its targets: {why}")
        self._link.require_streamable(self._state)
        silence = now - self._memory.target.read().beat
        if silence > MAX_PARENT_SILENCE_S:
            raise StoppedError(f"the program that decides gave no sign of life for {silence:.2f} s")

    def _send(self, now: float) -> None:
        if (waited := self._link.waited_s(self._state, now)) > 0.0:
            self._stream.slip(waited)  # the arm has nothing to catch up with
        q = self._stream.at(now, self._speed_scale())
        self._link.servo(q)
        sent = monotonic()
        self._stream.sent(sent)
        if self._streamed_at is not None and len(self._periods) < KEPT_PERIODS:
            self._periods.append(sent - self._streamed_at)
        self._streamed_at = sent
        self._state = replace(self._state, target=tuple(q), slipped_s=self._stream.slipped_s)

    def _speed_scale(self) -> float:
        return speed_scale(self._state.tcp_speed, self._settings.max_tcp_speed_m_s)

    def _stop(self, now: float) -> None:
        self._drop_targets()
        if self._state.status == Status.STREAMING:
            self._stream.brake(now, self._settings.stop_deceleration_rad_s2)
            self._state = replace(self._state, status=Status.BRAKING)

    def _drop_targets(self) -> None:
        """Drop the targets that were sent before or during a stop, so that they are never played."""
        self._played = self._memory.target.read().count

    def _braked(self, now: float) -> bool:
        """Whether the target rests, and the arm is slow enough for its link to end servoing, or never will be."""
        idle = self._stream.idle_s(now)
        return idle > self._tick and (self._link.may_end(self._speed()) or idle > SETTLE_S)

    def _speed(self) -> float:
        return max(map(abs, self._state.dq))

    def _rest(self) -> None:
        self._drop_targets()
        self._state = replace(self._state, status=Status.HOLDING if self._fault is None else Status.FAILED)

    def _fail(self, stop: StoppedError, now: float) -> None:
        """Keep the first fault, report it, and bring the arm to rest as well as we still can."""
        if self._fault is not None:
            if not stop.connected:
                self._fault = stop
            if self._state.status in (Status.BRAKING, Status.SETTLING):
                self._rest()
            return
        self._fault = stop
        moving = self._state.status == Status.STREAMING
        if moving and stop.connected and self._link.follows(self._state):
            self._stop(now)
        else:
            self._state = replace(self._state, status=Status.FAILED)
        try:
            self._channel.send({"fault": stop.reason})
        except ChannelClosedError:
            self._leaving = True

    def _figures(self) -> dict[str, float]:
        """Return figures of the streaming periods so far, and how much the tool's speed lengthened them [ms]."""
        slowed = {"slowed_ms": 1e3 * self._stream.slowed_s}
        return {"streamed": len(self._periods)} | quantiles_ms("period", self._periods) | slowed


def run_worker(parent: Parent) -> NoReturn:
    """Run the worker of a vendor's link; the first message has the link, its settings, and the shared memory."""
    try:
        _work(parent.channel)
    except ChannelClosedError:  # the process that decides is gone
        pass
    except BaseException:  # noqa: BLE001  # the process that decides shows it as our last words
        traceback.print_exc()
        _end(1)
    _end(0)


def _work(channel: Channel) -> None:
    link, link_settings, settings, descriptor = channel.receive()
    memory: SharedMemory[Any] = SharedMemory(descriptor, link.first)
    realtime = raise_priority(settings.realtime_priority)
    worker = Worker(channel, memory, link(link_settings, settings), settings)
    channel.send({"connecting": True})
    try:
        facts = worker.connect()
    except StoppedError as stop:
        channel.send({"refused": stop.reason})
        return
    except ImportError:
        try:
            require_open_file()
        except Td3RobotError as error:
            channel.send({"refused": str(error)})
            return
        channel.send({"missing": True})
        return
    channel.send({"ready": facts | {"realtime": realtime}})
    gc.freeze()
    gc.disable()
    worker.run()


def _end(status: int) -> NoReturn:
    """Exit without running the clients' destructors: ur_rtde's hang or abort if the controller is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
