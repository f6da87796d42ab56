"""Look at checkpoints and runs: a summary for people or programs, and a plot."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot import catalog
from td3robot.cli.options import LOOK, CheckpointPath, Json
from td3robot.cli.terminal import print_json, show_table, stderr, stdout
from td3robot.config import RobotEnvironmentConfig
from td3robot.config.disturbance import level_name
from td3robot.format import achieved, change_text, counted, resume_command, shell

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.policy.checkpoint import Checkpoint


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot inspect ur5e_reach", rich_help_panel=LOOK)(inspect)
    app.command(
        epilog="Example: td3robot plot checkpoints/ur5e_reach-20260101-120000 --out training.png", rich_help_panel=LOOK
    )(plot)


def inspect(
    checkpoint_path: CheckpointPath,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every setting and every term of the contract.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a policy was trained for, how long, and how well."""
    from td3robot.policy import checkpoint

    saved = checkpoint.opened(checkpoint_path)
    resumable = resumable_from(checkpoint_path, saved)
    figures = inspected(saved, resumable)
    if as_json:
        print_json(figures)
    elif everything:
        newer = {"newer_than_this_run": saved.saved_config.newer_settings(saved.config())}
        show_table(figures | newer, f"{catalog.shown(saved.path)}: every file verified")
    else:
        for line in inspection_lines(checkpoint_path, saved, resumable):
            stdout.say(line)


def inspected(saved: "Checkpoint", resumable: "Checkpoint | None") -> dict[str, Any]:
    """Return what ``inspect --json`` prints.

    Args:
        saved: A checkpoint.
        resumable: The checkpoint from which its run, or it itself, can be resumed, or None.

    Raises:
        CheckpointError: A part of the checkpoint is missing, impossible, or does not match the others.
    """
    from td3robot.policy.validation import require_whole

    require_whole(saved, saved.config())
    counters, run = saved.document("counters"), saved.config()
    return {
        "path": str(saved.path),
        "name": run.name,
        "seed": run.seed,
        "step": counters["step"],
        "updates": counters["updates"],
        "evaluated_step": counters["evaluated_step"],
        "trained_on": run.environment.model_dump(mode="json"),
        "evaluation": saved.document("evaluation"),
        "contract": dict(saved.contract().terms),
        "made_with": saved.manifest["made_with"],
        "bytes": saved.bytes,
        "resumable": saved.has("replay"),
        "resumable_from": None if resumable is None else str(resumable.path),
        "verified": True,
    }


def resumable_from(path: Path, saved: "Checkpoint") -> "Checkpoint | None":
    """Return the checkpoint from which a run, this checkpoint itself or its run can be resumed, or None."""
    from td3robot.errors import CheckpointError
    from td3robot.policy.checkpoint import newest

    for place in (path, saved.path.parent):
        with suppress(CheckpointError):
            if (found := newest(place)).has("replay"):
                return found
    return None


def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Image file; by default training.png in the run directory.")] = None,
) -> None:
    """Plot a run's success, return, loss and guard interventions."""
    from td3robot.report.picture import plot_run

    path = out or run / "training.png"
    plot_run(run, path)
    stderr.print(f"picture: {path}")


def inspection_lines(asked: Path, saved: "Checkpoint", newest: "Checkpoint | None") -> list[str]:
    """Return lines on what a checkpoint was trained for, how long and how well, and what to do with it.

    Args:
        asked: The path or name that the user gave.
        saved: The checkpoint that it means.
        newest: The checkpoint from which its run, or it itself, can be resumed, or None.
    """
    run, counters = saved.config(), saved.document("counters")
    made_with = saved.manifest["made_with"]
    start = "from another policy's networks" if counters["warm_start"] else "from scratch"
    changes = saved.document("changes") if saved.has("changes") else []
    last, given = newest or saved, shell(asked)
    reached, wanted = last.document("counters")["step"], last.config().training.steps
    later = f"; the run was saved at step {reached:,}" if reached != counters["step"] else ""
    rows = [
        ("task", run.environment.title),
        *_robot(saved, run),
        ("trained", f"{counters['step']:,} of {wanted:,} steps{later}, seed {run.seed}, {start}, {_under(run)}"),
        *(("changed", f"{change_text(each)}; no exact resume from there on") for each in changes),
        ("success", _success(saved, run, counters["evaluated_step"])),
        (
            "made with",
            ", ".join(f"{name} {made_with.get(name, 'unknown')}" for name in ("td3robot", "torch", "mujoco")),
        ),
        ("size", f"{saved.bytes / 1e6:.1f} MB in {len(saved.manifest['files'])} files: every file verified"),
        ("resume", _resume(asked, run, newest, (reached, wanted))),
        ("again", _made_again(saved, run, counters["warm_start"])),
        ("next", f"td3robot eval {given} --episodes 200{_trust_option(run)}"),
        ("more", f"td3robot inspect {given} --all (every setting), --json (for programs)"),
    ]
    shown = catalog.shown(saved.path)
    return [shown if shown == run.name else f"{shown} ({run.name})", *(f"  {name:<10}{text}" for name, text in rows)]


