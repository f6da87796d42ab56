"""Rehearse a deployment against a stand-in."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from td3robot.cli.figures import clock_text, figures_table
from td3robot.cli.options import CheckpointPath, EpisodeSeed, JsonReport, Records
from td3robot.cli.terminal import print_json, short, stderr
from td3robot.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog="Example: td3robot rehearse checkpoints/ur5e_reach --episodes 20")(rehearse)


def rehearse(
    checkpoint: CheckpointPath,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 20,
    seed: EpisodeSeed = 12345,
    faults: Annotated[Path | None, typer.Option(help="YAML file of faults for the stand-in.")] = None,
    speed: Annotated[float, typer.Option(help="Factor on every limit of speed and acceleration.")] = 1.0,
    host: Annotated[str, typer.Option(help="The stand-in's address, on loopback.")] = "127.0.0.2",
    rate: Annotated[int | None, typer.Option("--rtde-rate", help="Streamed targets a second: 125 or 500.")] = None,
    records: Records = Path("records"),
    as_json: JsonReport = False,
) -> None:
    """Rehearse a deployment against a stand-in on this computer, through the real client, beside plain simulation."""
    from td3robot.deploy.played import open_checkpoint
    from td3robot.deploy.rehearsal import Plan, Rehearsal

    if rate not in (None, 125, 500):
        raise ConfigError(f"--rtde-rate {rate} is not 125 or 500")
    plan = Plan(open_checkpoint(checkpoint), episodes, seed, speed, faults, host, records, rate)
    report = Rehearsal(plan, say).run()
    if as_json:
        print_json(report)
    show_rehearsal(report)


def show_rehearsal(report: dict[str, Any]) -> None:
    """Print the figures on the stand-in beside those of plain simulation."""
    sides = {"stand-in, real client": report["arm"], "plain simulation": report["simulation"]}
    stderr.print(figures_table(f"{report['checkpoint']}, speed {report['speed']:g}", sides))
    driver = ", ".join(f"{name} {short(value)}" for name, value in report["driver"].items())
    stderr.print(f"driver: {driver}", soft_wrap=True)
    stderr.print(clock_text(report["standin_clock"]), soft_wrap=True)
    for fault in report["faults"]:
        stderr.print(f"episode {fault['episode']}: {fault['said']}", markup=False, soft_wrap=True)
    stderr.print(
        f"record: {report['record']}. This shows that td3robot and the robot's driver fit each other; "
        "no robot was touched.",
        soft_wrap=True,
    )


def say(text: str) -> None:
    """Write a sentence to standard error at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
