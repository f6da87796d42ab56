"""Look at checkpoints: evaluate, inspect and plot them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot import catalog
from td3robot.cli.options import LEARN, LOOK, CheckpointPath, EpisodeSeed, Json, Overrides, Trust
from td3robot.cli.terminal import (
    counted,
    figures_alone,
    note_differences,
    print_json,
    results,
    show_table,
    stderr,
    stdout,
)

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.envs.gymnasium_env import Environment
    from td3robot.policy.checkpoint import Checkpoint
    from td3robot.policy.policy import Policy


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(
        "eval", epilog="Example: td3robot eval ur5e_reach --episodes 200 --video reach.mp4", rich_help_panel=LEARN
    )(evaluate_command)
    app.command(epilog="Example: td3robot inspect ur5e_reach", rich_help_panel=LOOK)(inspect)
    app.command(
        epilog="Example: td3robot plot checkpoints/ur5e_reach-20260101-120000 --out training.png", rich_help_panel=LOOK
    )(plot)


def evaluate_command(
    checkpoint_path: CheckpointPath,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 100,
    seed: EpisodeSeed = 12345,
    speed: Annotated[
        float, typer.Option(help="Scale factor for all speed and acceleration limits, as in deploy.")
    ] = 1.0,
    video: Annotated[Path | None, typer.Option(help="Record the first episodes to this .mp4 file.")] = None,
    trust: Trust = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Evaluate a policy: success rate with interval, speeds, guard."""
    from contextlib import nullcontext

    from td3robot.extras import require_extra

    if video:
        require_extra("video", "recording a video", "imageio", "imageio_ffmpeg")

    from td3robot.cli.inspection import randomization_words
    from td3robot.cli.words import evaluation_words
    from td3robot.envs.playing import evaluate
    from td3robot.envs.video import VideoRecorder
    from td3robot.policy import checkpoint

    saved = checkpoint.opened(checkpoint_path)
    with figures_alone():
        run, policy, environment = opened(saved, overrides or [], "rgb_array" if video else None, trust, speed)
        rate = float(environment.metadata.get("render_fps", 30))
        recorder = VideoRecorder(video, rate, max_frames=600) if video else None
        on_frame = recorder.add if recorder else None
        with recorder or nullcontext(), counted("episodes evaluated", episodes) as on_episode:
            figures = evaluate(environment, policy.act, episodes, seed, on_frame=on_frame, on_episode=on_episode)
        environment.close()
    if as_json:
        print_json(figures.to_json())
    robot = getattr(run.environment, "robot", None)
    where = f"in simulation, {randomization_words(run)}" if robot else f"on {run.environment.title}"
    where += "" if speed == 1.0 else f", at speed {speed:g}"
    out = results(as_json)
    out.print(f"{catalog.shown(saved.path)} {where}, episodes of seed {seed}:", markup=False, soft_wrap=True)
    for line in evaluation_words(figures.to_json(), run.environment.achieved, robot and robot.control_rate_hz):
        out.print(line, markup=False, soft_wrap=True)
    if recorder:
        out.print(f"video of the first {recorder.frames / rate:.0f} s: {recorder.path}", soft_wrap=True)


def opened(
    saved: "Checkpoint",
    overrides: Sequence[str] = (),
    render_mode: str | None = None,
    trust: bool = False,
    speed: float = 1.0,
) -> tuple["RunConfig", "Policy", "Environment"]:
    """Return the configuration, the policy and the environment for evaluating a checkpoint.

    Raises:
        CheckpointError: The checkpoint's parts do not belong together, or it names a module that is not trusted.
        ConfigError: There is no such speed.
        ContractError: The environment is not what the policy was trained for.
    """
    from td3robot.build import make_contract, make_environment
    from td3robot.config import RobotEnvironmentConfig
    from td3robot.deploy.speed import scaled
    from td3robot.envs.trust import require_trusted
    from td3robot.errors import ConfigError
    from td3robot.policy.soundness import require_playable
    from td3robot.robots.spec import require_same_arm

    require_playable(saved, saved.config())
    policy = saved.policy()
    run = saved.config(overrides)
    trained = saved.config().environment
    if isinstance(trained, RobotEnvironmentConfig) and isinstance(run.environment, RobotEnvironmentConfig):
        require_same_arm(trained.robot, run.environment.robot, "simulation")
    if getattr(trained, "id", None) == getattr(run.environment, "id", None):  # otherwise the user named it
        require_trusted(trained, catalog.shown(saved.path), trust)
    environment = make_environment(run.environment, render_mode)
    _require_playable(policy.contract, make_contract(run.environment, environment), bool(overrides))
    if speed != 1.0:
        environment.close()
        if not isinstance(run.environment, RobotEnvironmentConfig):
            trained_on = run.environment.title
            raise ConfigError(f"--speed {speed:g} is for robots, and this policy was trained on {trained_on}")
        run = run.model_copy(update={"environment": scaled(run.environment, speed)})
        environment = make_environment(run.environment, render_mode)
    return run, policy, environment


def inspect(
    checkpoint_path: CheckpointPath,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every setting and every term of the contract.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a policy was trained for, how long, and how well."""
    from td3robot.cli.inspection import inspection_words
    from td3robot.policy import checkpoint

    saved = checkpoint.opened(checkpoint_path)
    resumable = resumable_from(checkpoint_path, saved)
    figures = inspected(saved, resumable)
    if as_json:
        print_json(figures)
    elif everything:
        newer = {"newer_than_this_run": saved.newer_settings(saved.config())}
        show_table(figures | newer, f"{catalog.shown(saved.path)}: every file verified")
    else:
        for line in inspection_words(checkpoint_path, saved, resumable):
            stdout.print(line, markup=False, soft_wrap=True)


def inspected(saved: "Checkpoint", resumable: "Checkpoint | None") -> dict[str, Any]:
    """Return what ``inspect --json`` prints.

    Args:
        saved: A checkpoint.
        resumable: The checkpoint from which its run, or it itself, can be resumed, or None.

    Raises:
        CheckpointError: A part of the checkpoint is missing, impossible, or does not match the others.
    """
    from td3robot.policy.soundness import require_whole

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
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Image file; by default training.png in the run directory.")] = None,
) -> None:
    """Plot a run's success, return, loss and guard interventions."""
    from td3robot.report.picture import plot_run

    path = out or run / "training.png"
    plot_run(run, path)
    stderr.print(f"picture: {path}")


def _require_playable(trained: Any, here: Any, overridden: bool) -> None:
    """Require that layouts agree; report other differing terms, which only an explicit override allows."""
    here.observation.require_same(trained.observation, "observation")
    here.action.require_same(trained.action, "action")
    if not overridden:
        here.require_same(trained, "this environment", "the checkpoint")
    note_differences(here, trained)
