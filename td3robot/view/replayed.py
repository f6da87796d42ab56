"""A record with its replay: the measured arm, and the simulated arm that was sent the same commands."""

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from td3robot.format import joint_name
from td3robot.metrics import Chart, time_chart
from td3robot.state import Array, JointCommand
from td3robot.view.record import Recorded


class Simulated:
    """The motion of a simulated arm with a record's commands, by the record's own time.

    Args:
        joints: Number of joints.
    """

    def __init__(self, joints: int) -> None:
        self._times = array("d")
        self._rows = array("f")
        self._width = joints + 1

    def add(self, at: float, q: Array, gripper: float) -> None:
        """Add the joint angles (n,) [rad] and the gripper's closed fraction at a time of the record [s], in order."""
        self._times.append(at)
        self._rows.extend((*q.tolist(), gripper))

    def at(self, time_s: float) -> tuple[Array, float] | None:
        """Return joint angles (n,) [rad] and closed fraction at a line's time [s], or None if nothing was sent."""
        place = int(np.searchsorted(np.frombuffer(self._times), time_s - 1e-6)) if self._times else 0
        if place == len(self._times) or abs(self._times[place] - time_s) > 1e-6:
            return None
        row = self._rows[place * self._width : (place + 1) * self._width]
        return np.array(row[:-1], np.float64), float(row[-1])


class Replayed(Recorded):
    """A record, with the simulated arm as the ghost.

    Args:
        path: The record, or its folder.
        simulated: The replay, by the times of the record's lines.

    Raises:
        RecordError: It cannot be read, or is not a record.
    """

    ghost = "the simulated arm that was sent the same"

    def __init__(self, path: Path, simulated: Simulated) -> None:
        super().__init__(path, follow=False)
        self.kind = "a record and its replay in simulation"
        self._simulated = simulated

    def charts(self) -> list[Chart]:
        """Return the gap of each joint in the episode in view."""
        lines = self._lines_in_view()
        known = [(line, self._simulated.at(line["at"])) for line in lines]
        both = [(line, found[0]) for line, found in known if found is not None]
        if len(both) < 2 or self.workcell is None:
            return []
        seconds = np.array([line["at"] - both[0][0]["at"] for line, _ in both])
        gap = 1e3 * np.array([q - np.array(line["state"]["q"]) for line, q in both])
        names = [joint_name(name) for name in self.workcell.spec.arm.joint_names]
        lines_of = {name: gap[:, joint] for joint, name in enumerate(names)}
        return [time_chart("Simulated minus measured", seconds, lines_of, "mrad")]

    def _ghost(self, line: dict[str, Any]) -> JointCommand | None:
        found = self._simulated.at(float(line["at"]))
        return JointCommand(*found) if found is not None else None
