"""Configurations: what one YAML file may say, and how it is read.

One file is one whole run, typed, strict and frozen. Unknown keys are refused with the nearest right one. Impossible
combinations are refused here where the file and the numbers of arm and gripper show them, and when the environment is
built where the robot's model has to be asked.
"""

from td3robot.config.disturbance import DISTURBANCES, DisturbanceConfig
from td3robot.config.loading import explain, load_config, parse_config, to_yaml
from td3robot.config.robot import ActionConfig, GuardConfig, RobotConfig
from td3robot.config.run import (
    AgentConfig,
    GymnasiumEnvironmentConfig,
    RobotEnvironmentConfig,
    RunConfig,
    TrainingConfig,
)
from td3robot.config.section import Box, NonNegative, Section, Vector3
from td3robot.config.task import TaskConfig

__all__ = [
    "DISTURBANCES",
    "ActionConfig",
    "AgentConfig",
    "Box",
    "DisturbanceConfig",
    "GuardConfig",
    "GymnasiumEnvironmentConfig",
    "NonNegative",
    "RobotConfig",
    "RobotEnvironmentConfig",
    "RunConfig",
    "Section",
    "TaskConfig",
    "TrainingConfig",
    "Vector3",
    "explain",
    "load_config",
    "parse_config",
    "to_yaml",
]
