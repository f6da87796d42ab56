"""What a stand-in is started with, and the faults it can be asked for."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, PositiveFloat, TypeAdapter, ValidationError, model_validator

from td3robot.config import (
    Box,
    GraspConfig,
    NonNegative,
    ObjectConfig,
    RobotConfig,
    RobotEnvironmentConfig,
    Section,
    load_config,
)
from td3robot.errors import ConfigError, choose
from td3robot.tasks.grasp import OBJECT

ROBOTS = ("ur5e",)

# Ports of a UR controller and of Robotiq's URCap on it; ur_rtde 1.6.5 has the first three built in.
RTDE_PORT, DASHBOARD_PORT, SCRIPT_PORT, GRIPPER_PORT = 30004, 29999, 30003, 63352
# The bench is our own: what a person in the lab would do or see.
BENCH_PORT = 29990
# What nobody takes back by himself lasts an hour.
LASTING_S = 3600.0


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


class Fault(Section):
    """What all faults have in common.

    Attributes:
        at_s: When it begins: seconds after start, or after the named episode was announced on the bench.
        episode: The episode it waits for; none means time since start.
        for_s: How long it lasts. Faults that happen at one instant ignore it.
    """

    at_s: NonNegative = 0.0
    episode: Annotated[int, Field(ge=0)] | None = None
    for_s: PositiveFloat = 1.0


class Latency(Fault):
    """RTDE packages take longer, each way: ``delay_s``, and up to ``jitter_s`` more, drawn for each package."""

    kind: Literal["latency"]
    delay_s: NonNegative
    jitter_s: NonNegative = 0.0


class DroppedPackets(Fault):
    """Some RTDE data packages vanish, each way."""

    kind: Literal["dropped_packets"]
    probability: Annotated[float, Field(gt=0.0, le=1.0)]


class DelayedPackets(Fault):
    """Some RTDE data packages, and all that follow them, come late."""

    kind: Literal["delayed_packets"]
    probability: Annotated[float, Field(gt=0.0, le=1.0)]
    delay_s: PositiveFloat


class FrozenStream(Fault):
    """RTDE falls silent with its sockets open, or (``repeat``) repeats the same package."""

    kind: Literal["frozen_stream"]
    repeat: bool = False


class ClosedSockets(Fault):
    """Connections are closed and new ones refused while the fault lasts."""

    kind: Literal["closed_sockets"]
    service: Literal["rtde", "dashboard", "script", "gripper", "all"] = "all"


class KilledProcess(Fault):
    """The stand-in dies as by ``kill -9``: the controller's cable is pulled."""

    kind: Literal["killed_process"]


class ProtectiveStop(Fault):
    """A protective stop, as if something had been hit."""

    kind: Literal["protective_stop"]


class EmergencyStop(Fault):
    """Someone presses the emergency stop, and lets go of it only on the bench."""

    kind: Literal["emergency_stop"]


class RefusedServoj(Fault):
    """servoJ is not taken: the program ends (``stop``), or its script is never ready (``busy``; ur_rtde waits 3 s)."""

    kind: Literal["refused_servoj"]
    how: Literal["stop", "busy"] = "stop"


class LocalMode(Fault):
    """Someone takes the robot into local control at the pendant."""

    kind: Literal["local_mode"]
    for_s: PositiveFloat = LASTING_S


class SpeedSlider(Fault):
    """Someone moves the speed slider."""

    kind: Literal["speed_slider"]
    for_s: PositiveFloat = LASTING_S
    fraction: Annotated[float, Field(ge=0.0, le=1.0)]


class GripperNotActivated(Fault):
    """The gripper loses its activation, and cannot be activated while the fault lasts."""

    kind: Literal["gripper_not_activated"]


class GripperSilent(Fault):
    """The gripper's socket is open and does not answer."""

    kind: Literal["gripper_silent"]


class ObjectLost(Fault):
    """What is held slips out: the pads have no friction while the fault lasts."""

    kind: Literal["object_lost"]


class WrongModel(Fault):
    """The controller says that it is another robot."""

    kind: Literal["wrong_model"]
    for_s: PositiveFloat = LASTING_S
    model: str = "UR10"


class TrackerSilent(Fault):
    """The object tracker sends nothing."""

    kind: Literal["tracker_silent"]


class TrackerJump(Fault):
    """The object tracker reports objects elsewhere."""

    kind: Literal["tracker_jump"]
    offset_m: tuple[float, float, float] = (0.2, 0.0, 0.0)


AnyFault = Annotated[
    Latency
    | DroppedPackets
    | DelayedPackets
    | FrozenStream
    | ClosedSockets
    | KilledProcess
    | ProtectiveStop
    | EmergencyStop
    | RefusedServoj
    | LocalMode
    | SpeedSlider
    | GripperNotActivated
    | GripperSilent
    | ObjectLost
    | WrongModel
    | TrackerSilent
    | TrackerJump,
    Field(discriminator="kind"),
]
FAULTS: Mapping[str, type[Fault]] = {
    section.model_fields["kind"].annotation.__args__[0]: section  # type: ignore[union-attr]
    for section in Fault.__subclasses__()
}
_fault: TypeAdapter[AnyFault] = TypeAdapter(AnyFault)


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


def parse_fault(values: Any) -> AnyFault:
    """Check one fault, as a file or the bench gives it.

    Raises:
        ConfigError: It is none, in one sentence.
    """
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigError(f"a fault is a mapping with a kind (choices: {', '.join(sorted(FAULTS))}), not {values!r}")
    kind = values["kind"]
    if kind not in FAULTS:
        raise ConfigError(choose("fault", str(kind), FAULTS))
    try:
        return _fault.validate_python(values)
    except ValidationError as error:
        first = _first(error)
        key = str(first["loc"][-1])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"fault {kind}: {choose('key', key, FAULTS[kind].model_fields)}") from None
        raise ConfigError(f"fault {kind}: {key} {first.get('input')!r}: {first['msg']}") from None


def _first(error: ValidationError) -> Any:
    """Pick what to tell: a misspelt key that is required is both missing and unknown, and the second says more."""
    errors = error.errors(include_url=False)
    return next((item for item in errors if item["type"] == "extra_forbidden"), errors[0])


def load_faults(path: Path) -> tuple[AnyFault, ...]:
    """Read a YAML file with a list ``faults``.

    Raises:
        ConfigError: The file cannot be read or says something that is no fault.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"faults {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict) or set(values) != {"faults"} or not isinstance(values["faults"], list):
        raise ConfigError(f"{path} must hold a mapping with one key, faults: a list of faults")
    try:
        return tuple(parse_fault(item) for item in values["faults"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


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
        first = _first(error)
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "value_error":
            raise ConfigError(f"{first['ctx']['error']}") from None
        if first["type"] == "extra_forbidden":
            raise ConfigError(choose("setting of a stand-in", name, StandinConfig.model_fields)) from None
        raise ConfigError(f"stand-in: {name} {first.get('input')!r}: {first['msg']}") from None
