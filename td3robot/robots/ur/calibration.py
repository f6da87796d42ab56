"""The factory-calibrated kinematics of one particular UR arm.

Every arm differs from its data sheet. Its controller computes with the measured Denavit-Hartenberg parameters and
sends them, with its first state, to every client of its primary interface (port 30001); UR's ROS drivers extract them
from there into a ``calibration.yaml``. The message layout is that of UR's client library (``kinematics_info.cpp``).
None of this has been confirmed with a real controller.
"""

import hashlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite, pi
from pathlib import Path
from time import monotonic

import numpy as np
import yaml

from td3robot.errors import ConfigError, RobotError
from td3robot.registry import ARMS
from td3robot.robots.arms.model import ArmModel, Chain, Step
from td3robot.robots.arms.ur import DH_ALPHA
from td3robot.robots.cells.ur import UrConfig
from td3robot.robots.ur import JOINTS
from td3robot.robots.ur.generations import PRIMARY_PORT

# A controller sends the kinematics with its first state, a tenth of a second after a client connects [s].
PATIENCE_S = 5.0
# Header of a message, and of each part of a state message: size, type.
_HEAD = struct.Struct(">iB")
_STATE, _KINEMATICS = 16, 5
# Six checksums, then theta, a, d and alpha of six joints each, then the calibration's status.
_INFO = struct.Struct(">6I24dI")
# No message of a controller is this long [bytes].
_MAX_MESSAGE = 1 << 16
# The frames of a calibration.yaml: each joint's, in the frame before it.
LINKS = ("shoulder", "upper_arm", "forearm", "wrist_1", "wrist_2", "wrist_3")
PARTS = ("x", "y", "z", "roll", "pitch", "yaw")
# Eleven published calibrations move the flange by 1 to 9 mm; other arms, a UR5 (CB3) for a UR5e, by 80 mm and more [m].
ANOTHER_ARM_M = 0.02
# An arm is named as the owner of a calibration this near to its own data sheet; no link of any of them is longer [m].
OWNER_M, LONGEST_M = 0.02, 10.0
SAMPLES = 4000
# a2, a3, d1, d4, d5, d6 of the CB3 series, which is not driven here [m]: UR's Universal_Robots_ROS2_Description,
# ``config/<name>/default_kinematics.yaml`` at commit 2221ec0.
CB3 = {
    "ur3 (CB3)": ((-0.24365, -0.21325), (0.1519, 0.11235, 0.08535, 0.0819)),
    "ur5 (CB3)": ((-0.425, -0.39225), (0.089159, 0.10915, 0.09465, 0.0823)),
    "ur10 (CB3)": ((-0.612, -0.5723), (0.1273, 0.163941, 0.1157, 0.0922)),
}


@dataclass(frozen=True, slots=True)
class DhParameters:
    """Standard Denavit-Hartenberg parameters, six each: ``Rz(q + theta) tz(d) tx(a) Rx(alpha)`` [rad, m, m, rad]."""

    theta: tuple[float, ...]
    a: tuple[float, ...]
    d: tuple[float, ...]
    alpha: tuple[float, ...]

    @classmethod
    def of(cls, chain: Chain) -> "DhParameters":
        """Return the parameters of a chain that was made from them."""
        rows = [dict(link) for link in chain.links[1:]]
        return cls(*(tuple(row.get(axis, 0.0) for row in rows) for axis in ("Rz", "tx", "tz", "Rx")))

    def chain(self) -> Chain:
        """Return the chain from the base to the flange."""
        rows = zip(self.theta, self.d, self.a, self.alpha, strict=True)
        return Chain(((), *((("Rz", theta), ("tz", d), ("tx", a), ("Rx", alpha)) for theta, d, a, alpha in rows)))


@dataclass(frozen=True, slots=True)
class Calibration:
    """One arm's measured kinematics.

    Attributes:
        chain: Chain from the base to the flange.
        checksum: Identifies the calibration.
        source: Where it comes from, for people.
    """

    chain: Chain
    checksum: str
    source: str


