"""Go or no-go: is the connected arm the one that a policy was trained for, and is it ready? Nothing moves here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import acos, pi
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np

from td3robot.config.cell import CellConfig
from td3robot.deploy.report import percentiles
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import RobotError
from td3robot.policy.contract import Contract
from td3robot.robots.interface import RobotSpec
from td3robot.robots.ur.dashboard import Dashboard
from td3robot.robots.ur.robot import UrRobot, UrStatus
from td3robot.robots.ur.urcap import UrCapSocket
from td3robot.state import Array

GO, ATTENTION, NO_GO = "go", "attention", "no-go"

# UR's nominal DH parameters differ from an arm's own calibration, and from the simulated model, by up to about 2 mm.
GEOMETRY_M, GEOMETRY_RAD = 0.005, 0.03
# A payload that is wrong by more lets the arm sag, and its collision detection err.
PAYLOAD_KG = 0.3
# A controller's clock against ours: more than this is no crystal's drift.
CLOCK_SHARE = 0.02
QUESTIONS, PAUSE_S = 50, 0.01
# Edges of the histograms' bins [ms].
EDGES_MS = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 40.0, 80.0, 150.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes:
        name: What was looked at.
        expected, found: In words.
        verdict: ``go``, ``attention`` (a person decides) or ``no-go``.
        advice: What to do, where it is no-go or attention.
    """

    name: str
    expected: str
    found: str
    verdict: str
    advice: str = ""


@dataclass(slots=True)
class Check:
    """What a check found.

    Attributes:
        histograms: Of times [ms] by name: percentiles, and counts between ``EDGES_MS``.
    """

    findings: list[Finding] = field(default_factory=list)
    histograms: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def go(self) -> bool:
        """Whether nothing speaks against moving."""
        return all(finding.verdict != NO_GO for finding in self.findings)

    @property
    def objection(self) -> str | None:
        """The first no-go in one sentence, or None."""
        for finding in self.findings:
            if finding.verdict == NO_GO:
                return f"{finding.name}: {finding.found}, wanted {finding.expected}; {finding.advice}"
        return None

    def add(self, name: str, expected: str, found: str, good: bool, advice: str, otherwise: str = NO_GO) -> None:
        """Add a finding."""
        self.findings.append(
            Finding(name, expected, found, GO if good else otherwise, "" if good else advice or "see docs/deploy.md")
        )

    def measured(self, name: str, times_s: Sequence[float]) -> dict[str, float] | None:
        """Add a histogram; gives its percentiles [ms]."""
        times = [1e3 * time for time in times_s]
        found = percentiles(times)
        if found is not None:
            counts, _ = np.histogram(times, EDGES_MS)
            self.histograms[name] = found | {"counts": counts.tolist()}
        return found

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain values."""
        return {
            "go": self.go,
            "findings": [{name: getattr(finding, name) for name in Finding.__slots__} for finding in self.findings],
            "edges_ms": list(EDGES_MS[:-1]),
            "histograms": self.histograms,
            "facts": self.facts,
        }


def check_contract(check: Check, trained: Contract, here: Contract) -> None:
    """Hold a policy's contract against that of the cell, term by term."""
    differences = {name: (mine, theirs) for name, mine, theirs in here.differences(trained)}
    for name, (mine, theirs) in differences.items():
        advice = "a policy runs only on what it was trained for; set up the cell as in training, or train for this one"
        check.add(f"contract: {name}", str(theirs), str(mine), False, advice)
    for part in trained.terms:
        if not any(name.split(".")[0].split("[")[0] == part for name in differences):
            check.add(f"contract: {part}", "as trained", "as trained", True, "")


