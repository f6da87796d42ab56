"""A driver of another make climbs the same ladder: no controller, no sockets, nothing in deploy/ knows it."""

import json
import re
import socket
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import monotonic, time

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.cli.deployment import _show_stage
from td3robot.config import RobotConfig, parse_config
from td3robot.deploy import deployment
from td3robot.deploy.deployment import Request, deploy, recover
from td3robot.deploy.ledger import LadderError, Ledger
from td3robot.deploy.operator import Signals
from td3robot.errors import ConfigError, RobotError
from td3robot.records import read_record
from td3robot.report.session import read_session
from td3robot.report.session_page import verdict
from td3robot.robots.cells import CellConfig
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.physical import PhysicalRobot, Status
from td3robot.robots.toolbox import KinematicRobot
from td3robot.robots.trackers.udp import UdpTrackerConfig
from td3robot.state import Pose

GOAL = (0.2, 0.5, 0.3)


class Controller:
    """What outlives a driver: the arm, its fault, and a log of what was asked of it."""

    def __init__(self):
        self.arm = KinematicRobot(robot_spec(RobotConfig()))
        self.arm.connect()
        self.log, self.fault, self.fault_after, self.tilt = [], None, None, np.eye(3)


CONTROLLER = Controller()


class OtherRobot(PhysicalRobot):
    console = "its web page"
    state_period_s, max_state_age_s = 0.001, 0.5

    def __init__(self, spec, passive):
        super().__init__(spec, passive)
        self.open, self.sent = False, 0

    fault = property(lambda self: CONTROLLER.fault)
    holds = False

    def connect(self):
        if not self.open:
            CONTROLLER.log.append("read" if self.passive else "control")
        self.open, self.facts = True, {"serial_number": "other-1"}

    def take_control(self):
        self.require_no_fault()
        if self.passive:
            CONTROLLER.log.append("control")
        self.passive, self.open = False, True

    def require_no_fault(self):
        if CONTROLLER.fault is not None:
            raise RobotError(CONTROLLER.fault)

    def read(self):
        self.require_no_fault()
        return CONTROLLER.arm.read()

    def now(self):
        return CONTROLLER.arm.now()

    def _send(self, command):
        assert not self.passive
        self.sent += 1
        if self.sent == CONTROLLER.fault_after:
            CONTROLLER.fault = "a reflex stopped the arm"
        self.require_no_fault()
        CONTROLLER.arm.send(command)

    def advance(self):
        CONTROLLER.arm.advance()

    def move_to(self, q):
        raise RobotError("no")

    def stop(self):
        if self.sent:
            CONTROLLER.log.append("stop")

    def close(self):
        if self.open:
            CONTROLLER.log.append("close")
        self.open = False

    def status(self):
        return Status(monotonic(), monotonic(), 0.0, 0, CONTROLLER.fault)

    def reported_tool(self):
        q = CONTROLLER.arm.read().q
        pose = Kinematics(self.spec, 0.0).tcp(q)
        return q, Pose(pose.position, pose.rotation @ CONTROLLER.tilt)

    def activate_gripper(self):
        CONTROLLER.log.append("gripper")

    def recover(self, activate_gripper=False):
        CONTROLLER.log.append("recover")
        CONTROLLER.fault = CONTROLLER.fault_after = None
        self.connect()

    def check_controller(self, check):
        check.facts["serial_number"] = "other-1"
        check.add("brakes", "open", "open", True, "")
        return True

    def check_settings(self, check):
        check.add("load", "right", "right", True, "")


class OtherCell(CellConfig):
    def driver(self, spec, passive=False, max_tcp_speed_m_s=np.inf):
        return OtherRobot(spec, passive)


@pytest.fixture
def controller():
    CONTROLLER.__init__()
    return CONTROLLER


def ask(checkpoint, records, mode, **values):
    return Request(checkpoint, OtherCell(robot=RobotConfig()), mode, speed=1.0, goal=GOAL, records=records, **values)


