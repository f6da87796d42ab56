"""The episodes of records as columns: a row for each control period whose outcome is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.records import RecordError, read_record, record_of
from td3robot.registry import TASKS
from td3robot.report.session import SHADOW

Line = dict[str, Any]
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class About:
    """What the frames of all records of a dataset share: ``task`` may differ.

    Attributes:
        robot: Arm and gripper.
        rate_hz: Frames per second: the control rate.
        names: For each vector the name of every component.
        task: What the robot does, in words.
    """

    robot: str
    rate_hz: float
    names: dict[str, list[str]]
    task: str


@dataclass
class Dataset:
    """Episodes of records, in order.

    Attributes:
        about: Of the first record.
        tasks: The task of every episode.
        episodes: For each episode its columns, by feature: one row for each control period.
        left_out: Episodes that did not end by themselves, so that their outcome is unknown.
    """

    about: About
    tasks: list[str] = field(default_factory=list)
    episodes: list[Columns] = field(default_factory=list)
    left_out: int = 0

    @property
    def frames(self) -> int:
        """Number of frames."""
        return sum(len(columns["action"]) for columns in self.episodes)


def read_dataset(paths: Sequence[Path]) -> Dataset:
    """Read the episodes of some records.

    Args:
        paths: Records, or their sessions' folders.

    Raises:
        RecordError: A record cannot be read, sent nothing to a robot, or does not suit the first one.
    """
    dataset: Dataset | None = None
    for path in paths:
        record = record_of(path)
        if record is None:
            raise RecordError(f"{path} holds no record.jsonl; give a session's folder, or its record")
        reader = _Reader(record)
        episodes = list(reader.episodes())
        if dataset is None:
            dataset = Dataset(reader.about)
        _require_alike(record, dataset, reader.about, episodes)
        dataset.tasks += [reader.about.task] * len(episodes)
        dataset.episodes += episodes
        dataset.left_out += reader.left_out
    if dataset is None or not dataset.episodes:
        given = ", ".join(map(str, paths))
        raise RecordError(f"no episode in {given} ended by itself, so there is nothing to export")
    return dataset


def _require_alike(record: Path, dataset: Dataset, about: About, episodes: Sequence[Columns]) -> None:
    """Require that a record has the same robot, rate and columns as the first one."""
    first = dataset.about
    for what, mine, theirs in (
        ("robot", about.robot, first.robot),
        ("control rate", f"{about.rate_hz:g} Hz", f"{first.rate_hz:g} Hz"),
    ):
        if mine != theirs:
            raise RecordError(f"{record} has the {what} {mine}, and those before it {theirs}; export it on its own")
    kinds = {key: values.shape[1:] for columns in dataset.episodes[:1] for key, values in columns.items()}
    for columns in episodes[:1] if kinds else ():
        here = {key: values.shape[1:] for key, values in columns.items()}
        if here != kinds or about.names != first.names:
            names = sorted({*here, *kinds} - {key for key in here if here[key] == kinds.get(key)})
            differing = ", ".join(names or [key for key in first.names if about.names.get(key) != first.names[key]])
            raise RecordError(
                f"{record} differs from those before it in {differing}; export it on its own (records from before "
                "td3robot recorded rewards have no next.reward)"
            )


class _Reader:
    """Reads the episodes of one record.

    Attributes:
        left_out: Episodes that did not end by themselves.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.left_out = path, 0
        first = next(read_record(path), {})
        if first.get("kind") != "session":
            raise RecordError(f"{path} does not begin with its session, so nothing tells which robot it is of")
        try:
            self.about = _about(first)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"the first line of {path} lacks what a dataset needs ({error!r})") from None

    def episodes(self) -> Iterator[Columns]:
        """Yield the columns of every episode in which something was sent and that ended by itself."""
        periods: list[Line] | None = None
        for number, line in enumerate(read_record(self.path), start=1):
            try:
                if line["kind"] == "episode":
                    self._leave_out(periods)
                    periods = None if line["mode"] == SHADOW else []
                elif line["kind"] == "period" and periods is not None:
                    periods.append(line)
                elif line["kind"] == "episode_end" and periods:
                    yield self._columns(periods, line)
                    periods = None
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(
                    f"line {number} of the record {self.path}, {line['kind']!r}, lacks what it should have ({error}); "
                    "nothing was exported"
                ) from None
        self._leave_out(periods)

    def _leave_out(self, periods: list[Line] | None) -> None:
        self.left_out += bool(periods)

    def _columns(self, periods: Sequence[Line], end: Line) -> Columns:
        """Return the columns of one episode."""
        count, last = len(periods), np.zeros(len(periods), np.bool_)
        last[-1] = True
        columns: Columns = {
            "observation.state": _floats(periods, "observation"),
            "action": _floats(periods, "action"),
            "measured.position": _floats(periods, "state", "q"),
            "measured.velocity": _floats(periods, "state", "dq"),
            "sent.position": np.column_stack([_floats(periods, "sent", "q"), _floats(periods, "sent", "gripper")]),
            "measured.time": np.array([line["at"] - periods[0]["at"] for line in periods], np.float64),
            "next.done": last,
            "next.truncated": last & (end["ended"] != "goal"),
            "next.success": last & bool(end["success"]),
        }
        if all("total_reward" in line for line in (*periods, end)):
            totals = np.array([line["total_reward"] for line in (*periods, end)], np.float64)
            columns["next.reward"] = np.diff(totals).astype(np.float32)
        for key, values in columns.items():
            if len(values) != count or not np.isfinite(values).all():
                raise ValueError(f"{key} is not finite")
            if (names := self.about.names.get(key)) is not None and values.shape[1:] != (len(names),):
                raise ValueError(f"{key} has {values.shape[1]} numbers, and its names are {len(names)}")
        return columns


def _floats(lines: Sequence[Line], *keys: str) -> NDArray[np.float32]:
    """Return a value of each line, or of a part of it, as rows of float32."""
    values = [line[keys[0]] if len(keys) == 1 else line[keys[0]][keys[1]] for line in lines]
    return np.array(values, np.float32)


def _about(session: Line) -> About:
    """Read what a dataset needs from a record's first line."""
    contract = session["contract"]
    robot, task = contract["robot"], contract["task"]["name"]
    joints = list(robot["joint_names"])
    found = TASKS.get(task)
    return About(
        robot=f"{robot['arm']} with {robot['gripper']}",
        rate_hz=float(robot["control_rate_hz"]),
        names={
            "observation.state": components(contract["observation"]),
            "action": components(contract["action"]["layout"]),
            "measured.position": joints,
            "measured.velocity": joints,
            "sent.position": [*joints, "gripper"],
        },
        task=(found.Config.title if found is not None else "") or task,
    )


def components(layout: Any) -> list[str]:
    """Name every number of a layout by its field and component: ``q.elbow_joint``; empty for what is no layout."""
    if not isinstance(layout, list):
        return []
    return [f"{field['name']}.{component}" for field in layout for component in field["components"]]
