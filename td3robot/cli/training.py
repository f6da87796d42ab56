"""Commands that train in simulation or on an arm, and import an older checkpoint as a run."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot.cli.options import LEARN, PROGRAMS, Json, Overrides, Records, Trust, View
from td3robot.cli.reports import report_at_end
from td3robot.cli.resuming import resumed, resumed_on_arms
from td3robot.cli.terminal import (
    ProgressListener,
    announce_run,
    announce_speeds,
    note_differences,
    print_json,
    stderr,
    stopped_by_signals,
    stray_output_to_stderr,
)
from td3robot.cli.viewing import require_viser, viewer_beside
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.format import shell
from td3robot.ray_cluster import Workers

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.learning.trainer import Trainer


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog="Example: td3robot train ur5e_reach_quick --seed 1", rich_help_panel=LEARN)(train)
    app.command(
        "import",
        epilog="Example: td3robot import old/TD3_ --config gym_ant --out checkpoints/ant",
        rich_help_panel=PROGRAMS,
    )(import_command)


def train(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="The configuration of a new run: a file, or a name from td3robot list."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume this run directory or checkpoint instead.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Start the new run from this checkpoint's networks (fine-tuning).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default checkpoints/<name>-<time>-seed<seed>.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    steps: Annotated[int | None, typer.Option(help="Total environment steps.")] = None,
    more: Annotated[int | None, typer.Option(min=1, help="Additional environment steps for a resumed run.")] = None,
    changed: Annotated[
        str | None, typer.Option(metavar="REASON", help="Why a resumed run continues with changed settings (--set).")
    ] = None,
    robots: Annotated[
        list[Path] | None,
        typer.Option(
            "--robot",
            help="Train in simulation for this cell: its arm, gripper, coupling and table. With --resume, train on its "
            "arm, in a new run directory; repeat it for several arms.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Run the environments on this Ray cluster; results don't depend on it."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --ray: number of processes that share the environments; 1 by default."),
    ] = None,
    records: Records = Path("records"),
    trust: Trust = False,
    watched: View = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Train a policy, or resume a run exactly where it was saved. Ctrl-C saves and stops."""
    if (config is None) == (resume is None):
        raise ConfigError("give either a configuration to start a run, or --resume RUN to resume one")
    if resume is None and (more is not None or changed is not None):
        raise ConfigError("--more and --changed go with --resume RUN; a new run takes --steps and --set")
    if workers is not None and ray is None:
        raise ConfigError("--workers goes with --ray HOST:PORT, which says on which cluster they are")
    if steps is not None and more is not None:
        raise ConfigError("--steps says how far in all, and --more how much further; give one of them")
    if watched:
        require_viser()
    request = TrainRequest(
        config, resume, init_from, out, seed, steps, more, changed, robots or (), records, overrides or (), trust,
        None if ray is None else Workers(ray, workers or 1),
    )  # fmt: skip
    with stray_output_to_stderr():
        trainer, seconds, first = _trained(request, watched)
    _say_end(trainer, seconds)
    report_at_end([trainer.run_directory])
    if as_json:  # last, because it may not find room where it is written
        print_json(_figures(trainer, seconds, first))
    if trainer.stop_requested:
        raise typer.Exit(130)


@dataclass(frozen=True)
class TrainRequest:
    """The options of ``train``."""

    config: Path | None
    resume: Path | None = None
    init_from: Path | None = None
    out: Path | None = None
    seed: int | None = None
    steps: int | None = None
    more: int | None = None
    changed: str | None = None
    robots: Sequence[Path] = ()
    records: Path = Path("records")
    overrides: Sequence[str] = ()
    trust: bool = False
    workers: Workers | None = None


def _made(request: TrainRequest) -> "Trainer":
    """Return the trainer; on arms, an ``ArmTrainer``."""
    until = request.steps, request.more
    if request.robots and request.resume is not None:
        others = (request.seed, request.init_from, request.changed, request.workers)
        if any(each is not None for each in others) or request.overrides:
            raise ConfigError(
                "--resume RUN --robot CELL trains on arms: only --steps, --more, --out and --records go with them"
            )
        return resumed_on_arms(request.resume, request.robots, request.out, until, request.records)
    if request.resume is not None:
        if any(option is not None for option in (request.out, request.seed, request.init_from)):
            raise ConfigError("--resume continues a run as it was: --out, --seed and --init-from are for a new run")
        return resumed(request.resume, *until, request.overrides, request.changed, request.trust, request.workers)
    return _started(request)


