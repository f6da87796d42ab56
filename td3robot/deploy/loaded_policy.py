"""A checkpoint loaded to run on an arm."""

from dataclasses import dataclass
from pathlib import Path

from td3robot import catalog
from td3robot.config import RobotEnvironmentConfig
from td3robot.deploy.ledger import digest_of
from td3robot.errors import ConfigError
from td3robot.format import shell
from td3robot.policy.checkpoint import CONFIG, opened
from td3robot.policy.policy import Policy
from td3robot.policy.validation import require_playable
from td3robot.robots.cells import CellConfig

# Below this, the motion of one control period is smaller than an arm's repeatability.
SLOWEST = 0.02


@dataclass(frozen=True)
class LoadedPolicy:
    """A verified policy with what it was trained on.

    Attributes:
        digest: Identifies the checkpoint; see :func:`digest_of`.
        environment: As in training, at full speed.
    """

    path: Path
    name: str
    digest: str
    policy: Policy
    environment: RobotEnvironmentConfig

    def training_in(self, cell: CellConfig) -> str:
        """Return the command that trains a policy like this one for a cell."""
        known = catalog.configurations()
        config = self.name if self.name in known else self.path / CONFIG
        return f"td3robot train {shell(config)} --robot {shell(cell.name)}"


def open_checkpoint(path: Path) -> LoadedPolicy:
    """Verify a checkpoint and read what play needs.

    Raises:
        CheckpointError: It is missing or damaged.
        ConfigError: It was not trained on a robot.
    """
    saved = opened(path)
    run = saved.config()
    if not isinstance(run.environment, RobotEnvironmentConfig):
        raise ConfigError(f"{saved.path} was trained on {run.environment.kind!r}, and there is no arm for that")
    require_playable(saved, run)
    return LoadedPolicy(saved.path, run.name, digest_of(saved.path), saved.policy(), run.environment)


def scaled(config: RobotEnvironmentConfig, speed: float) -> RobotEnvironmentConfig:
    """Return an environment with the guard's limits and the actions scaled; episodes get longer in proportion.

    Args:
        config: The environment of a run.
        speed: Factor in [0.02, 1]; 1 changes nothing.

    Raises:
        ConfigError: The speed is outside that range.
    """
    if not SLOWEST <= speed <= 1.0:
        raise ConfigError(f"--speed {speed:g} is outside [{SLOWEST:g}, 1]: 1 is the speed of training")
    if speed == 1.0:
        return config
    return config.slowed(
        speed,
        guard=config.guard.scaled(speed),
        episode_s=config.episode_s / speed,
    )