def find_calibration(config: UrConfig) -> Calibration | None:
    """Return the calibration that a cell asks for, or None if it asks for the nominal arm.

    Raises:
        RobotError: The controller does not report it.
        ConfigError: The file is not a calibration.
    """
    if config.calibration == "nominal":
        return None
    if isinstance(config.calibration, Path):
        return load_calibration(config.calibration)
    return read_calibration(config.host, min(PATIENCE_S, config.connect_timeout_s))


def read_calibration(host: str, timeout_s: float = PATIENCE_S) -> Calibration:
    """Read the arm's kinematics from its controller.

    Raises:
        RobotError: The controller cannot be reached, or does not send them in time.
    """
    where = f"{host}, port {PRIMARY_PORT}"
    try:
        with socket.create_connection((host, PRIMARY_PORT), timeout=timeout_s) as link:
            info = _await_info(link, monotonic() + timeout_s)
    except TimeoutError:
        raise RobotError(
            f"the controller at {where} sent no kinematics within {timeout_s:g} s; power the robot on, or give a "
            "calibration.yaml as ur.calibration"
        ) from None
    except OSError as error:
        raise RobotError(
            f"the arm's calibration cannot be read at {where} ({error.strerror or error}); enable the controller's "
            "primary client interface, or give a calibration.yaml as ur.calibration"
        ) from None
    return Calibration(_parameters(info, where).chain(), _checksum(info), f"the controller at {host}")


def load_calibration(path: Path) -> Calibration:
    """Read the ``calibration.yaml`` that UR's ROS drivers extract from a controller.

    Raises:
        ConfigError: It cannot be read, or is something else.
    """
    try:
        text = path.read_bytes()
        frames = yaml.safe_load(text)["kinematics"]
        links = [tuple(float(frames[link][part]) for part in PARTS) for link in LINKS]
    except OSError as error:
        raise ConfigError(f"calibration {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{path} is no calibration.yaml: it needs a mapping kinematics with {', '.join(LINKS)}, each with "
            f"{', '.join(PARTS)}; ur_calibration's calibration_correction writes one"
        ) from None
    if not all(isfinite(value) for link in links for value in link):
        raise ConfigError(f"calibration {path} has a value that is not finite")
    return Calibration(Chain((*(_link(values) for values in links), ())), _digest(text), str(path))


def largest_difference(arm: ArmModel, chain: Chain, tool_m: float) -> float:
    """Compute the largest distance between the tool centre points of two chains in the arm's workspace [m].

    Args:
        arm: The arm with one chain and the workspace.
        chain: The other chain.
        tool_m: Distance from the flange to the tool centre point, along the flange's z axis.
    """
    rng = np.random.default_rng(0)
    q = rng.uniform(np.maximum(arm.lower, -np.pi), np.minimum(arm.upper, np.pi), (SAMPLES, JOINTS))
    ours, theirs = arm.chain.tools(q, tool_m), chain.tools(q, tool_m)
    box = arm.regions["workspace"]
    inside = ((ours >= box.low) & (ours <= box.high)).all(axis=1)
    return float(np.linalg.norm(ours - theirs, axis=1)[inside].max())


def require_same_arm(arm: ArmModel, calibration: Calibration) -> None:
    """Refuse a calibration of another arm.

    Raises:
        RobotError: It differs from the nominal arm by more than any calibration would; says what it is, if known.
    """
    away = largest_difference(arm, calibration.chain, 0.0)
    if away > ANOTHER_ARM_M:
        raise RobotError(
            f"the calibration of {calibration.source} is up to {1e3 * away:.0f} mm from a {arm.name} (limit "
            f"{1e3 * ANOTHER_ARM_M:.0f} mm): {_what_it_is(arm, calibration.chain)}"
        )


