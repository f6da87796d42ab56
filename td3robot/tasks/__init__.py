"""Tasks: what is asked of the arm. Each file holds one, with its own section of a configuration."""

from td3robot import registry
from td3robot.registry import Registry
from td3robot.tasks.interface import Task

TASKS: Registry[type[Task]] = registry.TASKS

__all__ = ["TASKS", "Task"]
