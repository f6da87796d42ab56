"""The command that rehearses a deployment against a stand-in."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from td3robot import catalog
from td3robot.cli.figures import clock_text, driver_text, figures_table
from td3robot.cli.options import ARM, CheckpointPath, EpisodeSeed, JsonReport, Records, View
from td3robot.cli.sessions import attended
from td3robot.cli.terminal import print_json, stderr
from td3robot.cli.viewing import require_viser
from td3robot.errors import ConfigError
from td3robot.format import achieved
from td3robot.report.figures import ROWS

# Columns of the table of cells, by the titles of a report's rows.
CELL_COLUMNS = {
    "Successful episodes, with 95 % interval": "success",
    "Mean distance from the goal at the end": "distance",
    "Fastest tool motion": "tool",
    "Control periods changed by the guard": "guard",
    "Episodes ended by": "ended by",
}


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog="Example: td3robot rehearse ur5e_reach --episodes 20", rich_help_panel=ARM)(rehearse)


def rehearse(
    checkpoint: CheckpointPath,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 20,
    seed: EpisodeSeed = 12345,
    faults: Annotated[Path | None, typer.Option(help="YAML file of faults for the stand-in.")] = None,
    speed: Annotated[float, typer.Option(help="Scale factor for all speed and acceleration limits.")] = 1.0,
    host: Annotated[
        str | None, typer.Option(help="Loopback address of the simulated controller; by default a free one.")
    ] = None,
    rate: Annotated[int | None, typer.Option("--rtde-rate", help="Streamed targets per second: 125 or 500.")] = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|SEED", help="Rehearse in a cell that differs from training; may be repeated."),
    ] = None,
    cells: Annotated[int, typer.Option(min=0, metavar="N", help="Rehearse in N random cells, seeds 0 to N - 1.")] = 0,
    records: Records = Path("records"),
    watched: View = False,
    as_json: JsonReport = False,
) -> None:
    """Rehearse a deployment on a simulated controller. Uses the real client, and compares with plain simulation."""
    from td3robot.deploy.played import open_checkpoint
    from td3robot.deploy.rehearsal import Plan, Rehearsal
    from td3robot.simulators.presets import NOMINAL, drawn, preset

    if watched:
        require_viser()
    if rate not in (None, 125, 500):
        raise ConfigError(f"--rtde-rate {rate} is not 125 or 500")
    places = [preset(name) for name in cell or ()] + [drawn(number) for number in range(cells)] or [NOMINAL]
    played = open_checkpoint(checkpoint)
    reports: list[dict[str, Any]] = []
    for place in places:
        with attended(watched) as begun:
            plan = Plan(played, episodes, seed, speed, faults, host, records, rate, preset=place, on_record=begun)
            if place is not NOMINAL:
                say(f"cell {place.name}: {place.reason}; {differences_text(place.differences())}")
            reports.append(Rehearsal(plan, say).run())
            show_rehearsal(reports[-1], played.environment.achieved)
    if as_json:
        print_json(reports[0] if len(reports) == 1 else {"cells": reports})
    if len(reports) > 1:
        stderr.print(cells_table(reports))


def differences_text(differences: Mapping[str, Any]) -> str:
    """Return a cell's differences from training, in words."""
    words = (f"{name} {value}" for name, value in differences.items())
    return f"differs from training in {', '.join(words)}" if differences else "as in training"


def cells_table(reports: Sequence[dict[str, Any]]) -> Table:
    """Return a table of rehearsals in several cells, the worst first, with plain simulation as the last row."""
    rows = [row for row in ROWS if row.title in CELL_COLUMNS]
    table = Table(title="Cells, the worst first")
    for column in ("cell", *(CELL_COLUMNS[row.title] for row in rows)):
        table.add_column(column)
    ordered = sorted(reports, key=lambda report: report["arm"]["success_rate"])
    sides = {report["cell"]["name"]: report["arm"] for report in ordered}
    for name, side in (sides | {"plain simulation": reports[0]["simulation"]}).items():
        table.add_row(name, *(row.text(side) for row in rows))
    return table


def show_rehearsal(report: dict[str, Any], what: str) -> None:
    """Print the figures on the simulated controller beside those of plain simulation.

    Args:
        report: The rehearsal's report.
        what: What the policy did in a successful episode.
    """
    sides = {"simulated controller": report["arm"], "plain simulation": report["simulation"]}
    for name, side in sides.items():
        stderr.print(f"{name}: {achieved(side, what)}", markup=False, soft_wrap=True)
    stderr.print(figures_table(f"{catalog.shown(Path(report['checkpoint']))}, speed {report['speed']:g}", sides))
    if report["driver"]:
        stderr.print(driver_text(report["driver"]), soft_wrap=True)
    stderr.print(clock_text(report["standin_clock"]), soft_wrap=True)
    for fault in report["faults"]:
        stderr.print(f"episode {fault['episode'] + 1}: {fault['said']}", markup=False, soft_wrap=True)
    stderr.print(
        f"record: {report['record']}. This shows that td3robot and the robot's driver fit each other; "
        "no robot was touched.",
        soft_wrap=True,
    )


def say(text: str) -> None:
    """Write a sentence to standard error at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
