"""Where objects are between sightings, and while the hand hides them, over the rows of a batch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from td3robot.robots.objects import Objects
from td3robot.row_math import lengths, shift, times
from td3robot.state import Array

Rows = NDArray[np.intp]

# Nearer to the tool centre point than this, the hand may hide an object: most fixed cameras lose it within 60 to 80 mm,
# and the fingers reach as far again [m].
MAY_HIDE_M = 0.15
# A sighting this far from where the tool carries an object shows that it is not in the hand [m]. For a late sighting,
# add the distance that the tool may have moved meanwhile at this speed [m/s].
NOT_IN_HAND_M, TOOL_SPEED_M_S = 0.04, 0.25
# An object between the fingers is at most this far from the tool centre point, across and along the tool's axis [m].
ACROSS_M, ALONG_M = 0.02, 0.04


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
        self.position, self.rotation = np.zeros((count, objects, 3)), np.zeros((count, objects, 3, 3))
        self.age_s, self._pause_s = np.zeros((2, count, objects))
        self._number = np.zeros((count, objects), np.int64)
        # The tools' poses from as long ago as fingers rest, oldest first.
        self._tools, self._turns = np.zeros((1 + rest, count, 3)), np.zeros((1 + rest, count, 3, 3))
        self._held, self._held_s = np.full(count, -1), np.zeros(count)
        self._new = np.ones(count, np.bool_)

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
        seen, seen_turn, age_s, number = self._read(rows)
        new = self._new[rows]
        fresh = number != self._number[rows]
        known = fresh | new[:, None]
        still = (held >= 0) & (held == self._held[rows]) & ~new
        held_s = np.where(still, self._held_s[rows] + self._period, 0.0)
        shift(self._tools, rows, tool, new)
        shift(self._turns.reshape(len(self._turns), -1, 9), rows, turn.reshape(-1, 9), new)
        position, rotation = seen, seen_turn
        if not known.all():
            self._require_recent(self.position[rows], tool, ~known, held, rows)
            position = np.where(known[..., None], seen, self.position[rows])
            rotation = np.where(known[..., None, None], seen_turn, self.rotation[rows])
        if (held >= 0).any():
            self._carry(position, rotation, fresh & (age_s < held_s[:, None]), age_s, still, held, rows)
        self.position[rows], self.rotation[rows] = position, rotation
        self._pause_s[rows] = pause_s = np.where(known, 0.0, self._pause_s[rows])
        self.age_s[rows] = self._pace * np.maximum(0.0, age_s - pause_s)
        self._number[rows], self._held[rows], self._held_s[rows], self._new[rows] = number, held, held_s, False

    def _read(self, rows: Rows) -> tuple[Array, Array, Array, NDArray[np.int64]]:
        """Return the last sightings: positions, rotations, ages and numbers."""
        shape = len(rows), len(self._names)
        position, rotation = np.empty((*shape, 3)), np.empty((*shape, 3, 3))
        age_s, number = np.empty(shape), np.empty(shape, np.int64)
        for index, row in enumerate(rows.tolist()):
            sightings = self._sources[row].read()
            for item, name in enumerate(self._names):
                sighting = sightings[name]
                position[index, item], rotation[index, item] = sighting.pose.position, sighting.pose.rotation
                age_s[index, item], number[index, item] = sighting.age_s, sighting.number
        return position, rotation, age_s, number

    def _require_recent(
        self, position: Array, tool: Array, unseen: NDArray[np.bool_], held: NDArray[np.intp], rows: Rows
    ) -> None:
        """Refuse to go on where an object that the hand cannot hide has not been seen for too long."""
        for index, item in np.argwhere(unseen).tolist():
            if item != held[index] and np.linalg.norm(position[index, item] - tool[index]) > MAY_HIDE_M:
                self._sources[rows[index]].require_recent(self._names[item])

    def _carry(
        self,
        position: Array,
        rotation: Array,
        fresh: NDArray[np.bool_],
        age_s: Array,
        still: NDArray[np.bool_],
        held: NDArray[np.intp],
        rows: Rows,
    ) -> None:
        """Replace the poses (r, k) of held objects by where the tool has carried them.

        Args:
            position: Where they were seen last, or where memory has them.
            rotation: The same.
            fresh: (r, k) whether a sighting is new, and of a moment after the object was gripped.
            age_s: (r, k) the sightings' ages.
            still: (r,) whether the object was held before, too.
            held: As in :meth:`look`.
            rows: As there.
        """
        index = np.flatnonzero((held >= 0) & ~self._new[rows])
        if not index.size:
            return
        row, item = rows[index], held[index]
        seen, seen_turn, age = position[index, item], rotation[index, item], age_s[index, item]
        tool, turn = self._tools[-1, row], self._turns[-1, row]
        gripped, gripped_turn = _carried(seen, seen_turn, self._tools[0, row], self._turns[0, row], tool, turn)
        gripped = _in_hand(gripped, tool, turn)
        before = self.position[row, item], self.rotation[row, item]
        kept, kept_turn = _carried(*before, self._tools[-2, row], self._turns[-2, row], tool, turn)
        elsewhere = fresh[index, item] & (lengths(seen - kept) > NOT_IN_HAND_M + TOOL_SPEED_M_S * age)
        kept = np.where(elsewhere[:, None], seen, kept)
        kept_turn = np.where(elsewhere[:, None, None], seen_turn, kept_turn)
        was_held = still[index]
        position[index, item] = np.where(was_held[:, None], kept, gripped)
        rotation[index, item] = np.where(was_held[:, None, None], kept_turn, gripped_turn)


def _carried(
    item: Array, item_turn: Array, before: Array, before_turn: Array, tool: Array, turn: Array
) -> tuple[Array, Array]:
    """Return objects' poses after they moved with the tools."""
    change = turn @ before_turn.transpose(0, 2, 1)
    return times(change, item - before) + tool, change @ item_turn


def _in_hand(item: Array, tool: Array, turn: Array) -> Array:
    """Return objects' positions, moved to where fingers can hold them."""
    offset = times(turn.transpose(0, 2, 1), item - tool)
    across = np.maximum(np.hypot(offset[:, 0], offset[:, 1]), 1e-9)
    offset[:, :2] *= np.minimum(1.0, ACROSS_M / across)[:, None]
    offset[:, 2] = np.clip(offset[:, 2], -ALONG_M, ALONG_M)
    return tool + times(turn, offset)
