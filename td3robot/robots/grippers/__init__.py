"""The grippers: one file per gripper."""

from td3robot import registry
from td3robot.registry import Registry
from td3robot.robots.grippers.model import Counts, GripperModel, Jaw

GRIPPERS: Registry[GripperModel] = registry.GRIPPERS

__all__ = ["GRIPPERS", "Counts", "GripperModel", "Jaw"]
