"""Resumes a training on the arms of one or several cells: the part that ``train --robot`` adds."""

import select
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from td3robot.cli.runs import resume_saved, saved_run
from td3robot.cli.terminal import ProgressListener, stderr
from td3robot.errors import ConfigError, EnvironmentFaultError, RobotError, Td3RobotError

if TYPE_CHECKING:
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.robots.cells import CellConfig

# How often a question checks whether the training is to stop [s].
ANSWER_LOOK_S = 0.2


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
        """Ask the person at the terminal while the training goes on."""
        return _agreed(f"{name}: {what}", lambda: trainer.stop_requested)

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
    stderr.print(f"{each} going to move, at the speed of training; Ctrl-C stops and saves", soft_wrap=True)
    return trainer


class _Robot:
    """A robot of a training, checked and found ready; nothing moves it yet.

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
        """End the robot's part in the training: it is latched until its operator recovers it, and the others go on."""
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


def _agreed(question: str, stopped: Callable[[], bool]) -> bool:
    """Ask a question at the terminal until it is answered or the training is to stop, and return whether yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    stderr.print(f"{question} [y/N]", markup=False, soft_wrap=True)
    while not stopped():
        if select.select([sys.stdin], [], [], ANSWER_LOOK_S)[0]:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    return False
