"""Rung by stage against the stand-in: what is sent, what stops it, what is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from td3robot.build import robot_spec
from td3robot.deploy.deployment import Request, deploy, grip, recover
from td3robot.deploy.ledger import LadderError, Ledger
from td3robot.deploy.operator import OperatorStop, Signals
from td3robot.errors import ConfigError, RobotError
from td3robot.records import read_record
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.ur.urcap import FingerState
from td3robot.simulators.process import StandstillMonitor

GOAL = (0.2, 0.5, 0.3)


def ask(checkpoint, cell, records, mode, **values):
    return Request(checkpoint, cell, mode, records=records, **({"speed": 1.0, "goal": GOAL} | values))


def kinds(report):
    found = {}
    for line in read_record(report_path(report)):
        found.setdefault(line["kind"], []).append(line)
    return found


def report_path(report):
    return Path(report["record"])


@pytest.mark.slow
def test_the_ladder_from_check_to_run(standin, cell, checkpoint, person, tmp_path):
    with pytest.raises(LadderError, match="--mode shadow asks for a passed --mode check"):
        deploy(ask(checkpoint, cell, tmp_path, "shadow"), person)
    report = deploy(ask(checkpoint, cell, tmp_path, "check"), person)
    assert report["check"]["go"]

    before = standin.state()["q"]
    report = deploy(ask(checkpoint, cell, tmp_path, "shadow"), person)
    assert report["fault"] is None
    assert report["figures"]["steps"] == 40
    np.testing.assert_allclose(standin.state()["q"], before, atol=1e-6)
    assert standin.record() == []
    assert any("would move the tool at" in text for text in person.said)
    assert any(
        re.search(r"watched for 40 periods, \d+ of them late, and nothing was sent", text) for text in person.said
    )
    assert not any("success" in text for text in person.said)
    assert report["figures"]["success_rate"] is None
    assert [line["failure"] for line in kinds(report)["episode_end"]] == [None]  # nothing was sent, so nothing failed

    person.keys = [1, 20, 1, 20]
    report = deploy(ask(checkpoint, cell, tmp_path, "confirm"), person)
    assert person.keys == []
    assert report["fault"] is None
    assert report["figures"]["steps"] == 40

    report = deploy(ask(checkpoint, cell, tmp_path, "run"), person)
    assert report["fault"] is None
    assert report["figures"]["ended"] == {"time": 1}
    record = kinds(report)
    assert len(record["period"]) == 40
    line = record["period"][20]
    assert np.shape(line["observation"]) == (20,)
    assert np.shape(line["action"]) == (3,)
    for name in ("wish", "command", "sent"):
        assert np.shape(line[name]["q"]) == (6,)
    assert line["sent"] == line["command"]
    assert record["session"][0]["digest"] == report["digest"]
    assert json.loads((report_path(report).parent / "report.json").read_text()) == json.loads(json.dumps(report))
    wire = standin.state()["wire"]["measured"]
    assert 0.01 < wire["tcp_speed_m_s"] < 0.25
    assert max(map(abs, standin.state()["dq"])) < 0.01


@pytest.mark.slow
def test_confirm_says_what_the_next_step_would_do_and_what_a_key_moved(standin, cell, checkpoint, person, tmp_path):
    person.keys = [1, 20, 1, 20]
    before = np.array(standin.state()["q"])
    report = deploy(ask(checkpoint, cell, tmp_path, "confirm", override="a test"), person)
    assert report["fault"] is None
    nexts = [text for text in person.said if text.startswith("next the tool goes ")]
    moved = [text for text in person.said if text.startswith("the tool moved by (")]
    assert (len(nexts), len(moved)) == (4, 4)
    assert all("% closed" in text for text in nexts)
    said = (
        r"the tool moved by \([-+\d]+, [-+\d]+, [-+\d]+\) mm and is at \(([-\d]+), ([-\d]+), ([-\d]+)\) mm, \d+ mm from"
    )
    at = [float(value) / 1e3 for value in re.match(said, moved[-1]).groups()]
    q = np.array(standin.state()["q"])
    assert np.abs(q - before).max() > 0.01
    np.testing.assert_allclose(Kinematics(robot_spec(cell.robot)).tcp(q).position, at, atol=0.01)


@pytest.fixture
def held(monkeypatch):
    """Have the gripper report that something stopped its fingers."""
    monkeypatch.setattr(FingerState, "holds", True)


def test_the_gripper_opens_and_closes_where_the_arm_rests(standin, cell, person, tmp_path):
    before = standin.state()["q"]
    assert grip(cell, 1.0, tmp_path, person) > 0.9
    assert grip(cell, 0.0, tmp_path, person) < 0.1
    np.testing.assert_allclose(standin.state()["q"], before, atol=1e-3)


def test_a_gripper_that_holds_something_opens_only_once_it_was_taken(standin, cell, person, tmp_path, held):
    with pytest.raises(RobotError, match="will open, and it holds something that will fall: take hold of it"):
        grip(cell, 0.0, tmp_path, person)
    with pytest.raises(RobotError, match="will close and open, and it holds something that will fall"):
        recover(cell, tmp_path, True, person)
    assert standin.record() == []


def test_a_declined_motion_of_the_fingers_moves_nothing(standin, cell, person, tmp_path):
    def decline(what):
        raise OperatorStop(what)

    person.agree = decline
    with pytest.raises(OperatorStop, match="the gripper will close; keep your fingers out"):
        grip(cell, 1.0, tmp_path, person)
    assert standin.state()["gripper"]["PRE"] == 0


def test_a_latched_robot_keeps_its_gripper(standin, cell, person, tmp_path):
    grip(cell, 0.0, tmp_path, person)
    ledger = Ledger(tmp_path)
    (serial,) = json.loads(ledger.path.read_text())["robots"]
    ledger.latch(serial, "a test")
    with pytest.raises(LadderError, match="was stopped by a fault"):
        grip(cell, 0.0, tmp_path, person)


def test_a_second_stop_signal_is_latched_and_told(standin, cell, checkpoint, person, tmp_path):
    def interrupt():
        person.looks += 1
        if person.looks > 20:
            raise KeyboardInterrupt
        return False

    person.stop_wanted = interrupt
    with pytest.raises(KeyboardInterrupt):
        deploy(ask(checkpoint, cell, tmp_path, "run", override="a test"), person)
    (told,) = [text for text in person.said if text.startswith("FAULT")]
    assert "a second stop signal ended the program at once" in told
    (robot,) = json.loads(Ledger(tmp_path).path.read_text())["robots"].values()
    assert "a second stop signal" in robot["latched"]["fault"]
    (record,) = tmp_path.rglob("record.jsonl")
    assert "a second stop signal" in next(line["fault"] for line in read_record(record) if line["kind"] == "stop")
    assert max(map(abs, standin.state()["dq"])) < 0.05


def test_confirm_without_a_keyboard_is_refused_before_anything_else(cell, checkpoint, tmp_path):
    with pytest.raises(ConfigError, match=r"waits for key presses, and standard input is no terminal"):
        deploy(ask(checkpoint, cell, tmp_path, "confirm", override="a test"), Signals())


@pytest.mark.slow
def test_at_a_tenth_of_the_speed_the_arm_is_a_tenth_as_fast(standin, cell, checkpoint, person, tmp_path):
    person.stop_after = 60
    report = deploy(ask(checkpoint, cell, tmp_path, "run", speed=0.1, override="a test"), person)
    assert report["figures"]["ended"] == {"operator": 1}
    wire = standin.state()["wire"]
    assert 0.005 < wire["measured"]["tcp_speed_m_s"] < 0.025
    assert wire["targets"]["tcp_speed_m_s"] <= 0.025 * 1.01
    assert wire["targets"]["joint_acceleration_rad_s2"] <= 0.8 * 1.1


def test_the_operator_stops_the_arm_which_holds_and_everything_is_kept(standin, cell, checkpoint, person, tmp_path):
    person.stop_after = 20
    report = deploy(ask(checkpoint, cell, tmp_path, "run", override="a test"), person)
    assert report["fault"] is None
    assert report["figures"]["ended"] == {"operator": 1}
    record = kinds(report)
    assert record["stop"][0]["ended"] == "operator"
    np.testing.assert_allclose(record["rest"][0]["state"]["q"], standin.state()["q"], atol=2e-3)
    assert max(map(abs, standin.state()["dq"])) < 0.01
    serial = report["robot"]["serial_number"]
    with pytest.raises(LadderError):  # a run that was stopped is no stage
        Ledger().require("run", serial, report["digest"], None)
    assert Ledger().latched(serial) is None


@pytest.mark.slow
def test_after_a_protective_stop_nothing_moves_until_recover(standin, cell, checkpoint, person, tmp_path):
    standin.ask(fault={"kind": "protective_stop", "at_s": 6.0})
    report = deploy(ask(checkpoint, cell, tmp_path, "run", override="a test", speed=0.2), person)
    assert "a protective stop holds the arm" in report["fault"]
    rested = standin.state()["q"]
    with pytest.raises(Exception, match="no-go: safety: PROTECTIVE_STOP"):
        deploy(ask(checkpoint, cell, tmp_path, "run", override="a test"), person)
    begin = time.monotonic()
    assert "protective stop" in recover(cell, tmp_path, False)["was"]
    assert time.monotonic() - begin > 5.0
    np.testing.assert_allclose(standin.state()["q"], rested, atol=1e-3)
    person.stop_after = 5
    report = deploy(ask(checkpoint, cell, tmp_path, "run", override="a test"), person)
    assert report["fault"] is None


# There is no torch on the robot's side.
PROGRAM = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch was asked for")
sys.meta_path.insert(0, NoTorch())
from td3robot.cli import main
main()
"""


