"""The cell of a Universal Robots arm with a Robotiq gripper on its URCap: how to reach and drive both."""

from math import inf
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from td3robot.config.robot import GuardConfig, RobotConfig
from td3robot.config.section import CellPath, Section
from td3robot.errors import ConfigError, require_extra
from td3robot.registry import GRIPPERS
from td3robot.robots.cells import CELLS, CellConfig, DriverConfig
from td3robot.robots.grippers.model import Counts, GripperModel
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import PhysicalRobot
from td3robot.robots.ur.generations import DASHBOARD_PORT, GRIPPER_PORT, RTDE_PORT

Count = Annotated[int, Field(ge=0, le=255)]
# The shortest useful age limit, in state periods: states arrive with some jitter.
STATES = 2.5


class UrConfig(DriverConfig):
    """How a UR controller is driven.

    Attributes:
        models: Accepted answers of its dashboard to ``get robot model``; by default, the names of the cell's arm.
        serial_number: Serial number of the controller, if no other one will do.
        calibration: Kinematics for tool pose and guard: the ``controller``'s own, the ``nominal`` ones of the data
            sheet, or those of a ``calibration.yaml`` as UR's ROS drivers extract it; a relative path starts at
            the cell's folder.
        rtde_rate_hz: How often targets are streamed and states reported.
        watchdog_hz: The controller stops the arm if nothing arrives for one period of this rate.
        servo_stop_deceleration_m_s2: Tool deceleration for the motion left when servoing ends: the argument of
            ``servoStop``. Below 1, stopping would take longer than the controller's watchdog waits.
        min_speed_scaling: Below this setting of the speed slider, the arm lags behind its targets and is not driven; at
            half speed it would fall further behind with every period.
    """

    rate_key: ClassVar[str] = "rtde_rate_hz"
    models: tuple[str, ...] | None = None
    serial_number: str | None = None
    calibration: Literal["controller", "nominal"] | CellPath = "controller"
    rtde_rate_hz: Literal[125, 500] = 125
    watchdog_hz: Annotated[float, Field(ge=2.0, le=100.0)] = 10.0
    servo_stop_deceleration_m_s2: Annotated[float, Field(ge=1.0, le=20.0)] = 10.0
    min_speed_scaling: Annotated[float, Field(ge=0.5, le=1.0)] = 0.95

    @model_validator(mode="after")
    def _watchdog_is_fed(self) -> Self:
        if self.watchdog_hz > self.rtde_rate_hz / 4:
            raise ValueError(
                f"watchdog_hz {self.watchdog_hz:g} leaves less than four targets of rtde_rate_hz {self.rtde_rate_hz} "
                "to a period of it; one late target would stop the arm"
            )
        if self.max_state_age_s < STATES / self.rtde_rate_hz:
            raise ValueError(
                f"max_state_age_s {self.max_state_age_s:g} is less than {STATES:g} states of rtde_rate_hz "
                f"{self.rtde_rate_hz}; one late state would stop the arm; set at least {STATES / self.rtde_rate_hz:g}"
            )
        return self


class GripperConfig(Section):
    """How a Robotiq gripper is driven through its URCap.

    Attributes:
        port: Port of the gripper's URCap.
        open_count, closed_count: Position counts that it reports when open, and when closed on nothing; by default,
            those of the gripper's model. Drivers are linear in between.
        speed, force: Counts of the device, 0 to 255.
        poll_hz: How often its position is polled.
        max_age_s: A position older than this is a fault. Up to six answers pass between two positions.
        answer_timeout_s: How long one answer may take; usual are 10 to 20 ms.
    """

    port: Annotated[int, Field(ge=1, le=65535)] = GRIPPER_PORT
    open_count: Count | None = None
    closed_count: Count | None = None
    speed: Count = 255
    force: Count = 50
    poll_hz: Annotated[float, Field(ge=10.0, le=125.0)] = 60.0
    max_age_s: Annotated[float, Field(ge=0.05, le=5.0)] = 0.35
    answer_timeout_s: Annotated[float, Field(ge=0.01, le=2.0)] = 0.2

    def calibrated(self, counts: Counts) -> tuple[int, int]:
        """Return the counts when open and closed: the cell's if it has them, otherwise the model's."""
        return (
            counts.open if self.open_count is None else self.open_count,
            counts.closed if self.closed_count is None else self.closed_count,
        )


class UrCell(CellConfig):
    """A UR and the gripper on its wrist."""

    robot: RobotConfig = Field(default_factory=lambda: RobotConfig(backend="ur"))
    ur: UrConfig
    gripper: GripperConfig = GripperConfig()

    @model_validator(mode="after")
    def _closes_upwards(self) -> Self:
        counts = GRIPPERS[self.robot.gripper].counts
        if counts is None:
            return self  # the driver says that this gripper has no URCap
        low, high = self.gripper.calibrated(counts)
        if high < low + 50:
            raise ValueError(
                f"gripper: closed_count {high} is not well above open_count {low}; a Robotiq gripper goes from about 3 "
                "open to about 230 closed"
            )
        return self

    @classmethod
    def require_driver(cls) -> None:
        """Require ur_rtde."""
        require_extra("ur", "driving a UR arm", "rtde_control")

    def require_within(self, guard: GuardConfig) -> None:
        """Refuse a stop that decelerates less than the guard allows a policy to accelerate."""
        super().require_within(guard)
        stop, wanted = self.ur.stop_deceleration_rad_s2, guard.max_joint_acceleration_rad_s2
        if stop < wanted:
            raise ConfigError(
                f"ur.stop_deceleration_rad_s2 is {stop:g}, and the run's guard lets a policy brake with {wanted:g} "
                f"rad/s^2 (guard.max_joint_acceleration_rad_s2): a stop must not be gentler; set at least {wanted:g}"
            )

    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Return the ports of the controller and of the gripper's URCap."""
        ports = {"RTDE": RTDE_PORT, "dashboard": DASHBOARD_PORT, "gripper": self.gripper.port}
        return {name: (self.ur.host, port) for name, port in ports.items()}

    def gripper_speed(self, gripper: GripperModel) -> float | None:
        """Compute the speed share of ``gripper.speed``: speeds are linear in counts (data sheet)."""
        return None if gripper.counts is None else gripper.counts.speed_share(self.gripper.speed)

    def driver(self, spec: RobotSpec, passive: bool = False, max_tcp_speed_m_s: float = inf) -> PhysicalRobot:
        """Return the driver of this cell's arm and gripper."""
        from td3robot.robots.ur.robot import UrRobot

        return UrRobot(spec, self, passive, max_tcp_speed_m_s)


CELLS.register("ur", UrCell)
