"""The command line. Figures go to standard output, everything for people to standard error."""

import signal
import sys
from datetime import datetime
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot import cli_deploy
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.terminal import (
    ProgressListener,
    announce_run,
    announce_speeds,
    people,
    print_json,
    short,
    show_figures,
    show_table,
)

if TYPE_CHECKING:
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.learning.trainer import Trainer

app = typer.Typer(
    name="td3robot",
    help="Train a TD3 policy for a robot arm in simulation, prove it, and go on with it exactly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(help="Measure the inner loops on this machine.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")
cli_deploy.register(app)

Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object on standard output.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="section.key=value", help="Change a value of the configuration.")
]
REACH = Path(__file__).parent.parent / "configs" / "ur5e_reach.yaml"
CheckpointArgument = Annotated[Path, typer.Argument(help="A checkpoint, or a run directory (its best is taken).")]


def main() -> None:
    """Run the command line; errors a user can cause end with one sentence and status 2."""
    try:
        app()
    except Td3RobotError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _fail(message: str) -> None:
    people.print(f"td3robot: {message}", style="red", markup=False, soft_wrap=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Take the options that need no command."""
    if version:
        from importlib.metadata import version as version_of

        sys.stdout.write(f"td3robot {version_of('td3robot')}\n")
        raise typer.Exit


@app.command(epilog="Example: td3robot train configs/ur5e_reach.yaml --seed 1")
def train(
    config: Annotated[Path | None, typer.Argument(help="The configuration of a new run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run directory or checkpoint instead.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Begin the new run with the networks of this checkpoint (fine-tuning).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default checkpoints/<name>-<time>-seed<seed>.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    steps: Annotated[int | None, typer.Option(help="Environment steps in all.")] = None,
    robot: Annotated[
        Path | None, typer.Option(help="Go on with --resume on the arm of this cell, in a run directory of its own.")
    ] = None,
    records: cli_deploy.Records = Path("records"),
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Train a policy, or go on with a run exactly where it was saved. Ctrl-C saves and stops."""
    if (config is None) == (resume is None):
        raise ConfigError("give either a configuration to start a run, or --resume DIR to go on with one")
    trainer: Trainer
    arm: ArmTrainer | None = None
    if robot is not None:
        if resume is None or any(option is not None for option in (seed, init_from)) or overrides:
            raise ConfigError(
                "--robot goes on with a run on an arm: only --resume, --steps, --out and --records go with it"
            )
        trainer = arm = cli_deploy.resumed_on_arm(resume, robot, out, steps, records)
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
            cli_deploy.latch_fault(error, arm.environment.robot.facts, records)
        raise Td3RobotError(f"{error}; what was saved is in {trainer.run_directory}") from None
    finally:
        trainer.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    _finish(trainer, perf_counter() - start, first, as_json)
    if trainer.stop_requested:
        raise typer.Exit(130)


@app.command("eval", epilog="Example: td3robot eval checkpoints/ur5e_reach --episodes 200 --video reach.mp4")
def evaluate_command(
    checkpoint_path: CheckpointArgument,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 12345,
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
    with recorder or nullcontext(), people.status(f"playing {episodes} episodes"):
        figures = evaluate(environment, policy.act, episodes, seed, on_frame=recorder.add if recorder else None)
    environment.close()
    if as_json:
        print_json(figures.to_json())
    backend = getattr(getattr(run.environment, "robot", None), "backend", run.environment.kind)
    show_table(figures.to_json(), f"{saved.path} on {backend}, episodes of seed {seed}:")
    if recorder:
        people.print(f"video of the first {recorder.frames / rate:.0f} s: {recorder.path}", soft_wrap=True)


@app.command(epilog="Example: td3robot inspect checkpoints/ur5e_reach --json")
def inspect(checkpoint_path: CheckpointArgument, as_json: Json = False) -> None:
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


@app.command(epilog="Example: td3robot plot checkpoints/ur5e_reach-20260101-120000 --out training.png")
def plot(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="The picture; by default training.png in the run directory.")] = None,
) -> None:
    """Draw success, returns, losses and guard interventions over the steps of a run."""
    from td3robot.learning.plot import plot_run

    path = out or run / "training.png"
    plot_run(run, path)
    people.print(f"picture: {path}")


