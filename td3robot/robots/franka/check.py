"""Checks before motion that only apply to a Franka: control box, mode, errors, payload and hand."""

import socket
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

from td3robot.robots.cells.franka import FrankaConfig
from td3robot.robots.findings import ATTENTION, Check
from td3robot.robots.franka.link import ROBOT_PORT

if TYPE_CHECKING:
    from td3robot.robots.franka.robot import FrankaRobot

# A payload that is off by more than this makes the arm sag and its contact reflex err.
PAYLOAD_KG = 0.3
TIMEOUT_S = 2.0


def check_controller(check: Check, config: FrankaConfig) -> bool:
    """Check that the client is installed and the control box answers; return whether both are there."""
    here = find_spec("franka") is not None
    check.add("client", "franka-rs", "found" if here else "missing", here, "run: pip install 'td3robot[franka]'")
    if not here:
        return False
    begin = perf_counter()
    try:  # once: the control box takes each connection for a client, and has room for one
        socket.create_connection((config.host, ROBOT_PORT), TIMEOUT_S).close()
    except OSError as error:
        check.add(
            "controller", f"a Franka control box at {config.host}", "nobody", False,
            f"{error.strerror or error}: see to franka.host and the cable, and activate FCI in Desk",
        )  # fmt: skip
        return False
    check.measured("arm_round_trip_ms", [perf_counter() - begin])
    check.add("controller", f"a Franka control box at {config.host}", "it answers", True, "")
    return True


def check_settings(check: Check, robot: "FrankaRobot") -> None:
    """Check mode, errors, payload and hand of a connected robot."""
    mode, errors = robot.facts["mode"], ", ".join(robot.facts["errors"])
    check.add("mode", "idle", mode, mode == "idle", "open the brakes and activate FCI in Desk; after a reflex: recover")
    check.add("errors", "none", errors or "none", not errors, f"find the cause; then: {robot.cell.recovery}")
    known, mass = robot.config.serial_number, robot.spec.gripper.mass_kg
    check.add(
        "serial number", "in the cell's file", known or "not given", bool(known),
        "copy it from the robot's label to franka.serial_number; FCI does not tell it", ATTENTION,
    )  # fmt: skip
    told = robot.facts["tool_mass_kg"]
    check.add(
        "payload", f"{mass:g} kg, within {PAYLOAD_KG:g}", f"{told:.2f} kg", abs(told - mass) < PAYLOAD_KG,
        "choose the end effector in Desk",
    )  # fmt: skip
