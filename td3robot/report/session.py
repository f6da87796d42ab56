"""One session on an arm, or a rehearsal, read back from its record line by line, in bounded memory."""

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from td3robot.deploy.episode import ArmFigures
from td3robot.deploy.recorded import EVALUATION
from td3robot.deploy.report import Summary
from td3robot.records import FILE, RecordError, read_record, read_report, record_of
from td3robot.report.plots import LongCurves
from td3robot.report.tracker import Tracker
from td3robot.robots.guard import REASONS
from td3robot.statistics import Sample
from td3robot.tasks.interface import Failure

REHEARSAL, SHADOW, CONFIRM = "rehearse", "shadow", "confirm"
KINDS = {
    "check": "Check of the arm", SHADOW: "Shadow on the arm", CONFIRM: "Confirm on the arm", "run": "Run on the arm",
    REHEARSAL: "Rehearsal", EVALUATION: "Evaluation in simulation",
}  # fmt: skip
# Episodes and events that a page lists one by one; failures are preferred.
LISTED, LISTED_FAILURES, LISTED_EVENTS = 100, 300, 200
# Largest plausible age of a state; beyond it, the clocks differ [s].
OLDEST_S = 10.0
# Periods whose times are added up at a time.
CHUNK = 4096
PARTS = ("wished", "guarded", "sent", "measured")


@dataclass(slots=True)
class Episode:
    """One line of the list of episodes.

    Attributes:
        number: From 1, as people count; lines of a record count from 0.
        begin_s: When its first period began after the session's first line; None before that.
        seconds: How long it took from there, without the way to its start and the wait for the operator.
        failure: Why it failed, by its name in the figures.
        tracking_mrad: Largest distance of the worst joint from its command, servo lag included; None where unknown.
    """

    number: int
    mode: str
    begin_s: float | None = None
    seconds: float = 0.0
    steps: int = 0
    success: bool = False
    distance_m: float | None = None
    ended: str = ""
    fault: str | None = None
    failure: str | None = None
    changed: int = 0
    missed: int = 0
    tracking_mrad: float | None = None


@dataclass(slots=True)
class Event:
    """Something that happened: a stop, a fault, or what the operator did."""

    at_s: float
    what: str
    text: str
    is_fault: bool = False


@dataclass
class Session:
    """What a record holds, and what its report adds.

    Attributes:
        about: The record's first line; empty in records of rehearsals from before they had one.
        check: What the check before the session found, or None.
        report: ``report.json`` from beside the record, or None.
        joints: For each joint its ``PARTS`` and then its tracking error [rad], of every period that was played.
        latency: Decision, age of the state it was made from, and time since the last period [ms], of these periods.
        guard: For each of the guard's reasons its index, or NaN.
        goals: For each episode its final distance [m] where it succeeded, and where it did not.
        tracker: What a tracker of this computer saw, or None.
        whole: Whether the record was ended in order.
    """

    path: Path
    about: dict[str, Any] = field(default_factory=dict)
    check: dict[str, Any] | None = None
    report: dict[str, Any] | None = None
    report_error: str | None = None
    episodes: list[Episode] = field(default_factory=list)
    episodes_left_out: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    summaries: dict[str, Summary] = field(default_factory=dict)
    joint_count: int = 0
    joints: LongCurves = field(default_factory=lambda: LongCurves(0))
    latency: LongCurves = field(default_factory=lambda: LongCurves(3))
    guard: LongCurves = field(default_factory=lambda: LongCurves(len(REASONS)))
    goals: LongCurves = field(default_factory=lambda: LongCurves(2))
    interval_ms: Sample = field(default_factory=Sample)
    events: list[Event] = field(default_factory=list)
    fault: str | None = None
    stopped_by: str | None = None
    seconds: float = 0.0
    tracker: Tracker | None = None
    whole: bool = False

    @property
    def folder(self) -> Path:
        """The session's folder."""
        return self.path.parent

    @property
    def mode(self) -> str:
        """Its stage, or ``rehearse``."""
        return str(self.about.get("mode", REHEARSAL))

    @property
    def robot(self) -> dict[str, Any]:
        """The robot's part of the contract."""
        found = self.about.get("contract", {}).get("robot", {})
        return found if isinstance(found, dict) else {}

    @property
    def joint_names(self) -> list[str]:
        """Names of the joints; numbers where the record does not tell."""
        names = self.robot.get("joint_names", [])
        return list(names) if len(names) == self.joint_count else [f"joint {n + 1}" for n in range(self.joint_count)]

    @property
    def policy(self) -> str:
        """The checkpoint's name."""
        checkpoint = self.about.get("checkpoint") or (self.report or {}).get("checkpoint")
        if checkpoint:
            return Path(str(checkpoint)).name
        found = re.fullmatch(r"\d{8}-\d{6}-\d+-[a-z]+-(.+)", self.folder.name)
        return found[1] if found else self.folder.name

    @property
    def began(self) -> str:
        """When it began, in words; empty where nothing tells."""
        return began(self.about, self.folder.name)

    @property
    def facts(self) -> dict[str, Any]:
        """What the robot reported about itself."""
        facts = (self.check or {}).get("facts", {})
        return facts if isinstance(facts, dict) else {}

    def figures(self) -> dict[str, Any] | None:
        """Return the figures of the episodes: the report's, else the record's own; None without episodes.

        The distance at the end is the record's wherever it was read: a report has one of stopped episodes too.
        """
        played = self.summaries.get("run" if self.mode == REHEARSAL else self.mode)
        own = None if played is None else played.to_json()
        for key in ("figures", "arm"):
            if self.report is not None and isinstance(found := self.report.get(key), dict) and found.get("episodes"):
                away = {} if own is None else {"mean_final_distance_m": own["mean_final_distance_m"]}
                return Summary().to_json() | found | away
        return None if own is None else own | {"mean_return": None, "max_tcp_speed_m_s": None}