@app.command("import", epilog="Example: td3robot import old/TD3_ --config configs/gym_ant.yaml --out checkpoints/ant")
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
    people.print(
        f"imported to {trainer.run_directory}. The six files carry no targets (they start as copies of the networks), "
        "no normaliser, no replay memory and no random states: a resumed run fills its replay anew and is not the run "
        "that would have been."
    )


@app.command(epilog="Example: td3robot export checkpoints/ur5e_reach --onnx reach.onnx")
def export(
    checkpoint_path: CheckpointArgument,
    legacy: Annotated[str | None, typer.Option(help="Write the older six files with this prefix.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write scaling and actor as one ONNX file.")] = None,
) -> None:
    """Write a checkpoint for other programs."""
    from td3robot.learning import export

    if legacy is None and onnx is None:
        raise ConfigError("say what to export: --legacy PREFIX, --onnx FILE, or both")
    if legacy is not None:
        for path in export.to_legacy(checkpoint_path, legacy):
            people.print(f"wrote {path}")
    if onnx is not None:
        difference = export.to_onnx(checkpoint_path, onnx)
        people.print(f"wrote {onnx}; largest difference from the policy over 1,000 observations: {difference:.1e}")


@app.command(epilog="Example: td3robot standin ur5e --host 127.0.0.2 --config configs/ur5e_grasp.yaml")
def standin(
    robot: Annotated[str, typer.Argument(help="What to stand in for: ur5e.")],
    host: Annotated[str, typer.Option(help="Address to listen on; one for each stand-in.")] = "127.0.0.2",
    config: Annotated[Path | None, typer.Option(help="A run, whose table and objects are put up.")] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file of faults, each at its time.")] = None,
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to send object poses as datagrams.")
    ] = None,
    polyscope: Annotated[str, typer.Option(help="Version of PolyScope: 5.11 or 5.23.")] = "5.11",
    local: Annotated[bool, typer.Option("--local", help="Start in local control.")] = False,
    powered_off: Annotated[bool, typer.Option("--powered-off", help="Start with the arm powered off.")] = False,
    bench_port: Annotated[int, typer.Option(help="Port of the bench: faults, objects, truth.")] = 29990,
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="Allow an address that other computers can reach.")
    ] = False,
) -> None:
    """Stand in for a robot's controller on loopback: real sockets, simulated arm, faults on request. Ctrl-C ends it."""
    import logging

    from td3robot.standin.server import serve
    from td3robot.standin.settings import make_standin_config

    settings = make_standin_config(
        robot, config, faults, host=host, tracker=tracker, polyscope=polyscope, remote=not local,
        powered=not powered_off, bench_port=bench_port, allow_network=allow_network,
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    people.print(f"a stand-in for a UR5e serves on {host} (bench: port {bench_port}); Ctrl-C ends it", soft_wrap=True)
    serve(settings)


@bench_app.command("learner", epilog="Example: td3robot bench learner --config configs/gym_ant.yaml --json")
def bench_learner_command(
    config: Annotated[Path, typer.Option(help="Whose agent.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Learner updates a second."""
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_learner

    show_figures(bench_learner(load_config(config, overrides or [])).to_json(), str(config), as_json)


@bench_app.command("env", epilog="Example: td3robot bench env --json")
def bench_environment_command(
    config: Annotated[Path, typer.Option(help="Whose environment.")] = REACH,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Environment steps a second, with and without the guard."""
    from td3robot.config import load_config
    from td3robot.learning.benchmark import bench_environment

    show_figures(bench_environment(load_config(config, overrides or [])).to_json(), str(config), as_json)


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

    saved, config, step = cli_deploy.saved_run(path, steps, overrides)
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
    people.print(f"step {trainer.step} after {seconds:.0f} s; saved in {run}", soft_wrap=True)
    if trainer.step < trainer.config.training.steps:
        people.print(f"go on with: td3robot train --resume {run}", soft_wrap=True)
    else:
        people.print(f"evaluate with: td3robot eval {find(run)}", soft_wrap=True)


def _require_playable(trained: Any, here: Any, overridden: bool) -> None:
    """Let a policy play where layouts agree; other terms may differ only by explicit override, and are named."""
    here.observation.require_same(trained.observation, "observation")
    here.action.require_same(trained.action, "action")
    if not overridden:
        here.require_same(trained, "this environment", "the checkpoint")
    for name, mine, theirs in here.differences(trained):
        people.print(
            f"note: {name} is {short(mine)} here and was {short(theirs)} in training", markup=False, soft_wrap=True
        )
