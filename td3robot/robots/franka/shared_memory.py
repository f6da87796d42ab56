"""What the deciding process and the worker of a Franka share: their memory. The channel is that of the UR driver."""

import mmap
import os
import struct
from dataclasses import astuple, dataclass
from typing import Any

from td3robot.robots.ur.shared_memory import Channel, ChannelClosedError, Slot, Status, quantiles_ms

__all__ = ["Channel", "ChannelClosedError", "FrankaState", "FrankaTarget", "SharedMemory", "Status", "quantiles_ms"]

JOINTS = 7
SEVEN = (0.0,) * JOINTS
_SIZE, _HALF = 4096, 2048


@dataclass(frozen=True, slots=True)
class FrankaState:
    """What the worker publishes, tick by tick.

    Attributes:
        beat: When the worker was last alive [s], on the monotonic clock of this computer, as all times but one.
        stamp: When the state below was received [s].
        robot_time: The robot's own time of the state [s].
        q, dq: (7,) measured [rad, rad/s].
        q_d: (7,) what the robot was told last by the client's generator [rad].
        target: (7,) what the generator was told last [rad].
        success_rate: Share of the last 100 commands that reached the robot in time.
        moving: 1 while the client's motion is open.
        width: Between the fingers [m].
        grasped: 1 while the hand says that it holds something.
        hand_stamp: When the hand's state was received [s].
        status: One of :class:`Status`.
        orders: How many orders have been carried out.
        slipped_s: By how much the arm's own time has slipped in all.
    """

    beat: float = 0.0
    stamp: float = 0.0
    robot_time: float = 0.0
    q: tuple[float, ...] = SEVEN
    dq: tuple[float, ...] = SEVEN
    q_d: tuple[float, ...] = SEVEN
    target: tuple[float, ...] = SEVEN
    success_rate: float = 0.0
    moving: int = 0
    width: float = 0.0
    grasped: int = 0
    hand_stamp: float = 0.0
    status: int = Status.STARTING
    orders: int = 0
    slipped_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FrankaTarget:
    """What the deciding process publishes.

    Attributes:
        beat: When that process was last alive [s].
        sent_at: When the target was sent [s].
        count: Of targets up to this one.
        q: (7,) joint angles to be reached one control period later [rad].
        closed: Closed fraction of the hand, 0 to 1; below 0, the hand is left alone.
    """

    beat: float = 0.0
    sent_at: float = 0.0
    count: int = 0
    q: tuple[float, ...] = SEVEN
    closed: float = -1.0


class WideSlot(Slot[Any]):
    """A slot whose tuples have the lengths of those of its first value."""

    def __init__(self, memory: mmap.mmap, offset: int, initial: FrankaState | FrankaTarget) -> None:
        values = astuple(initial)
        self._widths = [len(value) if isinstance(value, tuple) else 0 for value in values]
        codes = (f"{len(v)}d" if isinstance(v, tuple) else "q" if isinstance(v, int) else "d" for v in values)
        super().__init__(memory, offset, initial)
        self._struct = struct.Struct("<" + "".join(codes))
        self._copy = 16 + self._struct.size

    def _fold(self, flat: tuple[Any, ...]) -> list[Any]:
        parts: list[Any] = []
        index = 0
        for width in self._widths:
            parts.append(flat[index : index + width] if width else flat[index])
            index += width or 1
        return parts


class SharedMemory:
    """The two slots in one anonymous piece of memory, which disappears with the last process that has it open."""

    def __init__(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size < _SIZE:
            os.ftruncate(descriptor, _SIZE)
        memory = mmap.mmap(descriptor, _SIZE)
        self.state = WideSlot(memory, 0, FrankaState())
        self.target = WideSlot(memory, _HALF, FrankaTarget())

    @classmethod
    def create(cls) -> tuple["SharedMemory", int]:
        """Make new memory; its file descriptor is for the other process."""
        descriptor = os.memfd_create("td3robot-franka")
        memory = cls(descriptor)
        memory.state.write(FrankaState())
        memory.target.write(FrankaTarget())
        return memory, descriptor
