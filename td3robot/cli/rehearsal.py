"""Commands that simulate a robot's controller: rehearse a deployment on one, or serve one."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from td3robot import catalog
from td3robot.cli.deployment import figures_table
from td3robot.cli.options import ARM, CheckpointPath, EpisodeSeed, JsonReport, Records, View
from td3robot.cli.reports import watched_session
from td3robot.cli.terminal import print_json, stderr
from td3robot.cli.viewing import require_viser
from td3robot.errors import ConfigError
from td3robot.format import achieved, number, percent
from td3robot.report.figures import ROWS

if TYPE_CHECKING:
    from td3robot.config import RobotConfig
    from td3robot.state import ObjectModel

# Columns of the table of cells, by the titles of a report's rows.
CELL_COLUMNS = {
    "Successful episodes, with 95 % interval": "success",
    "Mean distance from the goal at the end": "distance",
    "Fastest tool motion": "tool",
    "Control periods changed by the guard": "guard",
    "Episodes ended by": "ended by",
}
# Times that a driver measures, as median, 99th percentile and maximum [ms].
DRIVER_TIMES = {
    "period": "between two targets",
    "tick_late": "the control tick late by",
    "gripper_answer": "the gripper's answer after",
}


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot rehearse ur5e_reach --episodes 20", rich_help_panel=ARM)(rehearse)
    example = "Example: td3robot standin ur5e --host 127.0.0.2 --config ur5e_grasp"
    app.command(epilog=example, rich_help_panel=ARM)(standin)


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
    robot: Annotated[
        Path | None, typer.Option("--robot", help="Rehearse with the table height, coupling and object of this cell.")
    ] = None,
    eyes: Annotated[
        bool, typer.Option("--eyes", help="See the objects with a simulated camera, by the tags on them.")
    ] = False,
    records: Records = Path("records"),
    watched: View = False,
    as_json: JsonReport = False,
) -> None:
    """Rehearse a deployment on a simulated controller. Uses the real client, and compares with plain simulation."""
    from td3robot.deploy.loaded_policy import open_checkpoint
    from td3robot.deploy.rehearsal import Plan, Rehearsal
    from td3robot.robots.cells import load_cell
    from td3robot.simulators.presets import NOMINAL, drawn, preset

    if watched:
        require_viser()
    if rate not in (None, 125, 500):
        raise ConfigError(f"--rtde-rate {rate} is not 125 or 500")
    places = [preset(name) for name in cell or ()] + [drawn(number) for number in range(cells)] or [NOMINAL]
    if eyes:
        places = [place.without_camera() for place in places]
    loaded, there = open_checkpoint(checkpoint), None if robot is None else load_cell(robot)
    reports: list[dict[str, Any]] = []
    for place in places:
        with watched_session(watched) as begun:
            plan = Plan(
                loaded, episodes, seed, speed, faults, host, records, rate, preset=place,
                robot=None if there is None else there.robot, item=None if there is None else there.object, eyes=eyes,
                on_record=begun,
            )  # fmt: skip
            if place is not NOMINAL:
                stderr.say(f"cell {place.name}: {place.reason}; {differences_text(place.differences())}")
            reports.append(Rehearsal(plan, stderr.say).run())
            show_rehearsal(reports[-1], loaded.environment.achieved)
    if as_json:
        print_json(reports[0] if len(reports) == 1 else {"cells": reports})
    if len(reports) > 1:
        stderr.print(cells_table(reports))


def differences_text(differences: Mapping[str, Any]) -> str:
    """Write a cell's differences from training."""
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
        stderr.say(f"{name}: {achieved(side, what)}")
    stderr.print(figures_table(f"{catalog.shown(Path(report['checkpoint']))}, speed {report['speed']:g}", sides))
    if report["driver"]:
        stderr.say(driver_text(report["driver"]))
    if report["tracker"]:
        stderr.say(f"tracker: {tracker_text(report['tracker'])}")
    stderr.say(clock_text(report["standin_clock"]))
    for fault in report["faults"]:
        stderr.say(f"episode {fault['episode'] + 1}: {fault['said']}")
    stderr.say(
        f"record: {report['record']}. This shows that td3robot and the robot's driver fit each other; "
        "no robot was touched."
    )


