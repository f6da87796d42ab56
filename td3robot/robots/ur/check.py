"""Checks before motion that only apply to a UR with a Robotiq URCap: dashboard, speed slider, payload, gripper."""

from typing import TYPE_CHECKING

from td3robot.errors import RobotError
from td3robot.robots.cells.ur import UrCell
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import ATTENTION, PAUSE_S, QUESTIONS, Check, in_words, round_trips
from td3robot.robots.ur.connection import DashboardClient
from td3robot.robots.ur.generations import POLYSCOPE_5, WHICH, model_names
from td3robot.robots.ur.urcap import UrCapSocket

if TYPE_CHECKING:
    from td3robot.robots.ur.robot import UrRobot

# A payload that is off by more than this makes the arm sag and its collision detection err.
PAYLOAD_KG = 0.3
# A count this far beyond the calibrated range is not noise.
COUNTS = 3


def check_controller(check: Check, cell: UrCell, spec: RobotSpec) -> bool:
    """Check dashboard and gripper before connecting, each whatever the other says; connecting makes sense anyway."""
    try:
        _check_dashboard(check, cell, cell.ur.models or model_names(spec.arm))
    except RobotError as error:
        check.add("controller", f"a UR at {cell.ur.host}", "no dashboard", False, str(error))
    check.answers("gripper answers", lambda: _check_gripper_answers(check, cell))
    return True


def check_settings(check: Check, robot: "UrRobot") -> None:
    """Check speed slider, payload and gripper calibration of a connected robot."""
    slider, least = robot.status().speed_slider, robot.cell.ur.min_speed_scaling
    check.add(
        "speed slider", f"at least {100 * least:.0f} %", f"{100 * slider:.0f} %", slider >= least,
        "set it to 100 % at the pendant, and limit speeds with --speed",
    )  # fmt: skip
    payload, mass = robot.facts["payload_kg"], robot.spec.gripper.mass_kg
    check.add(
        "payload", f"{mass:g} kg, within {PAYLOAD_KG:g}", f"{payload:.2f} kg", abs(payload - mass) < PAYLOAD_KG,
        "set the payload at the pendant to the gripper's mass",
    )  # fmt: skip
    _check_kinematics(check, robot)
    if robot.gripper.fault is not None:
        check.add("gripper", "active, and answering", "not ready", False, robot.gripper.fault)
        return
    count, low, high = robot.gripper.state().count, robot.gripper.open_count, robot.gripper.closed_count
    check.add(
        "gripper calibration", f"counts {low} open to {high} closed", f"now at {count}",
        low - COUNTS <= count <= high + COUNTS,
        "open and close the gripper at the pendant, and set gripper.open_count and closed_count to what it reports",
    )  # fmt: skip


def _check_dashboard(check: Check, cell: UrCell, models: tuple[str, ...]) -> None:
    driven, dashboard = POLYSCOPE_5, DashboardClient(cell.ur.host, cell.robot.arm)
    try:
        said = {what: dashboard.ask(command) for what, command in driven.commands.items()}
        model, serial, remote = said["model"], said["serial_number"], said["remote"]
        mode, safety = said["robot_mode"].rpartition(" ")[2], said["safety"].rpartition(" ")[2]
        version = dashboard.ask(WHICH)
        check.facts |= {"serial_number": serial, "model": model, "polyscope": version}
        check.measured("arm_round_trip_ms", dashboard.round_trips(QUESTIONS, PAUSE_S))
    finally:
        dashboard.close()
    check.add("model", " or ".join(models), model, model in models, "check ur.host, robot.arm and ur.models")
    check.add(
        "PolyScope", driven.name, version, version.startswith(driven.answer),
        f"only PolyScope {driven.name} was tried", ATTENTION,
    )  # fmt: skip
    check.add("robot mode", "RUNNING", mode, mode == "RUNNING", "power the arm on and release its brakes")
    check.add(
        "safety", "NORMAL or REDUCED", safety, safety in ("NORMAL", "REDUCED"),
        f"find the cause; after a protective stop: {cell.recovery}",
    )  # fmt: skip
    on = {"true": "on", "false": "off"}.get(remote, remote)
    check.add("remote control", "on", on, on == "on", "switch to remote control at the pendant")


def _check_kinematics(check: Check, robot: "UrRobot") -> None:
    """Report whose kinematics the guard uses, and how far off the data sheet's would be."""
    facts, own = robot.facts, robot.calibration is not None
    found = "those of the data sheet"
    if own:
        found = (
            f"those of {facts['kinematics']} (checksum {facts['calibration']}); the data sheet's are up to "
            f"{facts['nominal_tool_error_mm']:.1f} mm off at the tool"
        )
    check.add(
        "kinematics", "the arm's own", found, own,
        "set ur.calibration to controller: arms differ from the data sheet by up to centimetres", ATTENTION,
    )  # fmt: skip


def _check_gripper_answers(check: Check, cell: UrCell) -> None:
    link = UrCapSocket(cell.ur.host, cell.gripper.port, cell.gripper.answer_timeout_s)
    try:
        found = check.measured("gripper_round_trip_ms", round_trips(lambda: link.get("POS")))
    finally:
        link.close()
    assert found is not None
    limit = 1e3 * cell.gripper.answer_timeout_s / 2
    check.add(
        "gripper answers", f"within {limit:g} ms", in_words(found), found["max"] < limit, "see to network and URCap"
    )
