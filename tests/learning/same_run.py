"""Whether two runs are the same run."""

import csv
from pathlib import Path

from td3robot.policy.checkpoint import find


def reproducible(run: Path) -> list[dict[str, str]]:
    """Read the rows of a run's metrics, without those that tell of time."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: value for name, value in row.items() if not name.startswith(("time/", "steps_per_second"))}
        for row in rows
    ]


def assert_same_run(one: Path, other: Path) -> None:
    """Require the same last and best checkpoint, byte for byte, and the same evaluations and metrics."""
    for kind in ("last", "best"):
        mine, theirs = find(one, (kind,)), find(other, (kind,))
        assert mine.name == theirs.name
        assert {path.name for path in mine.iterdir()} == {path.name for path in theirs.iterdir()}
        assert [path.name for path in mine.iterdir() if path.read_bytes() != (theirs / path.name).read_bytes()] == []
    assert (one / "evaluations.csv").read_bytes() == (other / "evaluations.csv").read_bytes()
    assert reproducible(one) == reproducible(other)
