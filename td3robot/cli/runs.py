"""Opens saved runs, from which a training resumes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td3robot import catalog
from td3robot.cli.terminal import stderr
from td3robot.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.learning.trainer import Trainer
    from td3robot.policy.checkpoint import Checkpoint

# Name at most this many settings that a run lacks.
NAMED = 3


def saved_run(
    path: Path, steps: int | None, more: int | None = None, overrides: Iterable[str] = ()
) -> tuple["Checkpoint", "RunConfig", int]:
    """Return the checkpoint to resume from, its configuration and its step; print the settings it was saved without.

    Args:
        path: A run directory or a checkpoint.
        steps: Continue to this step; None keeps the run's own end.
        more: Continue by this many steps, in place of ``steps``.
        overrides: As given to ``--set``.

    Raises:
        CheckpointError: It has a policy without a replay buffer and cannot be resumed, or is incomplete.
        ConfigError: There is nothing left to do.
    """
    from td3robot.learning.changes import FREE
    from td3robot.policy import checkpoint
    from td3robot.policy.soundness import require_whole

    saved = checkpoint.newest(path)
    if not saved.has("replay"):
        raise CheckpointError(_saved_for_play(path, saved))
    require_whole(saved, saved.config())
    step: int = saved.document("counters")["step"]
    if more is not None:
        steps = step + more
    extra = [f"training.steps={steps}"] if steps is not None else []
    config = saved.config([*overrides, *extra])
    if step >= config.training.steps:
        raise ConfigError(
            f"{saved.path} is already at step {step}; say how far to resume it: --more N, or --steps N with N above "
            f"{step}"
        )
    if old := saved.settings_in_steps():
        stderr.print(
            f"{saved.path} counts {', '.join(old)} in control periods; they are read as seconds, and mean the same",
            soft_wrap=True,
        )
    if newer := {name: value for name, value in saved.newer_settings(config).items() if name not in FREE}:
        stderr.print(newer_words(newer), soft_wrap=True)
    return saved, config, step


def resume_saved(trainer: "Trainer", saved: "Checkpoint") -> None:
    """Restore a saved run in its trainer.

    Raises:
        CheckpointError: The checkpoint lacks what resuming needs.
    """
    try:
        trainer.resume(saved)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} lacks what a resumed run needs ({error!r}); it was not made by training"
        ) from None


def newer_words(newer: Mapping[str, Any]) -> str:
    """Return one line about the settings that a run was saved without."""
    named = ", ".join(f"{name} {value}" for name, value in list(newer.items())[:NAMED])
    rest = f" and {len(newer) - NAMED} more (td3robot inspect RUN --all names them)" if len(newer) > NAMED else ""
    return (
        f"this run is older than some settings, which take their defaults: {named}{rest}; its results may differ from "
        "those of a run that was not interrupted"
    )


def _saved_for_play(path: Path, saved: "Checkpoint") -> str:
    from td3robot.policy.checkpoint import find

    whole = saved.path.parent
    try:
        find(whole, ("last",))
    except CheckpointError:
        name = saved.config().name
        config = name if name in catalog.configurations() else "CONFIG"
        return (
            f"{path} was saved for play, without the replay buffer that a resumed run needs; begin from its networks: "
            f"td3robot train {config} --init-from {path}"
        )
    return f"{path} was saved for play; resume its run: td3robot train --resume {whole}"
