"""Go or no-go: is the connected robot the one that a policy was trained for, and is it ready? Nothing moves here.

This module checks what applies to every robot; a driver adds what is specific to its vendor.
"""

from collections.abc import Callable, Iterator
from time import monotonic, sleep

import numpy as np

from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import RobotError
from td3robot.geometry import angle_of
from td3robot.policy.contract import IMPLIED, REFUSAL, Contract
from td3robot.policy.policy import Policy
from td3robot.robots.cells import CellConfig
from td3robot.robots.objects import rest_heights
from td3robot.robots.physical import ATTENTION, Check, PhysicalRobot, Status, in_words
from td3robot.state import Array

# Nominal kinematics differ from an arm's own calibration, and from the simulated model, by up to about 2 mm.
GEOMETRY_M, GEOMETRY_RAD = 0.005, 0.03
# A lying object whose centre is reported further above or below where it rests is asked about [m].
CENTRE_M = 0.01
# Deviation of a controller's clock from ours: more than this is not a crystal's drift.
CLOCK_SHARE = 0.02
# Plain names of contract parts whose keys are not words.
PARTS = {"episode_steps": "length of an episode"}


def check_contract(check: Check, policy: Policy, here: Contract, training: str = "train for this one") -> None:
    """Compare a policy's contract with the cell's, term by term.

    Args:
        check: Collects the findings.
        policy: With its contract, and the disturbances that its training drew.
        here: The cell's contract.
        training: What to do in order to train for this cell, with the command if there is one.
    """
    differences = here.compare(policy.contract, policy.varied)
    for difference in differences:
        if difference.covered and difference.name.startswith(IMPLIED):
            continue  # the terms from which it follows are listed
        check.add(
            f"contract: {difference.name}", difference.wanted, difference.found, difference.covered,
            f"{REFUSAL}; set up the cell as in training, or {training}",
        )  # fmt: skip
    for part in policy.contract.terms:
        if not any(difference.name.split(".")[0].split("[")[0] == part for difference in differences):
            check.add(f"contract: {PARTS.get(part, part)}", "as trained", "as trained", True, "")


def check_values(check: Check, cell: CellConfig) -> None:
    """List the values in a cell's file that differ from the defaults, for people to see."""
    for key, default, value in cell.changes():
        check.add(f"cell: {key}", f"{default}, by default", value, True, "")


def check_robot(
    check: Check, robot: PhysicalRobot, environment: RobotEnv, seconds: float = 2.0, goal: Array | None = None
) -> None:
    """Connect a robot and make every check, whatever is found on the way: no no-go hides another.

    Args:
        check: Collects the findings.
        robot: Opened for reading only; left open if it could be opened.
        environment: The task's environment on that robot.
        seconds: How long to watch the states.
        goal: The numbers (k,) of a given goal [m, rad], or None.
    """
    looks: dict[str, Callable[[], None]] = {
        "state stream": lambda: _check_stream(check, robot, list(_watch(robot, seconds))),
        "settings": lambda: robot.check_settings(check),
        "posture": lambda: _check_posture(check, robot, environment),
        "tool": lambda: _check_tool(check, robot, environment),
    }
    if robot.check_controller(check) and check.answers("connection", environment.connect):
        check.facts |= robot.facts
        for name, look in looks.items():
            check.answers(name, look)
    else:
        for name in looks:
            check.add(name, "a connected robot", "not checked", False, "fix the connection first", ATTENTION)
    check.answers("objects", lambda: _check_objects(check, robot, environment, goal))


def _watch(robot: PhysicalRobot, seconds: float) -> Iterator[Status]:
    """Yield the status of every new state for a while."""
    end, stamp = monotonic() + seconds, 0.0
    while monotonic() < end:
        status = robot.status()
        if status.stamp != stamp:
            stamp = status.stamp
            yield status
        sleep(0.001)


def _check_stream(check: Check, robot: PhysicalRobot, statuses: list[Status]) -> None:
    limit, nominal = 1e3 * robot.max_state_age_s, 1e3 * robot.state_period_s
    found = check.measured("arm_state_period_ms", np.diff([status.stamp for status in statuses]).tolist())
    if found is None:
        check.add("state stream", f"every {nominal:g} ms", "nothing", False, "the controller sends no states")
        return
    text = in_words(found)
    check.add(
        "state stream", f"every {nominal:g} ms, none later than {limit:g}", text, found["max"] < limit,
        "see to network and load of this computer",
    )  # fmt: skip
    check.add(
        "jitter", f"p99 below {2 * nominal:g} ms", text, found["p99"] < 2 * nominal,
        "other programs keep this computer busy; the arm will not move as smoothly", ATTENTION,
    )  # fmt: skip
    ours = statuses[-1].stamp - statuses[0].stamp
    theirs = statuses[-1].controller_time - statuses[0].controller_time
    share = theirs / ours if ours > 0 else 0.0
    check.add("clock", "1 s a second", f"{share:.4f}", abs(share - 1.0) < CLOCK_SHARE,
              "the controller's clock and this computer's disagree", ATTENTION)  # fmt: skip


