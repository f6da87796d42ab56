"""Where the objects of many environments are while their hands hold them."""

import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import lengths, times
from td3robot.robots.object_memory import ACROSS_M, ALONG_M, NOT_IN_HAND_M
from td3robot.state import Array

Rows = NDArray[np.intp]


class VectorizedMemory:
    """:class:`ObjectMemory` of one object in each of m environments whose trackers see it in every period.

    Attributes:
        positions, rotations: (m, 3) [m], (m, 3, 3).
    """

    def __init__(self, count: int, period_s: float, rest: int) -> None:
        self.positions, self.rotations = np.zeros((count, 3)), np.zeros((count, 3, 3))
        self._tools, self._turns = np.zeros((1 + rest, count, 3)), np.zeros((1 + rest, count, 3, 3))
        self._held = np.zeros(count, np.bool_)
        self._held_s = np.zeros(count)
        self._period = period_s

    def begin(self, row: int, position: Array, rotation: Array, tool: Array, turn: Array, held: bool) -> None:
        """Take over what an episode begins with."""
        self.positions[row], self.rotations[row] = position, rotation
        self._tools[:, row], self._turns[:, row] = tool, turn
        self._held[row], self._held_s[row] = held, 0.0

    def look(
        self, tools: Array, turns: Array, held: NDArray[np.bool_], seen: Array, seen_turns: Array, rows: Rows
    ) -> None:
        """Update the poses of some rows from sightings of this moment; see :meth:`ObjectMemory.look`."""
        before, before_turns = self._tools[-1, rows], self._turns[-1, rows]
        self._tools[:-1, rows], self._turns[:-1, rows] = self._tools[1:, rows], self._turns[1:, rows]
        self._tools[-1, rows], self._turns[-1, rows] = tools, turns
        still = held & self._held[rows]
        self._held_s[rows] = held_s = np.where(still, self._held_s[rows] + self._period, 0.0)
        self._held[rows] = held
        if not held.any():
            self.positions[rows], self.rotations[rows] = seen, seen_turns
            return
        first, first_turns = self._tools[0, rows], self._turns[0, rows]
        gripped, gripped_turns = _carried(seen, seen_turns, first, first_turns, tools, turns)
        gripped = _in_hand(gripped, tools, turns)
        carried, carried_turns = _carried(
            self.positions[rows], self.rotations[rows], before, before_turns, tools, turns
        )
        kept = still & ~((held_s > 0.0) & (lengths(seen - carried) > NOT_IN_HAND_M))
        new = (held & ~still)[:, None]
        kept = kept[:, None]
        self.positions[rows] = np.where(new, gripped, np.where(kept, carried, seen))
        self.rotations[rows] = np.where(
            new[..., None], gripped_turns, np.where(kept[..., None], carried_turns, seen_turns)
        )


def _carried(
    item: Array, item_turn: Array, before: Array, before_turn: Array, tool: Array, tool_turn: Array
) -> tuple[Array, Array]:
    """Return objects' poses after they moved with the tools."""
    turn = tool_turn @ before_turn.transpose(0, 2, 1)
    return times(turn, item - before) + tool, turn @ item_turn


def _in_hand(item: Array, tool: Array, turn: Array) -> Array:
    """Return objects' positions, moved to where fingers can hold them."""
    offset = times(turn.transpose(0, 2, 1), item - tool)
    across = np.maximum(np.hypot(offset[:, 0], offset[:, 1]), 1e-9)
    offset[:, :2] *= np.minimum(1.0, ACROSS_M / across)[:, None]
    offset[:, 2] = np.minimum(np.maximum(offset[:, 2], -ALONG_M), ALONG_M)
    return tool + times(turn, offset)
