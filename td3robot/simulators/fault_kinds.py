"""The faults that a stand-in can simulate, by their names in a file or the lab."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, TypeAdapter, ValidationError

from td3robot.config import NonNegative, Section
from td3robot.config.plain import parse_plain
from td3robot.errors import ConfigError, choose

# A fault that only a person can end lasts an hour.
LASTING_S = 3600.0


class Fault(Section):
    """The settings of every fault.

    Attributes:
        at_s: When it begins: seconds after start, or after the given episode was announced in the lab.
        episode: The episode it waits for; None means time since start.
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
    """Some RTDE data packages, and all that follow them, arrive late."""

    kind: Literal["delayed_packets"]
    probability: Annotated[float, Field(gt=0.0, le=1.0)]
    delay_s: PositiveFloat


class FrozenStream(Fault):
    """RTDE falls silent with its sockets open, or (``repeat``) keeps sending the same package."""

    kind: Literal["frozen_stream"]
    repeat: bool = False


class ClosedSockets(Fault):
    """Connections are closed and new ones refused while the fault lasts."""

    kind: Literal["closed_sockets"]
    service: Literal["rtde", "dashboard", "script", "gripper", "primary", "secondary", "all"] = "all"


class KilledProcess(Fault):
    """The stand-in dies as if by ``kill -9``: the controller's cable is pulled."""

    kind: Literal["killed_process"]


class ProtectiveStop(Fault):
    """A protective stop, as if something had been hit."""

    kind: Literal["protective_stop"]


class EmergencyStop(Fault):
    """Someone presses the emergency stop, and releases it only in the lab."""

    kind: Literal["emergency_stop"]


class RefusedServoj(Fault):
    """servoJ is refused: the program ends (``stop``), or its script is never ready (``busy``; ur_rtde waits 3 s)."""

    kind: Literal["refused_servoj"]
    how: Literal["stop", "busy"] = "stop"


class LocalMode(Fault):
    """Someone switches the robot to local control at the pendant."""

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
    """The gripper's socket stays open but does not answer."""

    kind: Literal["gripper_silent"]


class ObjectLost(Fault):
    """The held object slips out: the pads have no friction while the fault lasts."""

    kind: Literal["object_lost"]


class WrongModel(Fault):
    """The controller reports another robot model."""

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


def parse_fault(values: Any) -> AnyFault:
    """Return the validated fault of a file or the lab.

    Raises:
        ConfigError: It is not a fault, in one sentence.
    """
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigError(f"a fault is a mapping with a kind (choices: {', '.join(sorted(FAULTS))}), not {values!r}")
    kind = values["kind"]
    if kind not in FAULTS:
        raise ConfigError(choose("fault", str(kind), FAULTS))
    try:
        return _fault.validate_python(values)
    except ValidationError as error:
        first = first_error(error)
        key = str(first["loc"][-1])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"fault {kind}: {choose('key', key, FAULTS[kind].model_fields)}") from None
        raise ConfigError(f"fault {kind}: {key} {first.get('input')!r}: {first['msg']}") from None


def load_faults(path: Path) -> tuple[AnyFault, ...]:
    """Read a YAML file with a list ``faults``.

    Raises:
        ConfigError: The file cannot be read, or contains something that is not a fault.
    """
    try:
        values = parse_plain(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"faults {path} cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} {error}") from None
    if not isinstance(values, dict) or set(values) != {"faults"} or not isinstance(values["faults"], list):
        raise ConfigError(f"{path} must hold a mapping with one key, faults: a list of faults")
    try:
        return tuple(parse_fault(item) for item in values["faults"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def first_error(error: ValidationError) -> Any:
    """Return the error to report: a misspelt required key is both missing and unknown, and unknown says more."""
    errors = error.errors(include_url=False)
    return next((item for item in errors if item["type"] == "extra_forbidden"), errors[0])
