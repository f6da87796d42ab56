"""A record as an MCAP file, which Foxglove and PlotJuggler open: every line of it, with JSON schemas."""

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from td3robot.atomic import Replacement
from td3robot.errors import MissingExtraError
from td3robot.records import RecordError
from td3robot.report.dataset import components
from td3robot.report.html import ReportError
from td3robot.report.replay import Frame
from td3robot.robots.guard import REASONS

Line = dict[str, Any]
Schema = dict[str, Any]

NUMBER: Schema = {"type": ["number", "null"]}
TEXT: Schema = {"type": "string"}
# The topic of each part of a period.
PARTS = {"wish": "/wished", "command": "/guarded", "sent": "/sent"}


class McapFile:
    """Write a record to an MCAP file, line by line; use as a context manager.

    Topics: ``/measured``, ``/wished``, ``/guarded``, ``/sent`` and ``/simulated`` have the joints by name [rad],
    ``/policy`` has observation, action and the time to decide [s], ``/guard`` a 1 for every reason of an intervention,
    ``/events`` every other line as it stands in the record. Times are Unix time where the record tells it, and else
    that computer's monotonic time.

    Args:
        path: The file; it gets its name once it is whole.
        about: The record's first line.
        joints: Names of the arm's joints.
        force: Overwrite a file.

    Raises:
        MissingExtraError: The package mcap is not installed.
        ReportError: There is such a file, or it cannot be written.
    """

    def __init__(self, path: Path, about: Line, joints: Sequence[str], force: bool = False) -> None:
        try:
            from mcap.writer import Writer
        except ImportError:
            raise MissingExtraError("mcap", "exporting to MCAP") from None
        if path.exists() and (path.is_dir() or not force):
            raise ReportError(f"{path} exists; choose another name, or give --force to overwrite a file")
        self.path, self._joints = path, list(joints)
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
            self._write("/guarded", "JointCommand", at, _joint_schema(self._joints, gripper=NUMBER),
                        self._command(line["command"]))  # fmt: skip
            self._add_reasons(at, line["reasons"])
        else:
            schema = {"type": "object", "properties": {"kind": TEXT, "at": NUMBER}, "required": ["kind"]}
            self._write("/events", "Event", at, schema, line)

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
            self._write(topic, "JointCommand", at, schema, self._command(line[part]))
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
        self._write("/policy", "Policy", at, schema, values)
        self._add_reasons(at, line["reasons"])

    def _add_state(self, at: float, state: Line) -> None:
        drivers = _numbered(len(state["driver_q"]))
        schema = _joint_schema(self._joints, velocity=_numbers(self._joints), drivers=_numbers(drivers), stamp=NUMBER)
        values = {
            "position": dict(zip(self._joints, state["q"], strict=True)),
            "velocity": dict(zip(self._joints, state["dq"], strict=True)),
            "drivers": dict(zip(drivers, state["driver_q"], strict=True)),
            "stamp": state["stamp"],
        }
        self._write("/measured", "JointState", at, schema, values)

    def _add_reasons(self, at: float, reasons: Sequence[str]) -> None:
        self._write("/guard", "Guard", at, _numbers(REASONS), {name: int(name in reasons) for name in REASONS})

    def _command(self, command: Line) -> Line:
        return {"position": dict(zip(self._joints, command["q"], strict=True)), "gripper": command["gripper"]}

    def _write(self, topic: str, kind: str, at: float, schema: Schema, values: Line) -> None:
        if topic not in self._channels:
            text = json.dumps({"title": kind} | schema).encode()
            number = self._writer.register_schema(f"td3robot.{kind}", "jsonschema", text)
            self._channels[topic] = self._writer.register_channel(topic, "json", number)
        count = self._counts[topic] = self._counts.get(topic, 0) + 1
        stamp = max(0, round(1e9 * (at + self._offset)))
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
