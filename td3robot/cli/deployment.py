"""Beside a physical robot: deploy a policy, check the robot, recover it. No torch here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from td3robot.cli.figures import figures_table
from td3robot.cli.options import Cell, CheckpointPath, EpisodeSeed, JsonReport, Records
from td3robot.cli.terminal import print_json, stderr
from td3robot.errors import ConfigError, choose

if TYPE_CHECKING:
    from td3robot.robots.findings import Check

VERDICTS = {"go": "green", "attention": "yellow", "no-go": "red"}


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot deploy checkpoints/ur5e_reach --robot configs/robots/ur5e.yaml --mode check")(
        deploy
    )
    app.command("check-robot", epilog="Example: td3robot check-robot --robot configs/robots/ur5e.yaml")(check_robot)
    app.command(epilog="Example: td3robot recover --robot configs/robots/ur5e.yaml")(recover)


def deploy(
    checkpoint: CheckpointPath,
    robot: Cell,
    mode: Annotated[
        str,
        typer.Option(
            help="check (nothing moves), shadow (reads, sends nothing), confirm (a step or a second per key), run."
        ),
    ] = "check",
    speed: Annotated[float, typer.Option(help="Factor on every limit of speed and acceleration.")] = 0.1,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 1,
    seed: EpisodeSeed = 12345,
    goal: Annotated[
        str | None,
        typer.Option(metavar="X,Y,Z", help="Go there [m] from where the arm stands, instead of drawn goals."),
    ] = None,
    objects: Annotated[
        list[str] | None, typer.Option("--object", metavar="name=X,Y,Z[,YAW]", help="Where an object lies [m, rad].")
    ] = None,
    records: Records = Path("records"),
    override: Annotated[
        str | None, typer.Option(metavar="REASON", help="Why the rung below may be missing; it is recorded.")
    ] = None,
    as_json: JsonReport = False,
) -> None:
    """Bring a policy to an arm, rung by rung: check, shadow, confirm, run. Space or Ctrl-C stops and holds."""
    from td3robot.deploy import deployment
    from td3robot.deploy.ledger import RUNGS
    from td3robot.deploy.operator import present_operator
    from td3robot.robots.cells import load_cell
    from td3robot.robots.tracker import taught_from_text

    if mode not in RUNGS:
        raise ConfigError(choose("mode", mode, RUNGS))
    if override is not None and not override.strip():
        raise ConfigError("--override needs a reason; it is recorded")
    request = deployment.Request(
        checkpoint, load_cell(robot), mode, speed, episodes, seed, goal_from_text(goal) if goal else None,
        dict(taught_from_text(text) for text in objects or ()), records, override,
    )  # fmt: skip
    with present_operator() as operator:
        report = deployment.deploy(request, operator)
    _show_report(report, as_json)
    if mode == "check":
        _show_check(report["check"])
    if report["fault"] is not None:
        raise typer.Exit(1)


def check_robot(
    robot: Cell,
    checkpoint: Annotated[Path | None, typer.Argument(help="A checkpoint whose contract is compared too.")] = None,
    as_json: JsonReport = False,
) -> None:
    """Look at the connected robot, and say go or no-go. Nothing moves."""
    from td3robot.deploy.deployment import CHECK_S, check_cell
    from td3robot.deploy.played import open_checkpoint
    from td3robot.robots.cells import load_cell

    played = open_checkpoint(checkpoint) if checkpoint else None
    found: Check = check_cell(played, load_cell(robot), CHECK_S)
    if as_json:
        print_json(found.to_json())
    _show_check(found.to_json())
    if not found.go:
        raise typer.Exit(1)


def recover(
    robot: Cell,
    activate_gripper: Annotated[
        bool, typer.Option("--activate-gripper", help="Activate the gripper: its fingers close and open once.")
    ] = False,
    records: Records = Path("records"),
    as_json: JsonReport = False,
) -> None:
    """Make a robot ready after a stop: wait 5 s, unlock, start the program anew. The arm does not move."""
    from td3robot.deploy import deployment
    from td3robot.robots.cells import load_cell

    report = deployment.recover(load_cell(robot), records, activate_gripper)
    if as_json:
        print_json(report)
    was = f"; the fault was: {report['was']}" if report["was"] else ""
    stderr.print(
        f"robot {report['robot']['serial_number']} is ready, and stands where it stood{was}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def goal_from_text(text: str) -> tuple[float, float, float]:
    """Read ``x,y,z`` [m].

    Raises:
        ConfigError: It has another form.
    """
    try:
        x, y, z = map(float, text.split(","))
    except ValueError:
        raise ConfigError(f"--goal {text!r} is not of the form x,y,z [m]") from None
    return x, y, z


def _show_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    if "figures" in report:
        title = f"{report['mode']} of {report['checkpoint']} at speed {report['speed']:g}"
        stderr.print(figures_table(title, {"": report["figures"]}))
    stderr.print(f"record: {report['record']}", soft_wrap=True)


def _show_check(check: dict[str, Any]) -> None:
    table = Table("looked at", "expected", "found", "verdict")
    for finding in check["findings"]:
        style = VERDICTS[finding["verdict"]]
        table.add_row(
            finding["name"], finding["expected"], finding["found"], f"[{style}]{finding['verdict']}[/{style}]"
        )
    stderr.print(table)
    for name, times in check["histograms"].items():
        stderr.print(f"{name}: p50 {times['p50']:.1f}, p99 {times['p99']:.1f}, max {times['max']:.1f}")
        most = max(times["counts"])
        for low, count in zip(check["edges_ms"], times["counts"], strict=True):
            if count:
                stderr.print(f"  from {low:5.0f} ms  {'#' * max(1, round(40 * count / most))} {count}", markup=False)
    for finding in check["findings"]:
        if finding["advice"]:
            stderr.print(f"{finding['verdict']}: {finding['name']}: {finding['advice']}", markup=False, soft_wrap=True)
    stderr.print("GO" if check["go"] else "NO-GO", style="green" if check["go"] else "red")
