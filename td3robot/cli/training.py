"""Train, on simulations or on an arm; import an older checkpoint as a run."""

import signal
from datetime import datetime
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot.cli import arm_training
from td3robot.cli.options import Json, Overrides, Records
from td3robot.cli.runs import saved_run
from td3robot.cli.terminal import ProgressListener, announce_run, announce_speeds, print_json, stderr
from td3robot.errors import ConfigError, Td3RobotError

if TYPE_CHECKING:
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.learning.trainer import Trainer


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot train configs/ur5e_reach.yaml --seed 1")(train)
    app.command(
        "import", epilog="Example: td3robot import old/TD3_ --config configs/gym_ant.yaml --out checkpoints/ant"
    )(import_command)


def train(
    config: Annotated[Path | None, typer.Argument(help="The configuration of a new run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume this run directory or checkpoint instead.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Begin the new run with the networks of this checkpoint (fine-tuning).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default checkpoints/<name>-<time>-seed<seed>.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    steps: Annotated[int | None, typer.Option(help="Environment steps in all.")] = None,
    robot: Annotated[
        Path | None, typer.Option(help="Resume on the arm of this cell, in a run directory of its own.")
    ] = None,
    records: Records = Path("records"),
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Train a policy, or resume a run exactly where it was saved. Ctrl-C saves and stops."""
    if (config is None) == (resume is None):
        raise ConfigError("give either a configuration to start a run, or --resume DIR to go on with one")
    trainer: Trainer
    arm: ArmTrainer | None = None
    if robot is not None:
        if resume is None or any(option is not None for option in (seed, init_from)) or overrides:
            raise ConfigError(
                "--robot goes on with a run on an arm: only --resume, --steps, --out and --records go with it"
            )
        trainer = arm = arm_training.resumed_on_arm(resume, robot, out, steps, records)
    elif resume is not None:
        if any(option is not None for option in (out, seed, init_from)) or any(
            not o.startswith("agent.device=") for o in overrides or ()
        ):
            raise ConfigError(
                "--resume goes on with the run as it was; only --steps and --set agent.device=... may change it"
            )
        trainer = _resumed(resume, steps, overrides or [])
    else:
        assert config is not None
        trainer = _started(config, out, seed, steps, init_from, overrides or [])

    _announce(trainer)
    start, first = perf_counter(), trainer.step
    previous = {number: signal.signal(number, _request_stop(trainer)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with trainer.listener:  # type: ignore[attr-defined]
            trainer.train()
    except Td3RobotError as error:
        if arm is not None:
            arm_training.latch_fault(error, arm.environment.robot.facts, records)
        raise Td3RobotError(f"{error}; what was saved is in {trainer.run_directory}") from None
    finally:
        trainer.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    _finish(trainer, perf_counter() - start, first, as_json)
    if trainer.stop_requested:
        raise typer.Exit(130)


def import_command(
    prefix: Annotated[str, typer.Argument(help="What the six files' names begin with.")],
    config: Annotated[Path, typer.Option(help="The configuration they belong to.")],
    out: Annotated[Path, typer.Option(help="Run directory to make.")],
    overrides: Overrides = None,
) -> None:
    """Take over an older six-file checkpoint (torch.save state dicts), as a run that can be resumed."""
    from td3robot.learning.legacy import import_legacy

    trainer = _started(config, out, None, None, None, overrides or [])
    import_legacy(trainer.agent, prefix)
    trainer.save(strict=True)
    trainer.close()
    stderr.print(
        f"imported to {trainer.run_directory}. The six files carry no targets (they start as copies of the networks), "
        "no normaliser, no replay memory and no random states: a resumed run fills its replay anew and is not the run "
        "that would have been."
    )


def _request_stop(trainer: "Trainer") -> Any:
    def handle(_number: int, _frame: FrameType | None) -> None:
        trainer.stop_requested = True
        trainer.listener.message("stopping after this step; saving")

    return handle


def _started(
    path: Path, out: Path | None, seed: int | None, steps: int | None, init_from: Path | None, overrides: list[str]
) -> "Trainer":
    """Make the trainer of a new run."""
    from td3robot.config import load_config
    from td3robot.learning.runs import make_trainer

    extra = [f"seed={seed}"] if seed is not None else []
    extra += [f"training.steps={steps}"] if steps is not None else []
    config = load_config(path, [*overrides, *extra])
    run = out or Path("checkpoints") / f"{config.name}-{datetime.now():%Y%m%d-%H%M%S}-seed{config.seed}"
    taken = ConfigError(f"{run} exists and is not empty; resume it with --resume {run}, or choose another --out")
    existed = run.exists()
    if existed and (not run.is_dir() or any(run.iterdir())):
        raise taken
    trainer = make_trainer(config, run, ProgressListener(config.training.steps, 0))
    if init_from is not None:
        from td3robot.policy.checkpoint import Checkpoint, find

        trainer.start_from(Checkpoint(find(init_from)))
    try:
        run.mkdir(parents=True, exist_ok=existed)
    except FileExistsError:
        raise taken from None
    if config.training.steps <= max(config.training.random_steps, config.training.evaluate_every):
        trainer.listener.message(
            f"{config.training.steps} steps are too few: learning begins after training.random_steps "
            f"{config.training.random_steps}, and the first evaluation is at {config.training.evaluate_every}"
        )
    return trainer


def _resumed(path: Path, steps: int | None, overrides: list[str]) -> "Trainer":
    """Make the trainer of a saved run, from its newest whole checkpoint."""
    from td3robot.errors import CheckpointError
    from td3robot.learning.runs import make_trainer

    saved, config, step = saved_run(path, steps, overrides)
    if saved.has("replay") and not saved.path.resolve().name.startswith("last-"):
        raise CheckpointError(
            f"{saved.path} is a checkpoint outside a run directory, and its run would be written beside it; "
            "put it into a directory of its own, as last-000000000"
        )
    run = path if path != saved.path else path.resolve().parent
    trainer = make_trainer(config, run, ProgressListener(config.training.steps, step))
    trainer.contract.require_same(saved.contract(), "this td3robot", "the checkpoint")
    try:
        trainer.resume(saved)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} lacks what a resumed run needs ({error!r}); it was not made by training"
        ) from None
    return trainer


def _announce(trainer: "Trainer") -> None:
    announce_run(trainer.config, trainer.step, str(trainer.agent.device), str(trainer.run_directory))
    announce_speeds(trainer.contract)


def _finish(trainer: "Trainer", seconds: float, first: int, as_json: bool) -> None:
    from td3robot.policy.checkpoint import find

    run = trainer.run_directory
    if as_json:
        print_json(
            {
                "run": str(run),
                "step": trainer.step,
                "seconds": seconds,
                "steps_per_second": (trainer.step - first) / seconds,
                "best_step": trainer.best_step,
                "best_evaluation": trainer.best.to_json() if trainer.best else None,
            }
        )
    stderr.print(f"step {trainer.step} after {seconds:.0f} s; saved in {run}", soft_wrap=True)
    if trainer.step < trainer.config.training.steps:
        stderr.print(f"go on with: td3robot train --resume {run}", soft_wrap=True)
    else:
        stderr.print(f"evaluate with: td3robot eval {find(run)}", soft_wrap=True)