def check_robot(check: Check, cell: CellConfig, environment: RobotEnv, robot: UrRobot, seconds: float = 2.0) -> None:
    """Look at the connected robot.

    Args:
        check: Where findings go.
        cell: The robot's cell.
        environment: The task's environment on that robot.
        robot: Opened for reading only; it is left open where it could be.
        seconds: How long states are watched.
    """
    spec = robot.spec
    try:
        _check_dashboard(check, cell)
    except RobotError as error:
        check.add("controller", f"a UR at {cell.ur.host}", "nobody", False, str(error))
        return
    if not _answers(check, "gripper answers", lambda: _ask_gripper(check, cell)):
        return
    if not _answers(check, "connection", robot.connect):
        return
    check.facts |= robot.facts
    statuses = list(_watch(robot, seconds))
    _check_stream(check, cell, statuses)
    _check_posture(check, spec, robot, environment)
    _check_tool(check, spec, robot.facts, environment.tool_at(np.array(robot.facts["q"])))
    _check_gripper(check, cell, robot)
    _answers(check, "objects", lambda: _check_objects(check, environment))


def _answers(check: Check, name: str, question: Callable[[], None]) -> bool:
    try:
        question()
    except RobotError as error:
        check.add(name, "an answer", "a refusal", False, str(error))
        return False
    return True


def _check_dashboard(check: Check, cell: CellConfig) -> None:
    dashboard = Dashboard(cell.ur.host)
    try:
        model = dashboard.ask("get robot model")
        serial = dashboard.ask("get serial number")
        version = dashboard.ask("PolyscopeVersion")
        mode = dashboard.ask("robotmode").rpartition(" ")[2]
        safety = dashboard.ask("safetystatus").rpartition(" ")[2]
        remote = dashboard.ask("is in remote control")
        check.facts |= {"serial_number": serial, "model": model, "polyscope": version}
        check.measured("arm_round_trip_ms", dashboard.round_trips(QUESTIONS, PAUSE_S))
    finally:
        dashboard.close()
    check.add("model", " or ".join(cell.ur.models), model, model in cell.ur.models, "check ur.host and ur.models")
    check.add("PolyScope", "5", version, version.startswith("URSoftware 5."), "only PolyScope 5 was tried", ATTENTION)
    check.add("robot mode", "RUNNING", mode, mode == "RUNNING", "power the arm on and release its brakes")
    check.add(
        "safety", "NORMAL or REDUCED", safety, safety in ("NORMAL", "REDUCED"),
        "find the cause; after a protective stop: td3robot recover --robot CELL",
    )  # fmt: skip
    check.add("remote control", "true", remote, remote == "true", "switch to remote control at the pendant")


def _watch(robot: UrRobot, seconds: float) -> Iterator[UrStatus]:
    """Give every new state's status for a while."""
    end, stamp = monotonic() + seconds, 0.0
    while monotonic() < end:
        status = robot.status()
        if status.stamp != stamp:
            stamp = status.stamp
            yield status
        sleep(0.001)


def _check_stream(check: Check, cell: CellConfig, statuses: list[UrStatus]) -> None:
    limit, nominal = 1e3 * cell.ur.max_state_age_s, 1e3 / cell.ur.rtde_rate_hz
    periods = np.diff([status.stamp for status in statuses])
    found = check.measured("arm_state_period_ms", periods.tolist())
    if found is None:
        check.add("state stream", f"every {nominal:g} ms", "nothing", False, "the controller sends no states")
        return
    text = f"p50 {found['p50']:.1f}, p99 {found['p99']:.1f}, max {found['max']:.1f} ms"
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
    slider = statuses[-1].speed_slider
    check.add(
        "speed slider", f"at least {100 * cell.ur.min_speed_scaling:.0f} %", f"{100 * slider:.0f} %",
        slider >= cell.ur.min_speed_scaling, "set it to 100 % at the pendant, and limit speeds with --speed",
    )  # fmt: skip


def _check_posture(check: Check, spec: RobotSpec, robot: UrRobot, environment: RobotEnv) -> None:
    state = robot.read()
    outside = [
        f"{name} at {q:.3f} rad"
        for name, q, low, high in zip(spec.arm.joint_names, state.q, spec.arm.lower, spec.arm.upper, strict=True)
        if not low <= q <= high
    ]
    check.add("joint limits", "inside", ", ".join(outside) or "inside", not outside, "move it by hand, in freedrive")
    speed = float(np.abs(state.dq).max())
    check.add("at rest", "below 0.01 rad/s", f"{speed:.3f} rad/s", speed < 0.01, "something moves the arm", ATTENTION)
    limit = environment.guard.admits(state.q)
    check.add(
        "posture", "inside the guard's limits", limit or "inside", limit is None,
        "the arm cannot begin from here: move it by hand, in freedrive, towards home", ATTENTION,
    )  # fmt: skip


