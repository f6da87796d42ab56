"""From paths to a report: what each path is, which page shows it, and where the page goes."""

from collections.abc import Sequence
from pathlib import Path

from td3robot import catalog
from td3robot.policy.checkpoint import MANIFEST
from td3robot.records import record_of
from td3robot.report.blocks import Page
from td3robot.report.compare import Source, comparison_page
from td3robot.report.index import REPORT_PAGE, index_page, sessions_in
from td3robot.report.page import ReportError, require_writable, write_page
from td3robot.report.run import Run, is_run, read_run
from td3robot.report.run_page import run_page
from td3robot.report.session import read_session
from td3robot.report.session_page import session_page

INDEX_PAGE = "index.html"


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
    write_page(_page(paths), place, force)
    return place


def _page(paths: Sequence[Path]) -> Page:
    try:
        return _laid_out(paths)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        named = ", ".join(str(path) for path in paths)
        raise ReportError(
            f"{named} cannot be reported: a file in there has another form than this td3robot writes ({error!r})"
        ) from error


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


def _laid_out(paths: Sequence[Path]) -> Page:
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
