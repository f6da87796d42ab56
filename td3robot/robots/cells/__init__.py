"""A physical or stand-in cell: its robot, how to reach and drive it, and the source of its object poses.

A cell's file replaces the section ``environment.robot`` of a run; everything a policy was trained for stays the run's.
Each kind of controller has a module here, named like its ``robot.backend``, that adds sections and makes the driver.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticUndefined

from td3robot import catalog, registry
from td3robot.config.loading import explain
from td3robot.config.objects import ObjectConfig
from td3robot.config.plain import read_plain
from td3robot.config.robot import GuardConfig, RobotConfig
from td3robot.config.section import Section
from td3robot.errors import ConfigError
from td3robot.format import shell
from td3robot.registry import Registry
from td3robot.robots.grippers.model import GripperModel
from td3robot.robots.interface import RobotSpec
from td3robot.robots.objects import ObjectBounds, Objects, TaughtObjects, TaughtPose
from td3robot.robots.physical import PhysicalRobot
from td3robot.robots.trackers import TrackerConfig, chosen_tracker

CELLS: Registry[type["CellConfig"]] = registry.CELLS

# Minimum number of targets streamed in a control period.
TARGETS = 2.0
# An object carried at the guard's tool speed limit may get this far from where it was last seen [m].
UNSEEN_M = 0.15


class DriverConfig(Section):
    """How an arm's controller is reached and driven, of any make.

    Attributes:
        host: Name or address of the controller.
        stop_deceleration_rad_s2: Deceleration of a controlled stop, for the fastest joint.
        late_periods: Without a new target for this many control periods, the arm is stopped and the fault reported.
        max_state_age_s: A state stream that stops for longer than this is a fault.
        realtime_priority: The worker's priority on SCHED_FIFO, if the system allows it; 0 leaves the scheduler alone.
        connect_timeout_s: How long the controller may take to answer, and to start its program.
    """

    host: Annotated[str, Field(min_length=1)]
    stop_deceleration_rad_s2: Annotated[float, Field(ge=2.0, le=40.0)] = 10.0
    late_periods: Annotated[float, Field(ge=1.5, le=100.0)] = 2.5
    # In a second at 0.25 m/s, an arm whose state stream has stopped moves further than any task's tolerance.
    max_state_age_s: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    realtime_priority: Annotated[int, Field(ge=0, le=80)] = 20
    connect_timeout_s: Annotated[float, Field(ge=0.5, le=120.0)] = 10.0

    rate_key: ClassVar[str]  # the field that says how often targets are streamed and states are read

    @property
    def rate_hz(self) -> float:
        """How often targets are streamed and states are read."""
        return float(getattr(self, self.rate_key))


class CellConfig(Section):
    """The settings of every cell. Validating this class gives an instance of the type that the backend names.

    Attributes:
        robot: As in a run; the backend selects the driver.
        tracker: Source of object poses, or None.
        taught: Objects that lie where a person said; for cells without a tracker.
        object: What lies on the table; by default, the object that a policy was trained for.
    """

    robot: RobotConfig
    tracker: Annotated[TrackerConfig | None, SerializeAsAny(), BeforeValidator(chosen_tracker)] = None
    taught: dict[str, TaughtPose] = Field(default_factory=dict)
    object: ObjectConfig | None = None
    _name: str = PrivateAttr("CELL")

    @property
    def name(self) -> str:
        """Name of this cell in commands: its file's path, its name in the catalog, or CELL if it has no file."""
        return self._name

    @property
    def recovery(self) -> str:
        """The command that recovers this cell's robot."""
        return f"td3robot recover --robot {shell(self._name)}"

    @classmethod
    def require_driver(cls) -> None:
        """Require the packages that the driver needs.

        Raises:
            MissingExtraError: They are not installed.
        """

    def require_within(self, guard: GuardConfig) -> None:
        """Refuse values that conflict with the limits of a run.

        Raises:
            ConfigError: Naming the value, the bound, and what would be accepted.
        """
        if self.tracker is None:
            return
        speed, age = guard.max_tcp_speed_m_s, self.tracker.max_age_s
        if speed * age > UNSEEN_M:
            raise ConfigError(
                f"tracker.max_age_s is {age:g}, and what the tool carries goes {1e3 * speed * age:.0f} mm unseen in "
                f"that time at the guard's {speed:g} m/s, more than {1e3 * UNSEEN_M:.0f} mm; set at most "
                f"{UNSEEN_M / speed:.2g}"
            )

    def changes(self) -> list[tuple[str, str, str]]:
        """Return every value that differs from its default, as (key, default, value) texts."""
        return list(_changes(self, None))

    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Return the addresses that the driver connects to, as (host, TCP port) by service."""
        return {}

    @property
    def host(self) -> str:
        """The controller's address, formatted."""
        return ", ".join(dict.fromkeys(host for host, _ in self.endpoints().values())) or "the robot"

    @abstractmethod
    def driver(self, spec: RobotSpec, passive: bool = False, max_tcp_speed_m_s: float = inf) -> PhysicalRobot:
        """Return the driver of this cell's robot, not connected yet.

        Args:
            spec: The robot that it has to be.
            passive: For reading only; see :class:`PhysicalRobot`.
            max_tcp_speed_m_s: The limit of the run's guard; near it, by the measured tool, the arm is driven slower.
        """

    def gripper_speed(self, gripper: GripperModel) -> float | None:
        """Compute the speed at which the gripper is driven, as a share of its fastest, or None if not configured."""
        return None

    def objects(self, bounds: ObjectBounds) -> Objects:
        """Return the source of object poses: the tracker, or the taught poses.

        Args:
            bounds: The objects, and where they can be.

        Raises:
            ConfigError: The cell does not say where one of them lies, or says it lies where none can.
        """
        if self.tracker is not None:
            return self.tracker.tracker(tuple(bounds.rest_m), bounds)
        return TaughtObjects(bounds.rest_m, self.taught, bounds)

    def named(self, name: str) -> Self:
        """Return the cell with the name that commands use for it."""
        cell = self.model_copy()
        cell._name = name
        return cell

    def with_taught(self, taught: Mapping[str, TaughtPose]) -> Self:
        """Return the cell with taught objects in place of its tracker."""
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
    def _streams_between_periods(self) -> Self:
        """Refuse a control rate that leaves too few targets to a period: fewer do not make a straight line."""
        control_hz = self.robot.control_rate_hz
        for name in type(self).model_fields:
            config = getattr(self, name)
            if isinstance(config, DriverConfig) and control_hz * TARGETS > config.rate_hz:
                raise ValueError(
                    f"robot.control_rate_hz {control_hz:g} leaves less than {TARGETS:g} targets of {name}."
                    f"{config.rate_key} {config.rate_hz:g} to a control period; set at most "
                    f"{config.rate_hz / TARGETS:g}, or stream faster"
                )
        return self

    @model_validator(mode="after")
    def _one_source_of_poses(self) -> Self:
        if self.tracker is not None and self.taught:
            raise ValueError("tracker and taught both say where objects are; keep one of them")
        return self


