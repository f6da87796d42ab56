"""Where objects are between sightings, and while the hand hides them, over the rows of a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel, plain
from td3robot.robots.objects import Objects
from td3robot.row_math import apart
from td3robot.state import Array

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

# Nearer to the tool centre point than this, the hand may hide an object: most fixed cameras lose it within 60 to 80 mm,
# and the fingers reach as far again [m].
MAY_HIDE_M = 0.15
# A sighting this far from where the tool carries an object shows that it is not in the hand [m]. For a late sighting,
# add the distance that the tool may have moved meanwhile at this speed [m/s].
NOT_IN_HAND_M, TOOL_SPEED_M_S = 0.04, 0.25
# An object between the fingers is at most this far from the tool centre point, across and along the tool's axis [m].
ACROSS_M, ALONG_M = 0.02, 0.04


class Sightings(NamedTuple):
    """The last sightings of k objects in each of r rows.

    Attributes:
        position, rotation: (r, k, 3) [m], (r, k, 3, 3).
        age_s, number: (r, k) as in :class:`Sighting`.
    """

    position: Array
    rotation: Array
    age_s: Array
    number: NDArray[np.int64]


class Memory(NamedTuple):
    """What is kept of k objects in each of m rows.

    Attributes:
        position, rotation: (m, k, 3) [m], (m, k, 3, 3): the best available poses.
        age_s: (m, k) time since the last sighting, without pauses since then, times the pace [s].
        pause_s: (m, k) these pauses [s].
        number: (m, k) of the last sighting.
        tools, turns: (t, m, 3), (t, m, 3, 3) the tools' poses from as long ago as fingers rest, oldest first.
        held, held_s: (m,) which object was held a period ago, and for how long [s].
        new: (m,) whether everything before is to be forgotten.
        lost: (m, k) whether an object was not seen anew, and is neither held nor where the hand may hide it.
    """

    position: Array
    rotation: Array
    age_s: Array
    pause_s: Array
    number: NDArray[np.int64]
    tools: Array
    turns: Array
    held: NDArray[np.intp]
    held_s: Array
    new: Flags
    lost: Flags


@kernel
def update(
    kept: Memory,
    sightings: Sightings,
    tool: Array,
    turn: Array,
    held: NDArray[np.intp],
    rows: Rows,
    period_s: float,
    pace: float,
) -> int:
    """Update the memory of some rows, see :class:`ObjectMemory`, and count their objects that are lost."""
    memory, seen, lost = Memory(*kept), Sightings(*sightings), 0
    for index in range(len(rows)):
        row = rows[index]
        remember_tool(memory, row, tool[index], turn[index])
        was_held = held[index] >= 0 and held[index] == memory.held[row] and not memory.new[row]
        memory.held_s[row] = memory.held_s[row] + period_s if was_held else 0.0
        for item in range(memory.number.shape[1]):
            is_fresh = seen.number[index, item] != memory.number[row, item]
            is_believed, is_held = is_fresh or memory.new[row], item == held[index]
            may_be_hidden = is_held or apart(memory.position[row, item], tool[index]) <= MAY_HIDE_M
            memory.lost[row, item] = not (is_believed or may_be_hidden)
            lost += memory.lost[row, item]
            if is_held and not memory.new[row]:
                carry(memory, seen, index, row, item, is_fresh, was_held)
            elif is_believed:
                believe(memory, seen, index, row, item)
            if is_believed:
                memory.pause_s[row, item] = 0.0
            memory.age_s[row, item] = pace * max(0.0, seen.age_s[index, item] - memory.pause_s[row, item])
            memory.number[row, item] = seen.number[index, item]
        memory.held[row], memory.new[row] = held[index], False
    return lost


@formula
def remember_tool(memory: Memory, row: int, tool: Array, turn: Array) -> None:
    """Move a row's history of tools on by one; where it begins anew, it holds nothing but this one."""
    last = len(memory.tools) - 1
    for moment in range(last + 1):
        is_newest = moment == last or memory.new[row]
        for axis in range(3):
            memory.tools[moment, row, axis] = tool[axis] if is_newest else memory.tools[moment + 1, row, axis]
            for column in range(3):
                memory.turns[moment, row, axis, column] = (
                    turn[axis, column] if is_newest else memory.turns[moment + 1, row, axis, column]
                )


@formula
def believe(memory: Memory, seen: Sightings, index: int, row: int, item: int) -> None:
    """Take over where an object was seen."""
    for axis in range(3):
        memory.position[row, item, axis] = seen.position[index, item, axis]
        for column in range(3):
            memory.rotation[row, item, axis, column] = seen.rotation[index, item, axis, column]


@formula
def carry(memory: Memory, seen: Sightings, index: int, row: int, item: int, is_fresh: bool, was_held: bool) -> None:
    """Bring a held object to where the tool has carried it since the last period, or since fingers closed on it.

    A fresh sighting of a moment after the object was gripped may show that it is elsewhere.
    """
    if was_held:
        move_along(memory, row, item, len(memory.tools) - 2)
        late_s = seen.age_s[index, item]
        off = apart(seen.position[index, item], memory.position[row, item])
        if is_fresh and late_s < memory.held_s[row] and off > NOT_IN_HAND_M + TOOL_SPEED_M_S * late_s:
            believe(memory, seen, index, row, item)
    else:
        if is_fresh:
            believe(memory, seen, index, row, item)
        move_along(memory, row, item, 0)
        bring_into_hand(memory, row, item)


