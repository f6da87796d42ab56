"""Evaluate a policy."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot import catalog
from td3robot.cli.inspection import randomization_words
from td3robot.cli.options import LEARN, CheckpointPath, EpisodeSeed, Json, Overrides, Trust
from td3robot.cli.terminal import note_differences, print_json, progress_bar, results, stray_output_to_stderr
from td3robot.errors import ConfigError, require_extra
from td3robot.format import NONE, achieved, failures, guard_reason, percent

# The name under which the hand-written policies are played.
SCRIPTED = "scripted"

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.deploy.recorded import RecordedPlayer
    from td3robot.envs.gymnasium_env import Environment
    from td3robot.envs.playing import Act
    from td3robot.envs.robot_env import RobotEnv
    from td3robot.policy.checkpoint import Checkpoint
    from td3robot.policy.policy import Policy


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(
        "eval", epilog="Example: td3robot eval ur5e_reach --episodes 200 --video reach.mp4", rich_help_panel=LEARN
    )(evaluate_command)


def evaluate_command(
    checkpoint_path: CheckpointPath,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 100,
    seed: EpisodeSeed = 12345,
    speed: Annotated[
        float, typer.Option(help="Scale factor for all speed and acceleration limits, as in deploy.")
    ] = 1.0,
    video: Annotated[Path | None, typer.Option(help="Record the first episodes to this .mp4 file.")] = None,
    records: Annotated[
        Path | None,
        typer.Option(help="Directory of records, to record every control period as deploy does (robots only)."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="With 'scripted' as the policy: whose task the hand-written policy plays.")
    ] = None,
    trust: Trust = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Evaluate a policy: success rate with interval, speeds, guard."""
    if video:
        require_extra("video", "recording a video", "imageio", "imageio_ffmpeg")

    from td3robot.envs.playing import Player, play_episodes, summarize
    from td3robot.envs.video import VideoRecorder
    from td3robot.policy import checkpoint
    from td3robot.robots.simulated.handling import handling_of

    render_mode = "rgb_array" if video else None
    with stray_output_to_stderr():
        if str(checkpoint_path) == SCRIPTED:
            name = path = Path(SCRIPTED)
            run, act, environment = _scripted(config, overrides or [], render_mode, speed)
        elif config is not None:
            raise ConfigError(
                f"--config is for the policy {SCRIPTED!r}; {checkpoint_path} brings its own: leave it out"
            )
        else:
            saved = checkpoint.opened(checkpoint_path)
            path, name = saved.path, Path(catalog.shown(saved.path))
            run, policy, environment = opened(saved, overrides or [], render_mode, trust, speed)
            act = policy.act
        rate = float(environment.metadata.get("render_fps", 30))
        recorder = VideoRecorder(video, rate, max_frames=600) if video else None
        on_frame = recorder.add if recorder else None
        playing: AbstractContextManager[Player] = nullcontext(Player(environment, act))
        if records is not None:
            playing = _recording(records, path, run, speed, environment, act)
        with (
            playing as player,
            recorder or nullcontext(),
            progress_bar("episodes evaluated", episodes) as on_episode,
        ):
            player.handling = handling_of(environment)
            figures = summarize(play_episodes(player, episodes, seed, on_frame=on_frame, on_episode=on_episode))
        environment.close()
    if as_json:
        print_json(figures.to_json())
    robot = getattr(run.environment, "robot", None)
    where = f"in simulation, {randomization_words(run)}" if robot else f"on {run.environment.title}"
    where += "" if speed == 1.0 else f", at speed {speed:g}"
    out = results(as_json)
    out.say(f"{name} {where}, episodes of seed {seed}:")
    for line in evaluation_lines(figures.to_json(), run.environment.achieved, robot and robot.control_rate_hz):
        out.say(line)
    if recorder:
        out.say(f"video of the first {recorder.frames / rate:.0f} s: {recorder.path}")
    if (record := getattr(player, "path", None)) is not None:
        out.say(f"record: {record}")


def _scripted(
    config: Path | None, overrides: Sequence[str], render_mode: str | None, speed: float
) -> tuple["RunConfig", "Act", "Environment"]:
    """Return a configuration, the hand-written policy of its task, and its environment.

    Raises:
        ConfigError: No configuration was given, or its task has no hand-written policy.
    """
    from td3robot.build import make_environment
    from td3robot.config import RobotEnvironmentConfig, load_config
    from td3robot.deploy.loaded_policy import scaled
    from td3robot.tasks.scripted import script_of

    if config is None:
        raise ConfigError(f"the policy {SCRIPTED!r} needs a task: name a configuration, such as --config ur5e_grasp")
    run = load_config(catalog.configuration(config), overrides)
    if not isinstance(run.environment, RobotEnvironmentConfig):
        raise ConfigError(f"the policy {SCRIPTED!r} is for robots, and {config} is for {run.environment.title}")
    played = scaled(run.environment, speed)
    environment = make_environment(played, render_mode)
    robot: RobotEnv = environment.unwrapped  # type: ignore[assignment]
    script = script_of(played, robot.task.layout, robot.robot.spec)
    return run.model_copy(update={"environment": played}), script.act, environment


