"""Commands for other programs: export a policy, print the schema of a configuration."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from td3robot.cli.options import PROGRAMS, CheckpointPath
from td3robot.cli.terminal import stderr
from td3robot.errors import ConfigError, choose


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot export ur5e_reach --onnx reach.onnx", rich_help_panel=PROGRAMS)(export)
    app.command(epilog="Example: td3robot schema run > run.schema.json", rich_help_panel=PROGRAMS)(schema)


def export(
    checkpoint_path: CheckpointPath,
    legacy: Annotated[str | None, typer.Option(help="Write the older six-file format with this prefix.")] = None,
    a_max: Annotated[
        float | None, typer.Option("--a-max", help="With --legacy: the largest action of the program that reads them.")
    ] = None,
    names: Annotated[
        str | None, typer.Option(metavar="fc1,fc2,fc3", help="With --legacy: that program's layer names.")
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write scaling and actor as one ONNX file.")] = None,
) -> None:
    """Export a policy to ONNX, or to the older six-file format."""
    from td3robot.extras import require_extra

    if legacy is None and onnx is None:
        raise ConfigError("say what to export: --legacy PREFIX, --onnx FILE, or both")
    if legacy is None and (a_max is not None or names is not None):
        raise ConfigError("--a-max and --names go with --legacy PREFIX")
    if onnx is not None:
        require_extra("onnx", "exporting to ONNX", "onnxruntime", "onnxscript")

    from td3robot.learning import export

    if legacy is not None:
        called = None if names is None else [name.strip() for name in names.split(",")]
        for path in export.to_legacy(checkpoint_path, legacy, a_max, called):
            stderr.print(f"wrote {path}")
    if onnx is not None:
        difference = export.to_onnx(checkpoint_path, onnx)
        stderr.print(
            f"wrote {onnx}; largest difference from the policy over 1,000 observations: {difference:.1e}",
            soft_wrap=True,
        )


def schema(of: Annotated[str, typer.Argument(metavar="run|cell", help="Kind of file to describe.")]) -> None:
    """Print the JSON schema of run or cell files, for editors."""
    from td3robot.config.schema import SCHEMAS

    if of not in SCHEMAS:
        raise ConfigError(choose("schema", of, SCHEMAS))
    sys.stdout.write(json.dumps(SCHEMAS[of](), indent=1) + "\n")