def began(about: dict[str, Any], folder: str) -> str:
    """Return when a session began, from its first line or its folder's name."""
    if isinstance(stamp := about.get("unix_time"), int | float):
        return f"{datetime.fromtimestamp(stamp):%Y-%m-%d %H:%M:%S}"
    found = re.match(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-", folder)
    return "{}-{}-{} {}:{}:{}".format(*found.groups()) if found else ""


def read_session(path: Path) -> Session:
    """Read a record.

    Args:
        path: The record, or the session's folder.

    Raises:
        RecordError: It cannot be read, is empty, is no record, or is one of a newer version.
    """
    record = record_of(path)
    if record is None:
        raise RecordError(f"{path} holds no {FILE}; give a session's folder, which td3robot deploy and rehearse make")
    session = Session(record)
    session.report, session.report_error = read_report(session.folder)
    reader = _Reader(session)
    number = 0
    for number, line in enumerate(read_record(record), start=1):
        try:
            reader.read(line)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise RecordError(
                f"{record} is no record of this td3robot: line {number}, {line['kind']!r}, lacks what it should have "
                f"({error})"
            ) from None
    if number == 0:
        raise RecordError(f"the record {record} is empty: its session ended before the first line was written")
    reader.end()
    return session


class _Reader:
    """Accumulates the lines of a record in a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begin: float | None = None
        self._at = 0.0
        self._episode: Episode | None = None
        self._figures = ArmFigures(0, 0)
        self._last_sent: Any = None
        self._last_at: float | None = None
        self._intervals_ms: list[float] = []

    def read(self, line: dict[str, Any]) -> None:
        """Add one line; kinds that nothing here needs are only counted."""
        at = float(line["at"])
        self._begin = at if self._begin is None else self._begin
        self._at = at - self._begin
        self._session.seconds, self._session.whole = self._at, line["kind"] in ("rest", "session", "tracker")
        self._session.counts[line["kind"]] += 1
        handler = getattr(self, f"_read_{line['kind']}", None)
        if handler is not None:
            handler(line)

    def end(self) -> None:
        """Count an episode that has no end, and what was not added yet."""
        if self._episode is not None:
            self._finish(self._session.stopped_by or "cut off", False, self._episode.distance_m, self._session.fault, 0)

    def _read_session(self, line: dict[str, Any]) -> None:
        self._session.about = line
        if line.get("check") is not None:
            self._read_check(line["check"])

    def _read_check(self, line: dict[str, Any]) -> None:
        for finding in line["findings"]:
            _ = [finding[key] for key in ("name", "verdict", "found", "expected", "advice")]
        self._session.check = line

    def _read_episode(self, line: dict[str, Any]) -> None:
        self.end()
        number = int(line["number"])
        self._episode = Episode(number + 1, str(line["mode"]))
        self._figures = ArmFigures(number, int(line["seed"]))
        self._last_sent = self._last_at = None
        if len(self._session.joints):
            for trace in (self._session.joints, self._session.latency):
                trace.gap(self._at)

    def _read_period(self, line: dict[str, Any]) -> None:
        session, figures, episode = self._session, self._figures, self._episode
        if episode is None:
            raise KeyError("episode")
        if episode.begin_s is None:
            episode.begin_s = self._at
        if len(figures.decide_s) >= CHUNK:
            self._summary().add_periods(figures)
            figures.decide_s, figures.state_age_s, figures.lead_rad = [], [], []
            self._add_intervals()
        state, reasons = line["state"], line["reasons"]
        measured = np.array(state["q"], np.float64)
        parts = np.array([line[part]["q"] for part in ("wish", "command", "sent")], np.float64)
        error = self._lead(measured)
        figures.steps += 1
        figures.reasons.update(reasons)
        figures.reasons["any"] += bool(reasons)
        figures.joint_speed_rad_s = max(figures.joint_speed_rad_s or 0.0, max(map(abs, state["dq"])))
        age = line["at"] - state["stamp"]
        interval = np.nan if self._last_at is None or episode.mode == CONFIRM else 1e3 * (line["at"] - self._last_at)
        figures.decide_s.append(float(line["decide_s"]))
        if 0.0 <= age < OLDEST_S:
            figures.state_age_s.append(age)
        else:
            age = np.nan
        if self._is_shown(episode):
            self._show(measured, parts, error, reasons)
            session.latency.add(self._at, (1e3 * line["decide_s"], 1e3 * age, interval))
            if not isnan(interval):
                self._intervals_ms.append(interval)
        self._last_sent, self._last_at = parts[2], line["at"]

    def _read_episode_end(self, line: dict[str, Any]) -> None:
        if self._episode is None:
            raise KeyError("episode")
        self._lead(np.array(line["state"]["q"], np.float64))
        fault = line["fault"]
        if fault is not None:
            self._note("fault", str(fault), True)
            self._session.fault = str(fault)
        if (failure := line.get("failure")) is not None:
            self._figures.failure = Failure(str(failure["kind"]), failure["distance_m"])
            self._episode.failure = self._figures.failure.kind
        self._finish(
            str(line["ended"]), bool(line["success"]), line.get("distance_m"), fault, int(line["missed_ticks"])
        )

    def _read_stop(self, line: dict[str, Any]) -> None:
        fault, by = line["fault"], str(line["ended"])
        self._note(*(("fault", str(fault), True) if fault is not None else ("operator", "stopped the arm", False)))
        if fault is not None:
            self._session.fault = str(fault)
        self._session.stopped_by = by
        if self._episode is not None:
            self._finish(by, False, self._episode.distance_m, None if fault is None else str(fault), 0)

    def _read_operator(self, line: dict[str, Any]) -> None:
        periods = line.get("periods")
        self._note("operator", str(line["did"]) + (f" for {periods} periods" if periods else ""), False)

    def _read_gripper(self, line: dict[str, Any]) -> None:
        self._note("gripper", str(line["said"]), False)

    def _read_tracker(self, line: dict[str, Any]) -> None:
        self._session.tracker = Tracker.of(line)

    def _read_rest(self, line: dict[str, Any]) -> None:
        if "unknown" in line:
            self._note("rest", f"where the arm rests is not known: {line['unknown']}", False)

    def _note(self, what: str, text: str, is_fault: bool) -> None:
        if len(self._session.events) < LISTED_EVENTS:
            self._session.events.append(Event(self._at, what, text, is_fault))

    def _is_shown(self, episode: Episode) -> bool:
        """Return whether curves include an episode: not the shadow episode of a rehearsal."""
        return not (self._session.mode == REHEARSAL and episode.mode == SHADOW)

    def _lead(self, measured: Any) -> Any:
        """Record the tracking error against the last command sent and return it; NaN before the first command."""
        if self._last_sent is None:
            return np.full(measured.shape, np.nan)
        error = measured - self._last_sent
        self._figures.lead_rad.append(float(np.abs(error).max()))
        if self._episode is not None:
            self._episode.tracking_mrad = max(self._episode.tracking_mrad or 0.0, 1e3 * self._figures.lead_rad[-1])
        return error

    def _show(self, measured: Any, parts: Any, error: Any, reasons: list[str]) -> None:
        session = self._session
        if not session.joint_count:
            session.joint_count = len(measured)
            session.joints = LongCurves((len(PARTS) + 1) * session.joint_count)
        session.joints.add(self._at, [*parts.ravel(), *measured, *error])
        if len(measured) != session.joint_count or parts.shape != (3, session.joint_count):
            raise ValueError(f"{len(measured)} joints where there were {session.joint_count}")
        if reasons:
            session.guard.add(self._at, [n if name in reasons else np.nan for n, name in enumerate(REASONS)])

    def _summary(self) -> Summary:
        assert self._episode is not None
        return self._session.summaries.setdefault(self._episode.mode, Summary())

    def _add_intervals(self) -> None:
        self._session.interval_ms.add(self._intervals_ms)
        self._intervals_ms = []

    def _finish(self, ended: str, success: bool, distance: float | None, fault: str | None, missed: int) -> None:
        session, episode, figures = self._session, self._episode, self._figures
        assert episode is not None
        episode.seconds = 0.0 if episode.begin_s is None else self._at - episode.begin_s
        episode.steps = figures.steps
        episode.ended, episode.success, episode.fault = ended, success, fault
        episode.distance_m, episode.missed, episode.changed = distance, missed, figures.reasons["any"]
        figures.ended, figures.success, figures.fault = ended, success, fault
        figures.distance_m, figures.missed_ticks = distance, missed
        self._summary().add(figures)
        self._add_intervals()
        if self._is_shown(episode):
            away = np.nan if distance is None else distance
            session.goals.add(episode.number, (away, np.nan) if success else (np.nan, away))
        if len(session.episodes) < LISTED or (not success and len(session.episodes) < LISTED_FAILURES):
            session.episodes.append(episode)
        else:
            session.episodes_left_out += 1
        self._episode = None
