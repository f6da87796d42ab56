"""The list of commands: one line each, in groups, in the order that people need them."""

from typing import Any

from typer.core import TyperGroup

from td3robot.cli.options import PANELS

OTHERS = "More"


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
