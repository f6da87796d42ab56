"""Commands for a physical robot: deploy a policy, check the robot, recover it. No torch here."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from td3robot import catalog
from td3robot.cli.options import ARM, Cell, CheckpointPath, EpisodeSeed, JsonReport, Records, View
from td3robot.cli.reports import watched_session
from td3robot.cli.terminal import print_json, stderr
from td3robot.errors import ConfigError, choose
from td3robot.format import NONE, shell
from td3robot.report.figures import ROWS

if TYPE_CHECKING:
    from td3robot.deploy.deployment import Request
    from td3robot.robots.physical import Check

# Plain names of the times that a check measures.
TIMES = {
    "arm_round_trip_ms": "the controller's answer",
    "gripper_round_trip_ms": "the gripper's answer",
    "arm_state_period_ms": "time between two states",
}
# Rows for a shadow session: nothing was sent, so there is no outcome.
WATCHED = (
    "Control periods changed by the guard",
    "Time to decide: median / 99th percentile / longest",
    "Age of the measured state: median / 99th percentile / longest",
    "Missed control ticks",
    "Episodes ended by",
)
# What the fingers can be told, as closed fractions.
FINGERS = {"open": 0.0, "close": 1.0}
VERDICTS = {"go": "green", "optional": "dim", "attention": "yellow", "no-go": "red"}


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("check-robot", epilog="Example: td3robot check-robot --robot cell.yaml", rich_help_panel=ARM)(
        check_robot
    )
    app.command(epilog="Example: td3robot deploy ur5e_reach --robot cell.yaml --mode check", rich_help_panel=ARM)(
        deploy
    )
    app.command(epilog="Example: td3robot recover --robot cell.yaml", rich_help_panel=ARM)(recover)
    app.command(epilog="Example: td3robot gripper open --robot cell.yaml", rich_help_panel=ARM)(gripper)


def deploy(
    checkpoint: CheckpointPath,
    robot: Cell,
    mode: Annotated[
        str,
        typer.Option(
            help="check (nothing moves), shadow (reads, sends nothing), confirm (half a second per key), run."
        ),
    ] = "check",
    speed: Annotated[float, typer.Option(help="Scale factor for all speed and acceleration limits.")] = 0.1,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 1,
    seed: EpisodeSeed = 12345,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,...",
            help="Goal from where the arm stands, instead of random goals: x,y,z [m] of the tool, x,y[,yaw] of an "
            "object [m, rad].",
        ),
    ] = None,
    objects: Annotated[
        list[str] | None,
        typer.Option("--object", metavar="name=X,Y,Z[,YAW]", help="Position and yaw of an object [m, rad]."),
    ] = None,
    records: Records = Path("records"),
    override: Annotated[
        str | None, typer.Option(metavar="REASON", help="Skip the preceding mode, for this reason, which is recorded.")
    ] = None,
    unattended: Annotated[
        bool,
        typer.Option("--unattended", help="Let --mode run move the arm with nobody at a terminal; this is recorded."),
    ] = False,
    watched: View = False,
    as_json: JsonReport = False,
) -> None:
    """Run a policy on an arm: check, shadow, confirm, run. Space or Ctrl-C stops the arm and holds it."""
    from td3robot.deploy import deployment
    from td3robot.deploy.ledger import STAGES
    from td3robot.deploy.operator import present_operator
    from td3robot.robots.cells import load_cell
    from td3robot.robots.objects import taught_from_texts

    if mode not in STAGES:
        raise ConfigError(choose("mode", mode, STAGES))
    if override is not None and not override.strip():
        raise ConfigError("--override needs a reason; it is recorded")
    with watched_session(watched) as begun, present_operator() as operator:
        request = deployment.Request(
            checkpoint, load_cell(robot), mode, speed, episodes, seed, goal_from_text(goal) if goal else None,
            taught_from_texts(objects or ()), records, override, unattended, begun,
        )  # fmt: skip
        report = deployment.deploy(request, operator)
        _show_report(report, as_json)
        if mode == "check":
            _show_check(report["check"])
        _show_stage(report, request)
    if report["not_passed"] is not None:
        raise typer.Exit(1)


def check_robot(
    robot: Cell,
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="CHECKPOINT", help="A checkpoint, to compare its contract too.")
    ] = None,
    as_json: JsonReport = False,
) -> None:
    """Check a connected robot: go or no-go. Nothing moves."""
    from td3robot.deploy.deployment import CHECK_S, check_cell
    from td3robot.deploy.loaded_policy import open_checkpoint
    from td3robot.robots.cells import load_cell

    loaded = open_checkpoint(checkpoint) if checkpoint else None
    cell = load_cell(robot)
    stderr.say(f"connecting to {cell.host}, and checking it; its states are watched for {CHECK_S:g} s")
    found: Check = check_cell(loaded, cell, CHECK_S)
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
    """Make a robot ready again after a stop. Waits 5 s, unlocks it and restarts its program; the arm does not move."""
    from td3robot.deploy import deployment
    from td3robot.deploy.operator import present_operator
    from td3robot.robots.cells import load_cell

    with present_operator() as operator:
        report = deployment.recover(load_cell(robot), records, activate_gripper, operator)
    if as_json:
        print_json(report)
    fingers = ", and the gripper closed and opened" if activate_gripper else ""
    was = f"; the fault was: {report['was']}" if report["was"] else ""
    stderr.say(f"robot {report['robot']['serial_number']} is ready; the arm did not move{fingers}{was}")


def gripper(
    what: Annotated[str, typer.Argument(metavar="open|close", help="What the fingers do.")],
    robot: Cell,
    records: Records = Path("records"),
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Move the fingers with nobody at a terminal, if they hold nothing.")
    ] = False,
) -> None:
    """Open or close the gripper. Asks first; the arm does not move."""
    from td3robot.deploy import deployment
    from td3robot.deploy.operator import present_operator
    from td3robot.robots.cells import load_cell

    if what not in FINGERS:
        raise ConfigError(choose("motion of the gripper", what, tuple(FINGERS)))
    with present_operator() as operator:
        if not (operator.present or unattended):
            raise ConfigError(
                "gripper moves the fingers, and standard input is no terminal, so nobody can be asked; start it from a "
                "terminal, or give --unattended"
            )
        closed = deployment.grip(load_cell(robot), FINGERS[what], records, operator)
    stderr.say(f"the gripper is {100 * closed:.0f} % closed; the arm did not move")


def goal_from_text(text: str) -> tuple[float, ...]:
    """Return the numbers of a goal, of a text such as ``x,y,z`` [m]; the task knows how many it takes.

    Raises:
        ConfigError: The text has another form.
    """
    try:
        numbers = tuple(map(float, text.split(",")))
        if not all(map(isfinite, numbers)):
            raise ValueError("not finite")
    except ValueError:
        raise ConfigError(
            f"--goal {text!r} is not of the form x,y,z [m], or what else the policy's task takes: numbers with commas "
            "between them"
        ) from None
    return numbers


def _show_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    if "figures" in report:
        name = catalog.shown(Path(report["checkpoint"]))
        title = f"{report['mode']} of {name} at speed {report['speed']:g}"
        stderr.print(figures_table(title, {"": report["figures"]}, report["mode"] != "shadow"))
    stderr.say(f"record: {report['record']}")


def _show_stage(report: dict[str, Any], request: "Request") -> None:
    """Print whether a mode passed, and what comes next."""
    from td3robot.deploy.ledger import STAGES, serial_of

    mode, cell = request.mode, shell(request.cell.name)
    what = f"{mode}{{}}{_successes(report)} for this checkpoint on robot {serial_of(report['robot'])}"
    if report["not_passed"] is None:
        later = STAGES[STAGES.index(mode) + 1 :]
        checkpoint = shell(catalog.shown(Path(report["checkpoint"])))
        following = f"; next: td3robot deploy {checkpoint} --robot {cell} --mode {later[0]}" if later else ""
        said = what.format(" passed") + following
    else:
        said = f"{what.format(' not passed')}: {report['not_passed']}"
    stderr.say(said)
    if report["fault"] is not None and mode in ("confirm", "run"):
        stderr.say(f"once its cause is found: {request.cell.recovery}")


def _successes(report: dict[str, Any]) -> str:
    """Return how many episodes succeeded, for a session whose episodes can."""
    figures = report.get("figures", {})
    if report["mode"] != "run" or figures.get("success_rate") is None:
        return ""
    return (
        f", with {round(figures['success_rate'] * figures['episodes'])} of {figures['episodes']} episodes successful,"
    )


def show_findings(findings: list[dict[str, str]]) -> None:
    """Print the findings as a table, then what to do."""
    table = Table("checked", "expected", "found", "verdict")
    for finding in findings:
        table.add_row(
            escape(finding["name"]), escape(finding["expected"]), escape(finding["found"]),
            Text(finding["verdict"], VERDICTS[finding["verdict"]]),
        )  # fmt: skip
    stderr.print(table)
    for finding in findings:
        if finding["advice"]:
            stderr.say(f"{finding['verdict']}: {finding['name']}: {finding['advice']}")


def _show_check(check: dict[str, Any]) -> None:
    show_findings(check["findings"])
    for name, times in check["histograms"].items():
        stderr.print(
            f"{TIMES.get(name, name)}: median {times['p50']:.1f} ms, 99 % within {times['p99']:.1f} ms, longest "
            f"{times['max']:.1f} ms"
        )
        most = max(times["counts"])
        for low, count in zip(check["edges_ms"], times["counts"], strict=True):
            if count:
                stderr.say(f"  from {low:5.0f} ms  {'#' * max(1, round(40 * count / most))} {count}")
    stderr.print("GO" if check["go"] else "NO-GO", style="green" if check["go"] else "red")


def figures_table(title: str, sides: Mapping[str, dict[str, Any]], moved: bool = True) -> Table:
    """Return a table of sessions' figures, one named column each, without rows that none of them has.

    Args:
        title: Title of the table.
        sides: The figures of each session.
        moved: Whether anything was sent; if not, what the policy achieved is left out.
    """
    table = Table(title=title)
    for column in ("", *sides):
        table.add_column(column)
    for row in ROWS:
        texts = [row.text(side) for side in sides.values()]
        if (moved or row.title in WATCHED) and set(texts) != {NONE}:
            table.add_row(row.title, *texts)
    return table
