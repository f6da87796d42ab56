"""Options and arguments that several commands share, and the groups in which commands are listed."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

# Groups of commands, in the order that people need them; each command names its own (``rich_help_panel``).
LEARN, LOOK, ARM, PROGRAMS = "Learn", "Look", "On the arm", "For other programs"
PANELS = (LEARN, LOOK, ARM, PROGRAMS)
OTHERS = "More"

Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object on standard output.")]
JsonReport = Annotated[bool, typer.Option("--json", help="Print the report as one JSON object on standard output.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="section.key=value", help="Change a value of the configuration.")
]
CheckpointPath = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="A released policy's name, a run directory (for its best policy), or a checkpoint."
    ),
]
Cell = Annotated[Path, typer.Option("--robot", help="The cell: a file, or a name from td3robot list.")]
Records = Annotated[Path, typer.Option("--records", help="Directory of records.")]
View = Annotated[bool, typer.Option("--view", help="Also show it in the browser, until this command ends.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Import the module that the checkpoint names for its environment, and run it.")
]
EpisodeSeed = Annotated[int, typer.Option(min=0, help="Seed of the episodes.")]


def argument_word(argument: Any) -> str:
    """Write an argument as the usage line does: ``CHECKPOINT``, ``[CONFIG]``, ``RECORD...``."""
    word = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs != 1 else "")
    return word if argument.required else f"[{word}]"


class Command(TyperCommand):
    """A command whose usage line has no braces, which Typer writes around what is required."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        arguments = (each for each in self.get_params(ctx) if each.param_type_name == "argument")
        return ["[OPTIONS]", *map(argument_word, arguments)]


class App(typer.Typer):
    """A command line, or a group in it, of such commands."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Add a command; see :meth:`typer.Typer.command`."""
        return super().command(name, **{"cls": Command} | settings)


class Commands(TyperGroup):
    """A command with subcommands, listed by their ``rich_help_panel`` in plain text; no line is cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in (*PANELS, OTHERS)}
        width = max(map(len, self.commands))
        for name in self.list_commands(ctx):
            command = self.commands[name]
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                line = command.get_short_help_str(limit=200).removesuffix(".")
                panels[panel if panel in panels else OTHERS].append((name.ljust(width), line))
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)
