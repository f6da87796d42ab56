"""Runs slower than in training: all speed and acceleration limits scaled by one factor."""

from td3robot.config import RobotEnvironmentConfig
from td3robot.errors import ConfigError

# Below this, the motion of one control period is smaller than an arm's repeatability.
SLOWEST = 0.02


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
    action = config.action
    turning = {"turn_rad_s": action.turn_rad_s * speed, "orientation_gain_hz": action.orientation_gain_hz * speed}
    return config.slowed(
        speed,
        guard=config.guard.scaled(speed),
        action=action.model_copy(update=turning),
        episode_s=config.episode_s / speed,
    )
