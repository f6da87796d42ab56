"""Resume a training on the arms of one or several cells: what ``train --robot`` adds."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from td3robot.cli.runs import saved_run
from td3robot.cli.terminal import ProgressListener, stderr
from td3robot.errors import ConfigError, EnvironmentFaultError, RobotError, Td3RobotError

if TYPE_CHECKING:
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.robots.cells import CellConfig


def resumed_on_arms(
    resume: Path, cell_paths: Sequence[Path], out: Path | None, until: tuple[int | None, int | None], records: Path
) -> "ArmTrainer":
    """Make the trainer that resumes a run on arms; imports torch. Nothing moves yet.

    Args:
        resume: The run.
        cell_paths: The arms' cells.
        out: The new run's directory.
        until: Steps in all, or further steps, as of :func:`saved_run`.
        records: Where the ledger is.

    Raises:
        ConfigError: There is nothing left to do, the run directory is taken, or two cells are of the same arm.
        LadderError: A fault of a robot awaits its operator.
        RobotError: A robot is no-go.
    """
    from td3robot.deploy.ledger import Ledger
    from td3robot.learning.runs import make_arm_trainer
    from td3robot.robots.cells import load_cell

    (saved, config, step), cells = saved_run(resume, *until), [load_cell(path) for path in cell_paths]
    names = _names(cell_paths)
    run = out or Path("checkpoints") / f"{config.name}-{names[0]}-{datetime.now():%Y%m%d-%H%M%S}"
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ConfigError(f"{run} exists and is not empty; choose another --out")
    serials = [_checked(name, cell) for name, cell in zip(names, cells, strict=True)]
    for place, serial in enumerate(serials):
        if serial in serials[:place]:
            raise ConfigError(
                f"{names[serials.index(serial)]} and {names[place]} are the same robot, {serial}; give every arm one "
                "--robot"
            )
    with ExitStack() as made:
        holds = []
        for serial, cell in zip(serials, cells, strict=True):
            hold = ExitStack()
            hold.enter_context(Ledger(records, recovery=cell.recovery).driving(serial, run))
            holds.append(made.enter_context(hold))
        each = "the arm is" if len(cells) == 1 else f"{len(cells)} arms are"
        stderr.print(f"{each} going to move, at the speed of training; Ctrl-C stops and saves", soft_wrap=True)
        listener = ProgressListener(config.training.steps, step)
        trainer = make_arm_trainer(config, run, listener, dict(zip(names, cells, strict=True)), _agree)
        made.callback(trainer.close)
        trainer.resume(saved)

        def end(index: int, fault: Td3RobotError) -> None:
            """Latch a robot, and give it to its operator; the others' training goes on."""
            latch_fault(fault, serials[index], records)
            holds[index].close()
            if trainer.collector.arms.processes:
                trainer.listener.message(f"{names[index]} takes no further part: {fault}")

        trainer.collector.arms.on_fault = end
        made.pop_all()
        for hold in holds:
            trainer.closing.push(hold.__exit__)
    return trainer


def latch_fault(error: Td3RobotError, serial: str, records: Path) -> None:
    """Record in the ledger that a fault ended a training on an arm; nothing moves it until its operator recovers it."""
    from td3robot.deploy.ledger import Ledger

    if isinstance(error, RobotError | EnvironmentFaultError):
        Ledger(records).latch(serial, str(error))


def _names(cell_paths: Sequence[Path]) -> list[str]:
    """Name arms after their cells' files, in full where two are called alike."""
    stems = [path.stem for path in cell_paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in cell_paths]


def _checked(name: str, cell: "CellConfig") -> str:
    """Look at a connected robot, and return its serial number."""
    from td3robot.deploy.deployment import check_cell
    from td3robot.deploy.ledger import serial_of

    found = check_cell(None, cell, 1.0)
    if found.objection is not None:
        raise RobotError(f"{name} is no-go: {found.objection}")
    return serial_of(found.facts)


def _agree(name: str, what: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"{name}: {what}")