def driver_text(figures: Mapping[str, float]) -> str:
    """Write the driver's own timing."""
    parts = [f"{figures['streamed']:,} targets sent"] if "streamed" in figures else []
    parts += [
        f"{words} {'/'.join(format(figures[f'{name}_{kind}_ms'], '.2f') for kind in ('p50', 'p99', 'max'))} ms"
        for name, words in DRIVER_TIMES.items()
        if f"{name}_p50_ms" in figures
    ]
    if "stretched_ms" in figures:
        parts.append(f"control periods stretched by {figures['stretched_ms']:.1f} ms in all")
    return f"driver (median/99 %/most): {'; '.join(parts)}"


def tracker_text(figures: Mapping[str, Any]) -> str:
    """Write what a tracker saw, and how far that was from the truth."""
    seen = ", ".join(f"{name} in {percent(share)} of them" for name, share in figures["seen"].items())
    parts = [
        f"{figures['frames']:,} frames, {figures['rate_hz']:.1f} a second",
        f"{figures['latency_ms']:.0f} ms from exposure to pose ({figures['work_ms']:.0f} ms of it to look)",
        f"seen: {seen}",
    ]
    if (error := figures["error_mm"]) is not None:
        parts.append(
            f"{figures['poses']:,} poses off the truth by {number(error['p50'])} mm (median) and "
            f"{number(error['p95'])} mm (95 %)"
        )
    if figures["frames_late"]:
        parts.append(f"{percent(figures['frames_late'])} of the frames were drawn too late")
    return "; ".join(parts)


def clock_text(clock: dict[str, Any]) -> str:
    """Return how well the stand-in kept time, in words; if it was late, its figures at the wire may be too high."""
    return (
        f"simulated controller: its ticks were late by {1e3 * clock['late_p50_s']:.2f} ms (median) and "
        f"{1e3 * clock['late_p99_s']:.2f} ms (99 %) in the last 10 s, by {1e3 * clock['late_worst_s']:.1f} ms at most; "
        f"{clock['lost_s']:.2f} s were skipped to catch up"
    )


def standin(
    arm: Annotated[str, typer.Argument(metavar="ARM", help="The arm to stand in for, for example ur5e or ur10e.")],
    host: Annotated[str, typer.Option(help="Address to listen on, different for each stand-in.")] = "127.0.0.2",
    config: Annotated[Path | None, typer.Option(help="A configuration, for its gripper, table and objects.")] = None,
    gripper: Annotated[str | None, typer.Option(help="The gripper, if no configuration names one.")] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file of faults with their times.")] = None,
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to send object poses as datagrams.")
    ] = None,
    polyscope: Annotated[str, typer.Option(help="Version of PolyScope: 5.11 or 5.23.")] = "5.11",
    nominal: Annotated[bool, typer.Option("--nominal", help="Use an arm that matches its data sheet exactly.")] = False,
    cell: Annotated[
        str,
        typer.Option(metavar="NAME|SEED", help="A cell that differs from training: new, worn, webcam ..., or a seed."),
    ] = "nominal",
    local: Annotated[bool, typer.Option("--local", help="Start in local control.")] = False,
    powered_off: Annotated[bool, typer.Option("--powered-off", help="Start with the arm powered off.")] = False,
    lab_port: Annotated[int, typer.Option(help="Port of the lab: faults, objects, truth.")] = 29990,
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="Allow an address that other computers can reach.")
    ] = False,
) -> None:
    """Simulate a UR controller on this computer. Real sockets, faults on request; Ctrl-C ends it."""
    import logging

    from td3robot.simulators.presets import preset
    from td3robot.simulators.server import run_simulator
    from td3robot.simulators.settings import make_controller_config

    robot, objects = robot_and_objects(config) if config else (None, ())
    place = preset(cell)
    settings = make_controller_config(
        arm, robot, objects, gripper, faults, host=host, tracker=tracker, polyscope=polyscope, remote=not local,
        powered=not powered_off, lab_port=lab_port, allow_network=allow_network,
        **place.settings() | ({"calibration": "off"} if nominal else {}),
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    said = f"a stand-in for a {arm} serves on {host} (lab: port {lab_port}); Ctrl-C ends it"
    run_simulator(settings, on_listening=lambda: stderr.say(said))


def robot_and_objects(path: Path) -> "tuple[RobotConfig, tuple[ObjectModel, ...]]":
    """Return a run's robot, and the objects on its table.

    Raises:
        ConfigError: It has no robot.
    """
    from td3robot.config import RobotEnvironmentConfig, load_config

    environment = load_config(path).environment
    if not isinstance(environment, RobotEnvironmentConfig):
        raise ConfigError(f"{path} trains on {environment.kind!r}, which has no robot to stand in for")
    task = environment.task
    return environment.robot, task.told(task.typical).objects()
