"""The cell of a Franka FR3 with its hand: how to reach and drive both."""

from math import inf
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from td3robot.config.robot import RobotConfig
from td3robot.errors import require_extra
from td3robot.robots.cells import CELLS, CellConfig, DriverConfig
from td3robot.robots.grippers.model import GripperModel
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import PhysicalRobot


class FrankaConfig(DriverConfig):
    """How a Franka arm and its hand are driven.

    Attributes:
        serial_number: The robot's serial number, from its label: the Franka Control Interface (FCI) does not report it.
            It names the robot in the ledger; without it, the address does.
        realtime: ``enforce`` on a robot's computer (needs PREEMPT_RT); ``ignore`` against a stand-in.
        stream_hz: How often targets are handed to franka-rs, whose generator runs at 1 kHz.
        fraction: Share of the FR3's joint velocity, acceleration and jerk limits that the generator may use; at 1, a
            reflex once stopped the arm within half a second.
        contact_torque_nm, contact_force_n: Thresholds at which the robot's own contact reflex stops the arm.
        hand: Whether there is a Franka Hand.
        hand_speed_m_s: Speed at which the opening's width changes; the hand reaches up to 0.1.
        hand_force_n: Force of a grasp.
    """

    rate_key: ClassVar[str] = "stream_hz"
    serial_number: str = ""
    realtime: Literal["enforce", "ignore"] = "enforce"
    stream_hz: Annotated[float, Field(ge=50.0, le=1000.0)] = 250.0
    fraction: Annotated[float, Field(ge=0.1, le=0.9)] = 0.8
    stop_deceleration_rad_s2: Annotated[float, Field(ge=2.0, le=10.0)] = 6.0
    contact_torque_nm: Annotated[float, Field(gt=0.0, le=87.0)] = 20.0
    contact_force_n: Annotated[float, Field(gt=0.0, le=100.0)] = 40.0
    hand: bool = True
    hand_speed_m_s: Annotated[float, Field(ge=0.01, le=0.1)] = 0.1
    hand_force_n: Annotated[float, Field(ge=1.0, le=70.0)] = 40.0


class FrankaCell(CellConfig):
    """An FR3 and the hand on its flange."""

    robot: RobotConfig = Field(default_factory=lambda: RobotConfig(backend="franka", arm="fr3", gripper="franka_hand"))
    franka: FrankaConfig

    @classmethod
    def require_driver(cls) -> None:
        """Require franka-rs."""
        require_extra("franka", "driving a Franka arm", "franka")

    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Return the ports of the control box and the hand."""
        from td3robot.robots.franka.link import HAND_PORT, ROBOT_PORT

        ports = {"FCI": ROBOT_PORT} | ({"hand": HAND_PORT} if self.franka.hand else {})
        return {name: (self.franka.host, port) for name, port in ports.items()}

    def gripper_speed(self, gripper: GripperModel) -> float | None:
        """Compute the speed share of ``franka.hand_speed_m_s``."""
        return self.franka.hand_speed_m_s / (gripper.closing_rate * gripper.jaw.stroke_m) if self.franka.hand else None

    def driver(self, spec: RobotSpec, passive: bool = False, max_tcp_speed_m_s: float = inf) -> PhysicalRobot:
        """Return the driver of this cell's arm and hand."""
        from td3robot.robots.franka.robot import FrankaRobot

        return FrankaRobot(spec, self, passive, max_tcp_speed_m_s)


CELLS.register("franka", FrankaCell)
