"""What accompanies every session on an arm: the viewer while it runs, and the report at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from td3robot.cli.reports import report_at_end
from td3robot.cli.viewing import beside


@contextmanager
def attended(watched: bool) -> Iterator[Callable[[Path], None]]:
    """Yield a callback for the path of a session's record: the record is shown, if wanted, and reported on at the end.

    Raises:
        MissingExtraError: It is to be shown, but the viewer is not installed.
    """
    records: list[Path] = []
    try:
        with beside(watched) as show:

            def begun(record: Path) -> None:
                """Note a record, and show it."""
                records.append(record)
                show(record)

            yield begun
    finally:
        for record in records:
            report_at_end([record.parent])
