"""The command line. Figures go to standard output, everything else for people to standard error.

Each module has one group of commands. Modules that are slow to import are imported by the commands that need them.
"""

import sys
from typing import Annotated

import typer

from td3robot.cli import (
    benchmarks,
    calibration,
    catalog,
    demo,
    deployment,
    doctor,
    evaluation,
    inspection,
    rehearsal,
    reports,
    sweep,
    training,
    viewing,
    vision,
)
from td3robot.cli.options import App, Commands
from td3robot.cli.terminal import error_sentence, open_closed_streams, say_error, write_result
from td3robot.errors import ConfigError
from td3robot.robots.simulated.drawing_library import drawing_fault

app = App(
    name="td3robot",
    cls=Commands,
    help="Train a TD3 policy for a robot arm in simulation, test it, and run it on the arm under the same limits.",
    epilog="New here: td3robot demo. Help for one command: td3robot train --help.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The order of the list in --help, within each group of commands.
for group in (
    demo,
    training,
    sweep,
    viewing,
    evaluation,
    inspection,
    reports,
    catalog,
    benchmarks,
    doctor,
    rehearsal,
    vision,
    calibration,
    deployment,
):
    group.register(app)


def main() -> None:
    """Run the command line; errors that a user can cause end with one sentence and status 2."""
    open_closed_streams()
    try:
        app()
    except Exception as error:
        if (sentence := error_sentence(error)) is None:
            raise
        say_error(sentence)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Handle the options that need no command, and list the commands if none is given."""
    if version:
        from importlib.metadata import version as version_of

        write_result(f"td3robot {version_of('td3robot')}")
        raise typer.Exit
    if context.invoked_subcommand != doctor.NAME and (fault := drawing_fault()) is not None:
        raise ConfigError(fault)
    if context.invoked_subcommand is None:
        write_result(context.get_help())
