"""From a robot's configuration to what is known of it."""

from td3robot.config import RobotConfig
from td3robot.registry import ARMS, GRIPPERS
from td3robot.robots.interface import RobotSpec


def robot_spec(config: RobotConfig) -> RobotSpec:
    """Look up arm and gripper, and add what the cell has of its own."""
    gripper = GRIPPERS[config.gripper]
    return RobotSpec(
        arm=ARMS[config.arm],
        gripper=gripper,
        control_rate_hz=config.control_rate_hz,
        tcp_offset_m=gripper.tcp_offset_m + config.coupling_thickness_m,
        table_height_m=config.table_height_m,
    )
