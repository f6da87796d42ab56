"""One physical or stand-in cell: its robot, how that is reached and driven, and what tells where its objects are.

A cell's file replaces the section ``environment.robot`` of a run; everything a policy was trained for stays the run's.
Each kind of controller has a module here, named like its ``robot.backend``, that adds sections and makes the driver.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from td3robot import registry
from td3robot.config.loading import explain
from td3robot.config.robot import RobotConfig
from td3robot.config.section import Section
from td3robot.errors import ConfigError
from td3robot.registry import Registry
from td3robot.robots.interface import RobotSpec
from td3robot.robots.objects import Objects
from td3robot.robots.physical import PhysicalRobot
from td3robot.robots.tracker import ObjectTracker, TaughtObjects, TaughtPose, TrackerConfig

CELLS: Registry[type["CellConfig"]] = registry.CELLS


class CellConfig(Section):
    """What every cell has. Validating this class gives an instance of the type that the backend names.

    Attributes:
        robot: As in a run; the backend says who drives it.
        tracker: Where object poses come from, or None.
        taught: Objects that lie where a person said; for cells without a tracker.
    """

    robot: RobotConfig
    tracker: TrackerConfig | None = None
    taught: dict[str, TaughtPose] = Field(default_factory=dict)

    @abstractmethod
    def driver(self, spec: RobotSpec, passive: bool = False) -> PhysicalRobot:
        """Make the driver of this cell's robot, not connected yet.

        Args:
            spec: The robot that it has to be.
            passive: For reading only; see :class:`PhysicalRobot`.
        """

    def objects(self, names: Iterable[str]) -> Objects:
        """Make what tells where objects are: the tracker, or where a person said they lie.

        Raises:
            ConfigError: The cell does not say where one of them lies.
        """
        if self.tracker is not None:
            return ObjectTracker(names, self.tracker)
        return TaughtObjects(names, self.taught)

    def with_taught(self, taught: Mapping[str, TaughtPose]) -> Self:
        """Return the cell with objects where a person says they lie, in place of its tracker."""
        if not taught:
            return self
        return self.model_copy(update={"tracker": None, "taught": {**self.taught, **taught}})

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_backend(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Any:
        if cls is CellConfig and isinstance(values, Mapping):
            return cell_type(values).model_validate(values)
        return build(values)

    @model_validator(mode="after")
    def _one_source_of_poses(self) -> Self:
        if self.tracker is not None and self.taught:
            raise ValueError("tracker and taught both say where objects are; keep one of them")
        return self


def cell_type(values: Mapping[str, Any]) -> type[CellConfig]:
    """Choose the type of a cell by its ``robot.backend``, or by the section of its own where ``robot`` names none.

    Raises:
        ValueError: No cell is driven so; see :meth:`Registry.known`.
    """
    robot = values.get("robot")
    if isinstance(robot, RobotConfig):
        robot = robot.model_dump()
    if isinstance(robot, Mapping):
        backend = robot.get("backend", RobotConfig().backend)
        if backend not in CELLS:
            known = " or ".join(repr(name) for name in CELLS)
            raise ValueError(f"robot.backend is {backend!r}, but a cell's arm is driven by {known}")
        return CELLS[backend]
    named = [name for name in CELLS if name in values] or list(CELLS)
    if len(named) > 1:
        raise ValueError(f"robot.backend is missing; it says who drives the cell's arm (choices: {', '.join(named)})")
    return CELLS[named[0]]


def load_cell(path: Path) -> CellConfig:
    """Read a cell's YAML file.

    Raises:
        ConfigError: It cannot be read, or describes no cell.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no cell {path}; see configs/robots/ for those that come with td3robot") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cell {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, not {type(values).__name__}")
    try:
        kind = cell_type(values)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, kind, values)}") from None
