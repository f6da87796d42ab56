"""The index of a directory of records: every session with its verdict, the newest first."""

from pathlib import Path
from typing import Any

from td3robot.deploy.ledger import LadderError, Ledger
from td3robot.records import FILE, RecordError, read_record, read_report
from td3robot.report.blocks import ATTENTION, BAD, GOOD, Badge, Link, Page, Section, Table, Text, Verdict
from td3robot.report.session import MODES_IN_WORDS, REHEARSAL, Session
from td3robot.report.session_page import verdict
from td3robot.report.words import NONE, counted, succeeded

REPORT_PAGE = "report.html"
LINKS = "A session that has a report is a link to it; td3robot report SESSION makes one."


def sessions_in(folder: Path) -> list[Path]:
    """List the sessions' folders in a directory of records, the newest first."""
    return sorted((path.parent for path in folder.glob(f"*/{FILE}")), key=lambda path: path.name, reverse=True)


def index_page(folder: Path) -> Page:
    """Lay out an index. Of each session its first line and its report are read, never the whole record."""
    sessions = sessions_in(folder)
    rows = [_row(each) for each in sessions]
    table = Table(["Session", "Began", "What", "Policy", "Robot", "Verdict", "Success"], rows, [0, 6])
    levels = [row[5].level for row in rows if isinstance(row[5], Badge)]
    bad, attention = levels.count(BAD), levels.count(ATTENTION)
    waiting, sections = _waiting(folder), [Section("Sessions", [Text(LINKS, "note"), table])]
    if waiting:
        sections.insert(0, Section("Robots that wait for their operator", [Text(text, "warning") for text in waiting]))
    level = BAD if waiting else ATTENTION if bad or attention else GOOD
    sentence = (
        f"{counted(len(sessions), 'session')}: {bad} with a fault or a no-go, {attention} to look at, "
        f"{len(sessions) - bad - attention} went as they should."
    )
    return Page("Index of records", folder.resolve().name, Verdict(level, "Index", sentence), [], sections, str(folder))


def _row(folder: Path) -> list[str | Badge | Link]:
    """Summarise a session from its record's first line and its report."""
    has_page = (folder / REPORT_PAGE).is_file()
    name: str | Link = Link(folder.name, f"{folder.name}/{REPORT_PAGE}") if has_page else folder.name
    try:
        session = _glance(folder)
        found, figures = verdict(session), session.figures()
    except RecordError as error:
        return [name, "", "", "", "", Badge("Unreadable", BAD), str(error)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [name, "", "", "", "", Badge("Unreadable", BAD), f"its first line or its report lacks {error!r}"]
    success = NONE
    if figures is not None and figures.get("success_rate") is not None and session.mode != "shadow":
        success = succeeded(figures)
    robot = str(session.facts.get("serial_number", session.robot.get("arm", NONE)))
    what = MODES_IN_WORDS.get(session.mode, session.mode)
    return [name, session.began, what, session.policy, robot, Badge(found.word, found.level), success]


def _glance(folder: Path) -> Session:
    """Read only what the first line and the report tell; without a report, a session did not end in order."""
    session = Session(folder / FILE)
    first = next(read_record(session.path), None)
    if first is None:
        raise RecordError("the record is empty")
    session.about = first if first["kind"] == "session" else {}
    session.check = first.get("check") if first["kind"] == "session" else first if first["kind"] == "check" else None
    session.report, session.report_error = read_report(folder)
    session.whole = session.report is not None
    if session.report is not None:
        figures: dict[str, Any] = session.figures() or {}
        session.fault = session.report.get("fault")
        session.stopped_by = "operator" if "operator" in figures.get("ended", {}) else None
        if not session.about:
            session.about = {"mode": REHEARSAL, "checkpoint": session.report.get("checkpoint")}
    return session


def _waiting(folder: Path) -> list[str]:
    """Name the robots that nothing moves before their operator has looked at them, a sentence each."""
    try:
        return Ledger(folder).waiting()
    except (LadderError, KeyError, TypeError, AttributeError):
        return ["The ledger cannot be read, so it is not known which robots wait."]
