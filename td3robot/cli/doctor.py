"""Checks what this computer can do for td3robot, and how to get what is missing."""

from pathlib import Path
from typing import Annotated

import typer

from td3robot.cli.deployment import show_findings
from td3robot.cli.options import LOOK, Json
from td3robot.cli.terminal import print_json, stderr


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog="Example: td3robot doctor --robot cell.yaml", rich_help_panel=LOOK)(doctor)


def doctor(
    robot: Annotated[Path | None, typer.Option(help="A cell whose controller must be reachable.")] = None,
    as_json: Json = False,
) -> None:
    """Check this computer: versions, extras, rendering, network, disk."""
    from td3robot.cli.machine import examine

    with stderr.status("looking at this computer"):
        check = examine(robot)
    if as_json:
        print_json({"ok": check.go, "findings": check.to_json()["findings"]})
    else:
        show_findings(check.to_json()["findings"])
        stderr.print("td3robot can run here" if check.go else "td3robot cannot run here; see no-go above")
    if not check.go:
        raise typer.Exit(1)
