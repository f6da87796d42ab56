"""The faults that a stand-in can simulate: their kinds, and when they begin and end.

A fault starts at a time, in an episode, or from the lab, and ends when its time is over.
"""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, SerializeAsAny, ValidationError

from td3robot.config import NonNegative, Section, explain
from td3robot.config.plain import read_plain
from td3robot.errors import ConfigError, choose

if TYPE_CHECKING:
    from td3robot.simulators.controller import Controller
    from td3robot.simulators.loop import Line, Loop
    from td3robot.simulators.vision import VisionSystem

# A fault that only a person can end lasts an hour.
LASTING_S = 3600.0


class Fault(Section, ABC):
    """The settings of every fault; each kind is one class that switches it on and off.

    Attributes:
        kind: The name of the kind.
        at_s: When it begins: seconds after start, or after the given episode was announced in the lab.
        episode: The episode it waits for; None means time since start.
        for_s: How long it lasts. Faults that happen at one instant ignore it.
        of_tracker: Whether it is of the poses that the simulator tells.
    """

    of_tracker: ClassVar[bool] = False
    kind: str
    at_s: NonNegative = 0.0
    episode: Annotated[int, Field(ge=0)] | None = None
    for_s: PositiveFloat = 1.0

    @abstractmethod
    def _switch(self, cell: "Faults", on: bool) -> None:
        """Begin the fault, or end it."""


class Latency(Fault):
    """RTDE packages take longer, each way: ``delay_s``, and up to ``jitter_s`` more, drawn for each package."""

    kind: Literal["latency"]
    delay_s: NonNegative
    jitter_s: NonNegative = 0.0

    def _switch(self, cell: "Faults", on: bool) -> None:
        line, model = cell.line, cell.line.model
        line.delay_s, line.jitter_s = (self.delay_s, self.jitter_s) if on else (model.delay_s, model.jitter_s)


class DroppedPackets(Fault):
    """Some RTDE data packages vanish, each way."""

    kind: Literal["dropped_packets"]
    probability: Annotated[float, Field(gt=0.0, le=1.0)]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.line.drop = self.probability if on else 0.0


class DelayedPackets(Fault):
    """Some RTDE data packages, and all that follow them, arrive late."""

    kind: Literal["delayed_packets"]
    probability: Annotated[float, Field(gt=0.0, le=1.0)]
    delay_s: PositiveFloat

    def _switch(self, cell: "Faults", on: bool) -> None:
        line, model = cell.line, cell.line.model
        line.hiccup, line.hiccup_s = (self.probability, self.delay_s) if on else (model.hiccup, model.hiccup_s)


class FrozenStream(Fault):
    """RTDE falls silent with its sockets open, or (``repeat``) keeps sending the same package."""

    kind: Literal["frozen_stream"]
    repeat: bool = False

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.line.frozen, cell.line.repeating = on and not self.repeat, on and self.repeat


class ClosedSockets(Fault):
    """Connections are closed and new ones refused while the fault lasts."""

    kind: Literal["closed_sockets"]
    service: Literal["rtde", "dashboard", "script", "gripper", "primary", "secondary", "all"] = "all"

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.loop.set_accepting(self.service, not on)
        if on:
            cell.loop.close_connections(self.service)