def _check_tool(check: Check, spec: RobotSpec, facts: dict[str, Any], ours: Any) -> None:
    """Hold our forward kinematics against the tool pose that the controller computes: joints, signs, zeros, offset."""
    x, y, z, *rotation = facts["tcp_pose"]
    theirs = np.array([x, y, z])
    away = ours.rotation.T @ (theirs - ours.position)
    turned = _angle(ours.rotation.T @ _matrix(np.array(rotation)))
    beside = float(np.hypot(away[0], away[1]))
    check.add(
        "joints", f"tool axis within {1e3 * GEOMETRY_M:g} mm and {GEOMETRY_RAD:g} rad of ours",
        f"{1e3 * beside:.1f} mm, {turned:.3f} rad", beside < GEOMETRY_M and turned < GEOMETRY_RAD,
        "joint order, signs or zeros differ, or the tool set at the pendant is turned or beside the flange's axis",
    )  # fmt: skip
    offset = spec.tcp_offset_m + float(away[2])
    check.add(
        "TCP", f"{1e3 * spec.tcp_offset_m:.1f} mm from the flange", f"{1e3 * offset:.1f} mm",
        abs(offset - spec.tcp_offset_m) < GEOMETRY_M,
        "set the TCP at the pendant to (0, 0, offset), or robot.coupling_thickness_m in the cell's file",
    )  # fmt: skip
    payload = facts["payload_kg"]
    check.add(
        "payload", f"{spec.gripper.mass_kg:g} kg, within {PAYLOAD_KG:g}", f"{payload:.2f} kg",
        abs(payload - spec.gripper.mass_kg) < PAYLOAD_KG, "set the payload at the pendant to the gripper's mass",
    )  # fmt: skip


def _ask_gripper(check: Check, cell: CellConfig) -> None:
    link = UrCapSocket(cell.ur.host, cell.gripper.port, cell.gripper.answer_timeout_s)
    times = []
    try:
        for _ in range(QUESTIONS):
            begin = perf_counter()
            link.get("POS")
            times.append(perf_counter() - begin)
            sleep(PAUSE_S)
    finally:
        link.close()
    found = check.measured("gripper_round_trip_ms", times)
    assert found is not None
    text = f"p50 {found['p50']:.1f}, p99 {found['p99']:.1f}, max {found['max']:.1f} ms"
    limit = 1e3 * cell.gripper.answer_timeout_s / 2
    check.add("gripper answers", f"within {limit:g} ms", text, found["max"] < limit, "see to network and URCap")


def _check_gripper(check: Check, cell: CellConfig, robot: UrRobot) -> None:
    count, low, high = robot.gripper.state().count, cell.gripper.open_count, cell.gripper.closed_count
    good = low - 3 <= count <= high + 3
    check.add(
        "gripper calibration", f"counts {low} open to {high} closed", f"now at {count}", good,
        "open and close the gripper at the pendant, and set gripper.open_count and closed_count to what it reports",
    )  # fmt: skip


def _check_objects(check: Check, environment: RobotEnv) -> None:
    for name, pose in environment.find_objects().items():
        x, y, z = pose.position
        check.add(f"object {name}", "known", f"({x:.3f}, {y:.3f}, {z:.3f}) m", True, "")


def _matrix(vector: Array) -> Array:
    """Compute the rotation matrix of a rotation vector (3,) [rad] (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    matrix: Array = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
    return matrix


def _angle(rotation: Array) -> float:
    return min(pi, acos(min(1.0, max(-1.0, (float(np.trace(rotation)) - 1.0) / 2.0))))
