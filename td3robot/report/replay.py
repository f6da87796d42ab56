"""Replays a record's commands on a simulated arm and measures the gap to the recorded motion."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from td3robot.build import robot_spec
from td3robot.config import RobotConfig
from td3robot.records import RecordError, read_record, record_of
from td3robot.report.plots import LongCurves
from td3robot.report.session import SHADOW, Session
from td3robot.robots.interface import Robot
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.state import JointCommand
from td3robot.statistics import Sample

Array = NDArray[np.float64]
Line = dict[str, Any]

# Longest simulated pause within an episode; the arm is at rest by then [s].
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Frame:
    """One instant of a replay.

    Attributes:
        at_s: After the record's first line.
        episode: Its number.
        measured, simulated: (n,) joint angles [rad].
        sent: What the arm was sent next; None at the end of an episode.
        gripper: Closed fraction of the gripper that was sent.
    """

    at_s: float
    episode: int
    measured: Array
    simulated: Array
    sent: Array | None
    gripper: float


class Replay:
    """One record on a simulated arm.

    Args:
        path: The record, or its session's folder.

    Attributes:
        robot: The simulated arm, of the record's kind, not connected yet.

    Raises:
        RecordError: It cannot be read, or does not say which arm it is of.
        ConfigError: The arm or its gripper is unknown here.
    """

    def __init__(self, path: Path) -> None:
        record = record_of(path)
        if record is None:
            raise RecordError(f"{path} holds no record.jsonl; give a session's folder, or its record")
        self.path = record
        self.about = next(read_record(record), {})
        if not self.about:
            raise RecordError(f"the record {record} is empty: its session ended before the first line was written")
        self.config = _robot_config(record, self.about)
        self.robot = MujocoRobot(robot_spec(self.config), self.config.physics_rate_hz)
        self.kinematics = Kinematics(self.robot.spec)

    @property
    def policy(self) -> str:
        """Name of the policy that was recorded."""
        return Session(self.path, self.about).policy

    def lines(self) -> Iterator[Line]:
        """Read the record once more from its beginning."""
        return read_record(self.path)

    def frames(self, lines: Iterable[Line]) -> Iterator[Frame]:
        """Send the recorded commands to the simulated arm; yield a frame per period and per end of an episode.

        Every episode begins where the arm really stood. A period that took longer than planned is as long in the
        simulation.

        Raises:
            RecordError: A line lacks what it should have.
        """
        self.robot.connect()
        player = _Player(self.robot)
        for number, line in enumerate(lines, start=1):
            try:
                frame = player.take(line)
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(
                    f"{self.path} is no record of this td3robot: line {number}, {line['kind']!r}, lacks what it should "
                    f"have ({error})"
                ) from None
            if frame is not None:
                yield frame


class Gap:
    """How far the simulated joints are from the measured ones, added up frame by frame.

    Attributes:
        joints: For each joint its measured and its simulated angle, and simulated minus measured [rad].
        tool: Distance of the two tool centre points [m].
    """

    def __init__(self, replay: Replay) -> None:
        self.names = list(replay.robot.spec.arm.joint_names)
        self._kinematics = replay.kinematics
        count = len(self.names)
        self.joints, self.tool = LongCurves(3 * count), LongCurves(1)
        self.worst, self._tool = Sample(), Sample()
        self._squares, self._largest = np.zeros(count), np.zeros(count)
        self._at_end = Sample()
        self._episode: int | None = None

    def add(self, frame: Frame) -> None:
        """Add a frame."""
        if frame.episode != self._episode and self._episode is not None:
            self.joints.gap(frame.at_s)
            self.tool.gap(frame.at_s)
        self._episode = frame.episode
        gap = frame.simulated - frame.measured
        away = self._kinematics.tcp(frame.simulated).position - self._kinematics.tcp(frame.measured).position
        distance = float(np.linalg.norm(away))
        self.joints.add(frame.at_s, [*frame.measured, *frame.simulated, *gap])
        self.tool.add(frame.at_s, [distance])
        self.worst.add([float(np.abs(gap).max())])
        self._tool.add([distance])
        self._squares += gap**2
        self._largest = np.maximum(self._largest, np.abs(gap))
        if frame.sent is None:
            self._at_end.add([float(np.abs(gap).max())])

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values: of each joint, of the worst joint at each time, of the tool."""
        count = self.worst.count
        if not count:
            return {"periods": 0}
        return {
            "periods": count,
            "joints": {
                name: {"rms_rad": sqrt(square / count), "max_rad": float(largest)}
                for name, square, largest in zip(self.names, self._squares, self._largest, strict=True)
            },
            "rms_rad": sqrt(self.worst.square / count),
            "max_rad": self.worst.largest,
            "at_end_rad": sqrt(self._at_end.square / self._at_end.count) if self._at_end.count else None,
            "tool_rms_m": sqrt(self._tool.square / count),
            "tool_max_m": self._tool.largest,
        }


