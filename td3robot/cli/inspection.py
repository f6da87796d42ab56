"""A summary of a checkpoint for people, in a dozen lines."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from td3robot import catalog
from td3robot.config import DISTURBANCES, RobotEnvironmentConfig
from td3robot.format import achieved, change, counted, resume_command

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.policy.checkpoint import Checkpoint


def inspection_words(asked: Path, saved: "Checkpoint", newest: "Checkpoint | None") -> list[str]:
    """Return lines on what a checkpoint was trained for, how long and how well, and what to do with it.

    Args:
        asked: The path or name that the user gave.
        saved: The checkpoint that it means.
        newest: The checkpoint from which its run, or it itself, can be resumed, or None.
    """
    run, counters = saved.config(), saved.document("counters")
    made_with = saved.manifest["made_with"]
    start = "from another policy's networks" if counters["warm_start"] else "from scratch"
    changes = saved.document("changes") if saved.has("changes") else []
    last, shell = newest or saved, quote(str(asked))
    reached, wanted = last.document("counters")["step"], last.config().training.steps
    later = f"; the run was saved at step {reached:,}" if reached != counters["step"] else ""
    rows = [
        ("task", run.environment.title),
        *_robot(saved, run),
        ("trained", f"{counters['step']:,} of {wanted:,} steps{later}, seed {run.seed}, {start}, {_under(run)}"),
        *(("changed", f"{change(each)}; no exact resume from there on") for each in changes),
        ("success", _success(saved, run, counters["evaluated_step"])),
        (
            "made with",
            ", ".join(f"{name} {made_with.get(name, 'unknown')}" for name in ("td3robot", "torch", "mujoco")),
        ),
        ("size", f"{saved.bytes / 1e6:.1f} MB in {len(saved.manifest['files'])} files: every file verified"),
        ("resume", _resume(asked, run, newest, (reached, wanted))),
        ("next", f"td3robot eval {shell} --episodes 200"),
        ("more", f"td3robot inspect {shell} --all (every setting), --json (for programs)"),
    ]
    shown = catalog.shown(saved.path)
    return [shown if shown == run.name else f"{shown} ({run.name})", *(f"  {name:<10}{text}" for name, text in rows)]


def _robot(saved: "Checkpoint", run: "RunConfig") -> list[tuple[str, str]]:
    contract = saved.contract()
    observed = ", ".join(dict.fromkeys(field.name for field in contract.observation.fields))
    rows = [("observes", f"{contract.observation.size} numbers: {observed}")]
    if isinstance(run.environment, RobotEnvironmentConfig):
        config = run.environment
        speed, rate_hz = contract.terms["guard"]["max_tcp_speed_m_s"], config.robot.control_rate_hz
        rows += [
            ("acts", f"{contract.action.size} numbers ({config.action.kind}), {rate_hz:g} times a second"),
            ("guard", f"keeps the tool below {1e3 * speed:.0f} mm/s and inside its workspace"),
        ]
    return rows


def randomization_words(run: "RunConfig") -> str:
    """Return an environment's level of domain randomization, in words."""
    if not isinstance(run.environment, RobotEnvironmentConfig):
        return "as the environment is"
    levels = [name for name, level in DISTURBANCES.items() if level == run.environment.disturbance]
    if levels == ["off"]:
        return "without domain randomization"
    return f"under domain randomization {levels[0] if levels else 'of its own'!r}"


def _under(run: "RunConfig") -> str:
    """Return the domain randomization of a training, in words."""
    words, calm = randomization_words(run), run.training.undisturbed_share
    disturbed = isinstance(run.environment, RobotEnvironmentConfig) and not words.startswith("without")
    where = "each part" if run.training.undisturbed_by_part else "it"
    return f"{words}, {100 * calm:.0f} % of the environments without {where}" if disturbed and calm else words


def _success(saved: "Checkpoint", run: "RunConfig", step: int) -> str:
    figures: dict[str, Any] | None = saved.document("evaluation")
    if figures is None:
        return "not evaluated yet"
    if figures["success_rate"] is None:
        return (
            f"mean return {figures['mean_return']:.1f} over {counted(figures['episodes'], 'episode')}, at step {step:,}"
        )
    return f"{achieved(figures, run.environment.achieved)}, at step {step:,}"


def _resume(asked: Path, run: "RunConfig", newest: "Checkpoint | None", steps: tuple[int, int]) -> str:
    if newest is not None:
        of_run = newest.path not in (asked, asked / newest.path.name)
        return f"yes: {resume_command(newest.path.parent if of_run else asked, *steps)}"
    config, shell = run.name if run.name in catalog.configurations() else "CONFIG", quote(str(asked))
    return f"no, it holds no replay buffer; begin from its networks: td3robot train {config} --init-from {shell}"
