"""The interface between an environment and any arm, simulated or physical."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from td3robot.config import RobotConfig
from td3robot.errors import CommandRefusedError, ConfigError, ContractError
from td3robot.registry import ARMS, GRIPPERS
from td3robot.robots.arms.model import ArmModel, ServoLaw
from td3robot.robots.grippers.model import GripperModel, Jaw
from td3robot.state import Array, JointCommand, RobotState

__all__ = ["ArmModel", "GripperModel", "Jaw", "Robot", "RobotSpec"]


@dataclass(frozen=True, slots=True)
class RobotSpec:
    """What is known of a robot before connecting to it.

    Attributes:
        control_rate_hz: How many commands a second it takes.
        tcp_offset_m: Distance from the flange to the tool centre point, along the flange's z axis.
        table_height_m: Height of the table top in the base frame.
        law: How the joints follow their targets.
    """

    arm: ArmModel
    gripper: GripperModel
    control_rate_hz: float
    tcp_offset_m: float
    table_height_m: float
    law: ServoLaw

    @property
    def period_s(self) -> float:
        """Seconds between two commands."""
        return 1.0 / self.control_rate_hz

    def periods(self, seconds: float) -> int:
        """Return the number of control periods in a duration [s], at least one."""
        return max(1, round(seconds * self.control_rate_hz))

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        return {
            "arm": self.arm.name,
            "joint_names": list(self.arm.joint_names),
            "lower_rad": self.arm.lower.tolist(),
            "upper_rad": self.arm.upper.tolist(),
            "velocity_rad_s": self.arm.velocity.tolist(),
            "home_rad": self.arm.home.tolist(),
            "gripper": self.gripper.name,
            "driver_names": list(self.gripper.driver_names),
            f"driver_open_{self.gripper.driver_unit}": self.gripper.driver_open,
            f"driver_closed_{self.gripper.driver_unit}": self.gripper.driver_closed,
            "control_rate_hz": self.control_rate_hz,
            "tcp_offset_m": self.tcp_offset_m,
            "table_height_m": self.table_height_m,
            "servo_gain": self.law.gain,
            "servo_lookahead_s": self.law.lookahead_s,
        }


class Robot(ABC):
    """An arm with a gripper.

    A control period is: ``read``, decide, ``send``, ``advance``. ``advance`` owns time: a simulation integrates
    one period, hardware waits for its tick. Nothing is opened before ``connect``.

    Attributes:
        teleports: Whether ``move_to`` places the arm at once. If not, an environment travels.
        is_disturbed: Whether :meth:`truth` differs from :meth:`read`.
        missed_ticks: Control periods that were over before ``advance`` was called; a simulation misses none.
    """

    teleports: ClassVar[bool] = True
    is_disturbed: ClassVar[bool] = False
    missed_ticks: int = 0

    def __init__(self, spec: RobotSpec) -> None:
        self.spec = spec

    @abstractmethod
    def connect(self) -> None:
        """Open the robot; does nothing if it is open.

        Raises:
            RobotError: It cannot be reached, or is not the robot of ``spec``.
        """

    @abstractmethod
    def read(self) -> RobotState:
        """Return the latest measured state.

        Raises:
            RobotError: The robot no longer reports.
        """

    def begin(self, rng: np.random.Generator) -> None:  # noqa: B027  # most robots have nothing to draw
        """Draw the disturbances of an episode, unknown to a controller; only a disturbed robot has any."""

    def drawn(self) -> dict[str, float]:
        """Return what was drawn for this episode and no controller knows, by name; only a simulation has any."""
        return {}

    def truth(self) -> RobotState:
        """Return the true state, for scoring; the one that is read, unless the robot is disturbed."""
        return self.read()

    @abstractmethod
    def now(self) -> float:
        """Return the time on the clock of ``RobotState.stamp`` [s]."""

    @abstractmethod
    def _send(self, command: JointCommand) -> None:
        """Hand a finite, well-shaped command to the arm."""

    @abstractmethod
    def advance(self) -> None:
        """Advance by one control period.

        Raises:
            RobotError: The robot stopped.
        """

    @abstractmethod
    def move_to(self, q: Array) -> None:
        """Bring the arm to a posture (n,) [rad] and to rest, with the gripper open, as the robot sees fit.

        Raises:
            RobotError: It did not get there.
        """

    @abstractmethod
    def stop(self) -> None:
        """Bring the arm to rest where it is. Always legal, may be repeated."""

    @abstractmethod
    def close(self) -> None:
        """Stop and release the robot. May be repeated."""

    @property
    def holds(self) -> bool:
        """Whether the gripper holds something, if the robot can tell."""
        return False

    @property
    def fault(self) -> str | None:
        """The latched reason why the robot takes no more commands, or None; a simulation has no faults."""
        return None

    def tool_force(self) -> Array | None:
        """Return force and torque on the tool (6,) in the base frame, as the robot itself estimates them [N, N m].

        None where it estimates none; a simulation does not.
        """
        return None

    def figures(self) -> dict[str, float]:
        """Return the driver's figures about itself, by name with unit; a simulation has none.

        Raises:
            RobotError: The driver no longer answers.
        """
        return {}

    def send(self, command: JointCommand) -> JointCommand:
        """Set the posture to reach at the end of this control period.

        Returns:
            What was really sent: clipped to the arm's joint limits, which no guard setting can widen.

        Raises:
            CommandRefusedError: The command is not finite or has the wrong shape; nothing was sent.
        """
        arm = self.spec.arm
        if command.q.shape != arm.home.shape or not isfinite(sum(command.q.tolist()) + command.gripper):
            raise CommandRefusedError(
                f"command q={command.q}, gripper={command.gripper} is not {len(arm.home)} finite joint angles and a "
                "closed fraction; nothing was sent"
            )
        q = np.minimum(np.maximum(command.q, arm.lower), arm.upper)
        q.setflags(write=False)
        sent = JointCommand(q, float(min(max(command.gripper, 0.0), 1.0)))
        self._send(sent)
        return sent

    def move_home(self) -> None:
        """Bring the arm to its home posture and to rest."""
        self.move_to(self.spec.arm.home)


def robot_spec(config: RobotConfig) -> RobotSpec:
    """Return the specification of a configured robot: its registered arm and gripper, and the cell's own numbers.

    Raises:
        ConfigError: The configuration has a servo law of its own for an arm that takes none.
    """
    arm, gripper = ARMS[config.arm], GRIPPERS[config.gripper]
    return RobotSpec(
        arm=arm,
        gripper=gripper,
        control_rate_hz=config.control_rate_hz,
        tcp_offset_m=gripper.tcp_offset_m + config.coupling_thickness_m,
        table_height_m=config.table_height_m,
        law=_law(config, arm),
    )


def _law(config: RobotConfig, arm: ArmModel) -> ServoLaw:
    chosen = {"gain": config.servo_gain, "lookahead_s": config.servo_lookahead_s}
    given = {name: value for name, value in chosen.items() if value is not None}
    if given and not arm.servo.adjustable:
        name, value = next(iter(given.items()))
        raise ConfigError(
            f"robot.servo_{name} is {value:g}, but the arm {config.arm!r} follows its targets as its own controller "
            f"decides; leave servo_{name} out"
        )
    return arm.servo.law._replace(**given)


def require_same_arm(trained: RobotConfig, here: RobotConfig, where: str) -> None:
    """Refuse another arm or gripper than a policy was trained for, early: every term of its contract would differ.

    Args:
        trained: The robot that the policy was trained on.
        here: The robot that it should run on.
        where: Where that robot is, in a word: ``cell`` or ``simulation``.

    Raises:
        ContractError: Naming both.
    """
    for part in ("arm", "gripper"):
        wanted, found = getattr(trained, part), getattr(here, part)
        if wanted != found:
            raise ContractError(
                f"the policy was trained for the {part} {wanted!r}, and the {where}'s is {found!r}; choose the "
                f"{where} of a {wanted}, or a policy trained for a {found}"
            )
