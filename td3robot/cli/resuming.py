"""Opens saved runs to resume them, in simulation or on the arms of one or several cells."""

import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td3robot import catalog
from td3robot.cli.terminal import ProgressListener, stderr
from td3robot.errors import CheckpointError, ConfigError, EnvironmentFaultError, RobotError, Td3RobotError
from td3robot.format import change_text, shell
from td3robot.ray_cluster import Workers

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.learning.trainer import Trainer
    from td3robot.policy.checkpoint import Checkpoint
    from td3robot.robots.cells import CellConfig

# How often a pending question checks whether the training is stopping [s].
POLL_INTERVAL_S = 0.2
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
    from td3robot.learning.run_directory import FREE
    from td3robot.policy import checkpoint
    from td3robot.policy.validation import require_whole

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
    if old := saved.saved_config.settings_in_steps():
        stderr.say(
            f"{saved.path} counts {', '.join(old)} in control periods; they are read as seconds, and mean the same"
        )
    if newer := {name: value for name, value in saved.saved_config.newer_settings(config).items() if name not in FREE}:
        stderr.say(newer_words(newer))
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
            f"td3robot train {config} --init-from {shell(path)}"
        )
    return f"{path} was saved for play; resume its run: td3robot train --resume {shell(whole)}"


def resumed(
    path: Path,
    steps: int | None,
    more: int | None,
    overrides: Sequence[str],
    reason: str | None,
    trust: bool = False,
    workers: Workers | None = None,
) -> "Trainer":
    """Return the trainer of a saved run, from its newest complete checkpoint.

    Args:
        path: A run directory or a checkpoint.
        steps: Continue to this step.
        more: Continue by this many steps, in place of ``steps``.
        overrides: As given to ``--set``.
        reason: Why they are changed.
        trust: Whether to import the module that the checkpoint names for its environment.
        workers: Ray cluster workers for the environments.

    Raises:
        CheckpointError: It is damaged, or names a module that is not trusted.
        ConfigError: It cannot be resumed like this.
        ContractError: Its environment has changed.
    """
    from td3robot.envs.trust import require_trusted
    from td3robot.learning.run_directory import RunLock, recorded_change
    from td3robot.learning.runs import make_trainer
    from td3robot.policy.checkpoint import find

    _require_reason(overrides, reason)
    found = find(path, ("last",))
    if not found.resolve().name.startswith("last-"):  # it has no run directory that could be locked
        saved_run(path, steps, more, overrides)
        raise CheckpointError(
            f"{found} is a checkpoint outside a run directory, and its run would be written beside it; "
            "put it into a directory of its own, as last-000000000"
        )
    run = path if path.is_dir() and path != found else found.resolve().parent
    with ExitStack() as held:
        lock = RunLock(run)  # before anything is read that another training might replace
        held.callback(lock.close)
        saved, config, step = saved_run(path, steps, more, overrides)
        require_trusted(config.environment, str(saved.path), trust)
        change = None if reason is None else recorded_change(saved.config(), config, step, reason)
        trainer = make_trainer(config, run, ProgressListener(config.training.steps, step), lock, workers)
        here = "this td3robot" if change is None else "the changed run"
        trainer.contract.require_same(saved.contract(), here, "the checkpoint")
        resume_saved(trainer, saved)
        held.pop_all()
    if change is not None:
        trainer.changes.append(change)
        trainer.listener.message(f"changed {change_text(change)}; no exact resume from there on")
    return trainer


def _require_reason(overrides: Sequence[str], reason: str | None) -> None:
    """Require a reason for changed settings, and settings for a reason; those in ``FREE`` need none."""
    from td3robot.learning.run_directory import FREE

    changing = any(override.partition("=")[0].strip() not in FREE for override in overrides)
    if changing and reason is None:
        raise ConfigError(
            "--resume continues a run as it was; to resume it with another setting, say why: --changed REASON (the "
            "change is recorded, and the resume is no longer exact)"
        )
    if reason is not None and overrides and not changing:
        name = overrides[0].partition("=")[0].strip()
        raise ConfigError(f"{name} needs no reason; leave --changed out")
    if reason is not None and not (changing and reason.strip()):
        raise ConfigError("--changed REASON says why --set section.key=value changes a setting; give both")


