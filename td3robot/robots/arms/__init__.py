"""The arms: one file per arm or family of arms."""

from td3robot import registry
from td3robot.registry import Registry
from td3robot.robots.arms.model import SERVO_LAG_S, ArmModel, Chain, Region, Servo

ARMS: Registry[ArmModel] = registry.ARMS

__all__ = ["ARMS", "SERVO_LAG_S", "ArmModel", "Chain", "Region", "Servo"]
