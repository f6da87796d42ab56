"""The first command to try: watch a released policy."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot.cli.options import LEARN
from td3robot.cli.terminal import stderr
from td3robot.errors import ConfigError, Td3RobotError

if TYPE_CHECKING:
    from td3robot.envs.playing import EpisodeFigures
    from td3robot.envs.robot_env import RobotEnv
    from td3robot.policy.policy import Policy

POLICY = "ur5e_grasp"
# An episode in which the cube is clearly visible.
SEED = 3
# A film has every second period: drawing all of them takes too long without a graphics card.
EVERY = 2
# Time between the pictures of a strip [s].
EVERY_S = 1.6
NEXT = """
Next:
  td3robot eval ur5e_grasp --episodes 50    how often it succeeds
  td3robot train ur5e_reach_quick           train a policy of your own, in about 40 s
  td3robot rehearse ur5e_reach              a policy through the robot's real client (extra: ur)
  td3robot list                             everything that came with td3robot
  td3robot doctor                           what this computer can do, and what is missing"""


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog="Example: td3robot demo", rich_help_panel=LEARN)(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the video or image if there is no browser.")] = Path(),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Use a browser if there is one.")] = True,
) -> None:
    """Watch the released grasp policy lift a cube."""
    if not (browser and _in_browser()):
        _without_browser(out)
    stderr.say(NEXT)


def _in_browser() -> bool:
    """Show the policy in the browser until the user ends it; return False if there is no browser or viewer."""
    import webbrowser
    from importlib import import_module

    try:
        webbrowser.get()
    except webbrowser.Error:
        stderr.print("there is no browser here")
        return False
    try:
        import_module("td3robot.cli.viewing").view(POLICY)
    except (Td3RobotError, ImportError) as error:
        stderr.say(f"no view in the browser: {error}")
        return False
    return True


def _without_browser(out: Path) -> None:
    """Record a video of an episode, draw a strip of pictures, or describe it: the first that this computer can do."""
    from td3robot.build import make_robot_env
    from td3robot.policy.checkpoint import Checkpoint, find

    saved = Checkpoint(find(Path(POLICY)))
    config: Any = saved.config().environment
    policy = saved.policy()
    environment = make_robot_env(config, "rgb_array")
    try:
        for show in (_film, _strip, _describe):
            try:
                show(environment, policy, out)
            except Td3RobotError as error:
                stderr.say(str(error))
            else:
                return
    finally:
        environment.close()


def _film(environment: "RobotEnv", policy: "Policy", out: Path) -> None:
    from td3robot.envs.playing import Player, play_episodes
    from td3robot.envs.video import VideoRecorder

    path = out / "td3robot-demo.mp4"
    rate = float(environment.metadata["render_fps"]) / EVERY
    shown = count()
    with VideoRecorder(path, rate, max_frames=1000) as recorder, stderr.status("filming one episode"):

        def every_second(moment: Any) -> None:
            """Add every EVERY-th period's frame."""
            if next(shown) % EVERY == 0:
                recorder.add(moment)

        (episode,) = play_episodes(Player(environment, policy.act), 1, SEED, on_frame=every_second)
    stderr.say(f"film: {path}; {_outcome(episode)}")


def _strip(environment: "RobotEnv", policy: "Policy", out: Path) -> None:
    """Draw a moment every ``EVERY_S``, side by side."""
    from matplotlib.figure import Figure

    from td3robot.envs.playing import Player, play_episodes

    frames: list[Any] = []
    every, shown = round(EVERY_S / environment.robot.spec.period_s), count()

    def keep(moment: Any) -> None:
        """Keep a picture of this moment, if one is due."""
        if next(shown) % every == 0:
            frames.append(moment.render())

    (episode,) = play_episodes(Player(environment, policy.act), 1, SEED, on_frame=keep)
    figure = Figure(figsize=(3.2 * len(frames), 2.7), layout="constrained")
    for number, frame in enumerate(frames):
        axes = figure.add_subplot(1, len(frames), number + 1)
        axes.imshow(frame)
        axes.set_title(f"{number * every * environment.robot.spec.period_s:.1f} s")
        axes.set_axis_off()
    path = out / "td3robot-demo.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=100)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    stderr.say(f"picture: {path}; {_outcome(episode)}")


def _describe(environment: "RobotEnv", policy: "Policy", _: Path) -> None:
    """Describe an episode in words: where the cube is, second by second."""
    from td3robot import seeding
    from td3robot.envs.playing import Player

    player = Player(environment, policy.act)
    player.begin(0, seeding.integer(SEED, seeding.Stream.EVALUATION_EPISODES, 0))
    rate = round(environment.robot.spec.control_rate_hz)
    over = False
    while not over:
        if player.figures.steps % rate == 0:
            stderr.say(_moment(environment, player.figures.steps / rate))
        over = player.step()
    stderr.say(_moment(environment, player.figures.steps / rate))
    stderr.say(_outcome(player.figures))


def _outcome(episode: "EpisodeFigures") -> str:
    result = "lifted the cube and holds it" if episode.success else "did not hold the cube to the end"
    return f"a UR5e under the released policy {POLICY} {result}"


def _moment(environment: "RobotEnv", seconds: float) -> str:
    import numpy as np

    world = environment.world
    (cube,) = world.objects.values()
    distance_mm = 1e3 * float(np.linalg.norm(cube.position - world.tcp.position))
    height_mm = 1e3 * cube.position[2]
    return f"{seconds:4.1f} s: the tool is {distance_mm:3.0f} mm from the cube, the cube {height_mm:3.0f} mm high"
