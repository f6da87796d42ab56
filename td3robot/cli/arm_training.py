"""Resume a training on the arm of a cell: what ``train --robot`` adds."""

import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from td3robot.cli.runs import saved_run
from td3robot.cli.terminal import ProgressListener, stderr
from td3robot.collection import shorten_collections
from td3robot.errors import ConfigError, EnvironmentFaultError, RobotError, Td3RobotError

if TYPE_CHECKING:
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.robots.travel import TravelPlan


def resumed_on_arm(
    resume: Path, cell_path: Path, out: Path | None, until: tuple[int | None, int | None], records: Path
) -> "ArmTrainer":
    """Make the trainer that resumes a run on an arm; imports torch. The arm moves to a first start.

    Args:
        resume: The run.
        cell_path: The arm's cell.
        out: The new run's directory.
        until: Steps in all, or further steps, as of :func:`saved_run`.
        records: Where the ledger is.

    Raises:
        ConfigError: There is nothing left to do, or the run directory is taken.
        LadderError: A fault of the robot awaits its operator.
        RobotError: The robot is no-go.
    """
    from td3robot.deploy.deployment import check_cell
    from td3robot.deploy.ledger import Ledger, serial_of
    from td3robot.learning.runs import make_arm_trainer
    from td3robot.robots.cells import load_cell

    (saved, config, step), cell = saved_run(resume, *until), load_cell(cell_path)
    run = out or Path("checkpoints") / f"{config.name}-{cell_path.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ConfigError(f"{run} exists and is not empty; choose another --out")
    found = check_cell(None, cell, 1.0)
    if found.objection is not None:
        raise RobotError(f"no-go: {found.objection}")
    hold = ExitStack()
    hold.enter_context(Ledger(records, recovery=cell.recovery).driving(serial_of(found.facts), run))
    stderr.print("the arm is going to move, at the speed of training; Ctrl-C stops it and saves", soft_wrap=True)
    shorten_collections()
    try:
        trainer = make_arm_trainer(config, run, ProgressListener(config.training.steps, step), cell)
        trainer.environment.travel.agree = _agree
        trainer.environment.travel.watch = lambda state, ruling: _raise_if_stopped(trainer)
        trainer.closing = hold
        trainer.resume(saved)
    except Td3RobotError as error:
        latch_fault(error, found.facts, records)
        hold.close()
        raise
    return trainer


def latch_fault(error: Td3RobotError, facts: dict[str, Any], records: Path) -> None:
    """Record in the ledger that a fault ended a training on an arm; nothing moves it until its operator recovers it."""
    from td3robot.deploy.ledger import Ledger, serial_of

    if isinstance(error, RobotError | EnvironmentFaultError):
        Ledger(records).latch(serial_of(facts), str(error))


def _agree(journey: "TravelPlan") -> None:
    from td3robot.deploy.operator import OperatorStop

    if journey.drops and not (
        sys.stdin.isatty() and typer.confirm("the gripper opens and drops what it holds; continue?")
    ):
        raise OperatorStop("the gripper holds something, and nobody took it; nothing was moved")


def _raise_if_stopped(trainer: "ArmTrainer") -> None:
    from td3robot.deploy.operator import OperatorStop

    if trainer.stop_requested:
        raise OperatorStop("the operator stopped the arm on its way to a start")
