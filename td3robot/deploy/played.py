"""A checkpoint opened to run on an arm."""

from dataclasses import dataclass
from pathlib import Path

from td3robot.config import RobotEnvironmentConfig
from td3robot.deploy.ledger import digest_of
from td3robot.errors import ConfigError
from td3robot.policy.checkpoint import opened
from td3robot.policy.policy import Policy
from td3robot.policy.soundness import require_playable


@dataclass(frozen=True)
class Played:
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


def open_checkpoint(path: Path) -> Played:
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
    return Played(saved.path, run.name, digest_of(saved.path), saved.policy(), run.environment)