def _changes(section: Section, usual: Section | None, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the differences from the usual section, or from the defaults of its kind; an address has no default."""
    for name, field in type(section).model_fields.items():
        value, key = getattr(section, name), f"{prefix}{name}"
        default = field.get_default(call_default_factory=True, validated_data={})
        default = default if usual is None else getattr(usual, name)
        if isinstance(value, Section):
            if default is None:
                yield key, "none", "given"
            yield from _changes(value, default if isinstance(default, Section) else None, f"{key}.")
        elif isinstance(value, Mapping):
            yield from ((f"{key}.{item}", "none", str(one)) for item, one in value.items())
        elif default is not PydanticUndefined and value != default:
            yield key, "none" if default is None else str(default), str(value)


def cell_type(values: Mapping[str, Any]) -> type[CellConfig]:
    """Return the type of a cell by its ``robot.backend``, or by its driver's section if ``robot`` names none.

    Raises:
        ValueError: There is no such cell type; see :meth:`Registry.known`.
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
    """Read a cell's YAML file, given by its path or by the name of one that ships with td3robot.

    Raises:
        ConfigError: It cannot be read, or does not describe a cell.
    """
    file = catalog.cell(path)
    if not file.exists():
        raise ConfigError(catalog.missing("cell", path, catalog.cells()))
    values = read_plain(file, "cell")
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, not {type(values).__name__}")
    try:
        kind = cell_type(values)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return kind.model_validate(values, context={"folder": file.absolute().parent}).named(catalog.shown(file))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, kind, values, 'cell.')}") from None
