"""The command that stands in for a robot's controller."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from td3robot.cli.options import ARM
from td3robot.cli.terminal import stderr
from td3robot.errors import ConfigError

if TYPE_CHECKING:
    from td3robot.config import RobotConfig
    from td3robot.state import ObjectModel


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    example = "Example: td3robot standin ur5e --host 127.0.0.2 --config ur5e_grasp"
    app.command(epilog=example, rich_help_panel=ARM)(standin)


def standin(
    arm: Annotated[str, typer.Argument(help="The arm to stand in for, for example ur5e or ur10e.")],
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
    run_simulator(settings, on_listening=lambda: stderr.print(said, soft_wrap=True))


def robot_and_objects(path: Path) -> "tuple[RobotConfig, tuple[ObjectModel, ...]]":
    """Return a run's robot, and the objects on its table.

    Raises:
        ConfigError: It has no robot.
    """
    from td3robot.config import RobotEnvironmentConfig, load_config

    environment = load_config(path).environment
    if not isinstance(environment, RobotEnvironmentConfig):
        raise ConfigError(f"{path} trains on {environment.kind!r}, which has no robot to stand in for")
    return environment.robot, environment.task.objects()