@pytest.fixture
def running(standin, cell, checkpoint, tmp_path):
    """Run the command in a process of its own, until its arm moves."""
    path = tmp_path / "cell.yaml"
    path.write_text(yaml.safe_dump({"ur": {"host": standin.host}}))
    arguments = [
        "deploy", checkpoint, "--robot", path, "--mode", "run", "--override", "a test", "--records", tmp_path,
        "--goal", "0.2,0.5,0.3", "--speed", "0.3", "--unattended", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    end = time.monotonic() + 40
    while max(map(abs, standin.state()["dq"])) < 0.02:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.3)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_killing_the_program_stops_the_arm_and_leaves_the_record(running, standin, tmp_path):
    watch = StandstillMonitor(standin)
    watch.start()
    time.sleep(0.2)
    killed = time.monotonic()
    running.send_signal(signal.SIGKILL)
    time.sleep(1.5)
    watch.finish()
    assert watch.moved_before(killed)
    assert watch.rest_after(killed) < 0.8
    (record,) = tmp_path.glob("*-run-*/record.jsonl")
    assert sum(line["kind"] == "period" for line in read_record(record)) >= 5


@pytest.mark.slow
def test_ctrl_c_stops_and_reports_and_torch_is_not_needed(running, standin):
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=30)
    assert running.returncode == 1, error  # not passed
    assert "the operator stopped the arm" in error
    assert "nanobind" not in error
    report = json.loads(out)
    assert report["figures"]["ended"] == {"operator": 1}
    assert max(map(abs, standin.state()["dq"])) < 0.01
