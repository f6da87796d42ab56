"""Saved runs: what a resumed training starts from."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from td3robot.cli.terminal import stderr
from td3robot.errors import ConfigError

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.policy.checkpoint import Checkpoint


def saved_run(path: Path, steps: int | None, overrides: Iterable[str] = ()) -> tuple["Checkpoint", "RunConfig", int]:
    """Open what a run is resumed from, with its configuration and its step; name the settings it was saved without.

    Raises:
        ConfigError: There is nothing left to do.
    """
    from td3robot.policy import checkpoint

    saved = checkpoint.newest(path)
    extra = [f"training.steps={steps}"] if steps is not None else []
    config = saved.config([*overrides, *extra])
    step = saved.document("counters")["step"]
    if step >= config.training.steps:
        raise ConfigError(
            f"{saved.path} is already at step {step}; say how far to go on with --steps N, N above {step}"
        )
    if old := saved.settings_in_steps():
        stderr.print(
            f"{saved.path} counts {', '.join(old)} in control periods; they are read as seconds, and mean the same",
            soft_wrap=True,
        )
    for name, value in saved.newer_settings(config).items():
        stderr.print(
            f"{saved.path} was saved before {name} existed: the run goes on with {value!r}, which cannot be changed "
            "now; its results may differ from those of a run that was not interrupted",
            soft_wrap=True,
        )
    return saved, config, step
