"""A run in training: its curves as they grow, and its newest policy playing evaluation episodes."""

from pathlib import Path

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig, load_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.metrics import Chart, FollowedLog, run_charts
from td3robot.policy.checkpoint import CONFIG, KINDS, MANIFEST, Checkpoint
from td3robot.state import Array
from td3robot.view.episodes import Act, Episodes, Vector, at_rest
from td3robot.view.source import Snapshot, Source, Workcell

# The charts beside the arm, of those of td3robot.metrics.
SHOWN = ("success", "return", "reward", "guard")


class Run(Source):
    """A run directory, in training or finished.

    Args:
        path: The run directory. Before its first checkpoint, the arm rests and can be moved by hand.
    """

    kind = "a training run; its newest policy plays evaluation episodes in simulation"
    actions = Episodes.actions | {"goal"}
    controllers = ("the newest policy", "by hand")

    def __init__(self, path: Path, seed: int = 12345) -> None:
        self.title, self._path, self._seed = path.resolve().name, path, seed
        self._episodes: Episodes | None = None
        self._act: Act | None = None
        self._played: Path | None = None
        self._log = FollowedLog(path)
        self._load_newest()

    @property
    def workcell(self) -> Workcell | None:
        """The policies' workcell, or None if the run has neither configuration nor checkpoint yet."""
        return self._episodes.workcell if self._episodes is not None else None

    def advance(self) -> Snapshot | None:
        """Play one control period; each episode begins with the newest policy."""
        if self._episodes is None:
            self._load_newest()
            return None
        snapshot = self._episodes.advance()
        if snapshot.lasts_s > self._episodes.workcell.spec.period_s:  # an episode is over
            self._load_newest()
        return snapshot

    def charts(self) -> list[Chart]:
        """Return the curves over the steps of the run."""
        self._log.refresh()
        return [chart for chart in run_charts([self._log.log]) if chart.key in SHOWN]

    def next_episode(self) -> None:
        """Begin the next episode, with the newest policy."""
        self._load_newest()
        if self._episodes is not None:
            self._episodes.next_episode()

    def set_goal(self, position: Array) -> None:
        """Go to a goal (3,) [m] from where the arm is."""
        if self._episodes is not None:
            self._episodes.set_goal(position)

    def choose_controller(self, name: str) -> None:
        """Choose whether the policy or the sliders move the arm."""
        if self._episodes is not None:
            self._episodes.choose_controller(name)

    def jog(self, q: Array, gripper: float) -> None:
        """Request a posture, subject to the guard."""
        if self._episodes is not None:
            self._episodes.jog(q, gripper)

    def close(self) -> None:
        """Release the simulation."""
        if self._episodes is not None:
            self._episodes.close()

    def _act_newest(self, observation: Vector) -> Vector:
        assert self._act is not None
        return self._act(observation)

    def _load_newest(self) -> None:
        """Load the newest policy, if there is a newer one."""
        newest = newest_checkpoint(self._path)
        if newest is None:
            self.status = "No checkpoint yet: the arm rests; curves are here as soon as they are written"
            if self._episodes is None and (self._path / CONFIG).is_file():
                self._show(load_config(self._path / CONFIG).environment)
        if newest is None or newest == self._played:
            return
        try:
            saved = Checkpoint(newest)
            policy, config = saved.policy(), saved.config().environment
            step = saved.document("counters")["step"]
        except (CheckpointError, FileNotFoundError):
            return  # replaced by a newer one meanwhile
        self._act = policy.act
        if self._episodes is None:
            self._show(config)
        self._played = newest
        self.status = f"Policy of step {step:,}"

    def _show(self, environment: object) -> None:
        """Start episodes of the run's environment; without a policy, the arm rests."""
        config = require_robot(environment, self._path)
        made = make_robot_env(config)
        if self._act is None:
            self._act = at_rest(made.action_kind.layout.size)
        self._episodes = Episodes(
            config, made, {self.controllers[0]: self._act_newest}, self.title, self.kind, self._seed
        )
        self.actions = self._episodes.actions


def require_robot(config: object, path: Path) -> RobotEnvironmentConfig:
    """Return the environment of a run, which must have an arm.

    Raises:
        ConfigError: It has none.
    """
    if not isinstance(config, RobotEnvironmentConfig):
        kind = getattr(config, "kind", "?")
        raise ConfigError(
            f"{path} is of the environment {kind!r}, and the viewer shows arms; use td3robot plot, or eval --video"
        )
    return config


def newest_checkpoint(run: Path) -> Path | None:
    """Return the complete checkpoint with the highest step in a run directory; of two, the one without a replay."""
    found = [path for kind in KINDS for path in run.glob(f"{kind}-*") if (path / MANIFEST).is_file()]
    return max(found, key=lambda path: (path.name.partition("-")[2], path.name.startswith(KINDS[0])), default=None)
