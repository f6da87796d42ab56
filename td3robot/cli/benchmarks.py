"""Measure the inner loops on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from td3robot.cli.options import LOOK, Json, Overrides
from td3robot.cli.terminal import figures_alone, print_json, results, stderr

REACH = Path("ur5e_reach")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    bench = typer.Typer(
        help="Measure the speed of training on this computer.",
        epilog="Example: td3robot bench learner --config ur5e_grasp",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    bench.command("learner", epilog="Example: td3robot bench learner --config gym_ant --json")(learner)
    bench.command("env", epilog="Example: td3robot bench env --json")(environment)
    app.add_typer(bench, name="bench", rich_help_panel=LOOK)


def learner(
    config: Annotated[Path, typer.Option(help="Configuration with the agent: a file, or a name.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Measure learner updates per second."""
    from td3robot.cli.words import learner_words
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_learner

    figures = bench_learner(load_config(config, overrides or []), report=stderr.print).to_json()
    _show(figures, f"{config}: {learner_words(figures)}", as_json)


def environment(
    config: Annotated[Path, typer.Option(help="Configuration with the environment: a file, or a name.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Measure environment steps per second: with and without the guard, and stepping together as in training."""
    from td3robot.cli.words import environment_words
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_environment

    with figures_alone():
        figures = bench_environment(load_config(config, overrides or [])).to_json()
    _show(figures, f"{config}: {environment_words(figures)}", as_json)


def _show(figures: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(figures)
    results(as_json).print(words, markup=False, soft_wrap=True)
