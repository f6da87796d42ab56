"""What a stand-in is started with."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, ValidationError, model_validator

from td3robot.config import (
    Box,
    NonNegative,
    RobotConfig,
    RobotEnvironmentConfig,
    Section,
    load_config,
)
from td3robot.config.objects import ObjectConfig
from td3robot.errors import ConfigError, choose
from td3robot.standin.fault_kinds import AnyFault, first_error, load_faults
from td3robot.tasks.grasp import OBJECT, GraspConfig

ROBOTS = ("ur5e",)

# Ports of a UR controller and of Robotiq's URCap on it; ur_rtde 1.6.5 has the first three built in.
RTDE_PORT, DASHBOARD_PORT, SCRIPT_PORT, GRIPPER_PORT = 30004, 29999, 30003, 63352
# The bench is our own: what a person in the lab would do or see.
BENCH_PORT = 29990


class SafetyConfig(Section):
    """When the stand-in stops the arm. All but the first two are this project's assumptions.

    Attributes:
        max_joint_speed_rad_s: 191 deg/s, the joint speed limit of a UR's default safety configuration.
        max_tcp_speed_m_s: 1.5 m/s, the tool speed limit of the same.
        max_target_jump_rad: Largest step between two targets of servoJ, any joint.
        max_deviation_rad: How far the arm may be from where the controller wants it, any joint.
        max_contact_force_n: Force between arm or gripper and anything that is no object to be handled.
        box: Where the tool centre point may be, besides above the table; no limit where it is left out.
    """

    max_joint_speed_rad_s: PositiveFloat = 3.34
    max_tcp_speed_m_s: PositiveFloat = 1.5
    max_target_jump_rad: PositiveFloat = 0.2
    max_deviation_rad: PositiveFloat = 0.1
    max_contact_force_n: PositiveFloat = 150.0
    box: Box | None = None


class StandinConfig(Section):
    """One stand-in.

    Attributes:
        host: Address to listen on; every stand-in needs its own, and 127.0.0.2 to 127.255.255.254 are free to use.
        polyscope: Version of PolyScope, of those whose control script is known.
        robot: Where the table is and what sits between flange and gripper; ``backend`` and the rates do not matter.
        objects: What lies on the table, by name.
        tracker: ``HOST:PORT`` that object poses are sent to.
        remote: Whether the controller starts in remote control.
        powered: Whether it starts with brakes released; otherwise powered off.
        tcp_offset_m: The tool centre point of the installation, from the flange along its z axis; the cell's, if left
            out.
        payload_kg: The payload of the installation; a 2F-85 weighs 0.9 kg (data sheet).
        gripper_active: Whether the gripper is activated from the start, as by a program that ran before.
        accounting_window_s: Span over which the speed of received targets is averaged.
        token: Whoever starts the stand-in recognises it by this.
        allow_network: Allow addresses that other computers can reach.
    """

    host: str = "127.0.0.2"
    polyscope: Literal["5.11", "5.23"] = "5.11"
    robot: RobotConfig = RobotConfig()
    objects: dict[str, ObjectConfig] = Field(default_factory=dict)
    safety: SafetyConfig = SafetyConfig()
    faults: tuple[AnyFault, ...] = ()
    tracker: Annotated[str, Field(pattern=r"^[^:]+:\d+$")] | None = None
    bench_port: Annotated[int, Field(gt=0, lt=65536)] = BENCH_PORT
    remote: bool = True
    powered: bool = True
    tcp_offset_m: NonNegative | None = None
    payload_kg: NonNegative = 0.9
    gripper_active: bool = False
    accounting_window_s: Annotated[float, Field(ge=0.002, le=1.0)] = 0.1
    seed: int = 0
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")] = "0"
    allow_network: bool = False

    @model_validator(mode="after")
    def _on_loopback(self) -> Self:
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise ValueError(f"host {self.host!r} is no IP address; use 127.0.0.2 to 127.255.255.254") from None
        if not loopback and not self.allow_network:
            raise ValueError(
                f"host {self.host} can be reached by other computers, and the stand-in obeys whoever connects; "
                "use 127.0.0.2 to 127.255.255.254, or --allow-network"
            )
        return self


def make_standin_config(robot: str, run: Path | None, faults: Path | None, **values: Any) -> StandinConfig:
    """Put together what the command line says.

    Args:
        robot: What to stand in for.
        run: Configuration of a run, whose table and objects are put up.
        faults: File of faults.
        **values: Other fields of :class:`StandinConfig`.

    Raises:
        ConfigError: Something cannot be had.
    """
    if robot not in ROBOTS:
        raise ConfigError(choose("stand-in", robot, ROBOTS))
    if run is not None:
        environment = load_config(run).environment
        if not isinstance(environment, RobotEnvironmentConfig):
            raise ConfigError(f"{run} trains on {environment.kind!r}, which has no robot to stand in for")
        values["robot"] = environment.robot
        if isinstance(environment.task, GraspConfig):
            values["objects"] = {OBJECT: environment.task.object}
    if faults is not None:
        values["faults"] = load_faults(faults)
    return check_standin_config(values)


def check_standin_config(values: Mapping[str, Any]) -> StandinConfig:
    """Check settings.

    Raises:
        ConfigError: One is wrong, in one sentence.
    """
    try:
        return StandinConfig.model_validate(values)
    except ValidationError as error:
        first = first_error(error)
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "value_error":
            raise ConfigError(f"{first['ctx']['error']}") from None
        if first["type"] == "extra_forbidden":
            raise ConfigError(choose("setting of a stand-in", name, StandinConfig.model_fields)) from None
        raise ConfigError(f"stand-in: {name} {first.get('input')!r}: {first['msg']}") from None
