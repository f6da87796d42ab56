"""A session's record: followed while it is written, played back in real time, or shown with its replay."""

from array import array
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from td3robot.config import Box
from td3robot.config.task import task_section
from td3robot.format import failure_kind, joint_name
from td3robot.geometry import rotation_of
from td3robot.metrics import Chart, time_chart
from td3robot.ports import LOOPBACK
from td3robot.records import FILE, RecordError, RecordIndex
from td3robot.registry import ARMS, GRIPPERS, TASKS
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState
from td3robot.view.source import Snapshot, Source, Workcell

# A record that was written to within this time is followed, not played from its beginning [s].
RECENT_S = 10.0
# Pauses in a record are shortened to this [s].
LONGEST_S = 1.0
# Points of a curve; a longer episode is sampled.
POINTS = 400


class Recorded(Source):
    """A record of ``deploy`` or ``rehearse``.

    Args:
        path: The record, or its folder.
        follow: Whether to show what is added; None follows a record that is being written now.

    Raises:
        RecordError: It cannot be read, or is not a record.
    """

    actions = frozenset({"play", "step", "speed", "seek"})

    def __init__(self, path: Path, follow: bool | None = None) -> None:
        file = path / FILE if path.is_dir() else path
        self._index = RecordIndex(file)
        self.title, self.kind = file.resolve().parent.name, "a record"
        self._workcell: Workcell | None = None
        self._next = 0
        recent = time() - file.stat().st_mtime < RECENT_S
        self._following = recent if follow is None else follow
        self._whole = self._index.extend()
        self._know()
        if self._whole and not self._following:
            self._require_something()

    @property
    def workcell(self) -> Workcell | None:
        """The workcell from the contract in the record, or None before its first line was written."""
        return self._workcell

    @property
    def length(self) -> int:
        """Number of moments."""
        return len(self._index)

    @property
    def position(self) -> int:
        """Number of the next moment."""
        return self._next

    def seek(self, position: int) -> None:
        """Go to a moment; at the last one, follow what is added."""
        self._next = min(max(position, 0), max(self.length - 1, 0))
        self._following = self._next >= self.length - 1

    def advance(self) -> Snapshot | None:
        """Return the next moment or, when following, the newest one."""
        self._whole = self._index.extend()
        self._know()
        if self._following and self._whole and self.length > self._next:
            self._next = self.length - 1
        if self._workcell is None or self._next >= self.length:
            self.status = self._waiting()
            return None
        number = self._next
        self._next += 1
        return self._snapshot(number)

    def charts(self) -> list[Chart]:
        """Return tracking and interventions of the episode in view."""
        lines = self._lines_in_view()
        if len(lines) < 2 or self._workcell is None:
            return []
        seconds = np.array([line["at"] - lines[0]["at"] for line in lines])
        q = np.array([line["state"]["q"] for line in lines])
        commanded = np.array([line["command"]["q"] for line in lines])
        names = [joint_name(name) for name in self._workcell.spec.arm.joint_names]
        tracking = {name: 1e3 * (commanded - q)[:, joint] for joint, name in enumerate(names)}
        changed = np.array([float(bool(line["reasons"])) for line in lines])
        share = {"changed": 100.0 * np.cumsum(changed) / np.arange(1, len(lines) + 1)}
        return [
            time_chart("Commanded minus measured", seconds, tracking, "mrad"),
            time_chart("Periods changed by the guard so far", seconds, share, "%", (0.0, 100.0)),
        ]

    def close(self) -> None:
        """Close the file."""
        self._index.close()

    def _lines_in_view(self) -> list[dict[str, Any]]:
        """Return the periods of the episode in view: all of them, or a sample of some hundreds."""
        if not self.length:
            return []
        moments = self._index.episode(min(self._next, self.length - 1))
        numbers = moments[:: max(1, len(moments) // POINTS)]
        return [line for line in map(self._index.moment, numbers) if "command" in line]

    def _ghost(self, line: dict[str, Any]) -> JointCommand | None:
        """Return the ghost's command at a line: the command in the record."""
        command = line.get("command")
        return JointCommand(np.array(command["q"]), command["gripper"]) if command else None

    def _know(self) -> None:
        """Read from the session's line what there is to see."""
        session = self._index.session
        if self._workcell is not None:
            return
        if session is not None:
            self.kind = f"{'followed as it is written' if self._following else 'a record'}: {session['mode']}"
            self._workcell = workcell_of(session["contract"])
            self.picture_url = picture_url_of(session.get("cell", {})) if self._following else ""
        elif self.length:
            raise RecordError(
                f"{self._index.path} does not say which robot it is of (its first line is no session); records of "
                "rehearsals before this version lack it: rehearse again"
            )

    def _waiting(self) -> str:
        if not self.length:
            return "Waiting for the first moment of the record"
        return "Waiting for what comes next" if self._following else "The end of the record"

    def _require_something(self) -> None:
        if not self.length:
            raise RecordError(
                f"{self._index.path} holds no moment of an arm: its session ended before the arm was read"
            )

    def _snapshot(self, number: int) -> Snapshot:
        line = self._index.moment(number)
        state = line["state"]
        goal = self._index.last_note(number, "goal")
        begins = goal is not None and goal.moment == number
        return Snapshot(
            state=RobotState(
                np.array(state["q"]), np.array(state["dq"]), np.array(state["driver_q"]), float(state["stamp"])
            ),
            commanded=self._ghost(line),
            objects={name: _pose(**pose) for name, pose in line.get("objects", {}).items()},
            goal=np.array(goal.line["position"]) if goal is not None and line["kind"] == "period" else None,
            reasons=tuple(line.get("reasons", ())),
            caption=self._caption(number, line),
            lasts_s=self._lasts(number, line),
            begins=begins,
        )

    def _caption(self, number: int, line: Mapping[str, Any]) -> tuple[str, ...]:
        self.status = f"Step {number + 1:,} of {self.length:,}"
        said = {
            "period": f"Episode {line.get('episode', 0) + 1}, period {line.get('step', 0) + 1}",
            "travel": "On the way to the start of an episode",
            "rest": "At rest, at the end",
        }[line["kind"]]
        caption: tuple[str, ...] = (said,)
        ended = next(
            (note.line for note in self._index.notes if note.moment == number + 1 and "ended" in note.line), None
        )
        if ended is not None:
            failure = ended.get("failure")
            why = f": {failure_kind(failure['kind'])}" if failure else ""
            result = "**Success**" if ended.get("success") else f"**No success**{why}"
            caption += (ended.get("fault") or result,)
        return caption

    def _lasts(self, number: int, line: Mapping[str, Any]) -> float:
        if number + 1 >= self.length or self._following:
            return 0.0
        return float(min(max(self._index.moment(number + 1)["at"] - line["at"], 0.0), LONGEST_S))


class SimulatedMotion:
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

    def __init__(self, path: Path, simulated: SimulatedMotion) -> None:
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


def picture_url_of(cell: Mapping[str, Any]) -> str:
    """Return where a cell's tracker shows its camera's picture; empty if it does not."""
    port = (cell.get("tracker") or {}).get("page_port")
    return f"http://{LOOPBACK}:{port}" if isinstance(port, int) else ""


def workcell_of(contract: Mapping[str, Any]) -> Workcell:
    """Return the arm, gripper, table, objects and workspace of a contract.

    Raises:
        ConfigError: This version does not know its arm, gripper or task.
    """
    robot, task = contract["robot"], contract["task"]
    arm = ARMS.find(robot["arm"])
    law = arm.servo.law  # where the contract is older than its terms
    spec = RobotSpec(
        arm,
        GRIPPERS.find(robot["gripper"]),
        robot["control_rate_hz"],
        robot["tcp_offset_m"],
        robot["table_height_m"],
        law._replace(**{name: robot.get(f"servo_{name}", own) for name, own in law._asdict().items()}),
    )
    return Workcell(spec, _objects(task), Box.model_validate(contract["guard"]["workspace"]))


def _objects(task: Mapping[str, Any]) -> tuple[ObjectModel, ...]:
    TASKS.find(task["name"])
    section = task_section(task["name"])
    return section.model_validate({key: value for key, value in task.items() if key in section.model_fields}).objects()


def _pose(position: ArrayLike, wxyz: ArrayLike) -> Pose:
    return Pose(np.asarray(position, np.float64), rotation_of(wxyz))
