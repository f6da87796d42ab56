"""Where objects are between sightings, and while the hand hides them, over the rows of a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel, plain
from td3robot.robots.objects import CARRIED_TILT_RAD, ObjectBounds, Objects
from td3robot.row_math import apart, dot
from td3robot.state import Array, Pose

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

# Nearer to the tool centre point than this, the hand may hide an object: most fixed cameras lose it within 60 to 80 mm,
# and the fingers reach as far again [m].
MAY_HIDE_M = 0.15
# Nearer than this, the fingers may push it [m].
MAY_PUSH_M = 0.1
# An object that nothing moved is seen this near to where it was at most, and one in the hand to where the tool carries
# it; further off, it needs a reason [m].
STILL_M, IN_HAND_M = 0.02, 0.04
# A late sighting is of where the tool was: add what it may have moved meanwhile at this speed [m/s].
TOOL_SPEED_M_S = 0.25
# An upright object that is suddenly seen tilted by more than this was mistaken [rad]: a small tag has two solutions.
LEAN_RAD = 0.35
# Without a reason, an object is believed to be elsewhere once it was seen there in so many periods for this long: free,
# or although fingers hold something [s]; and for as much longer as it takes to be carried there at this speed [m/s].
# Between two sightings, it moves at half of that at most.
CONFIRMATIONS, FREE_S, HELD_S, CARRIED_M_S = 3, 0.3, 1.0, 1.0
# An object between the fingers is at most this far from the tool centre point, across and along the tool's axis [m].
ACROSS_M, ALONG_M = 0.02, 0.04


class Sightings(NamedTuple):
    """The last sightings of k objects in each of r rows.

    Attributes:
        position, rotation: (r, k, 3) [m], (r, k, 3, 3).
        age_s, number, refused: (r, k) as in :class:`Sighting`.
    """

    position: Array
    rotation: Array
    age_s: Array
    number: NDArray[np.int64]
    refused: Flags


class Bounds(NamedTuple):
    """Where k objects can be during an episode.

    Attributes:
        low, high: (k, 3) [m].
        tilt_rad: The largest tilt.
        is_cube: (k,) whether any of an object's axes may be the upright one.
    """

    low: Array
    high: Array
    tilt_rad: float
    is_cube: Flags


class Memory(NamedTuple):
    """What is kept of k objects in each of m rows.

    Attributes:
        position, rotation: (m, k, 3) [m], (m, k, 3, 3): the best available poses.
        age_s: (m, k) time since the last sighting that was believed, without pauses since then, times the pace [s].
        pause_s: (m, k) these pauses [s].
        behind_s, last_s: (m, k) how much older it is than the last sighting; and the age of that when it was read [s].
        number: (m, k) of the last sighting.
        moved_m: (m, k) how far the hand may have moved an object since then.
        elsewhere, lean: (m, k, 3) where it was seen in the last sightings that were not believed [m], and upright which
            way.
        since_s, latest_s: (m, k) when it was first and last seen there, by the row's clock.
        times: (m, k) in how many periods.
        clock_s: (m,) time in which the row moved [s].
        tools, turns: (t, m, 3), (t, m, 3, 3) the tools' poses from as long ago as fingers rest, oldest first.
        held, held_s: (m,) which object was held a period ago, and for how long [s].
        left: (m,) whether it is known to be elsewhere, whatever the fingers hold.
        new: (m,) whether everything before is to be forgotten.
        lost: (m, k) whether an object was not seen anew, and is neither held nor where the hand may hide it.
        astray: (m, k) whether it is believed to be where no object of the task can be.
    """

    position: Array
    rotation: Array
    age_s: Array
    pause_s: Array
    behind_s: Array
    last_s: Array
    number: NDArray[np.int64]
    moved_m: Array
    elsewhere: Array
    lean: Array
    since_s: Array
    latest_s: Array
    times: NDArray[np.int64]
    clock_s: Array
    tools: Array
    turns: Array
    held: NDArray[np.intp]
    held_s: Array
    left: Flags
    new: Flags
    lost: Flags
    astray: Flags


@kernel
def update(
    kept: Memory,
    sightings: Sightings,
    bounds: Bounds,
    tool: Array,
    turn: Array,
    held: NDArray[np.intp],
    rows: Rows,
    period_s: float,
    pace: float,
) -> int:
    """Update the memory of some rows, see :class:`ObjectMemory`, and count their objects that are lost or astray."""
    memory, seen, limits, bad = Memory(*kept), Sightings(*sightings), Bounds(*bounds), 0
    for index in range(len(rows)):
        row = rows[index]
        remember_tool(memory, row, tool[index], turn[index])
        memory.clock_s[row] += period_s
        was_held = held[index] >= 0 and held[index] == memory.held[row] and not memory.new[row]
        memory.held_s[row] = memory.held_s[row] + period_s if was_held else 0.0
        memory.left[row] = memory.left[row] and was_held
        for item in range(memory.number.shape[1]):
            is_fresh = seen.number[index, item] != memory.number[row, item]
            is_held = item == held[index] and not memory.left[row] and not memory.new[row]
            is_carried = is_held and was_held
            if is_carried:
                move_along(memory, row, item, len(memory.tools) - 2)
            distance = apart(memory.position[row, item], tool[index])
            if distance <= MAY_PUSH_M:
                memory.moved_m[row, item] += apart(memory.tools[-1, row], memory.tools[-2, row])
            is_believed = memory.new[row] or (is_fresh and judge(memory, seen, limits, index, row, item, is_carried))
            if is_believed and not (is_carried and not memory.left[row]):
                believe(memory, seen, index, row, item, period_s)
            if is_held and not was_held:
                move_along(memory, row, item, 0)
                bring_into_hand(memory, row, item)
            grow_old(memory, seen, index, row, item, is_fresh, is_believed, period_s, pace)
            may_be_hidden = is_held or (distance <= MAY_HIDE_M and not seen.refused[index, item])
            memory.lost[row, item] = not (is_fresh or memory.new[row] or may_be_hidden)
            memory.astray[row, item] = is_believed and not is_possible(
                limits, item, memory.position[row, item], memory.rotation[row, item]
            )
            bad += memory.lost[row, item] or memory.astray[row, item]
            memory.number[row, item] = seen.number[index, item]
        memory.held[row], memory.new[row] = held[index], False
    return bad


@formula
def judge(memory: Memory, seen: Sightings, limits: Bounds, index: int, row: int, item: int, is_carried: bool) -> bool:
    """Whether a fresh sighting is believed: for a reason, or after the same was seen for long enough.

    The reasons are that the object was there before, that the tool carries it there, or that the hand is near enough to
    have moved it. A sighting of before the grip says nothing about what the fingers hold.
    """
    position, rotation, age_s = seen.position[index, item], seen.rotation[index, item], seen.age_s[index, item]
    if is_carried and age_s >= memory.held_s[row]:
        return True
    upright, exposed_s = up_of(rotation, limits.is_cube[item]), memory.clock_s[row] - age_s
    off = apart(position, memory.position[row, item])
    room = IN_HAND_M + TOOL_SPEED_M_S * age_s if is_carried else STILL_M + memory.moved_m[row, item]
    leans = angle_between(upright, up_of(memory.rotation[row, item], limits.is_cube[item])) > LEAN_RAD
    if off <= room and (is_carried or not leans) and is_possible(limits, item, position, rotation):
        memory.times[row, item] = 0
        return True
    before_s = exposed_s - memory.latest_s[row, item]
    is_same = (
        memory.times[row, item] > 0
        and apart(position, memory.elsewhere[row, item]) <= STILL_M + CARRIED_M_S / 2 * before_s
        and angle_between(upright, memory.lean[row, item]) <= LEAN_RAD
    )
    if not is_same:
        memory.times[row, item], memory.since_s[row, item] = 0, exposed_s
    for axis in range(3):
        memory.elsewhere[row, item, axis], memory.lean[row, item, axis] = position[axis], upright[axis]
    memory.times[row, item] += 1
    memory.latest_s[row, item] = exposed_s
    wait_s = (HELD_S if is_carried else FREE_S) + off / CARRIED_M_S
    if memory.times[row, item] < CONFIRMATIONS or exposed_s - memory.since_s[row, item] < wait_s:
        return False
    memory.left[row] = memory.left[row] or is_carried
    return True


@formula
def up_of(rotation: Array, is_cube: bool) -> Array:
    """Return which way is up for an object (3,): its own z axis, or that of a cube's axes which points up the most."""
    up = rotation[:, 2].copy()
    if is_cube:
        for column in range(2):
            if abs(rotation[2, column]) > abs(up[2]):
                up = rotation[:, column].copy()
        if up[2] < 0.0:
            up = -up
    return up


