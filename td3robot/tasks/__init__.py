"""Tasks: what the arm must do. Each file holds one task and its configuration section."""

from td3robot import registry
from td3robot.registry import Registry
from td3robot.tasks.interface import Task

TASKS: Registry[type[Task]] = registry.TASKS

__all__ = ["TASKS", "Task"]