def test_it_climbs_the_ladder_on_one_connection_each(controller, checkpoint, person, tmp_path):
    with pytest.raises(LadderError, match="asks for a passed --mode check"):
        deploy(ask(checkpoint, tmp_path, "shadow"), person)
    assert controller.log == ["read", "close"]
    before = controller.arm.read().q
    names = [finding["name"] for finding in deploy(ask(checkpoint, tmp_path, "check"), person)["check"]["findings"]]
    assert {"brakes", "load", "state stream", "joints", "TCP"} <= set(names)

    assert deploy(ask(checkpoint, tmp_path, "shadow"), person)["fault"] is None
    np.testing.assert_array_equal(controller.arm.read().q, before)
    person.keys = [20, 20]
    assert deploy(ask(checkpoint, tmp_path, "confirm"), person)["fault"] is None
    controller.log.clear()
    report = deploy(ask(checkpoint, tmp_path, "run"), person)
    assert report["figures"]["ended"] == {"time": 1}
    assert report["robot"] == {"serial_number": "other-1"}
    assert [word for word in controller.log if word != "stop"] == ["read", "control", "close"]
    assert controller.log[-2] == "stop"
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize(
    ("keys", "why", "said"),
    [
        ([20], None, r"confirm passed for this checkpoint on robot other-1; next: td3robot deploy \S+ --robot CELL "
         "--mode run$"),
        (
            [1, 1], "the arm moved for 0.1 s; at least 1 s are required",
            "confirm not passed for .*: the arm moved for 0.1 s",
        ),
    ],
)  # fmt: skip
@pytest.mark.thorough
def test_each_mode_says_whether_it_passed(controller, checkpoint, person, tmp_path, capsys, keys, why, said):
    person.keys = keys
    request = ask(checkpoint, tmp_path, "confirm", override="a test")
    report = deploy(request, person)
    assert report["figures"]["ended"] == {"operator": 1}
    assert report["not_passed"] == why
    assert report["figures"]["success_rate"] is None  # nobody failed
    _show_stage(report, request)
    assert re.search(said, capsys.readouterr().err.strip())
    found = verdict(read_session(Path(report["record"])))
    assert found.word == ("Passed" if why is None else "Stopped")


@pytest.mark.parametrize(("why", "status"), [(None, 0), ("the operator stopped it", 1)])
def test_the_exit_status_says_whether_a_mode_passed(td3robot, checkpoint, tmp_path, monkeypatch, why, status):
    report = {
        "mode": "confirm", "checkpoint": str(checkpoint), "speed": 1.0, "record": "record", "fault": None,
        "robot": {"serial_number": "1"}, "not_passed": why,
    }  # fmt: skip
    monkeypatch.setattr(deployment, "deploy", lambda request, operator: report)
    cell = tmp_path / "cell.yaml"
    cell.write_text("ur: {host: 127.255.255.250}\n")
    found, _, said = td3robot("deploy", checkpoint, "--robot", cell, "--mode", "confirm", "--records", tmp_path)
    assert found == status, said


@pytest.mark.thorough
def test_shadow_says_only_what_is_new(controller, checkpoint, person, tmp_path):
    deploy(ask(checkpoint, tmp_path, "shadow", override="a test"), person)
    would = [text for text in person.said if text.startswith("would move the tool")]
    assert would
    assert all(one != other for one, other in pairwise(would))


@pytest.mark.thorough
def test_what_goes_on_is_said_before_it_takes_its_time(controller, checkpoint, person, tmp_path):
    request = Request(
        checkpoint, OtherCell(robot=RobotConfig()), "run", speed=1.0, episodes=2, records=tmp_path, override="a test"
    )
    deploy(request, person)
    begun = [text for text in person.said if not text.startswith("episode ") or " of " in text]
    assert begun == [
        "connecting to the robot, and checking it; its states are watched for 1 s",
        "taking control of the robot",
        "travelling to the start of episode 1 of 2", "episode 1 of 2",
        "travelling to the start of episode 2 of 2", "episode 2 of 2",
    ]  # fmt: skip
    (agreed,) = person.agreed
    assert re.fullmatch(
        r"the arm will now move to its start, which takes about \d+ s: the tool goes from \([-\d, ]+\) to "
        r"\([-\d, ]+\) mm, between \d+ and \d+ mm high, and no joint turns by more than \d+ degrees",
        agreed,
    )


@pytest.mark.parametrize("mode", ["check", "shadow", "confirm", "run"])
def test_a_goal_in_millimetres_is_refused_before_anything_else_is_asked_for(controller, checkpoint, tmp_path, mode):
    request = replace(ask(checkpoint, tmp_path, mode), goal=(200.0, 500.0, 300.0))
    with pytest.raises(ConfigError, match=r"the goal \[200\.0, 500\.0, 300\.0\] m is outside"):
        deploy(request, Signals())
    assert controller.log == []


