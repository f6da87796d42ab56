"""What goes along with every session on an arm: the viewer meanwhile, and the report at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from td3robot.cli.reports import report_at_end
from td3robot.cli.viewing import beside


@contextmanager
def attended(watched: bool) -> Iterator[Callable[[Path], None]]:
    """Give what a session tells the path of its record: it is shown meanwhile, if wanted, and reported on at the end.

    Raises:
        MissingExtraError: It is to be shown, and the viewer is not installed.
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
