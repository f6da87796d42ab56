"""From a robot's configuration to what is known of it."""

from td3robot.config import RobotConfig
from td3robot.errors import ContractError
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


def require_same_arm(trained: RobotConfig, here: RobotConfig, where: str) -> None:
    """Refuse another arm or gripper than a policy was trained for, at once: every term of its contract would differ.

    Args:
        trained: The robot of the policy's training.
        here: The robot it is asked to run on.
        where: What has that robot, in a word: ``cell`` or ``simulation``.

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