def _what_it_is(arm: ArmModel, chain: Chain) -> str:
    """Return what a chain that is not this arm's is, and what to do."""
    again = "extract it again with UR's ROS driver of after June 2024, or set ur.calibration to controller"
    if any(largest_difference(arm, straight, 0.0) < ANOTHER_ARM_M for straight in _unfolded(chain)):
        return f"its elbow is folded by half a turn, as older versions of UR's calibration_correction wrote it; {again}"
    for name, other in _known_arms():
        if name != arm.name and largest_difference(replace(arm, chain=other), chain, 0.0) < OWNER_M:
            return f"it belongs to a {name}; check ur.host and robot.arm"
    far = max(float(np.linalg.norm(link[:3, 3])) for link in chain.transforms())
    if far > LONGEST_M:
        return f"it puts two neighbouring joints {far:.0f} m apart, and the rest does not make up for that; {again}"
    return "it belongs to another arm; check ur.host and robot.arm"


def _unfolded(chain: Chain) -> Iterator[Chain]:
    """Yield the chain with one link turned by half a turn about the joint before it, and the next one turned back."""
    for link in range(1, JOINTS):
        links = [*chain.links]
        links[link], links[link + 1] = (("Rz", pi), *links[link]), (("Rz", -pi), *links[link + 1])
        yield Chain(tuple(links))


def _known_arms() -> Iterator[tuple[str, Chain]]:
    """Yield UR's arms by name, those of the CB3 series too."""
    for name, arm in ARMS.items():
        if arm.chain.joints == JOINTS:
            yield name, arm.chain
    for name, ((a2, a3), (d1, d4, d5, d6)) in CB3.items():
        yield name, Chain.from_dh((0, a2, a3, 0, 0, 0), (d1, 0, 0, d4, d5, d6), DH_ALPHA)


def _await_info(link: socket.socket, end: float) -> tuple[float, ...]:
    """Read messages until one contains the kinematics, and return them."""
    buffer = b""
    while True:
        while len(buffer) >= _HEAD.size and len(buffer) >= (size := _size(buffer)):
            if (info := _info(buffer[:size])) is not None:
                return info
            buffer = buffer[size:]
        link.settimeout(max(end - monotonic(), 0.001))
        data = link.recv(1 << 16)
        if not data:
            raise ConnectionError("it closed the connection")
        buffer += data


def _info(message: bytes) -> tuple[float, ...] | None:
    """Return the kinematics from the parts of one message, or None."""
    start, kind = _HEAD.size, message[4]
    while kind == _STATE and start + _HEAD.size <= len(message):
        size, part = _size(message, start), message[start + 4]
        if part == _KINEMATICS and size >= _HEAD.size + _INFO.size:
            return _INFO.unpack_from(message, start + _HEAD.size)
        start += size
    return None


def _size(data: bytes, start: int = 0) -> int:
    """Read the size of the message, or part of one, that begins at ``start``."""
    size: int = _HEAD.unpack_from(data, start)[0]
    if not _HEAD.size <= size <= _MAX_MESSAGE:
        raise OSError("what it sends is no message of a UR controller")
    return size


def _parameters(info: tuple[float, ...], where: str) -> DhParameters:
    values = info[JOINTS:-1]
    if not all(map(isfinite, values)):
        raise RobotError(f"the controller at {where} sent kinematics that are not finite: {values}")
    return DhParameters(*(values[start : start + JOINTS] for start in range(0, len(values), JOINTS)))


def _checksum(info: tuple[float, ...]) -> str:
    return _digest(_INFO.pack(*info))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _link(values: tuple[float, ...]) -> tuple[Step, ...]:
    """Return a frame composed as in URDF: fixed-axis roll, pitch, yaw."""
    x, y, z, roll, pitch, yaw = values
    return (("tx", x), ("ty", y), ("tz", z), ("Rz", yaw), ("Ry", pitch), ("Rx", roll))
