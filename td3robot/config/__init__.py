"""Configurations: what a YAML file may contain, and how it is read.

One file describes one whole run, typed, strict and frozen. Unknown keys are refused with the nearest valid one.
Impossible combinations are refused here if the file and the numbers of arm and gripper show them, or when the
environment is built if that takes the robot's model.
"""

from td3robot.config.agent import AgentConfig
from td3robot.config.disturbance import DISTURBANCES, DisturbanceConfig
from td3robot.config.loading import explain, load_config, parse_config, to_yaml
from td3robot.config.robot import ActionConfig, GuardConfig, RobotConfig
from td3robot.config.run import (
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
