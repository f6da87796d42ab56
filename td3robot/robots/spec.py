"""From a robot's configuration to its specification."""

from td3robot.config import RobotConfig
from td3robot.errors import ContractError
from td3robot.registry import ARMS, GRIPPERS
from td3robot.robots.interface import RobotSpec


def robot_spec(config: RobotConfig) -> RobotSpec:
    """Return the specification of a configured robot: its registered arm and gripper, and the cell's own numbers."""
    gripper = GRIPPERS[config.gripper]
    return RobotSpec(
        arm=ARMS[config.arm],
        gripper=gripper,
        control_rate_hz=config.control_rate_hz,
        tcp_offset_m=gripper.tcp_offset_m + config.coupling_thickness_m,
        table_height_m=config.table_height_m,
    )


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
