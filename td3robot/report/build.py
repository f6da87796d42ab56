"""Builds a report from paths: recognizes them, picks the page and its place; also the index of records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from td3robot import catalog
from td3robot.deploy.ledger import LadderError, Ledger
from td3robot.format import NONE, counted, succeeded
from td3robot.policy.checkpoint import MANIFEST
from td3robot.policy.listing import is_run
from td3robot.records import FILE, RecordError, read_record, read_report, record_of
from td3robot.report.compare import Source, comparison_page
from td3robot.report.html import (
    ATTENTION,
    BAD,
    GOOD,
    Badge,
    Cell,
    Link,
    Page,
    ReportError,
    Section,
    Table,
    Text,
    Verdict,
    require_writable,
    write_page,
)
from td3robot.report.run import Run, read_run
from td3robot.report.run_page import run_page
from td3robot.report.session import KINDS, REHEARSAL, Session, read_session
from td3robot.report.session_page import session_page, verdict

REPORT_PAGE, INDEX_PAGE = "report.html", "index.html"
LINKS = "A session that has a report is a link to it; td3robot report SESSION makes one."


def make_report(paths: Sequence[Path], out: Path | None = None, force: bool = False) -> Path:
    """Write the report of a run, of a session, of a directory of records, or of several side by side.

    Args:
        paths: Run directories, checkpoints, sessions' folders or their records, or one directory of records.
        out: The page; by default ``report.html`` in the run's or session's folder, ``index.html`` in a directory of
            records, and ``report.html`` in the working directory for checkpoints and comparisons.
        force: Overwrite a file that is no report.

    Returns:
        Where the page is.

    Raises:
        ReportError: A path is nothing that can be reported, or the page cannot be written.
        CheckpointError, RecordError: A run or record cannot be read.
    """
    for path in paths:
        _require_known(path)
    place = out or default_place(paths)
    require_writable(place, force)
    try:
        page = _page(paths)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        named = ", ".join(str(path) for path in paths)
        raise ReportError(
            f"{named} cannot be reported: a file in there has another form than this td3robot writes ({error!r})"
        ) from error
    write_page(page, place, force)
    return place


def default_place(paths: Sequence[Path]) -> Path:
    """Return where a report goes unless somebody says otherwise."""
    here = Path(REPORT_PAGE)
    if len(paths) > 1:
        return here
    (path,) = paths
    if (record := record_of(path)) is not None:
        return record.parent / REPORT_PAGE
    if is_run(path):
        return here if (path / MANIFEST).is_file() else path / REPORT_PAGE
    return path / INDEX_PAGE


def _page(paths: Sequence[Path]) -> Page:
    if len(paths) > 1:
        return comparison_page([_source(path) for path in paths])
    (path,) = paths
    if record_of(path) is None and not is_run(path):
        return index_page(path)
    source = _source(path)
    return run_page(source) if isinstance(source, Run) else session_page(source)


def _source(path: Path) -> Source:
    if record_of(path) is not None:
        return read_session(path)
    if is_run(path):
        return read_run(path)
    raise ReportError(f"{path} is a directory of records; compare sessions of it by naming their folders")


def _require_known(path: Path) -> None:
    if not path.exists():
        raise ReportError(
            f"there is no {path}; give a run, a checkpoint, a session in records/, records/ itself, or the name of a "
            f"released policy ({', '.join(catalog.policies())})"
        )
    if path.is_dir() and record_of(path) is None and not is_run(path) and not sessions_in(path):
        raise ReportError(
            f"{path} holds no run and no record: neither metrics.csv, nor a checkpoint, nor record.jsonl; give a run, "
            "a session in records/, or records/ itself"
        )


def sessions_in(folder: Path) -> list[Path]:
    """List the sessions' folders in a directory of records, the newest first."""
    return sorted((path.parent for path in folder.glob(f"*/{FILE}")), key=lambda path: path.name, reverse=True)


def index_page(folder: Path) -> Page:
    """Lay out the index of a directory of records. Of each session its first line and its report are read."""
    rows = [_row(session) for session in sessions_in(folder)]
    table = Table(["Session", "Began", "What", "Policy", "Robot", "Verdict", "Success"], rows, [0, 6])
    levels = [row[5].level for row in rows if isinstance(row[5], Badge)]
    bad, attention = levels.count(BAD), levels.count(ATTENTION)
    waiting, sections = _waiting(folder), [Section("Sessions", [Text(LINKS, "note"), table])]
    if waiting:
        sections.insert(0, Section("Robots that wait for their operator", [Text(text, "warning") for text in waiting]))
    level = BAD if waiting else ATTENTION if bad or attention else GOOD
    sentence = (
        f"{counted(len(rows), 'session')}: {bad} with a fault or a no-go, {attention} to look at, "
        f"{len(rows) - bad - attention} went as they should."
    )
    return Page("Index of records", folder.resolve().name, Verdict(level, "Index", sentence), [], sections, str(folder))


def _row(folder: Path) -> list[Cell]:
    """Summarise a session from its record's first line and its report."""
    has_page = (folder / REPORT_PAGE).is_file()
    name: str | Link = Link(folder.name, f"{folder.name}/{REPORT_PAGE}") if has_page else folder.name
    try:
        session = _read_summary(folder)
        found, figures = verdict(session), session.figures() or {}
    except RecordError as error:
        return [name, "", "", "", "", Badge("Unreadable", BAD), str(error)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [name, "", "", "", "", Badge("Unreadable", BAD), f"its first line or its report lacks {error!r}"]
    success = NONE if session.mode == "shadow" else succeeded(figures)
    robot = str(session.facts.get("serial_number", session.robot.get("arm", NONE)))
    kind = KINDS.get(session.mode, session.mode)
    return [name, session.began, kind, session.policy, robot, Badge(found.word, found.level), success]


def _read_summary(folder: Path) -> Session:
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
    """Return a sentence for each robot that is latched until its operator recovers it."""
    try:
        return Ledger(folder).waiting()
    except (LadderError, KeyError, TypeError, AttributeError):
        return ["The ledger cannot be read, so it is not known which robots wait."]
