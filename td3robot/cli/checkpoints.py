"""Look at checkpoints: evaluate, inspect, plot and export them."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from td3robot.cli.options import CheckpointPath, EpisodeSeed, Json, Overrides
from td3robot.cli.terminal import print_json, short, show_figures, show_table, stderr
from td3robot.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("eval", epilog="Example: td3robot eval checkpoints/ur5e_reach --episodes 200 --video reach.mp4")(
        evaluate_command
    )
    app.command(epilog="Example: td3robot inspect checkpoints/ur5e_reach --json")(inspect)
    app.command(epilog="Example: td3robot plot checkpoints/ur5e_reach-20260101-120000 --out training.png")(plot)
    app.command(epilog="Example: td3robot export checkpoints/ur5e_reach --onnx reach.onnx")(export)


def evaluate_command(
    checkpoint_path: CheckpointPath,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    seed: EpisodeSeed = 12345,
    video: Annotated[Path | None, typer.Option(help="Record the first episodes to this .mp4 file.")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Play whole episodes without exploration and print their figures."""
    import os
    from contextlib import nullcontext

    if video and sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo is first imported, below

    from td3robot.build import make_contract, make_environment
    from td3robot.envs.playing import evaluate
    from td3robot.envs.video import VideoRecorder
    from td3robot.policy.checkpoint import Checkpoint, find

    saved = Checkpoint(find(checkpoint_path))
    policy = saved.policy()
    run = saved.config(overrides or [])
    environment = make_environment(run.environment, "rgb_array" if video else None)
    contract = make_contract(run.environment, environment)
    _require_playable(policy.contract, contract, bool(overrides))

    rate = float(environment.metadata.get("render_fps", 30))
    recorder = VideoRecorder(video, rate, max_frames=600) if video else None
    with recorder or nullcontext(), stderr.status(f"playing {episodes} episodes"):
        figures = evaluate(environment, policy.act, episodes, seed, on_frame=recorder.add if recorder else None)
    environment.close()
    if as_json:
        print_json(figures.to_json())
    backend = getattr(getattr(run.environment, "robot", None), "backend", run.environment.kind)
    show_table(figures.to_json(), f"{saved.path} on {backend}, episodes of seed {seed}:")
    if recorder:
        stderr.print(f"video of the first {recorder.frames / rate:.0f} s: {recorder.path}", soft_wrap=True)


def inspect(checkpoint_path: CheckpointPath, as_json: Json = False) -> None:
    """Verify a checkpoint and say what it was trained on, for how long, and how well."""
    from td3robot.policy.checkpoint import Checkpoint, find

    saved = Checkpoint(find(checkpoint_path))
    counters, run = saved.document("counters"), saved.config()
    figures: dict[str, Any] = {
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
        "resumable_from": _resumable(checkpoint_path),
        "verified": True,
    }
    show_figures(figures, f"{saved.path}: every file verified", as_json)


def _resumable(path: Path) -> str | None:
    """Name the checkpoint that a run, or this checkpoint itself, can be resumed from."""
    from td3robot.errors import CheckpointError
    from td3robot.policy.checkpoint import newest

    try:
        saved = newest(path)
    except CheckpointError:
        return None
    return str(saved.path) if saved.has("replay") else None


def plot(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="The picture; by default training.png in the run directory.")] = None,
) -> None:
    """Draw success, returns, losses and guard interventions over the steps of a run."""
    from td3robot.learning.plot import plot_run

    path = out or run / "training.png"
    plot_run(run, path)
    stderr.print(f"picture: {path}")


def export(
    checkpoint_path: CheckpointPath,
    legacy: Annotated[str | None, typer.Option(help="Write the older six files with this prefix.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write scaling and actor as one ONNX file.")] = None,
) -> None:
    """Write a checkpoint for other programs."""
    from td3robot.learning import export

    if legacy is None and onnx is None:
        raise ConfigError("say what to export: --legacy PREFIX, --onnx FILE, or both")
    if legacy is not None:
        for path in export.to_legacy(checkpoint_path, legacy):
            stderr.print(f"wrote {path}")
    if onnx is not None:
        difference = export.to_onnx(checkpoint_path, onnx)
        stderr.print(f"wrote {onnx}; largest difference from the policy over 1,000 observations: {difference:.1e}")


def _require_playable(trained: Any, here: Any, overridden: bool) -> None:
    """Let a policy play where layouts agree; other terms may differ only by explicit override, and are named."""
    here.observation.require_same(trained.observation, "observation")
    here.action.require_same(trained.action, "action")
    if not overridden:
        here.require_same(trained, "this environment", "the checkpoint")
    for name, mine, theirs in here.differences(trained):
        stderr.print(
            f"note: {name} is {short(mine)} here and was {short(theirs)} in training", markup=False, soft_wrap=True
        )