def _robot(saved: "Checkpoint", run: "RunConfig") -> list[tuple[str, str]]:
    contract = saved.contract()
    observed = ", ".join(dict.fromkeys(field.name for field in contract.observation.fields))
    rows = [("observes", f"{contract.observation.size} numbers: {observed}")]
    if isinstance(run.environment, RobotEnvironmentConfig):
        config = run.environment
        speed, rate_hz = contract.terms["guard"]["max_tcp_speed_m_s"], config.robot.control_rate_hz
        rows += [
            ("acts", f"{contract.action.size} numbers ({config.action.kind}), {rate_hz:g} times a second"),
            ("guard", f"keeps the tool below {1e3 * speed:.0f} mm/s and inside its workspace"),
        ]
    return rows


def randomization_words(run: "RunConfig") -> str:
    """Write an environment's level of domain randomization."""
    if not isinstance(run.environment, RobotEnvironmentConfig):
        return "as the environment is"
    level = level_name(run.environment.disturbance)
    return "without domain randomization" if level == "off" else f"under domain randomization {level or 'of its own'!r}"


def _under(run: "RunConfig") -> str:
    """Write the domain randomization of a training."""
    words, undisturbed = randomization_words(run), run.training.undisturbed_share
    disturbed = isinstance(run.environment, RobotEnvironmentConfig) and not words.startswith("without")
    if not disturbed or not undisturbed:
        return words
    return f"{words}, {100 * undisturbed:.0f} % of the environments without each part"


def _success(saved: "Checkpoint", run: "RunConfig", step: int) -> str:
    figures: dict[str, Any] | None = saved.document("evaluation")
    if figures is None:
        return "not evaluated yet"
    if figures["success_rate"] is None:
        return (
            f"mean return {figures['mean_return']:.1f} over {counted(figures['episodes'], 'episode')}, at step {step:,}"
        )
    return f"{achieved(figures, run.environment.achieved)}, at step {step:,}"


def _trust_option(run: "RunConfig") -> str:
    from td3robot.envs.trust import trust_option

    return trust_option(getattr(run.environment, "id", None))


def _resume(asked: Path, run: "RunConfig", newest: "Checkpoint | None", steps: tuple[int, int]) -> str:
    if newest is not None:
        of_run = newest.path not in (asked, asked / newest.path.name)
        return f"yes: {resume_command(newest.path.parent if of_run else asked, *steps)}{_trust_option(run)}"
    config = run.name if run.name in catalog.configurations() else "CONFIG"
    return f"no, it holds no replay buffer; begin from its networks: td3robot train {config} --init-from {shell(asked)}"


def _made_again(saved: "Checkpoint", run: "RunConfig", warm_start: bool) -> str:
    """Return the command that makes a policy again, and the file of its configuration."""
    from td3robot.config import load_config
    from td3robot.learning.run_directory import different_settings
    from td3robot.policy.checkpoint import CONFIG

    if warm_start:
        return f"by the command and the networks that it was begun with; its settings: {_shown(saved.path / CONFIG)}"
    for name, path in catalog.configurations().items():
        shipped = load_config(path)
        if different_settings(shipped, run).keys() <= {"seed"}:
            options = f" --seed {run.seed}" if run.seed != shipped.seed else ""
            options += f" --steps {run.training.steps}" if run.training.steps != shipped.training.steps else ""
            return f"td3robot train {name}{options} ({_shown(path)})"
    return f"td3robot train {shell(_shown(saved.path / CONFIG))}"


def _shown(path: Path) -> Path:
    """Return a path relative to the working directory, where it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
