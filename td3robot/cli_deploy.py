"""The command line's part beside a physical arm, or its stand-in. No torch here."""

import gc
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from td3robot.errors import ConfigError, EnvironmentFaultError, RobotError, Td3RobotError, choose
from td3robot.terminal import ProgressListener, people, print_json, short

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.deploy.check import Check
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.policy import checkpoint
    from td3robot.robots.travel import TravelPlan as Journey

Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint, or a run directory (its best is taken).")]
Cell = Annotated[Path, typer.Option("--robot", help="The cell's file; see configs/robots/.")]
Records = Annotated[Path, typer.Option("--records", help="Directory of records, and of the ladder's ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as one JSON object on standard output.")]
VERDICTS = {"go": "green", "attention": "yellow", "no-go": "red"}


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot deploy checkpoints/ur5e_reach --robot configs/robots/ur5e.yaml --mode check")(
        deploy
    )
    app.command("check-robot", epilog="Example: td3robot check-robot --robot configs/robots/ur5e.yaml")(check_robot)
    app.command(epilog="Example: td3robot recover --robot configs/robots/ur5e.yaml")(recover)
    app.command(epilog="Example: td3robot rehearse checkpoints/ur5e_reach --episodes 20")(rehearse)


def deploy(
    checkpoint: Checkpoint,
    robot: Cell,
    mode: Annotated[
        str,
        typer.Option(
            help="check (nothing moves), shadow (reads, sends nothing), confirm (a step or a second per key), run."
        ),
    ] = "check",
    speed: Annotated[float, typer.Option(help="Factor on every limit of speed and acceleration.")] = 0.1,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 12345,
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
    as_json: Json = False,
) -> None:
    """Bring a policy to an arm, rung by rung: check, shadow, confirm, run. Space or Ctrl-C stops and holds."""
    from td3robot.config.cell import load_cell
    from td3robot.deploy import deployment
    from td3robot.deploy.ledger import RUNGS
    from td3robot.deploy.operator import present_operator
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
    as_json: Json = False,
) -> None:
    """Look at the connected robot, and say go or no-go. Nothing moves."""
    from td3robot.config.cell import load_cell
    from td3robot.deploy import deployment

    played = deployment.open_checkpoint(checkpoint) if checkpoint else None
    found: Check = deployment.check_cell(played, load_cell(robot), 3.0)
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
    as_json: Json = False,
) -> None:
    """Make a robot ready after a stop: wait 5 s, unlock, start the program anew. The arm does not move."""
    from td3robot.config.cell import load_cell
    from td3robot.deploy import deployment

    report = deployment.recover(load_cell(robot), records, activate_gripper)
    if as_json:
        print_json(report)
    was = f"; the fault was: {report['was']}" if report["was"] else ""
    people.print(
        f"robot {report['robot']['serial_number']} is ready, and stands where it stood{was}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def rehearse(
    checkpoint: Checkpoint,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 12345,
    faults: Annotated[Path | None, typer.Option(help="YAML file of faults for the stand-in.")] = None,
    speed: Annotated[float, typer.Option(help="Factor on every limit of speed and acceleration.")] = 1.0,
    host: Annotated[str, typer.Option(help="The stand-in's address, on loopback.")] = "127.0.0.2",
    rate: Annotated[int, typer.Option("--rtde-rate", help="Streamed targets a second: 125 or 500.")] = 125,
    records: Records = Path("records"),
    as_json: Json = False,
) -> None:
    """Rehearse a deployment against a stand-in on this computer, through the real client, beside plain simulation."""
    from td3robot.deploy.deployment import open_checkpoint
    from td3robot.deploy.rehearsal import Plan, Rehearsal

    if rate not in (125, 500):
        raise ConfigError(f"--rtde-rate {rate} is not 125 or 500")
    plan = Plan(open_checkpoint(checkpoint), episodes, seed, speed, faults, host, records, rate)
    report = Rehearsal(plan, _tell).run()
    if as_json:
        print_json(report)
    show_rehearsal(report)


