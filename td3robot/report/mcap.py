"""A record as an MCAP file, which Foxglove and PlotJuggler open: every line of it, with JSON schemas.

What Foxglove's panels know is written a second time with its own schemas, so that no converter is needed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from td3robot.atomic import Replacement
from td3robot.errors import MissingExtraError
from td3robot.geometry import quaternion
from td3robot.records import RecordError
from td3robot.report import foxglove
from td3robot.report.dataset import components
from td3robot.report.html import ReportError
from td3robot.report.replay import Frame
from td3robot.robots.guard import REASONS
from td3robot.state import Array, Pose

Line = dict[str, Any]
Schema = dict[str, Any]

NUMBER: Schema = {"type": ["number", "null"]}
TEXT: Schema = {"type": "string"}
# The topic of each part of a period.
PARTS = {"wish": "/wished", "command": "/guarded", "sent": "/sent"}
# Fields of a line that are no text for a log.
SILENT = ("kind", "at", "contract", "cell", "check", "state")


class McapFile:
    """Write a record to an MCAP file, line by line; use as a context manager.

    Topics: ``/measured``, ``/wished``, ``/guarded``, ``/sent`` and ``/simulated`` have the joints by name [rad],
    ``/policy`` has observation, action and the time to decide [s], ``/guard`` a 1 for every reason of an intervention,
    ``/events`` every other line as it stands in the record. With Foxglove's schemas: ``/joint_states`` as measured and
    ``/joint_commands`` as sent, ``/tool`` and ``/tf`` (tool, goal and objects in the base frame), ``/log``. Times are
    Unix time where the record tells it, and else that computer's monotonic time.

    Args:
        path: The file; it gets its name once it is whole.
        about: The record's first line.
        joints: Names of the arm's joints.
        tool_at: Computes the tool's pose at joint angles (n,) [rad].
        force: Overwrite a file.

    Raises:
        MissingExtraError: The package mcap is not installed.
        ReportError: There is such a file, or it cannot be written.
    """

    def __init__(
        self, path: Path, about: Line, joints: Sequence[str], tool_at: Callable[[Array], Pose], force: bool = False
    ) -> None:
        try:
            from mcap.writer import Writer
        except ImportError:
            raise MissingExtraError("mcap", "exporting to MCAP") from None
        if path.exists() and (path.is_dir() or not force):
            raise ReportError(f"{path} exists; choose another name, or give --force to overwrite a file")
        self.path, self._joints, self._tool_at = path, list(joints), tool_at
        self._goal: Sequence[float] | None = None
        self._begin = float(about["at"])
        self._offset = float(about["unix_time"]) - self._begin if "unix_time" in about else 0.0
        self._observed = components(about.get("contract", {}).get("observation"))
        self._channels: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._replacement = Replacement(path)
            self._stream = self._replacement.temporary.open("wb")
        except OSError as error:
            raise ReportError(f"{path} cannot be written: {error.strerror}") from None
        self._writer = Writer(self._stream)
        self._writer.start(profile="", library=f"td3robot {version('td3robot')}")

    def add(self, line: Line) -> None:
        """Write one line of the record."""
        at, kind = float(line["at"]), line["kind"]
        if kind == "period":
            self._add_period(at, line)
        elif kind == "travel":
            self._add_state(at, line["state"])
            self._write("/guarded", "td3robot.JointCommand", at, _joint_schema(self._joints, gripper=NUMBER),
                        self._command(line["command"]))  # fmt: skip
            self._add_reasons(at, line["reasons"])
        else:
            schema = {"type": "object", "properties": {"kind": TEXT, "at": NUMBER}, "required": ["kind"]}
            self._write("/events", "td3robot.Event", at, schema, line)
            self._add_log(at, line)
            if kind == "goal":
                self._goal = line["position"]

    def passed(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Write lines as they pass.

        Raises:
            RecordError: A line lacks what it should have.
        """
        for number, line in enumerate(lines, start=1):
            try:
                self.add(line)
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(
                    f"line {number} of the record, {line['kind']!r}, lacks what it should have ({error}); "
                    "nothing was exported"
                ) from None
            yield line

    def add_frame(self, frame: Frame) -> None:
        """Write where the simulated arm is."""
        values = {"position": dict(zip(self._joints, frame.simulated.tolist(), strict=True))}
        self._write("/simulated", "SimulatedJoints", self._begin + frame.at_s, _joint_schema(self._joints), values)

    def _add_period(self, at: float, line: Line) -> None:
        self._add_state(at, line["state"])
        for part, topic in PARTS.items():
            schema = _joint_schema(self._joints, gripper=NUMBER)
            self._write(topic, "td3robot.JointCommand", at, schema, self._command(line[part]))
        observation = line["observation"]
        names = self._observed if len(self._observed) == len(observation) else _numbered(len(observation))
        actions = _numbered(len(line["action"]))
        schema = _object(
            episode=NUMBER, step=NUMBER, decide_s=NUMBER, observation=_numbers(names), action=_numbers(actions)
        )
        values = {name: line[name] for name in ("episode", "step", "decide_s")} | {
            "observation": dict(zip(names, observation, strict=True)),
            "action": dict(zip(actions, line["action"], strict=True)),
        }
        self._write("/policy", "td3robot.Policy", at, schema, values)
        self._add_reasons(at, line["reasons"])
        self._show("/joint_commands", foxglove.JOINT_STATES, at,
                   foxglove.joint_states(self._stamp(at), self._joints, line["sent"]["q"]))  # fmt: skip
        self._add_poses(at, line)

    def _add_state(self, at: float, state: Line) -> None:
        drivers = _numbered(len(state["driver_q"]))
        schema = _joint_schema(self._joints, velocity=_numbers(self._joints), drivers=_numbers(drivers), stamp=NUMBER)
        values = {
            "position": dict(zip(self._joints, state["q"], strict=True)),
            "velocity": dict(zip(self._joints, state["dq"], strict=True)),
            "drivers": dict(zip(drivers, state["driver_q"], strict=True)),
            "stamp": state["stamp"],
        }
        self._write("/measured", "td3robot.JointState", at, schema, values)
        shown = foxglove.joint_states(self._stamp(at), self._joints, state["q"], state["dq"])
        self._show("/joint_states", foxglove.JOINT_STATES, at, shown)

    def _add_poses(self, at: float, line: Line) -> None:
        """Write where tool, goal and objects are, as far as that is known."""
        tool, stamp = self._tool_at(np.array(line["state"]["q"], np.float64)), self._stamp(at)
        poses = {"tool": (tool.position.tolist(), quaternion(tool.rotation).tolist())}
        poses |= {name: (pose["position"], pose["wxyz"]) for name, pose in line.get("objects", {}).items()}
        if self._goal is not None:
            poses["goal"] = (self._goal, (1.0, 0.0, 0.0, 0.0))
        poses = {name: pose for name, pose in poses.items() if np.isfinite([*pose[0], *pose[1]]).all()}
        if "tool" in poses:
            self._show("/tool", foxglove.POSE_IN_FRAME, at, foxglove.pose_in_frame(stamp, *poses["tool"]))
        self._show("/tf", foxglove.FRAME_TRANSFORMS, at, foxglove.frame_transforms(stamp, poses))

    def _add_log(self, at: float, line: Line) -> None:
        """Write a line that is no period in words."""
        said = ", ".join(f"{key} {value}" for key, value in line.items() if key not in SILENT and value is not None)
        level = "ERROR" if line.get("fault") else "INFO"
        message = foxglove.log(self._stamp(at), level, "td3robot", f"{line['kind']}: {said}" if said else line["kind"])
        self._show("/log", foxglove.LOG, at, message)

    def _show(self, topic: str, schema: Schema, at: float, values: Line) -> None:
        """Write a message with a schema of Foxglove's."""
        self._write(topic, schema["title"], at, schema, values)

    def _stamp(self, at: float) -> int:
        """Return a line's time in nanoseconds."""
        return max(0, round(1e9 * (at + self._offset)))

    def _add_reasons(self, at: float, reasons: Sequence[str]) -> None:
        self._write("/guard", "td3robot.Guard", at, _numbers(REASONS), {name: int(name in reasons) for name in REASONS})

    def _command(self, command: Line) -> Line:
        return {"position": dict(zip(self._joints, command["q"], strict=True)), "gripper": command["gripper"]}

    def _write(self, topic: str, name: str, at: float, schema: Schema, values: Line) -> None:
        if topic not in self._channels:
            text = json.dumps({"title": name} | schema).encode()
            number = self._writer.register_schema(name, "jsonschema", text)
            self._channels[topic] = self._writer.register_channel(topic, "json", number)
        count = self._counts[topic] = self._counts.get(topic, 0) + 1
        stamp = self._stamp(at)
        data = json.dumps(_finite(values), allow_nan=False, separators=(",", ":")).encode()
        self._writer.add_message(self._channels[topic], stamp, data, stamp, count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._writer.finish()
            self._stream.close()
            if kind is None:
                self._replacement.commit()
        except OSError as failed:
            raise ReportError(f"{self.path} cannot be written: {failed.strerror}") from None
        finally:
            self._replacement.discard()


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _numbers(names: Sequence[str]) -> Schema:
    return _object(**dict.fromkeys(names, NUMBER))


def _joint_schema(joints: Sequence[str], **more: Schema) -> Schema:
    return _object(position=_numbers(joints), **more)


def _numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _finite(value: Any) -> Any:
    """Replace what is not finite, which JSON cannot say, by null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