@pytest.mark.thorough
def test_without_a_terminal_a_run_has_to_say_that_nobody_attends_it(controller, checkpoint, tmp_path):
    with pytest.raises(ConfigError, match=r"nobody can stop the arm from here; .*--unattended"):
        deploy(ask(checkpoint, tmp_path, "run", override="a test"), Signals())
    assert controller.log == []
    report = deploy(ask(checkpoint, tmp_path, "run", override="a test", unattended=True), Signals())
    assert report["fault"] is None
    (session, *_) = read_record(Path(report["record"]))
    assert session["unattended"] is True


@pytest.mark.thorough
def test_control_is_not_taken_before_the_ladder_allows_it(controller, checkpoint, person, tmp_path):
    with pytest.raises(LadderError):
        deploy(ask(checkpoint, tmp_path, "run"), person)
    Ledger().latch("other-1", "it hit the table")
    with pytest.raises(LadderError, match="it hit the table"):
        deploy(ask(checkpoint, tmp_path, "run", override="a test"), person)
    assert "control" not in controller.log


def test_a_fault_is_latched_and_recovered_and_a_turned_tool_is_no_go(controller, checkpoint, person, tmp_path):
    controller.fault_after = 10
    report = deploy(ask(checkpoint, tmp_path, "run", override="a test"), person)
    assert report["fault"] == "a reflex stopped the arm"
    assert [text for text in person.said if "a reflex" in text] == ["FAULT: a reflex stopped the arm"]
    assert Ledger().latched("other-1") == "a reflex stopped the arm"
    with pytest.raises(LadderError, match="a reflex"):
        deploy(ask(checkpoint, tmp_path, "run", override="a test"), person)
    assert recover(OtherCell(robot=RobotConfig()), tmp_path, False)["was"] == "a reflex stopped the arm"
    assert Ledger().latched("other-1") is None

    controller.tilt = np.diag([1.0, -1.0, -1.0])
    with pytest.raises(RobotError, match=r"no-go: joints: .*the tool set at its web page"):
        deploy(ask(checkpoint, tmp_path, "run", override="a test"), person)


@pytest.fixture
def seen(write_checkpoint, tmp_path, monkeypatch):
    """Give a grasp's checkpoint that was trained for disturbances, and a cell whose camera has 10 frames a second."""
    monkeypatch.setattr("td3robot.deploy.trained.WATCH_S", 1.2)
    config = parse_config(
        "{name: grasp, agent: {normalize_observations: true}, environment: {kind: robot, task: {name: grasp}, "
        "disturbance: {camera_rate_hz: [15, 60], camera_latency_s: [0.02, 0.15]}}}", "test",
    )  # fmt: skip
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind(("127.0.0.33", 0))
        port = link.getsockname()[1]
    stopping = threading.Event()

    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            while not stopping.wait(0.1):
                message = {"name": "object", "stamp": time() - 0.08, "position_m": [0.1, 0.5, 0.02],
                           "quaternion_wxyz": [1, 0, 0, 0]}  # fmt: skip
                link.sendto(json.dumps(message).encode(), ("127.0.0.33", port))

    camera = threading.Thread(target=send)
    camera.start()
    cell = OtherCell(robot=RobotConfig(), tracker=UdpTrackerConfig(host="127.0.0.33", port=port))
    yield write_checkpoint(tmp_path / "grasp", config), cell
    stopping.set()
    camera.join()


def test_a_camera_outside_of_training_draws_attention_and_forbids_nothing(controller, seen, person, tmp_path):
    checkpoint, cell = seen
    report = deploy(Request(checkpoint, cell, "check", speed=1.0, records=tmp_path), person)
    found = {finding["name"]: finding for finding in report["check"]["findings"]}
    assert report["check"]["go"]
    assert report["not_passed"] is None
    assert found["camera rate"]["verdict"] == "attention"
    assert "camera_rate_hz=[" in found["camera rate"]["advice"]
    assert found["camera latency"]["verdict"] == "go"
    assert found["camera noise"]["found"].startswith("0 mm")
    assert "gripper speed" not in found  # this cell does not say how its gripper is driven


@pytest.mark.thorough
def test_a_policy_without_objects_is_not_asked_about_a_camera(controller, seen, checkpoint, person, tmp_path):
    _, cell = seen
    report = deploy(Request(checkpoint, cell, "check", speed=1.0, records=tmp_path), person)
    assert not any(finding["name"].startswith("camera") for finding in report["check"]["findings"])
