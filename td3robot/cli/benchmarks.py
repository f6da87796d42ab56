"""Measure the inner loops on this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from td3robot.cli.options import LOOK, App, Json, Overrides
from td3robot.cli.terminal import print_json, results, stderr, stray_output_to_stderr
from td3robot.format import counted, percent

REACH = Path("ur5e_reach_quick")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    bench = App(
        help="Measure the speed of training on this computer.",
        epilog="Example: td3robot bench learner --config ur5e_grasp_quick",
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
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_learner

    figures = bench_learner(load_config(config, overrides or []), report=stderr.print).to_json()
    _show(figures, f"{config}: {learner_line(figures)}", as_json)


def environment(
    config: Annotated[Path, typer.Option(help="Configuration with the environment: a file, or a name.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Measure environment steps per second: with and without the guard, and stepping together as in training."""
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_environment

    with stray_output_to_stderr():
        figures = bench_environment(load_config(config, overrides or [])).to_json()
    _show(figures, f"{config}: {environment_line(figures)}", as_json)


def _show(figures: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(figures)
    results(as_json).say(words)


def learner_line(figures: Mapping[str, Any]) -> str:
    """Write the speed of a learner."""
    return (
        f"{figures['updates_per_second']:,.0f} updates a second by the {figures['learner']} learner (slowest pass "
        f"{figures['slowest']:,.0f}, fastest {figures['fastest']:,.0f}); batches of {figures['batch_size']}, "
        f"{counted(figures['threads'], 'thread')}, {figures['observation_size']} numbers observed, "
        f"{figures['action_size']} in an action"
    )


def environment_line(figures: Mapping[str, Any]) -> str:
    """Write the speed of an environment."""
    said = f"{figures['steps_per_second']:,.0f} steps a second"
    if figures["steps_per_second_without_guard"] is None:
        return said
    said = (
        f"{said}; {figures['steps_per_second_without_guard']:,.0f} without the guard, which makes a step "
        f"{percent(figures['guard_overhead'], 1)} longer"
    )
    if figures.get("together") is None:
        return said
    return (
        f"{said}. {figures['together']} environments together: {figures['steps_per_second_together']:,.0f} steps a "
        f"second. Physics take {percent(figures['physics_share'], 1)} of a step alone, and "
        f"{percent(figures['physics_share_together'], 1)} together"
    )
