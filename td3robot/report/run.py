"""A training run read back from its directory: what was asked, its log, its evaluations, its checkpoints."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from td3robot.config import load_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.metrics import EVALUATION, METRICS, Log, present, read_log
from td3robot.policy.checkpoint import CONFIG, MANIFEST, Checkpoint, opened
from td3robot.policy.listing import is_run

FILMS = {".mp4": "video/mp4", ".webm": "video/webm"}


@dataclass
class Run:
    """What a run directory, or a checkpoint alone, holds.

    Attributes:
        config: The resolved configuration as plain values; empty where no checkpoint tells it.
        changes: Settings that were changed when the run was resumed, as its directory records them.
        log: Its log; empty where there is none.
        best: Figures of the policy that the run keeps as its best, with ``step``; None without an evaluation.
        step: How far the newest checkpoint is; None without one.
        missing: What is not there or cannot be read, a sentence each.
    """

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    log: Log = field(default_factory=dict)
    best: dict[str, Any] | None = None
    step: int | None = None
    updates: int | None = None
    resumable: bool = False
    made_with: dict[str, str] = field(default_factory=dict)
    checkpoints: list[tuple[str, int]] = field(default_factory=list)
    films: list[Path] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The run's own name."""
        return str(self.config.get("name") or self.path.resolve().name)

    @property
    def title(self) -> str:
        """The directory's name, unique among runs of its configuration."""
        return self.path.resolve().name

    @property
    def planned_steps(self) -> int | None:
        """How many steps were asked for."""
        steps = self.config.get("training", {}).get("steps")
        return None if steps is None else int(steps)

    def setting(self) -> dict[str, Any]:
        """Return the configuration without seed, name and length, in which repetitions of a run may differ."""
        training = {name: value for name, value in self.config.get("training", {}).items() if name != "steps"}
        kept = {name: value for name, value in self.config.items() if name not in ("seed", "name")}
        return kept | {"training": training, "changed": [(each["step"], each["settings"]) for each in self.changes]}


def read_run(path: Path) -> Run:
    """Read a run directory or a checkpoint.

    Raises:
        CheckpointError: It is neither, or its log is no table.
    """
    if not is_run(path):
        raise CheckpointError(f"{path} holds no {METRICS} and no checkpoint, so it is no run")
    run = Run(path)
    alone = (path / MANIFEST).is_file()
    run.log = read_log(path, *present(path))
    if alone:
        run.missing.append("This is a checkpoint alone: the log of its training is not beside it.")
    elif METRICS not in present(path):
        run.missing.append(f"There is no {METRICS}, so there are no curves of the training.")
    if not alone and not any(name.startswith(EVALUATION) for name in run.log):
        run.missing.append("This run was not evaluated yet, so its success is not known.")
    _read_checkpoints(run)
    run.films = sorted(film for film in path.iterdir() if film.suffix.lower() in FILMS and film.is_file())
    return run


def _read_checkpoints(run: Run) -> None:
    alone = (run.path / MANIFEST).is_file()
    for kind in ("best", "last"):
        if not alone and not any(run.path.glob(f"{kind}-*/{MANIFEST}")):
            continue
        try:
            saved = opened(run.path, (kind,))
        except CheckpointError as error:
            run.missing.append(f"A checkpoint cannot be read: {error}.")
            continue
        _read_checkpoint(run, saved)
    if not run.checkpoints and (run.path / CONFIG).is_file():
        _read_config(run)
    elif not run.checkpoints:
        run.missing.append("No checkpoint could be read, so it is not known what was asked and with which versions.")


def _read_config(run: Run) -> None:
    """Read what was asked of a run that has not saved a checkpoint yet."""
    run.missing.append("No checkpoint could be read, so it is not known with which versions this was trained.")
    try:
        run.config = load_config(run.path / CONFIG).model_dump(mode="json")
    except ConfigError as error:
        run.missing.append(f"What was asked cannot be read: {error}.")


def _read_checkpoint(run: Run, saved: Checkpoint) -> None:
    if any(name == saved.path.name for name, _ in run.checkpoints):
        return  # a checkpoint alone is its best and its last
    run.checkpoints.append((saved.path.name, saved.bytes))
    run.made_with = saved.manifest.get("made_with", {})
    try:
        counters = saved.document("counters")
        run.step, run.updates = counters.get("step"), counters.get("updates")
        evaluation = saved.document("evaluation") if saved.has("evaluation") else None
        if evaluation is not None:
            run.best = evaluation | {"step": counters.get("evaluated_step")}
        run.config = saved.config().model_dump(mode="json")
        run.changes = saved.document("changes") if saved.has("changes") else []
    except (CheckpointError, ConfigError) as error:
        run.missing.append(f"{saved.path.name} cannot be read whole: {error}.")
    run.resumable = saved.has("replay")
