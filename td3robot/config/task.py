"""The base of every task's configuration, and how a task is chosen by its name."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import PositiveFloat

from td3robot.config.objects import ObjectConfig
from td3robot.config.section import Box, Section, refused
from td3robot.registry import TASKS
from td3robot.state import ObjectModel

DEFAULT = "reach"


class TaskConfig(Section):
    """Base of the task configurations, each of which is in its task's file.

    Attributes:
        name: Of the task.
        hold_s: How long the goal must be met at the end of an episode for success.
        region: Name of the box that the tool must reach, in errors.
        title: Description of the task, for titles.
        achieved: What a policy did in a successful episode, for sentences such as ``reached 9 of 10``.
    """

    name: str
    hold_s: PositiveFloat
    region: ClassVar[str]
    title: ClassVar[str] = ""
    achieved: ClassVar[str] = "succeeded in"

    @classmethod
    def regions(cls, arm: Any) -> dict[str, Any]:
        """Return the fields that an arm's own regions fill if a file leaves them out."""
        return {}

    @classmethod
    def floor_m(cls, gripper: Any) -> float | None:
        """Return how far above the table the guard's workspace begins, if a file leaves it out; None for the arm's."""
        return None

    def space(self, table_height_m: float, gripper: Any) -> Box:
        """Return the box that the tool must reach, in the base frame; errors call it :attr:`region`."""
        raise NotImplementedError

    def objects(self) -> tuple[ObjectModel, ...]:
        """Return the objects on the table."""
        return ()

    @property
    def typical(self) -> ObjectConfig | None:
        """A typical one of the objects of which every episode has another; None where it is always the same."""
        return None

    def told(self, item: ObjectConfig | None) -> Self:
        """Return the task with the object that lies on a table, if it is known and the task has any."""
        if item is None or "object" not in type(self).model_fields:
            return self
        return self.model_copy(update={"object": item})

    def require_fit(self, arm: Any, gripper: Any, disturbance: Any) -> None:
        """Refuse an arm, gripper or disturbance with which the task cannot be done.

        Raises:
            ValueError: Saying what does not fit, the bound, and what to change; :func:`refused` adds where.
        """


def chosen_task(value: Any) -> Any:
    """Validate a task's section with the configuration class of the task that it names."""
    if not isinstance(value, Mapping):
        return value
    name = value.get("name", DEFAULT)
    if name not in TASKS:
        raise refused(TASKS.unknown(str(name)), "name")
    return task_section(name).model_validate(value)


def task_section(name: str) -> type[TaskConfig]:
    """Return the configuration class of a task."""
    section: type[TaskConfig] = TASKS[name].Config
    return section
