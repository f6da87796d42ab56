"""Generations of UR controllers: what differs between them, and which are driven. Plain Python, for workers.

To add one, try this driver on such a controller, then add a record to :data:`GENERATIONS` with everything that differs:
its arms, dashboard commands and answers, RTDE variables, waiting times. The CB3's record has a refusal in place of
these. Taking it out alone would drive a UR5 as a UR5e, whose controller gives the same name: its arms need a file of
their own, and its controller accepts 125 targets a second only. The simulated controller (``td3robot.simulators``)
answers as :data:`POLYSCOPE_5` does.
"""

import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from td3robot.errors import ConfigError

if TYPE_CHECKING:
    from td3robot.robots.arms.model import ArmModel

RTDE_PORT, DASHBOARD_PORT, GRIPPER_PORT = 30004, 29999, 63352
PRIMARY_PORT, SECONDARY_PORT, SCRIPT_PORT = 30001, 30002, 30003
# The dashboard command that every generation with a dashboard knows, to tell them apart.
WHICH = "PolyscopeVersion"

_ARM = re.compile(r"ur(\d+)(e?)")


@dataclass(frozen=True, slots=True)
class Generation:
    """What differs between the controllers of one generation and others.

    Attributes:
        name: The major version's name for people: ``5``.
        majors: The major versions of PolyScope that it has.
        arms: Names of arms that it alone has.
        refusal: Why it is not driven, with ``{host}`` and ``{version}``; empty if it is.
        answer: How its dashboard's answer to :data:`WHICH` begins.
        commands: Its dashboard commands, by what they ask for; without ``remote``, it knows no remote control.
        outputs: The RTDE variables of a state. ur_rtde accepts truncated packages, and then reads old or random values
            at their end. The time is last, and the tool's pose before it, because both are checked in every state.
        unlock_after_s: How long after a protective stop it may be unlocked [s].
    """

    name: str
    majors: range
    arms: tuple[str, ...] = ()
    refusal: str = ""
    answer: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    unlock_after_s: float = 0.0


CB3 = Generation(
    "3",
    range(5),
    ("ur3", "ur5", "ur10"),
    "the controller at {host} runs PolyScope {version}, which is a CB3: its arms have other kinematics than the "
    "e-Series arms of the same names, and nothing here describes them; use an e-Series",
)
POLYSCOPE_5 = Generation(
    "5",
    range(5, 6),
    answer="URSoftware 5.",
    commands=MappingProxyType(
        {
            "model": "get robot model",
            "serial_number": "get serial number",
            "robot_mode": "robotmode",
            "safety": "safetystatus",
            "remote": "is in remote control",
        }
    ),
    outputs=(
        "actual_q", "actual_qd", "target_q", "speed_scaling", "target_speed_fraction", "robot_mode",
        "safety_mode", "runtime_state", "payload", "actual_TCP_force", "actual_TCP_speed", "actual_TCP_pose",
        "timestamp",
    ),
    unlock_after_s=5.5,  # 5 s (UR user manual); a little more, because clocks differ
)  # fmt: skip
POLYSCOPE_X = Generation(
    "X",
    range(6, 1 << 16),
    (),
    "the controller at {host} runs PolyScope X {version}: ur_rtde starts no program on it before 10.10 and then drops "
    "every command in silence, and nobody has tried this driver on a later one; use PolyScope 5",
)
GENERATIONS = (CB3, POLYSCOPE_5, POLYSCOPE_X)


def refusal(host: str, version: tuple[int, int]) -> str | None:
    """Return why a controller of a version (major, minor) is not driven, or None if it is."""
    found = next((each for each in GENERATIONS if version[0] in each.majors), POLYSCOPE_X)
    return found.refusal.format(host=host, version="{}.{}".format(*version)) or None


def generation_of(arm: str) -> Generation:
    """Return the generation whose controllers have an arm of this name: that which has it alone, or the usual one."""
    return next((each for each in GENERATIONS if arm in each.arms), POLYSCOPE_5)


def generation_named(name: str) -> Generation:
    """Return the generation with a name, as a worker gets it."""
    return next(each for each in GENERATIONS if each.name == name)


def version_in(answer: str) -> tuple[int, int] | None:
    """Return the major and minor version in a dashboard's answer, or None if it has none."""
    found = re.search(r"(\d+)\.(\d+)", answer)
    return None if found is None else (int(found[1]), int(found[2]))


def rtde_version(host: str, port: int, timeout_s: float) -> tuple[int, int] | None:
    """Return PolyScope's major and minor version from RTDE, or None if the answer is not RTDE's."""
    request, answer = struct.Struct(">HB"), struct.Struct(">HB4I")
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as link:
            link.sendall(request.pack(request.size, ord("v")))
            data = b""
            while len(data) < answer.size:
                if not (received := link.recv(answer.size - len(data))):
                    return None
                data += received
    except OSError:
        return None
    size, kind, major, minor, _, _ = answer.unpack(data)
    return (major, minor) if (size, kind) == (answer.size, ord("v")) else None


def model_names(arm: "ArmModel") -> tuple[str, ...]:
    """Return a controller's possible answers to ``get robot model`` for an arm, the usual one first.

    An e-Series answers without its ``e``: ``UR5``, like the CB3 arm of that name. PolyScope's version tells the two
    apart, so an arm of a generation that is not driven has no names here.

    Raises:
        ConfigError: The arm is not from Universal Robots, or no controller that is driven has it.
    """
    match = _ARM.fullmatch(arm.name)
    if match is None:
        raise ConfigError(f"{arm.name} is not an arm of Universal Robots, whose controllers this driver speaks to")
    short = f"UR{match[1]}"
    other = generation_of(arm.name)
    if other.refusal:
        raise ConfigError(
            f"robot.arm is {arm.name!r}, an arm of controllers with PolyScope {other.name}, which are not driven; a "
            f"controller with PolyScope 5 that calls itself {short} has a {arm.name}e: set robot.arm to the arm that "
            "is there"
        )
    return (short, f"{short}e") if match[2] else (short,)


def is_ur(name: str) -> bool:
    """Whether an arm of that name is from Universal Robots, and of a generation that is driven."""
    return _ARM.fullmatch(name) is not None and not generation_of(name).refusal
