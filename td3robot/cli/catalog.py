"""Commands for files: list them, copy them to edit, export policies, print schemas."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from td3robot import catalog
from td3robot.atomic import write_text
from td3robot.cli.options import LEARN, PROGRAMS, CheckpointPath, Json
from td3robot.cli.terminal import print_json, stderr, stdout, write_result
from td3robot.errors import ConfigError, choose, require_extra
from td3robot.format import shell


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("list", epilog="Example: td3robot list checkpoints --json", rich_help_panel=LEARN)(list_command)
    app.command(epilog="Example: td3robot copy ur5e cell.yaml", rich_help_panel=LEARN)(copy)
    app.command(epilog="Example: td3robot export ur5e_reach --onnx reach.onnx", rich_help_panel=PROGRAMS)(export)
    app.command(epilog="Example: td3robot schema run > run.schema.json", rich_help_panel=PROGRAMS)(schema)


def list_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to search for runs, at any depth.")] = Path(
        "checkpoints"
    ),
    as_json: Json = False,
) -> None:
    """List released policies, configurations, cells, and your runs."""
    from td3robot.policy.listing import runs_below, summary

    released = {path.resolve() for path in catalog.policies().values()}
    found: dict[str, Any] = {
        "policies": [{"name": name, **summary(path)} for name, path in catalog.policies().items()],
        "configurations": [{"name": name, **_run(path)} for name, path in catalog.configurations().items()],
        "cells": [{"name": name, "about": _first_sentence(path)} for name, path in catalog.cells().items()],
        "runs": [{"path": str(path), **about} for path, about in runs_below(folder) if path.resolve() not in released],
    }
    if as_json:
        print_json(found)
        return
    _show("Released policies: td3robot eval NAME, train CONFIG --init-from NAME", found["policies"], _policy_row)
    _show(
        "Configurations: td3robot train NAME (NAME_quick for the first minutes)",
        found["configurations"],
        _configuration_row,
    )
    _show("Cells: td3robot copy NAME cell.yaml, then --robot cell.yaml", found["cells"], _cell_row)
    if found["runs"]:
        _show(f"Runs below {folder}: td3robot inspect PATH", found["runs"], _run_row)
    else:
        stdout.say(f"No runs below {folder}.")


def copy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A configuration or a cell from td3robot list.")],
    out: Annotated[Path | None, typer.Argument(metavar="FILE", help="The new file; by default NAME.yaml here.")] = None,
) -> None:
    """Copy a configuration or a cell to edit it."""
    known = catalog.configurations() | catalog.cells()
    if name not in known:
        raise ConfigError(choose("configuration or cell", name, known))
    path = out or Path(f"{name}.yaml")
    lines = known[name].read_text(encoding="utf-8").splitlines(keepends=True)
    beside = path.absolute().parent == known[name].absolute().parent  # the schema's path is relative to the original
    if path.exists():
        raise ConfigError(f"{path} exists already; give another name")
    write_text(path, "".join(line for line in lines if beside or not line.startswith("# yaml-language-server:")))
    stderr.say(f"wrote {path}")


def export(
    checkpoint_path: CheckpointPath,
    legacy: Annotated[str | None, typer.Option(help="Write the older six-file format with this prefix.")] = None,
    a_max: Annotated[
        float | None, typer.Option("--a-max", help="With --legacy: the largest action of the program that reads them.")
    ] = None,
    names: Annotated[
        str | None, typer.Option(metavar="fc1,fc2,fc3", help="With --legacy: that program's layer names.")
    ] = None,
    without_optimizers: Annotated[
        bool, typer.Option("--without-optimizers", help="With --legacy: write the networks' three files alone.")
    ] = False,
    onnx: Annotated[Path | None, typer.Option(help="Write scaling and actor as one ONNX file.")] = None,
    opset: Annotated[
        int | None, typer.Option(help="With --onnx: version of its operators; 17 by default, for older runtimes.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "--output", "-o", hidden=True)] = None,
) -> None:
    """Export a policy to ONNX, or to the older six-file format."""
    if out is not None:
        onnx_file, prefix = (shell(out.with_suffix(suffix)) for suffix in (".onnx", ""))
        raise ConfigError(
            f"--out {out} does not say in which form; give --onnx {onnx_file} for one ONNX file, or --legacy {prefix} "
            "for the six files of older TD3 code"
        )
    if legacy is None and onnx is None:
        raise ConfigError("say what to export: --legacy PREFIX, --onnx FILE, or both")
    if legacy is None and (a_max is not None or names is not None or without_optimizers):
        raise ConfigError("--a-max, --names and --without-optimizers go with --legacy PREFIX")
    if onnx is None and opset is not None:
        raise ConfigError("--opset goes with --onnx FILE")
    if onnx is not None:
        require_extra("onnx", "exporting to ONNX", "onnx", "onnxruntime")

    if legacy is not None:
        from td3robot.learning.six_files import to_legacy

        called = None if names is None else [name.strip() for name in names.split(",")]
        for path in to_legacy(checkpoint_path, legacy, a_max, called, not without_optimizers):
            stderr.print(f"wrote {path}")
    if onnx is not None:
        from td3robot.policy.onnx import OPSET, to_onnx

        difference = to_onnx(checkpoint_path, onnx, OPSET if opset is None else opset)
        stderr.say(f"wrote {onnx}; largest difference from the policy over 1,000 observations: {difference:.1e}")


def schema(of: Annotated[str, typer.Argument(metavar="run|cell", help="Kind of file to describe.")]) -> None:
    """Print the JSON schema of run or cell files, for editors."""
    from td3robot.config.schema import SCHEMAS

    if of not in SCHEMAS:
        raise ConfigError(choose("schema", of, SCHEMAS))
    write_result(json.dumps(SCHEMAS[of](), indent=1))


def _run(path: Path) -> dict[str, Any]:
    from td3robot.config import load_config

    config = load_config(path)
    action = getattr(config.environment, "action", None)
    return {"title": config.environment.title, "action": action and action.kind, "steps": config.training.steps}


def _first_sentence(path: Path) -> str:
    """Return the first sentence of a file's comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    words: list[str] = []
    for line in lines:
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or (words and not text):
            break
        if not text.startswith("yaml-language-server"):
            words += text.split()
    sentence, _, _ = " ".join(words).partition(". ")
    return sentence.rstrip(".")


def _show(title: str, rows: list[dict[str, Any]], cells: Any) -> None:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)  # keep names whole, for copying
    for row in rows:
        table.add_row(*cells(row))
    stdout.print(table)
    stdout.print()


def _policy_row(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], row["title"], _success(row)


def _configuration_row(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], row["title"], f"{row['steps']:,} steps"


def _cell_row(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], row["about"]


def _run_row(row: dict[str, Any]) -> tuple[str, ...]:
    step = "-" if row["step"] is None else f"step {row['step']:,}"
    return row["path"], step, _success(row), "resumable" if row["resumable"] else "policy only"


def _success(row: dict[str, Any]) -> str:
    if row["success_rate"] is None:
        return "-"
    return f"best policy: {round(row['success_rate'] * row['episodes'])} of {row['episodes']} while training"