@formula
def into_tool(tool: Array, turn: Array, point: Array) -> tuple[float, float, float]:
    """Return a point (3,) in the frame of a tool at (3,), turned by (3, 3)."""
    x, y, z = point[0] - tool[0], point[1] - tool[1], point[2] - tool[2]
    return (
        turn[0, 0] * x + turn[1, 0] * y + turn[2, 0] * z,
        turn[0, 1] * x + turn[1, 1] * y + turn[2, 1] * z,
        turn[0, 2] * x + turn[1, 2] * y + turn[2, 2] * z,
    )


@formula
def out_of_tool(tool: Array, turn: Array, inside: tuple[float, float, float], point: Array) -> None:
    """Set a point (3,) to one that is given in a tool's frame."""
    x, y, z = inside
    for axis in range(3):
        point[axis] = tool[axis] + (turn[axis, 0] * x + turn[axis, 1] * y + turn[axis, 2] * z)


@formula
def move_along(memory: Memory, row: int, item: int, since: int) -> None:
    """Move an object with the tool, from where that was at a moment of its history to where it is."""
    before, before_turn = memory.tools[since, row], memory.turns[since, row]
    tool, turn = memory.tools[-1, row], memory.turns[-1, row]
    position, axes = memory.position[row, item], memory.rotation[row, item].T
    out_of_tool(tool, turn, into_tool(before, before_turn, position), position)
    nowhere = np.zeros(3)
    for column in range(3):
        out_of_tool(nowhere, turn, into_tool(nowhere, before_turn, axes[column]), axes[column])


@formula
def bring_into_hand(memory: Memory, row: int, item: int) -> None:
    """Move an object to where fingers can hold it."""
    tool, turn, position = memory.tools[-1, row], memory.turns[-1, row], memory.position[row, item]
    x, y, z = into_tool(tool, turn, position)
    share = min(1.0, ACROSS_M / max(np.hypot(x, y), 1e-9))
    out_of_tool(tool, turn, (share * x, share * y, min(max(z, -ALONG_M), ALONG_M)), position)


class ObjectMemory:
    """The best available poses of k objects in each of m rows.

    An object that is not held stays where it was last seen. One in the hand moves with the tool, whatever a camera
    reports, unless the camera sees it elsewhere. Its position in the hand follows from where it was last seen and where
    the tool was when the fingers had just closed on it; if they dragged it meanwhile, it is still between them. Silence
    is a fault only for objects that the hand cannot hide.

    Args:
        sources: The source of sightings of each row.
        names: The objects.
        period_s: Time between two calls of :meth:`look`.
        rest: How many periods fingers rest before they count as holding something.
        pace: Speed of the tool as a share of training's.

    Attributes:
        position, rotation: (m, k, 3) [m], (m, k, 3, 3).
        age_s: (m, k) time since the last sighting, without pauses since then, times the pace [s].
    """

    def __init__(
        self, sources: Sequence[Objects], names: Sequence[str], period_s: float, rest: int, pace: float = 1.0
    ) -> None:
        self._sources, self._names, self._period, self._pace = sources, tuple(names), period_s, pace
        count, objects = len(sources), len(names)
        memory = Memory(
            position=np.zeros((count, objects, 3)),
            rotation=np.zeros((count, objects, 3, 3)),
            age_s=np.zeros((count, objects)),
            pause_s=np.zeros((count, objects)),
            number=np.zeros((count, objects), np.int64),
            tools=np.zeros((1 + rest, count, 3)),
            turns=np.zeros((1 + rest, count, 3, 3)),
            held=np.full(count, -1),
            held_s=np.zeros(count),
            new=np.ones(count, np.bool_),
            lost=np.zeros((count, objects), np.bool_),
        )
        self.position, self.rotation, self.age_s = memory.position, memory.rotation, memory.age_s
        self._pause_s, self._new, self._lost = memory.pause_s, memory.new, memory.lost
        self._packed = plain(memory)
        shape = count, objects
        self._seen = Sightings(
            np.empty((*shape, 3)), np.empty((*shape, 3, 3)), np.empty(shape), np.empty(shape, np.int64)
        )

    def forget(self, row: int) -> None:
        """Forget all sightings of a row."""
        self._new[row] = True

    def pause(self, seconds: float, row: int = 0) -> None:
        """Leave out a pause in which nothing moved: what was seen before it is as good as it was."""
        self._pause_s[row] += seconds

    def look(self, tool: Array, turn: Array, held: NDArray[np.intp], rows: Rows) -> None:
        """Update the poses of some rows.

        Args:
            tool: (r, 3) tool centre points [m].
            turn: (r, 3, 3) their rotations.
            held: (r,) which object is between the fingers; -1 for none.
            rows: (r,) which rows.

        Raises:
            TrackerError: An object has not been seen for too long, or jumped.
        """
        if update(self._packed, plain(self._read(rows)), tool, turn, held, rows, self._period, self._pace):
            for index, item in np.argwhere(self._lost[rows]).tolist():
                self._sources[rows[index]].require_recent(self._names[item])

    def _read(self, rows: Rows) -> Sightings:
        """Return the last sightings of these rows, which the next call overwrites."""
        seen = self._seen
        for index, row in enumerate(rows.tolist()):
            sightings = self._sources[row].read()
            for item, name in enumerate(self._names):
                sighting = sightings[name]
                seen.position[index, item], seen.rotation[index, item] = sighting.pose.position, sighting.pose.rotation
                seen.age_s[index, item], seen.number[index, item] = sighting.age_s, sighting.number
        return seen