def saved_run(
    path: Path, steps: int | None, overrides: Iterable[str] = ()
) -> tuple["checkpoint.Checkpoint", "RunConfig", int]:
    """Open what a run goes on from; give it with its configuration and its step. Says what it was saved without.

    Raises:
        ConfigError: There is nothing left to do.
    """
    from td3robot.policy import checkpoint

    saved = checkpoint.newest(path)
    extra = [f"training.steps={steps}"] if steps is not None else []
    config = saved.config([*overrides, *extra])
    step = saved.document("counters")["step"]
    if step >= config.training.steps:
        raise ConfigError(
            f"{saved.path} is already at step {step}; say how far to go on with --steps N, N above {step}"
        )
    for name, value in saved.newer_settings(config).items():
        people.print(
            f"{saved.path} was saved before {name} existed: the run goes on with {value!r}, which cannot be changed "
            "now; its results may differ from those of a run that was not interrupted",
            soft_wrap=True,
        )
    return saved, config, step


def resumed_on_arm(resume: Path, cell_path: Path, out: Path | None, steps: int | None, records: Path) -> "ArmTrainer":
    """Make the trainer that goes on with a run on an arm; torch comes with it. The arm moves to a first start.

    Raises:
        ConfigError: There is nothing to do, or the run directory is taken.
        LadderError: A fault of the robot waits for its operator.
        RobotError: The robot is no-go.
    """
    from td3robot.config.cell import load_cell
    from td3robot.deploy.deployment import check_cell
    from td3robot.deploy.ledger import Ledger, serial_of
    from td3robot.learning.runs import make_arm_trainer

    (saved, config, step), cell = saved_run(resume, steps), load_cell(cell_path)
    run = out or Path("checkpoints") / f"{config.name}-{cell_path.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ConfigError(f"{run} exists and is not empty; choose another --out")
    found = check_cell(None, cell, 1.0)
    if found.objection is not None:
        raise RobotError(f"no-go: {found.objection}")
    Ledger(records).require_released(serial_of(found.facts))
    people.print("the arm is going to move, at the speed of training; Ctrl-C stops it and saves", soft_wrap=True)
    gc.collect()
    gc.freeze()  # collections between episodes are short then
    try:
        trainer = make_arm_trainer(config, run, ProgressListener(config.training.steps, step), cell)
        trainer.environment.travel.agree = _agree
        trainer.environment.travel.watch = lambda state, ruling: _require_wanted(trainer)
        trainer.resume(saved)
    except RobotError as error:
        latch_fault(error, found.facts, records)
        raise
    return trainer


def latch_fault(error: Td3RobotError, facts: dict[str, Any], records: Path) -> None:
    """Write down that a fault ended a training on an arm; nothing moves it before its operator has dealt with that."""
    from td3robot.deploy.ledger import Ledger, serial_of

    if isinstance(error, RobotError | EnvironmentFaultError):
        Ledger(records).latch(serial_of(facts), str(error))


def _agree(journey: "Journey") -> None:
    from td3robot.deploy.operator import OperatorStop

    if journey.drops and not (
        sys.stdin.isatty() and typer.confirm("the gripper opens and drops what it holds; go on?")
    ):
        raise OperatorStop("the gripper holds something, and nobody took it; nothing was moved")


def _require_wanted(trainer: "ArmTrainer") -> None:
    from td3robot.deploy.operator import OperatorStop

    if trainer.stop_requested:
        raise OperatorStop("the operator stopped the arm on its way to a start")


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


def show_rehearsal(report: dict[str, Any]) -> None:
    """Print the figures on the stand-in beside those of plain simulation."""
    table = Table(title=f"{report['checkpoint']}, speed {report['speed']:g}")
    for column in ("", "stand-in, real client", "plain simulation"):
        table.add_column(column)
    for name, read in ROWS.items():
        table.add_row(name, *(cell_text(read, report[side]) for side in ("arm", "simulation")))
    people.print(table)
    driver = ", ".join(f"{name} {short(value)}" for name, value in report["driver"].items())
    people.print(f"driver: {driver}", soft_wrap=True)
    people.print(clock_text(report["standin_clock"]), soft_wrap=True)
    for fault in report["faults"]:
        people.print(f"episode {fault['episode']}: {fault['said']}", markup=False, soft_wrap=True)
    people.print(
        f"record: {report['record']}. This shows that td3robot and ur_rtde fit each other; no robot was touched.",
        soft_wrap=True,
    )