@formula
def angle_between(one: Array, other: Array) -> float:
    """Compute the angle between two unit vectors (3,) [rad]."""
    return float(np.arccos(min(max(dot(one, other), -1.0), 1.0)))


@formula
def is_possible(limits: Bounds, item: int, position: Array, rotation: Array) -> bool:
    """Whether an object can be at a pose during an episode."""
    for axis in range(3):
        if not limits.low[item, axis] <= position[axis] <= limits.high[item, axis]:
            return False
    return bool(up_of(rotation, limits.is_cube[item])[2] >= np.cos(limits.tilt_rad))


@formula
def grow_old(
    memory: Memory,
    seen: Sightings,
    index: int,
    row: int,
    item: int,
    is_fresh: bool,
    is_believed: bool,
    period_s: float,
    pace: float,
) -> None:
    """Update an object's age: that of the last sighting which was believed."""
    age_s = seen.age_s[index, item]
    if is_believed:
        memory.behind_s[row, item] = 0.0
    elif is_fresh:
        memory.behind_s[row, item] += max(memory.last_s[row, item] + period_s - age_s, 0.0)
    if is_believed or is_fresh:
        memory.pause_s[row, item] = 0.0
    memory.last_s[row, item] = age_s
    memory.age_s[row, item] = pace * max(0.0, age_s + memory.behind_s[row, item] - memory.pause_s[row, item])


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
def believe(memory: Memory, seen: Sightings, index: int, row: int, item: int, period_s: float) -> None:
    """Take over where an object was seen."""
    for axis in range(3):
        memory.position[row, item, axis] = seen.position[index, item, axis]
        for column in range(3):
            memory.rotation[row, item, axis, column] = seen.rotation[index, item, axis, column]
    memory.moved_m[row, item] = 0.0
    if apart(memory.position[row, item], memory.tools[-1, row]) <= MAY_PUSH_M:
        pace_m = apart(memory.tools[-1, row], memory.tools[0, row]) / (len(memory.tools) - 1)
        memory.moved_m[row, item] = pace_m * seen.age_s[index, item] / period_s
    memory.times[row, item] = 0


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
    """The best available poses of k objects in each of m rows: simulation and arm share what is believed, and why.

    A sighting is believed if the object was there before, if the tool carries it there, or if the hand is near enough
    to have moved it. Any other is odd: one odd sighting is passed over, and the same seen for long enough is believed
    after all. An object that is not held stays where it was last seen. One in the hand moves with the tool. Its
    position in the hand follows from where it was last seen and where the tool was when the fingers had just closed on
    it; if they dragged it meanwhile, it is still between them. Silence is a fault only for objects that the hand cannot
    hide, and so is an object where none can be.

    Args:
        sources: The source of sightings of each row.
        names: The objects.
        period_s: Time between two calls of :meth:`look`.
        rest: How many periods fingers rest before they count as holding something.
        pace: Speed of the tool as a share of training's.
        bounds: Where the objects can be; None for anywhere.

    Attributes:
        position, rotation: (m, k, 3) [m], (m, k, 3, 3).
        age_s: (m, k) time since the last sighting that was believed, without pauses since then, times the pace [s].
    """

    def __init__(
        self,
        sources: Sequence[Objects],
        names: Sequence[str],
        period_s: float,
        rest: int,
        pace: float = 1.0,
        bounds: ObjectBounds | None = None,
    ) -> None:
        self._sources, self._names, self._period, self._pace = sources, tuple(names), period_s, pace
        count = len(sources)
        shape = count, len(names)
        memory = Memory(
            position=np.zeros((*shape, 3)),
            rotation=np.zeros((*shape, 3, 3)),
            age_s=np.zeros(shape),
            pause_s=np.zeros(shape),
            behind_s=np.zeros(shape),
            last_s=np.zeros(shape),
            number=np.zeros(shape, np.int64),
            moved_m=np.zeros(shape),
            elsewhere=np.zeros((*shape, 3)),
            lean=np.zeros((*shape, 3)),
            since_s=np.zeros(shape),
            latest_s=np.zeros(shape),
            times=np.zeros(shape, np.int64),
            clock_s=np.zeros(count),
            tools=np.zeros((1 + rest, count, 3)),
            turns=np.zeros((1 + rest, count, 3, 3)),
            held=np.full(count, -1),
            held_s=np.zeros(count),
            left=np.zeros(count, np.bool_),
            new=np.ones(count, np.bool_),
            lost=np.zeros(shape, np.bool_),
            astray=np.zeros(shape, np.bool_),
        )
        self.position, self.rotation, self.age_s = memory.position, memory.rotation, memory.age_s
        self._memory, self._packed = memory, plain(memory)
        self._bounds = plain(_limits(self._names, bounds))
        self._seen = Sightings(
            np.empty((*shape, 3)),
            np.empty((*shape, 3, 3)),
            np.empty(shape),
            np.empty(shape, np.int64),
            np.empty(shape, np.bool_),
        )

    def forget(self, row: int) -> None:
        """Forget all sightings of a row."""
        self._memory.new[row] = True

    def pause(self, seconds: float, row: int = 0) -> None:
        """Leave out a pause in which nothing moved: what was seen before it is as good as it was."""
        self._memory.pause_s[row] += seconds

    def look(self, tool: Array, turn: Array, held: NDArray[np.intp], rows: Rows) -> None:
        """Update the poses of some rows.

        Args:
            tool: (r, 3) tool centre points [m].
            turn: (r, 3, 3) their rotations.
            held: (r,) which object is between the fingers; -1 for none.
            rows: (r,) which rows.

        Raises:
            TrackerError: An object has not been seen for too long, or is where none can be.
        """
        seen = plain(self._read(rows))
        if update(self._packed, seen, self._bounds, tool, turn, held, rows, self._period, self._pace):
            self._complain(rows)

    def _complain(self, rows: Rows) -> None:
        """Let the sources refuse to go on with what is lost or astray; simulations go on."""
        for index, item in np.argwhere(self._memory.lost[rows]).tolist():
            self._sources[rows[index]].require_recent(self._names[item])
        for index, item in np.argwhere(self._memory.astray[rows]).tolist():
            pose = Pose(self.position[rows[index], item], self.rotation[rows[index], item])
            self._sources[rows[index]].require_possible(self._names[item], pose)

    def _read(self, rows: Rows) -> Sightings:
        """Return the last sightings of these rows, which the next call overwrites."""
        seen = self._seen
        for index, row in enumerate(rows.tolist()):
            sightings = self._sources[row].read()
            for item, name in enumerate(self._names):
                sighting = sightings[name]
                seen.position[index, item], seen.rotation[index, item] = sighting.pose.position, sighting.pose.rotation
                seen.age_s[index, item], seen.number[index, item] = sighting.age_s, sighting.number
                seen.refused[index, item] = sighting.refused
        return seen


def _limits(names: Sequence[str], bounds: ObjectBounds | None) -> Bounds:
    """Return the bounds of some objects as arrays."""
    count = len(names)
    if bounds is None:
        return Bounds(np.full((count, 3), -np.inf), np.full((count, 3), np.inf), np.pi, np.zeros(count, np.bool_))
    corners = np.array([bounds.carried(name) for name in names]).reshape(count, 2, 3)
    is_cube = np.array([name in bounds.cubes for name in names], np.bool_)
    return Bounds(corners[:, 0].copy(), corners[:, 1].copy(), CARRIED_TILT_RAD, is_cube)
