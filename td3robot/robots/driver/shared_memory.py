"""The latest state and target, shared by the control process and the worker, and always read whole."""

import mmap
import os
import struct
import zlib
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from typing import Any, Generic, TypeVar

from td3robot.errors import RobotError

# Checksum, and number of the value.
_HEAD = struct.Struct("<IxxxxQ")
# A reader misses both copies only if it is interrupted in between, and that never happens this often in a row.
_TRIES = 20
_SIZE, _TARGET_AT = 4096, 2048


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
    """The state that the worker publishes at every tick. A vendor's link adds its own fields.

    Attributes:
        beat: When the worker was last alive [s], on this computer's monotonic clock, like all times but one.
        stamp: When the state below was received [s].
        controller_time: The controller's own time of the state [s].
        q, dq: (n,) measured [rad, rad/s].
        tcp_speed: Measured tool speed [m/s]; 0 if the controller does not report it.
        target: (n,) the last streamed target [rad].
        tool: (12,) the tool's pose as the controller reports it, in the base frame: the columns of its rotation, then
            its position [m]; empty if the controller reports none.
        force: (6,) force [N] and torque [N m] on the tool, in the base frame, as the controller estimates them; empty
            if it reports none.
        status: One of :class:`Status`.
        orders: How many orders have been carried out.
        slipped_s: How much the arm's own time has slipped in total: it waits when the worker is delayed.
    """

    beat: float = 0.0
    stamp: float = 0.0
    controller_time: float = 0.0
    q: tuple[float, ...] = ()
    dq: tuple[float, ...] = ()
    tcp_speed: float = 0.0
    target: tuple[float, ...] = ()
    tool: tuple[float, ...] = ()
    force: tuple[float, ...] = ()
    status: int = Status.STARTING
    orders: int = 0
    slipped_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """The target that the control process publishes.

    Attributes:
        beat: When that process was last alive [s].
        sent_at: When the target was sent [s].
        count: Number of targets up to this one.
        q: (n,) joint angles to reach one control period later [rad].
        closed: Closed fraction of a gripper that the worker drives, 0 to 1; below 0, it is left alone.
    """

    beat: float = 0.0
    sent_at: float = 0.0
    count: int = 0
    q: tuple[float, ...] = ()
    closed: float = -1.0


T = TypeVar("T")
S = TypeVar("S", bound=WorkerState)


class Slot(Generic[T]):
    """The latest value of one kind in shared memory: one process writes, another reads.

    There are two copies, written in turn, so that one is whole whenever the writer is interrupted. A checksum detects a
    copy that was read while being written, without relying on any processor's store order.

    Args:
        memory: The shared memory.
        offset: Where the value begins in it [bytes].
        example: Any value of the kind: a dataclass of ints, floats and tuples of floats of fixed length.
    """

    def __init__(self, memory: mmap.mmap, offset: int, example: T) -> None:
        values = astuple(example)  # type: ignore[call-overload]
        self._memory, self._offset = memory, offset
        self._kind: type[T] = type(example)
        self._names = [field.name for field in fields(example)]  # type: ignore[arg-type]
        self._widths = [len(value) if isinstance(value, tuple) else None for value in values]
        codes = (f"{len(v)}d" if isinstance(v, tuple) else "q" if isinstance(v, int) else "d" for v in values)
        self._struct = struct.Struct("<" + "".join(codes))
        self._copy = _HEAD.size + self._struct.size
        self._written = 0

    def write(self, value: T) -> None:
        """Publish a value."""
        flat: list[float] = []
        for part in (getattr(value, name) for name in self._names):
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
        """Return the latest whole value.

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
                return self._kind(*self._fold(self._struct.unpack(latest)))
            os.sched_yield()
        raise OSError("the memory shared with the robot's worker process holds no whole value")

    def _fold(self, flat: tuple[Any, ...]) -> list[Any]:
        parts: list[Any] = []
        index = 0
        for width in self._widths:
            parts.append(flat[index] if width is None else flat[index : index + width])
            index += 1 if width is None else width
        return parts


class SharedMemory(Generic[S]):
    """The two slots in one anonymous block of memory, which disappears with the last process that has it open.

    Args:
        descriptor: The memory's file descriptor.
        example: A state of the link that the worker drives, for its type and number of joints.
    """

    def __init__(self, descriptor: int, example: S) -> None:
        if os.fstat(descriptor).st_size < _SIZE:
            os.ftruncate(descriptor, _SIZE)
        memory = mmap.mmap(descriptor, _SIZE)
        self.state: Slot[S] = Slot(memory, 0, example)
        self.target = Slot(memory, _TARGET_AT, Target(q=example.q))

    @classmethod
    def create(cls, example: S) -> tuple["SharedMemory[S]", int]:
        """Return new memory that holds a first state, and its file descriptor for the other process."""
        if not hasattr(os, "memfd_create"):
            raise RobotError("an arm is driven from Linux only: this system has no memory to share")
        descriptor = os.memfd_create("td3robot")
        memory = cls(descriptor, example)
        memory.state.write(example)
        memory.target.write(Target(q=example.q))
        return memory, descriptor