def resumed_on_arms(
    resume: Path, cell_paths: Sequence[Path], out: Path | None, until: tuple[int | None, int | None], records: Path
) -> "ArmTrainer":
    """Return the trainer that resumes a run on arms; imports torch. Nothing moves yet.

    Args:
        resume: The run.
        cell_paths: The arms' cells.
        out: The new run's directory.
        until: Total steps, or further steps, as in :func:`saved_run`.
        records: Where the ledger is.

    Raises:
        CheckpointError: The checkpoint lacks what resuming needs.
        ConfigError: There is nothing left to do, the run directory is taken, or two cells have the same arm.
        ContractError: A cell or this version does not match what the run was trained for.
        LadderError: A fault of a robot awaits its operator.
        RobotError: A robot is no-go.
    """
    from td3robot.learning.runs import make_arm_trainer
    from td3robot.robots.cells import load_cell

    (saved, config, step), cells = saved_run(resume, *until), [load_cell(path) for path in cell_paths]
    names = _names(cell_paths)
    run = out or Path("checkpoints") / f"{config.name}-{cell_paths[0].stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ConfigError(f"{run} exists and is not empty; choose another --out")
    robots = [_Robot(name, cell, records) for name, cell in zip(names, cells, strict=True)]
    for robot, other in combinations(robots, 2):
        if robot.serial == other.serial:
            raise ConfigError(
                f"{robot.name} and {other.name} are the same robot, {robot.serial}; give every arm one --robot"
            )

    def agree(name: str, what: str) -> bool:
        """Ask the operator at the terminal while the training continues."""
        return _confirmed(f"{name}: {what}", lambda: trainer.stop_requested)

    with ExitStack() as made:
        listener = ProgressListener(config.training.steps, step)
        trainer = make_arm_trainer(config, run, listener, dict(zip(names, cells, strict=True)), agree)
        made.callback(trainer.close)
        trainer.contract.require_same(saved.contract(), "this td3robot", "the checkpoint")
        resume_saved(trainer, saved)
        for robot in robots:
            made.enter_context(robot.driven(run))
        trainer.collector.arms.on_fault = lambda index, fault: robots[index].end(fault, listener.message)
        made.pop_all()
        for robot in robots:
            trainer.closing.push(robot.hold)
    each = "the arm is" if len(cells) == 1 else f"{len(cells)} arms are"
    stderr.say(f"{each} going to move, at the speed of training; Ctrl-C stops and saves")
    return trainer


class _Robot:
    """A robot of a training that passed its check; it does not move yet.

    Args:
        name: Its arm's name in messages.
        cell: Its cell.
        records: Where the ledger is.

    Attributes:
        serial: Its serial number.
        hold: Marks it as driven in the ledger, from :meth:`driven` on.

    Raises:
        RobotError: It is no-go.
    """

    def __init__(self, name: str, cell: "CellConfig", records: Path) -> None:
        from td3robot.deploy.deployment import check_cell
        from td3robot.deploy.ledger import Ledger, serial_of

        found = check_cell(None, cell, 1.0)
        if found.objection is not None:
            raise RobotError(f"{name} is no-go: {found.objection}")
        self.name, self.serial, self.hold = name, serial_of(found.facts), ExitStack()
        self._ledger = Ledger(records, recovery=cell.recovery)

    def driven(self, run: Path) -> ExitStack:
        """Mark the robot as driven in the ledger until the returned stack closes; errors as in ``Ledger.driving``."""
        self.hold.enter_context(self._ledger.driving(self.serial, run))
        return self.hold

    def end(self, fault: Td3RobotError, say: Callable[[str], None]) -> None:
        """Take the robot out of the training and latch its fault until the operator recovers it; others continue."""
        from td3robot.deploy.ledger import LadderError

        say(f"{self.name} takes no further part: {fault}")
        try:
            if isinstance(fault, RobotError | EnvironmentFaultError):
                self._ledger.latch(self.serial, str(fault))
            self.hold.close()
        except LadderError as error:
            self.hold.pop_all()  # the ledger keeps it marked as driven, so that nothing else moves it
            say(f"the fault of {self.name} could not be latched: {error}")


def _names(cell_paths: Sequence[Path]) -> list[str]:
    """Return arm names from their cells' files, with full paths if two names are the same."""
    stems = [path.stem for path in cell_paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in cell_paths]


def _confirmed(question: str, stopped: Callable[[], bool]) -> bool:
    """Ask a question at the terminal until it is answered or the training is to stop, and return whether yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    stderr.say(f"{question} [y/N]")
    while not stopped():
        if select.select([sys.stdin], [], [], POLL_INTERVAL_S)[0]:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    return False
