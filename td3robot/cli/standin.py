"""Stand in for a robot's controller."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from td3robot.cli.terminal import stderr


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog="Example: td3robot standin ur5e --host 127.0.0.2 --config configs/ur5e_grasp.yaml")(standin)


def standin(
    robot: Annotated[str, typer.Argument(help="What to stand in for: ur5e.")],
    host: Annotated[str, typer.Option(help="Address to listen on; one for each stand-in.")] = "127.0.0.2",
    config: Annotated[Path | None, typer.Option(help="A run, whose table and objects are put up.")] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file of faults, each at its time.")] = None,
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to send object poses as datagrams.")
    ] = None,
    polyscope: Annotated[str, typer.Option(help="Version of PolyScope: 5.11 or 5.23.")] = "5.11",
    local: Annotated[bool, typer.Option("--local", help="Start in local control.")] = False,
    powered_off: Annotated[bool, typer.Option("--powered-off", help="Start with the arm powered off.")] = False,
    bench_port: Annotated[int, typer.Option(help="Port of the bench: faults, objects, truth.")] = 29990,
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="Allow an address that other computers can reach.")
    ] = False,
) -> None:
    """Stand in for a robot's controller on loopback: real sockets, simulated arm, faults on request. Ctrl-C ends it."""
    import logging

    from td3robot.standin.server import serve
    from td3robot.standin.settings import make_standin_config

    settings = make_standin_config(
        robot, config, faults, host=host, tracker=tracker, polyscope=polyscope, remote=not local,
        powered=not powered_off, bench_port=bench_port, allow_network=allow_network,
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    stderr.print(f"a stand-in for a UR5e serves on {host} (bench: port {bench_port}); Ctrl-C ends it", soft_wrap=True)
    serve(settings)
