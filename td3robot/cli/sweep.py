"""The command that trains one configuration many times: over seeds, grids, and searches."""

from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.live import Live
from rich.table import Table

from td3robot.cli.options import LEARN, Json, Overrides
from td3robot.cli.terminal import print_json, results, signals_call, stderr, stray_output_to_stderr
from td3robot.config import load_config
from td3robot.errors import ConfigError
from td3robot.format import counted, shell
from td3robot.learning.run_directory import RunLock
from td3robot.sweep.plan import BASE, Plan, make_plan, read_plan, write_plan
from td3robot.sweep.pool import LocalPool, Pool, RayPool
from td3robot.sweep.results import PICTURE, RESULTS, figures, write_results
from td3robot.sweep.source import Grid, Search, Source
from td3robot.sweep.sweep import DONE, FAILED, TRAINING, WAITING, Run, Sweep

# More rows do not fit a terminal; then only the runs in training are shown.
MAX_ROWS = 30


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    epilog = "Example: td3robot sweep ur5e_reach_quick --seeds 3 --grid agent.gamma=0.9,0.95"
    app.command(epilog=epilog, rich_help_panel=LEARN)(sweep)


def sweep(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="A configuration: a file, or a name from td3robot list."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs per setting, each with its own seed.", show_default="1")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="section.key=value,value", help="Train with each of these values."),
    ] = None,
    search: Annotated[int | None, typer.Option(min=1, help="Number of settings for a search to try.")] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="section.key=low:high[:log]", help="Range in which a search tries values."),
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Cores per run; as many runs as fit train at once.")] = 2,
    ray: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Train on the Ray cluster at this address, or auto.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the runs; by default checkpoints/sweep-<name>-<time>.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the sweep in this directory instead.")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Train a configuration with several seeds and settings. Ctrl-C saves every run; --resume continues.

    Each run gives the same result as td3robot train. A run whose process dies resumes from its last save.
    """
    new = config, seeds, grid, search, ranges, out, overrides
    if resume is not None and any(each is not None for each in new):
        raise ConfigError("--resume goes on with a sweep as it was planned: only --cores, --ray and --json go with it")
    if (config is None) == (resume is None):
        raise ConfigError("give either a configuration to sweep over, or --resume DIRECTORY to resume a sweep")
    with closing(_pool(ray, cores)) as pool:  # before anything is written: the cluster may be missing
        if config is not None:
            directory, plan = _planned(config, seeds or 1, (grid or [], ranges or [], search), out, overrides or [])
        else:
            assert resume is not None
            directory, plan = resume.resolve(), read_plan(resume)
        with RunLock(directory), stray_output_to_stderr(), _Display() as display:
            trained = Sweep(directory, plan, _source(directory, plan), pool, display.show)
            display.message(_announced(trained))
            with signals_call(lambda: _stop(trained, display)):
                trained.train()
    found, write_error = figures(trained), None
    try:
        write_results(trained, found)
    except OSError as error:
        write_error = f"{trained.directory / RESULTS} cannot be written ({error.strerror or error})"
    if as_json:
        print_json(found)
    _conclude(trained, found, as_json, write_error)
    if trained.stop_requested and not trained.stop_reason:
        raise typer.Exit(130)
    if trained.stop_reason or write_error or any(run.state == FAILED for run in trained.runs):
        raise typer.Exit(1)


def _pool(ray: str | None, cores: int) -> Pool:
    return LocalPool(cores) if ray is None else RayPool(ray, cores)


def _planned(
    config: Path, seeds: int, varied: tuple[list[str], list[str], int | None], out: Path | None, overrides: list[str]
) -> tuple[Path, Plan]:
    """Plan a new sweep, write the plan into its directory, and return both."""
    base = load_config(config, overrides)
    plan = make_plan(base, seeds, *varied)
    directory = out or Path("checkpoints") / f"sweep-{base.name}-{datetime.now():%Y%m%d-%H%M%S}"
    write_plan(directory, plan, base)
    return directory.resolve(), plan


def _source(directory: Path, plan: Plan) -> Source:
    return Grid(plan) if plan.search is None else Search(directory, plan)


def _announced(sweep: Sweep) -> str:
    plan = sweep.plan
    return (
        f"{counted(plan.settings * plan.seeds, 'run')}: {counted(plan.settings, 'setting')}, "
        f"{counted(plan.seeds, 'seed')} each, {plan.steps:,} steps a run, in {sweep.directory}"
    )


class _Display:
    """A live table on a terminal; elsewhere, a line for every evaluation and every end."""

    def __init__(self) -> None:
        self._live = Live(console=stderr, auto_refresh=False) if stderr.is_terminal else None
        self._told: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, sweep: Sweep) -> None:
        """Show the progress of the runs."""
        if self._live is not None:
            self._live.update(_table(sweep), refresh=True)
            return
        for run in sweep.runs:
            known = self._told.setdefault(run.name, (WAITING, 0))
            now = (run.state, len(run.progress.steps))
            if now != known:
                self._told[run.name] = now
                self.message(f"{run.name}: {_said(run)}")

    def message(self, text: str) -> None:
        """Print a line above the table."""
        stderr.say(f"td3robot: {text}")


def _said(run: Run) -> str:
    progress = run.progress
    if not progress.values:
        return f"{_state(run)}, step {progress.step}"
    return f"{_state(run)}, step {progress.steps[-1]}: {_rate(run, progress.last)}"


def _state(run: Run) -> str:
    resumed = f", resumed {run.resumes} times" if run.resumes > 1 else ", resumed once" if run.resumes else ""
    return run.state + resumed + (f": {run.reason}" if run.reason else "")


def _rate(run: Run, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0%}" if run.progress.success else f"{value:.1f}"


def _table(sweep: Sweep) -> Table:
    """Return a table of the runs; if there are many, only those in training."""
    table = Table()
    for name in ("run", "setting", "step", "last", "best", "state"):
        table.add_column(name, overflow="fold")
    runs = sweep.runs
    shown = runs if len(runs) <= MAX_ROWS else [run for run in runs if run.state == TRAINING][:MAX_ROWS]
    for run in shown:
        step = f"{run.progress.step:,} of {sweep.plan.steps:,}"
        last, best = _rate(run, run.progress.last), _rate(run, run.progress.best)
        table.add_row(run.name, sweep.settings[run.setting].label, step, last, best, _state(run))
    states = Counter(run.state for run in runs)
    waiting = sweep.plan.settings * sweep.plan.seeds - len(runs) + states.pop(WAITING, 0)
    counts = [f"{count} {state}" for state, count in sorted(states.items())] + [f"{waiting} waiting"] * bool(waiting)
    table.caption = ", ".join(counts)
    return table


def _conclude(sweep: Sweep, found: dict[str, Any], as_json: bool, write_error: str | None) -> None:
    """Print the settings, best first, what went wrong, and what to do next."""
    success = found["measure"] == "success_rate"
    table = Table()
    table.add_column("setting", overflow="fold")
    for name in ("score", "best evaluation", "last evaluation", "runs"):
        table.add_column(name)
    for setting in found["settings"]:
        label = sweep.settings[setting["number"]].label or "as configured"
        spreads = [_spread_words(setting[name], success) for name in ("score", "best", "last")]
        done = sum(run["state"] == DONE for run in setting["runs"])
        table.add_row(label, *spreads, f"{done} of {len(setting['runs'])} done")
    console = results(as_json)
    console.print(table)
    failed = [run for run in sweep.runs if run.state == FAILED]
    for run in failed:
        stderr.say(f"{run.name} failed: {run.reason}; its log: {run.job.log}")
    lines = [write_error or f"figures and picture: {sweep.directory / RESULTS}, {sweep.directory / PICTURE}"]
    if sweep.stop_reason:
        lines.append(f"{sweep.stop_reason}, so every run was told to save and stop")
    if failed or write_error or sweep.stop_requested:
        lines.append(f"resume with: td3robot sweep --resume {shell(sweep.directory)}")
    if found["best_run"] is not None:
        from td3robot.envs.trust import trust_option

        trust = trust_option(getattr(load_config(sweep.directory / BASE).environment, "id", None))
        lines.append(f"evaluate the best setting's best run with: td3robot eval {shell(found['best_run'])}{trust}")
    for line in lines:
        stderr.say(line)


def _spread_words(spread: dict[str, float] | None, success: bool) -> str:
    if spread is None:
        return "-"
    median, low, high = (f"{100 * spread[name]:.1f}" if success else f"{spread[name]:.1f}" for name in spread)
    alone = low == high
    unit = " %" if success else ""
    return f"{median}{unit}" if alone else f"{median}{unit} ({low} to {high})"


def _stop(sweep: Sweep, display: _Display) -> None:
    """Pass a signal on to every run: the first one makes it save and stop."""
    display.message("stopping; every run saves" if not sweep.stop_requested else "passed on to every run again")
    sweep.request_stop()
