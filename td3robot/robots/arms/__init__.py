"""The arms: one file per arm or family of arms."""

from td3robot import registry
from td3robot.registry import Registry
from td3robot.robots.arms.model import UR_LAW, ArmModel, Chain, Region, Servo, ServoLaw

ARMS: Registry[ArmModel] = registry.ARMS

__all__ = ["ARMS", "UR_LAW", "ArmModel", "Chain", "Region", "Servo", "ServoLaw"]