def _recording(
    records: Path, path: Path, run: "RunConfig", speed: float, environment: "Environment", act: "Act"
) -> "AbstractContextManager[RecordedPlayer]":
    """Return a context that plays and records.

    Raises:
        ConfigError: The policy is not a robot's.
    """
    from td3robot.config import RobotEnvironmentConfig
    from td3robot.deploy.recorded import recorded_evaluation

    config = run.environment
    if not isinstance(config, RobotEnvironmentConfig):
        raise ConfigError(f"--records is for robots, and this policy was trained on {config.title}; leave it out")
    robot: RobotEnv = environment.unwrapped  # type: ignore[assignment]
    return recorded_evaluation(records, path, run.name, speed, config, robot, act)


def opened(
    saved: "Checkpoint",
    overrides: Sequence[str] = (),
    render_mode: str | None = None,
    trust: bool = False,
    speed: float = 1.0,
) -> tuple["RunConfig", "Policy", "Environment"]:
    """Return the configuration, the policy and the environment for evaluating a checkpoint.

    Raises:
        CheckpointError: The checkpoint's parts do not belong together, or it names a module that is not trusted.
        ConfigError: There is no such speed.
        ContractError: The environment is not what the policy was trained for.
    """
    from td3robot.build import make_contract, make_environment
    from td3robot.config import RobotEnvironmentConfig
    from td3robot.deploy.loaded_policy import scaled
    from td3robot.envs.trust import require_trusted
    from td3robot.policy.validation import require_playable
    from td3robot.robots.interface import require_same_arm

    require_playable(saved, saved.config())
    policy = saved.policy()
    run = saved.config(overrides)
    trained = saved.config().environment
    if isinstance(trained, RobotEnvironmentConfig) and isinstance(run.environment, RobotEnvironmentConfig):
        require_same_arm(trained.robot, run.environment.robot, "simulation")
    if getattr(trained, "id", None) == getattr(run.environment, "id", None):  # otherwise the user named it
        require_trusted(trained, catalog.shown(saved.path), trust)
    environment = make_environment(run.environment, render_mode)
    if overrides:
        _require_same_layouts(policy.contract, make_contract(run.environment, environment))
    else:
        policy.require(environment)
    if speed != 1.0:
        environment.close()
        if not isinstance(run.environment, RobotEnvironmentConfig):
            trained_on = run.environment.title
            raise ConfigError(f"--speed {speed:g} is for robots, and this policy was trained on {trained_on}")
        run = run.model_copy(update={"environment": scaled(run.environment, speed)})
        environment = make_environment(run.environment, render_mode)
    return run, policy, environment


def _require_same_layouts(trained: Any, here: Any) -> None:
    """Require that layouts agree, and report other differing terms, which explicit overrides allow."""
    here.observation.require_same(trained.observation, "observation")
    here.action.require_same(trained.action, "action")
    note_differences(here, trained)


def evaluation_lines(figures: Mapping[str, Any], what: str, rate_hz: float | None = None) -> list[str]:
    """Return a few lines about an evaluation.

    Args:
        figures: The figures of :class:`~td3robot.envs.playing.Evaluation`, as plain values.
        what: What a policy did in a successful episode.
        rate_hz: Steps per second, if they have a duration.
    """
    steps = figures["mean_steps"]
    lasting = f"{steps:.0f} steps" + (f" ({steps / rate_hz:.1f} s)" if rate_hz else "")
    lines = [
        achieved(figures, what),
        *([f"failed: {why}"] if (why := failures(figures)) != NONE else []),
        f"mean return {figures['mean_return']:.1f} in {lasting}",
    ]
    if figures["max_tcp_speed_m_s"] is not None:
        joints = figures["max_joint_speed_rad_s"]
        lines.append(f"fastest tool {1e3 * figures['max_tcp_speed_m_s']:.0f} mm/s, fastest joint {joints:.2f} rad/s")
    if (handled := figures.get("handling")) is not None:
        push, far = 1e3 * handled["push_median_m"], 1e3 * handled["push_p95_m"]
        before, most = handled["max_force_before_grip_n"], handled["max_force_n"]
        lines.append(f"objects pushed {push:.0f} mm before the grip in the median, {far:.0f} mm in the 95th percentile")
        lines.append(f"force of a finger on an object at most {before:.0f} N before the grip, {most:.0f} N in all")
    guard = guard_line(figures["guard_interventions"])
    return lines if guard is None else [*lines, guard]


def guard_line(shares: Mapping[str, float] | None) -> str | None:
    """Write the share of steps that the guard changed, and why; None without a guard."""
    if shares is None:
        return None
    reasons = sorted(((share, name) for name, share in shares.items() if name != "any"), reverse=True)
    why = ", ".join(f"{guard_reason(name)} {percent(share, 1)}" for share, name in reasons)
    return f"the guard changed {percent(shares.get('any', 0.0), 1)} of the steps" + (f" ({why})" if why else "")
