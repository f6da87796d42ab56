"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object on standard output.")]
JsonReport = Annotated[bool, typer.Option("--json", help="Print the report as one JSON object on standard output.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="section.key=value", help="Change a value of the configuration.")
]
CheckpointPath = Annotated[Path, typer.Argument(help="A checkpoint, or a run directory (its best is taken).")]
Cell = Annotated[Path, typer.Option("--robot", help="The cell's file; see configs/robots/.")]
Records = Annotated[Path, typer.Option("--records", help="Directory of records, and of the ladder's ledger.")]
EpisodeSeed = Annotated[int, typer.Option(min=0, help="Seed of the episodes.")]