def _check_posture(check: Check, robot: PhysicalRobot, environment: RobotEnv) -> None:
    (posture, _), arm = robot.reported_tool(), robot.spec.arm
    outside = [
        f"{name} at {q:.3f} rad"
        for name, q, low, high in zip(arm.joint_names, posture, arm.lower, arm.upper, strict=True)
        if not low <= q <= high
    ]
    check.add("joint limits", "inside", ", ".join(outside) or "inside", not outside, "move it by hand, in freedrive")
    try:
        speed = float(np.abs(robot.read().dq).max())
    except RobotError as error:
        check.add("at rest", "below 0.01 rad/s", "not known", False, str(error), ATTENTION)
    else:
        slow = speed < 0.01
        check.add("at rest", "below 0.01 rad/s", f"{speed:.3f} rad/s", slow, "something moves the arm", ATTENTION)
    x, y, z = 1e3 * environment.tool_at(posture).position
    check.add("tool", "anywhere", f"at ({x:.0f}, {y:.0f}, {z:.0f}) mm in the base frame", True, "")
    limit = environment.guard.admits(posture)
    check.add(
        "posture", "inside the guard's limits", limit or "inside", limit is None,
        "the arm cannot begin from here: move it by hand, in freedrive, towards home", ATTENTION,
    )  # fmt: skip


def _check_tool(check: Check, robot: PhysicalRobot, environment: RobotEnv) -> None:
    """Compare our forward kinematics with the controller's tool pose: joint order, signs, zeros, tool offset."""
    q, theirs = robot.reported_tool()
    ours, trained = environment.tool_at(q), robot.spec.tcp_offset_m
    away = ours.rotation.T @ (theirs.position - ours.position)
    turned = angle_of(ours.rotation.T @ theirs.rotation)
    beside = float(np.hypot(away[0], away[1]))
    check.add(
        "joints", f"tool axis within {1e3 * GEOMETRY_M:g} mm and {GEOMETRY_RAD:g} rad of where it is computed",
        f"{1e3 * beside:.1f} mm, {turned:.3f} rad", beside < GEOMETRY_M and turned < GEOMETRY_RAD,
        f"joint order, signs or zeros differ, or the tool set at {robot.console} is turned or beside the flange's axis",
    )  # fmt: skip
    offset = trained + float(away[2])
    check.add(
        "TCP", f"{1e3 * trained:.1f} mm from the flange", f"{1e3 * offset:.1f} mm", abs(offset - trained) < GEOMETRY_M,
        f"set the TCP at {robot.console} to (0, 0, offset), or robot.coupling_thickness_m in the cell's file",
    )  # fmt: skip


def _check_objects(check: Check, robot: PhysicalRobot, environment: RobotEnv, goal: Array | None) -> None:
    if environment.batch.setting.objects and _holds(robot):
        check.add(
            "objects", "on the table", "the gripper holds something", False,
            "put it down: td3robot gripper open --robot CELL asks you to take hold of it, and opens",
        )  # fmt: skip
        return
    rests = rest_heights(environment.batch.setting.objects, environment.robot.spec.table_height_m)
    found = environment.find_objects()
    for name, pose in found.items():
        x, y, z = pose.position
        off = float(z) - rests[name]
        check.add(
            f"object {name}", f"its centre {1e3 * rests[name]:.0f} mm high",
            f"({x:.3f}, {y:.3f}, {z:.3f}) m", abs(off) < CENTRE_M,
            f"{1e3 * abs(off):.0f} mm {'above' if off > 0 else 'below'} that: is this the pose of its "
            f"{'top' if off > 0 else 'bottom'} face instead of its centre, or is robot.table_height_m wrong?",
            ATTENTION,
        )  # fmt: skip
    if (objection := environment.initial.objection(found, goal)) is not None:
        check.add("goal", "clear of the objects", "not clear", False, objection)


def _holds(robot: PhysicalRobot) -> bool:
    """Whether the gripper is known to hold something; one that does not answer has a finding of its own."""
    try:
        return robot.holds
    except RobotError:
        return False
