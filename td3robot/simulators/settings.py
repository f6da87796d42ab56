"""Settings of a stand-in."""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from td3robot.config import Box, RobotConfig, Section, explain
from td3robot.config.objects import ObjectConfig
from td3robot.errors import ConfigError, choose
from td3robot.registry import ARMS, GRIPPERS
from td3robot.robots.interface import RobotSpec, robot_spec
from td3robot.robots.ur.generations import (
    DASHBOARD_PORT,
    GRIPPER_PORT,
    PRIMARY_PORT,
    RTDE_PORT,
    SCRIPT_PORT,
    SECONDARY_PORT,
    is_ur,
    model_names,
)
from td3robot.simulators.faults import AnyFault, load_faults
from td3robot.simulators.presets import NOMINAL_CELL, CalibrationConfig, CellModel
from td3robot.state import ObjectModel

# The lab's port is our own: what a person beside the arm would do or see.
LAB_PORT = 29990
# ur_rtde 1.6.5 has the ports of RTDE, dashboard and script built in.
PORTS = (RTDE_PORT, DASHBOARD_PORT, PRIMARY_PORT, SECONDARY_PORT, SCRIPT_PORT, GRIPPER_PORT, LAB_PORT)
# PolyScope versions (major, minor, bugfix, build) by their first two numbers; bugfix and build are examples.
VERSIONS = {"5.11": (5, 11, 6, 1092), "5.23": (5, 23, 0, 1101)}


class ControllerConfig(Section):
    """One stand-in.

    Attributes:
        host: Address to listen on; every stand-in needs its own, and 127.0.0.2 to 127.255.255.254 are free to use.
        polyscope: Version of PolyScope, one of those whose control script is known.
        robot: Arm and gripper, table height and coupling between flange and gripper; ``backend`` and the rates do not
            matter.
        calibration: How this arm differs from the nominal one; ``off`` for not at all.
        cell_model: How this cell differs from the one that the training simulation assumes.
        objects: Objects on the table, by name.
        safety_box: Where the tool centre point may be, besides above the table; by default, no limit.
        tracker: ``HOST:PORT`` to which object poses are sent.
        lab_port: Port of the lab: faults, objects, truth.
        remote: Whether the controller starts in remote control.
        powered: Whether it starts with brakes released; otherwise powered off.
        gripper_active: Whether the gripper is activated from the start, as by an earlier program.
        token: Lets the process that starts the stand-in recognise it.
        allow_network: Allow addresses that other computers can reach.
    """

    host: str = "127.0.0.2"
    polyscope: Literal["5.11", "5.23"] = "5.11"
    robot: RobotConfig = RobotConfig()
    calibration: CalibrationConfig | Literal["off"] = CalibrationConfig()
    cell_model: CellModel = NOMINAL_CELL
    objects: dict[str, ObjectConfig] = Field(default_factory=dict)
    safety_box: Box | None = None
    faults: tuple[AnyFault, ...] = ()
    tracker: Annotated[str, Field(pattern=r"^[^:]+:\d+$")] | None = None
    lab_port: Annotated[int, Field(gt=0, lt=65536)] = LAB_PORT
    remote: bool = True
    powered: bool = True
    gripper_active: bool = False
    seed: int = 0
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")] = "0"
    allow_network: bool = False

    @property
    def version(self) -> tuple[int, int, int, int]:
        """PolyScope's version: major, minor, bugfix, build."""
        return VERSIONS[self.polyscope]

    @property
    def serial_number(self) -> str:
        """A serial number, digits only as ur_rtde requires, recognisable by anyone who knows the token."""
        return f"20{int(hashlib.sha256(self.token.encode()).hexdigest(), 16) % 10**9:09d}"

    @property
    def model(self) -> str:
        """The arm's model, as the dashboard reports it."""
        return model_names(ARMS[self.robot.arm])[0]

    def spec(self) -> RobotSpec:
        """Return the nominal robot."""
        return robot_spec(self.robot)

    def object_models(self) -> tuple[ObjectModel, ...]:
        """Return the objects on the table."""
        return tuple(item.model(name) for name, item in self.objects.items())

    @model_validator(mode="after")
    def _is_a_ur(self) -> Self:
        try:
            model_names(ARMS[self.robot.arm])
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _on_loopback(self) -> Self:
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise ValueError(f"host {self.host!r} is no IP address; use 127.0.0.2 to 127.255.255.254") from None
        if not loopback and not self.allow_network:
            raise ValueError(
                f"host {self.host} can be reached by other computers, and any client may move the simulated arm; "
                "use 127.0.0.2 to 127.255.255.254, or --allow-network"
            )
        return self


def make_controller_config(
    arm: str,
    robot: RobotConfig | None = None,
    objects: Iterable[ObjectModel] = (),
    gripper: str | None = None,
    faults: Path | None = None,
    **values: Any,
) -> ControllerConfig:
    """Return the settings that a command line asks for.

    Args:
        arm: The arm to stand in for.
        robot: A run's robot, for its gripper and table; by default, the 2F-85 on a bare table.
        objects: The objects on the table.
        gripper: A gripper in place of the run's or the default.
        faults: File of faults.
        **values: Other fields of :class:`ControllerConfig`.

    Raises:
        ConfigError: There is no stand-in for such an arm, the run is for another arm, or a value is wrong.
    """
    if arm not in ARMS:
        raise ConfigError(choose("stand-in", arm, ARMS))
    model_names(ARMS[arm])
    robot = robot or RobotConfig.model_validate({"arm": arm})
    if robot.arm != arm:
        raise ConfigError(f"the run is for a {robot.arm}, and the stand-in would be a {arm}; name the run's arm")
    if gripper is not None:
        GRIPPERS.find(gripper)
        robot = RobotConfig.model_validate(robot.model_dump() | {"gripper": gripper})
    if faults is not None:
        values["faults"] = load_faults(faults)
    return check_controller_config({"robot": robot, "objects": objects_on_table(objects), **values})


def known_arms() -> tuple[str, ...]:
    """Return the arms for which there is a stand-in: those of Universal Robots."""
    return tuple(name for name in ARMS if is_ur(name))


def objects_on_table(models: Iterable[ObjectModel]) -> dict[str, ObjectConfig]:
    """Return a task's objects in the form of the stand-in's settings."""
    return {
        item.name: ObjectConfig.model_validate(
            {"shape": item.shape, "size_m": item.size_m, "mass_kg": item.mass_kg, "friction": item.friction}
        )
        for item in models
    }


def check_controller_config(values: Mapping[str, Any]) -> ControllerConfig:
    """Return validated settings.

    Raises:
        ConfigError: One is wrong, in one sentence.
    """
    try:
        return ControllerConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"stand-in: {explain(error, ControllerConfig, values)}") from None