def _trained(request: TrainRequest, watched: bool) -> tuple["Trainer", float, int]:
    """Train, and return the trainer, the duration [s], and the step at which it began."""
    trainer = _made(request)
    began, first = perf_counter(), trainer.step
    try:
        _announce(trainer)
        with stopped_by_signals(trainer), viewer_beside(watched) as show, trainer.listener:  # type: ignore[attr-defined]
            show(trainer.run_directory)
            trainer.train()
    except Td3RobotError as error:
        raise Td3RobotError(f"{error}{_saved_in(trainer.run_directory, _trust_option(trainer))}") from None
    finally:
        trainer.close()
    return trainer, perf_counter() - began, first


def import_command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A Stable-Baselines3 .zip, a .cleanrl_model, or how the names of several files begin."
        ),
    ],
    config: Annotated[Path, typer.Option(help="The matching configuration: a file, or a name.")],
    out: Annotated[Path, typer.Option(help="Run directory to create.")],
    a_max: Annotated[
        float | None, typer.Option("--a-max", help="The largest action of the program that made them.")
    ] = None,
    scaling: Annotated[
        Path | None, typer.Option(help="Its observation scaling: an .npz with mean and var, as of a VecNormalize.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Import another program's TD3 checkpoint as a run."""
    from td3robot.build import make_environment
    from td3robot.envs.gymnasium_env import action_range
    from td3robot.learning.foreign_files import read_foreign
    from td3robot.learning.foreign_import import import_foreign, missing_parts

    foreign = read_foreign(path)
    fitting = {"hidden": foreign.hidden, "normalize_observations": scaling is not None}
    trainer = _started(TrainRequest(config, out=out, overrides=_fitted(config, overrides or (), fitting)))
    try:
        with closing(make_environment(trainer.config.environment)) as environment:
            actions = action_range(environment)
        for note in import_foreign(trainer.agent, path, a_max, actions, scaling):
            stderr.say(f"note: {note}")
        trainer.warm = True
        trainer.save(strict=True)
    finally:
        trainer.close()
    if foreign.may_be_scaled and scaling is None:
        stderr.say("note: a VecNormalize is in a file of its own; if this policy was trained with one, add --scaling")
    stderr.say(
        f"imported to {trainer.run_directory}. {foreign.title[0].upper()}{foreign.title[1:]} carry "
        f"{missing_parts(foreign, scaling is not None)}: a resumed run fills its empty buffer with the imported "
        "policy's actions, and is not an exact continuation."
    )


def _fitted(config: Path, overrides: Sequence[str], fitting: dict[str, Any]) -> list[str]:
    """Return overrides with an agent's settings as a checkpoint has them, where the user gave none."""
    from td3robot.config import load_config

    agent, result = load_config(config, overrides).agent.model_dump(mode="json"), list(overrides)
    for name, value in fitting.items():
        given = any(each.partition("=")[0].strip() == f"agent.{name}" for each in overrides)
        if not given and agent[name] != value:
            result.append(f"agent.{name}={json.dumps(value)}")
            stderr.say(f"note: agent.{name} is {json.dumps(value)}, as in the files, not {json.dumps(agent[name])}")
    return result


def configured(request: TrainRequest) -> "RunConfig":
    """Return the configuration of a new run, for the cell of ``--robot`` if there is one.

    Raises:
        ConfigError: There is no such configuration, or the cell cannot be trained for.
    """
    from td3robot.config import RobotEnvironmentConfig, load_config, parse_config, to_yaml
    from td3robot.robots.cells import load_cell

    assert request.config is not None
    extra = [] if request.seed is None else [f"seed={request.seed}"]
    extra += [] if request.steps is None else [f"training.steps={request.steps}"]
    config = load_config(request.config, [*request.overrides, *extra])
    if not request.robots:
        return config
    if len(request.robots) > 1:
        raise ConfigError("a new run is trained in simulation for one cell; give --robot once")
    environment, path = config.environment, request.robots[0]
    if not isinstance(environment, RobotEnvironmentConfig):
        raise ConfigError(f"{request.config} trains on {environment.title}, and --robot is for runs that train a robot")
    cell = load_cell(path)
    there = cell.robot.in_simulation(environment.robot)
    item = None if environment.task.typical else cell.object
    config = config.model_copy(update={"environment": environment.in_cell(there, item)})
    return parse_config(to_yaml(config), f"{request.config} in the cell {path}")


def _started(request: TrainRequest) -> "Trainer":
    """Return the trainer of a new run."""
    from td3robot.learning.runs import make_trainer

    config = configured(request)
    run = request.out or Path("checkpoints") / f"{config.name}-{datetime.now():%Y%m%d-%H%M%S}-seed{config.seed}"
    taken = ConfigError(f"{run} exists and is not empty; resume it with --resume {shell(run)}, or choose another --out")
    existed = run.exists()
    if existed and (not run.is_dir() or any(run.iterdir())):
        raise taken
    trainer = make_trainer(config, run, ProgressListener(config.training.steps, 0), workers=request.workers)
    if request.init_from is not None:
        from td3robot.policy.checkpoint import Checkpoint, find

        saved = Checkpoint(find(request.init_from))
        trainer.start_from(saved)
        note_differences(trainer.contract, saved.contract())
    try:
        run.mkdir(parents=True, exist_ok=existed)
    except FileExistsError:
        raise taken from None
    training = config.training
    end = ceil(training.steps / training.environments) * training.environments
    if end <= training.random_steps:
        trainer.listener.message(
            f"warning: {training.steps} steps are too few to learn: learning begins after training.random_steps "
            f"{training.random_steps}"
        )
    return trainer


def _trust_option(trainer: "Trainer") -> str:
    from td3robot.envs.trust import trust_option

    return trust_option(getattr(trainer.config.environment, "id", None))


def _saved_in(run: Path, trust: str) -> str:
    """Return how to resume a run that an error ended, if it was saved."""
    from td3robot.errors import CheckpointError
    from td3robot.policy.checkpoint import newest

    try:
        step = newest(run).document("counters")["step"]
        return f"; what was saved is in {run}: resume from step {step} with td3robot train --resume {shell(run)}{trust}"
    except CheckpointError:
        return "; nothing was saved that could be resumed"


def _announce(trainer: "Trainer") -> None:
    announce_run(trainer.config, trainer.step, str(trainer.agent.device), str(trainer.run_directory))
    announce_speeds(trainer.contract)


def _say_end(trainer: "Trainer", seconds: float) -> None:
    from td3robot.policy.checkpoint import find

    run, trust = trainer.run_directory, _trust_option(trainer)
    stderr.say(f"step {trainer.step} after {seconds:.0f} s; saved in {run}")
    if trainer.step < trainer.config.training.steps:
        stderr.say(f"resume with: td3robot train --resume {shell(run)}{trust}")
    else:
        stderr.say(f"evaluate with: td3robot eval {shell(find(run))}{trust}")
        if (note := undisturbed_note(trainer.config)) is not None:
            stderr.say(note)


def undisturbed_note(config: "RunConfig") -> str | None:
    """Say what a policy that was trained undisturbed lacks for an arm, and how to train one; None for any other."""
    from td3robot import catalog
    from td3robot.config import DISTURBANCES, RobotEnvironmentConfig

    environment = config.environment
    if not isinstance(environment, RobotEnvironmentConfig) or environment.disturbance != DISTURBANCES["off"]:
        return None
    whole = config.name.removesuffix("_quick")
    others = whole != config.name and whole in catalog.configurations()
    train = whole if others else "it with --set environment.disturbance=real"
    return f"note: this policy was trained undisturbed, and an arm has delays and noise: before an arm, train {train}"


def _figures(trainer: "Trainer", seconds: float, first: int) -> dict[str, Any]:
    best = trainer.evaluations.best
    return {
        "run": str(trainer.run_directory),
        "step": trainer.step,
        "seconds": seconds,
        "steps_per_second": (trainer.step - first) / seconds,
        "best_step": trainer.evaluations.best_step,
        "best_evaluation": None if best is None else best.to_json(),
    }
