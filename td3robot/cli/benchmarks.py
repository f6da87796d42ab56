"""Measure the inner loops on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from td3robot.cli.options import Json, Overrides
from td3robot.cli.terminal import show_figures

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach.yaml"


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    bench = typer.Typer(help="Measure the inner loops on this machine.", no_args_is_help=True, rich_markup_mode=None)
    bench.command("learner", epilog="Example: td3robot bench learner --config configs/gym_ant.yaml --json")(learner)
    bench.command("env", epilog="Example: td3robot bench env --json")(environment)
    app.add_typer(bench, name="bench")


def learner(
    config: Annotated[Path, typer.Option(help="Whose agent.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Learner updates a second."""
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_learner

    show_figures(bench_learner(load_config(config, overrides or [])).to_json(), str(config), as_json)


def environment(
    config: Annotated[Path, typer.Option(help="Whose environment.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Environment steps a second, with and without the guard."""
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_environment

    show_figures(bench_environment(load_config(config, overrides or [])).to_json(), str(config), as_json)