def in_real_time(
    frames: Iterable[Frame], now: Callable[[], float] = monotonic, wait: Callable[[float], None] = sleep
) -> Iterator[Frame]:
    """Yield frames in real time; the travel between two episodes is skipped."""
    begin, episode = None, None
    for frame in frames:
        if begin is None or frame.episode != episode:
            begin, episode = now() - frame.at_s, frame.episode
        wait(max(0.0, begin + frame.at_s - now()))
        yield frame


class _Player:
    """Takes the lines of a record to a simulated arm."""

    def __init__(self, robot: Robot) -> None:
        self._robot, self._period = robot, robot.spec.period_s
        self._begin: float | None = None
        self._episode: int | None = None
        self._sent_at: float | None = None
        self._gripper = 0.0

    def take(self, line: Line) -> Frame | None:
        """Return the frame that a line of the record completes, or None."""
        at = float(line["at"])
        self._begin = at if self._begin is None else self._begin
        match line["kind"]:
            case "episode":
                self._episode = None if line["mode"] == SHADOW else int(line["number"])
                self._sent_at = None
            case "period" if self._episode is not None:
                return self._period_line(at, line)
            case "episode_end" if self._episode is not None and self._sent_at is not None:
                return self._frame(at, np.array(line["state"]["q"], np.float64), None)
        return None

    def _period_line(self, at: float, line: Line) -> Frame:
        sent = np.array(line["sent"]["q"], np.float64)
        frame = self._frame(at, np.array(line["state"]["q"], np.float64), sent)
        self._gripper = float(line["sent"]["gripper"])
        self._robot.send(JointCommand(sent, self._gripper))
        self._sent_at = at
        return frame

    def _frame(self, at: float, measured: Array, sent: Array | None) -> Frame:
        assert self._begin is not None
        assert self._episode is not None
        if measured.shape != self._robot.spec.arm.home.shape or not np.isfinite(measured).all():
            raise ValueError(f"{measured} where {len(self._robot.spec.arm.home)} joint angles are expected")
        if self._sent_at is None:
            self._robot.move_to(measured)
        else:
            passed = min(at - self._sent_at, LONGEST_PAUSE_S)
            for _ in range(max(1, round(passed / self._period))):
                self._robot.advance()
        return Frame(at - self._begin, self._episode, measured, self._robot.read().q, sent, self._gripper)


def _robot_config(record: Path, about: Line) -> RobotConfig:
    """Read which arm a record is of, from its first line."""
    cell = about.get("cell") if about["kind"] == "session" else None
    if not isinstance(cell, dict) or not isinstance(cell.get("robot"), dict):
        raise RecordError(
            f"the record {record} does not say which arm it is of, as those of rehearsals did not before version 1; "
            "record it again"
        )
    if about.get("mode") in ("check", SHADOW):
        raise RecordError(
            f"{record} is of a {about['mode']}, which sends nothing to the arm; replay a confirm or a run"
        )
    try:
        return RobotConfig.model_validate(cell["robot"] | {"backend": "mujoco"})
    except ValidationError as error:
        raise RecordError(f"{record} is of a robot that is unknown here: {error.errors()[0]['msg']}") from None