def clock_text(clock: dict[str, Any]) -> str:
    """Say how well the stand-in kept its time: where it was late, its figures at the wire may be too high."""
    return (
        f"stand-in: its ticks of 2 ms were late by p50 {1e3 * clock['late_p50_s']:.2f} ms and p99 "
        f"{1e3 * clock['late_p99_s']:.2f} ms in the last 10 s, by {1e3 * clock['late_worst_s']:.1f} ms at worst; "
        f"time given up: {clock['lost_s']:.2f} s"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "success": lambda side: _percent(side["success_rate"]),
    "mean final distance (mm)": lambda side: f"{1e3 * side['mean_final_distance_m']:.2f}",
    "mean return": lambda side: f"{side['mean_return']:.1f}",
    "tool speed, most (mm/s)": lambda side: f"{1e3 * side['max_tcp_speed_m_s']:.0f}",
    "joint tracking, servo lag included, rms / max (mrad)": lambda side: (
        f"{1e3 * side['tracking']['rms_rad']:.1f} / {1e3 * side['tracking']['max_rad']:.1f}"
    ),
    "joint tracking at the end (mrad)": lambda side: f"{1e3 * side['tracking']['at_end_rad']:.2f}",
    "periods changed by the guard": lambda side: _percent(side["guard_interventions"].get("any", 0.0)),
    "decision, p50 / p99 (ms)": lambda side: f"{side['decide_ms']['p50']:.2f} / {side['decide_ms']['p99']:.2f}",
    "age of the state sent from, p50 / p99 (ms)": lambda side: (
        f"{side['state_age_ms']['p50']:.1f} / {side['state_age_ms']['p99']:.1f}"
    ),
    "missed ticks": lambda side: f"{side['missed_ticks']} of {side['steps']} ({_percent(side['missed_share'])})",
    "episodes ended by": lambda side: ", ".join(f"{name} {count}" for name, count in side["ended"].items()),
}


def cell_text(read: Callable[[dict[str, Any]], str], side: dict[str, Any]) -> str:
    """Write one figure, or a dash where nothing was measured."""
    try:
        return read(side)
    except TypeError:
        return "-"


def _show_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    if "figures" in report:
        table = Table(title=f"{report['mode']} of {report['checkpoint']} at speed {report['speed']:g}")
        table.add_column("")
        table.add_column("")
        for name, read in ROWS.items():
            table.add_row(name, cell_text(read, report["figures"]))
        people.print(table)
    people.print(f"record: {report['record']}", soft_wrap=True)


def _show_check(check: dict[str, Any]) -> None:
    table = Table("looked at", "expected", "found", "verdict")
    for finding in check["findings"]:
        style = VERDICTS[finding["verdict"]]
        table.add_row(
            finding["name"], finding["expected"], finding["found"], f"[{style}]{finding['verdict']}[/{style}]"
        )
    people.print(table)
    for name, times in check["histograms"].items():
        people.print(f"{name}: p50 {times['p50']:.1f}, p99 {times['p99']:.1f}, max {times['max']:.1f}")
        most = max(times["counts"])
        for low, count in zip(check["edges_ms"], times["counts"], strict=True):
            if count:
                people.print(f"  from {low:5.0f} ms  {'#' * max(1, round(40 * count / most))} {count}", markup=False)
    for finding in check["findings"]:
        if finding["advice"]:
            people.print(f"{finding['verdict']}: {finding['name']}: {finding['advice']}", markup=False, soft_wrap=True)
    people.print("GO" if check["go"] else "NO-GO", style="green" if check["go"] else "red")


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
