"""Memory and messages between the process that decides and the worker that holds the connection to a controller.

The memory holds the latest state and the latest target, each written whole many times a second. The channel carries
what must not be lost: settings, orders, and what went wrong.
"""

import json
import mmap
import os
import socket
import struct
import zlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from typing import Any, Generic, TypeVar

from td3robot.robots.ur import JOINTS

# Checksum, and number of the value.
_HEAD = struct.Struct("<IxxxxQ")
# To miss both copies, a reader has to be interrupted in between, and it never is this often in a row.
_TRIES = 20
SIX = (0.0,) * JOINTS


class Status(IntEnum):
    """What the worker is doing."""

    STARTING = 0
    HOLDING = 1
    STREAMING = 2
    BRAKING = 3
    SETTLING = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What the worker publishes, tick by tick.

    Attributes:
        beat: When the worker was last alive [s], on the monotonic clock of this computer, as all times but one.
        stamp: When the state below was received [s].
        controller_time: The controller's own time of the state [s].
        q, dq: (6,) measured [rad, rad/s].
        target: (6,) what was last streamed [rad].
        speed_scaling: How much of a motion's speed the controller lets through, 0 to 1.
        speed_slider: The slider on the pendant, 0 to 1.
        safety_mode, robot_mode, runtime_state: The controller's numbers for them.
        program_running: 1 while the control script runs.
        status: One of :class:`Status`.
        orders: How many orders have been carried out.
        slipped_s: By how much the arm's own time has slipped in all: it waits where the worker is held up.
    """

    beat: float = 0.0
    stamp: float = 0.0
    controller_time: float = 0.0
    q: tuple[float, ...] = SIX
    dq: tuple[float, ...] = SIX
    target: tuple[float, ...] = SIX
    speed_scaling: float = 0.0
    speed_slider: float = 0.0
    safety_mode: int = 0
    robot_mode: int = 0
    runtime_state: int = 0
    program_running: int = 0
    status: int = Status.STARTING
    orders: int = 0
    slipped_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """What the deciding process publishes.

    Attributes:
        beat: When that process was last alive [s].
        sent_at: When the target was sent [s].
        count: Of targets up to this one.
        q: (6,) joint angles to be reached one control period later [rad].
    """

    beat: float = 0.0
    sent_at: float = 0.0
    count: int = 0
    q: tuple[float, ...] = SIX


def _format(values: object) -> struct.Struct:
    codes = {int: "q", float: "d", tuple: f"{JOINTS}d"}
    kinds = [type(getattr(values, field.name)) for field in fields(values)]  # type: ignore[arg-type]
    return struct.Struct("<" + "".join(codes[int if issubclass(kind, int) else kind] for kind in kinds))


T = TypeVar("T", WorkerState, Target)


class Slot(Generic[T]):
    """The latest value of one kind in shared memory: one process writes, another reads.

    There are two copies, written in turn, so that one is whole whenever the writer is interrupted. A checksum tells a
    copy that was read while it was being written: it depends on no processor's order of stores.
    """

    def __init__(self, memory: mmap.mmap, offset: int, initial: T) -> None:
        self._memory, self._offset = memory, offset
        self._kind: type[T] = type(initial)
        self._struct = _format(initial)
        self._tuples = [isinstance(value, tuple) for value in astuple(initial)]
        self._copy = _HEAD.size + self._struct.size
        self._written = 0

    def write(self, value: T) -> None:
        """Publish a value."""
        flat: list[float] = []
        for part in (getattr(value, field.name) for field in fields(value)):
            if isinstance(part, tuple):
                flat += part
            else:
                flat.append(part)
        self._written += 1
        body = self._struct.pack(*flat)
        data = _HEAD.pack(zlib.crc32(body, self._written & 0xFFFFFFFF), self._written) + body
        start = self._offset + self._written % 2 * self._copy
        self._memory[start : start + self._copy] = data

    def read(self) -> T:
        """Give the latest whole value.

        Raises:
            OSError: There is none: the memory is damaged.
        """
        for _ in range(_TRIES):
            latest, newest = b"", 0
            for start in (self._offset, self._offset + self._copy):
                data = self._memory[start : start + self._copy]
                checksum, number = _HEAD.unpack_from(data)
                if number > newest and zlib.crc32(data[_HEAD.size :], number & 0xFFFFFFFF) == checksum:
                    latest, newest = data[_HEAD.size :], number
            if newest:
                value: T = self._kind(*self._fold(self._struct.unpack(latest)))
                return value
            os.sched_yield()
        raise OSError("the memory shared with the robot's worker process holds no whole value")

    def _fold(self, flat: tuple[Any, ...]) -> list[Any]:
        parts: list[Any] = []
        index = 0
        for is_tuple in self._tuples:
            width = JOINTS if is_tuple else 1
            parts.append(tuple(flat[index : index + width]) if is_tuple else flat[index])
            index += width
        return parts


class SharedMemory:
    """The two slots in one anonymous piece of memory, which disappears with the last process that has it open."""

    def __init__(self, descriptor: int) -> None:
        state, target = WorkerState(), Target()
        size = 4096
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
        self._memory = mmap.mmap(descriptor, size)
        self.state: Slot[WorkerState] = Slot(self._memory, 0, state)
        self.target: Slot[Target] = Slot(self._memory, 2048, target)

    @classmethod
    def create(cls) -> tuple["SharedMemory", int]:
        """Make new memory; its file descriptor is for the other process."""
        descriptor = os.memfd_create("td3robot")
        memory = cls(descriptor)
        memory.state.write(WorkerState())
        memory.target.write(Target())
        return memory, descriptor


def quantiles_ms(name: str, seconds: Iterable[float]) -> dict[str, float]:
    """Give median, 99th percentile and maximum of durations, as ``<name>_p50_ms`` and so on; nothing for none."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {
        f"{name}_{label}_ms": 1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]
        for label, share in shares.items()
    }


class ChannelClosedError(Exception):
    """The process at the other end is gone."""


class Channel:
    """Messages as JSON objects, one a line, over a local socket that says at once when the other process is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket, self._buffer = connection, b""

    @classmethod
    def pair(cls) -> tuple["Channel", socket.socket]:
        """Make both ends; the second is for the other process."""
        mine, other = socket.socketpair()
        return cls(mine), other

    def send(self, **message: Any) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: Nobody is there any more.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except (OSError, ValueError):
            raise ChannelClosedError from None

    def receive(self) -> dict[str, Any] | None:
        """Give the next message, or None where there is none yet.

        Raises:
            ChannelClosedError: Nobody is there any more, and every message was read.
        """
        try:
            while b"\n" not in self._buffer:
                data = self._socket.recv(65536)
                if not data:
                    raise ChannelClosedError
                self._buffer += data
        except (BlockingIOError, InterruptedError):
            return None
        except (OSError, ValueError):
            raise ChannelClosedError from None
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Let go."""
        self._socket.close()