class KilledProcess(Fault):
    """The stand-in dies as if by ``kill -9``: the controller's cable is pulled."""

    kind: Literal["killed_process"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class ProtectiveStop(Fault):
    """A protective stop, as if something had been hit."""

    kind: Literal["protective_stop"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        if on:
            cell.controller.protective_stop("as a fault asked for")


class EmergencyStop(Fault):
    """Someone presses the emergency stop, and releases it only in the lab."""

    kind: Literal["emergency_stop"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        if on:
            cell.controller.emergency_stop()


class RefusedServoj(Fault):
    """servoJ is refused: the program ends (``stop``), or its script is never ready (``busy``; ur_rtde waits 3 s)."""

    kind: Literal["refused_servoj"]
    how: Literal["stop", "busy"] = "stop"

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.refusing = self.how if on else None


class LocalMode(Fault):
    """Someone switches the robot to local control at the pendant."""

    kind: Literal["local_mode"]
    for_s: PositiveFloat = LASTING_S

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.set_remote(not on)


class SpeedSlider(Fault):
    """Someone moves the speed slider."""

    kind: Literal["speed_slider"]
    for_s: PositiveFloat = LASTING_S
    fraction: Annotated[float, Field(ge=0.0, le=1.0)]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.inputs.slider = self.fraction if on else 1.0


class GripperNotActivated(Fault):
    """The gripper loses its activation, and cannot be activated while the fault lasts."""

    kind: Literal["gripper_not_activated"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.gripper.can_activate = not on
        if on:
            cell.controller.gripper.deactivate()


class GripperSilent(Fault):
    """The gripper's socket stays open but does not answer."""

    kind: Literal["gripper_silent"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.gripper_silent = on


class ObjectLost(Fault):
    """The held object slips out: the pads have no friction while the fault lasts."""

    kind: Literal["object_lost"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.arm.set_slippery(on)


class WrongModel(Fault):
    """The controller reports another robot model."""

    kind: Literal["wrong_model"]
    for_s: PositiveFloat = LASTING_S
    model: str = "UR10"

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.controller.model = self.model if on else cell.controller.config.model


class TrackerSilent(Fault):
    """The object tracker sends nothing."""

    of_tracker = True
    kind: Literal["tracker_silent"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.vision.silent = on


class TrackerFrozen(Fault):
    """The object tracker sends its last picture again and again, with new stamps."""

    kind: Literal["tracker_frozen"]

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.vision.frozen = on


class TrackerJump(Fault):
    """The object tracker reports objects elsewhere."""

    of_tracker = True
    kind: Literal["tracker_jump"]
    offset_m: tuple[float, float, float] = (0.2, 0.0, 0.0)

    def _switch(self, cell: "Faults", on: bool) -> None:
        cell.vision.offset_m = self.offset_m if on else (0.0, 0.0, 0.0)


FAULTS: Mapping[str, type[Fault]] = {
    section.model_fields["kind"].annotation.__args__[0]: section  # type: ignore[union-attr]
    for section in Fault.__subclasses__()
}


def parse_fault(values: Any) -> Fault:
    """Return the validated fault of a file or the lab.

    Raises:
        ConfigError: It is not a fault, in one sentence.
    """
    if isinstance(values, Fault):
        return values
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigError(f"a fault is a mapping with a kind (choices: {', '.join(sorted(FAULTS))}), not {values!r}")
    kind = str(values["kind"])
    if kind not in FAULTS:
        raise ConfigError(choose("fault", kind, FAULTS))
    try:
        return FAULTS[kind].model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"fault {kind}: {explain(error, FAULTS[kind], values)}") from None


# A fault of any kind, in settings.
AnyFault = Annotated[SerializeAsAny[Fault], BeforeValidator(parse_fault)]


def load_faults(path: Path) -> tuple[Fault, ...]:
    """Read a YAML file with a list ``faults``.

    Raises:
        ConfigError: The file cannot be read, or contains something that is not a fault.
    """
    values = read_plain(path, "faults")
    if not isinstance(values, dict) or set(values) != {"faults"} or not isinstance(values["faults"], list):
        raise ConfigError(f"{path} must hold a mapping with one key, faults: a list of faults")
    try:
        return tuple(parse_fault(item) for item in values["faults"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


class Faults:
    """The faults of one stand-in."""

    def __init__(
        self, planned: tuple[Fault, ...], controller: "Controller", line: "Line", loop: "Loop", vision: "VisionSystem"
    ) -> None:
        self.controller, self.line, self.loop, self.vision = controller, line, loop, vision
        self._of_episodes = [fault for fault in planned if fault.episode is not None]
        self._waiting = [(fault.at_s, fault) for fault in planned if fault.episode is None]
        self._active: list[tuple[float, Fault]] = []

    def request(self, fault: Fault) -> None:
        """Begin a fault ``at_s`` from now."""
        self._waiting.append((self.controller.time_s + fault.at_s, fault))

    def begin_episode(self, number: int) -> None:
        """Schedule the faults of an episode, each at its time from now."""
        for fault in self._of_episodes:
            if fault.episode == number:
                self.request(fault)

    def clear(self) -> None:
        """End active faults, and drop those requested for later."""
        self._waiting = []
        for _, fault in self._active:
            fault._switch(self, False)
        self._active = []

    def tick(self) -> None:
        """Begin and end the faults that are due."""
        now = self.controller.time_s
        for item in [item for item in self._waiting if item[0] <= now]:
            self._waiting.remove(item)
            fault = item[1]
            self.controller.note(f"fault: {fault.kind}")
            self._active.append((now + fault.for_s, fault))
            fault._switch(self, True)
        for item in [item for item in self._active if item[0] <= now]:
            self._active.remove(item)
            item[1]._switch(self, False)
