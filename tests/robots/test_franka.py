"""The driver of an FR3 against franka-sim: what it refuses, how faults stop it, and every 1 kHz command it causes."""

import importlib.util
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.config import RobotConfig, RobotEnvironmentConfig
from td3robot.deploy.station import Station
from td3robot.errors import CommandRefusedError, ConfigError, ContractError, MissingExtraError, RobotError
from td3robot.robots.cells import CellConfig
from td3robot.robots.driver.fingers import FingerWatch
from td3robot.robots.driver.link import StoppedError
from td3robot.robots.franka.link import MOVED_M, NOISE_M, FrankaLink, FrankaState, Hand
from td3robot.robots.guard import Guard
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.physical import Check
from td3robot.simulators.franka.process import VARIABLE, FrankaSimulator, check_log
from td3robot.simulators.sessions import SimulatorConfig, start_session
from td3robot.state import JointCommand, ObjectModel

KIT = {"arm": "fr3", "gripper": "franka_hand"}
NOBODY = "127.77.250.250"


def cell(host, **more):
    franka = {"host": host, "realtime": "ignore", "late_periods": 30, "max_state_age_s": 1.0, **more}
    return CellConfig.model_validate({"franka": franka})


def driver(where, passive=False):
    return where.driver(robot_spec(where.robot), passive)


@pytest.fixture
def robot(franka_cell):
    robot = driver(franka_cell)
    robot.connect()
    yield robot
    robot.close()


def stream(robot, periods, speed=0.3, closed=0.0):
    """Turn joint 1 at a speed [rad/s], slowing down towards the end; gives the last target."""
    q = np.array(robot.read().q)
    for period in range(periods):
        q = q + np.eye(7)[0] * speed * robot.spec.period_s * min(1.0, (periods - period) / 8)
        robot.send(JointCommand(q, closed))
        robot.advance()
    return q


def fault_of(robot, within_s=5.0):
    end = monotonic() + within_s
    while robot.fault is None and monotonic() < end:
        sleep(0.005)
    return robot.fault


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "franka", None)
    with pytest.raises(MissingExtraError, match=r"driving a Franka arm needs the extra 'franka'.*pip install"):
        driver(cell(NOBODY)).activate_gripper()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check = Check()
    monkeypatch.setattr("td3robot.robots.franka.robot.find_spec", lambda name: None)
    assert not driver(cell(NOBODY), passive=True).check_controller(check)
    assert "franka-rs" in check.objection and "td3robot[franka]" in check.objection


def test_a_missing_client_in_the_worker_is_the_same_error(monkeypatch):
    monkeypatch.setattr("td3robot.processes.Channel.receive", lambda channel: {"missing": True})
    with pytest.raises(MissingExtraError, match="'franka'"):
        driver(cell(NOBODY)).connect()


def test_a_host_where_nobody_is_is_named():
    pytest.importorskip("franka", reason="the extra 'franka' is not installed")
    robot = driver(cell(NOBODY))
    with pytest.raises(RobotError, match=rf"no Franka control box at {NOBODY}, port 1337 .*franka\.host.*FCI"):
        robot.connect()
    check = Check()
    assert not robot.check_controller(check)
    assert NOBODY in check.objection


def test_the_simulator_s_environment_is_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "python"))
    with pytest.raises(ConfigError, match=rf"run launch/franka_sim\.sh, or set {VARIABLE}"):
        FrankaSimulator("127.0.0.1")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"objects": (ObjectModel("cube", "box", (0.04, 0.04, 0.04), 0.1, 0.7),)},
            "no objects, and the task needs cube",
        ),
        ({"faults": Path("x.yaml")}, "leave --faults out"),
        ({"host": "192.168.0.9"}, "is not a loopback address"),
    ],
)
def test_a_lab_that_cannot_be_had_is_said(change, sentence):
    with pytest.raises(ConfigError, match=sentence):
        start_session(SimulatorConfig(RobotConfig(**KIT), **change))


@pytest.mark.parametrize("field", ["q", "q_d"])
def test_a_motion_does_not_begin_away_from_where_the_arm_rests(field):
    link = FrankaLink.__new__(FrankaLink)
    state = FrankaState(q=(0.1,) * 7, q_d=(0.1,) * 7, target=(0.1,) * 7)
    assert link.resting(state) == state.target
    with pytest.raises(StoppedError, match=r"is 0\.150 rad away from where the arm was sent to rest"):
        link.resting(replace(state, **{field: (0.25,) * 7}))


def test_a_second_client_is_told_that_there_is_room_for_one(robot, franka_standin):
    with pytest.raises(RobotError, match=r"did not let us in within 1 s: it has room for one client"):
        driver(cell(franka_standin.host, connect_timeout_s=1.0)).connect()
    assert robot.fault is None
    stream(robot, 3)


def test_a_policy_of_another_arm_is_refused_before_anything_is_opened():
    other = RobotEnvironmentConfig()
    with pytest.raises(ContractError, match=r"trained for the arm 'ur5e', and the cell's is 'fr3'; choose the cell of"):
        Station(other, cell(NOBODY))


def test_targets_outside_the_limits_are_clipped_and_jumps_refused(robot):
    arm = robot.spec.arm
    with pytest.raises(CommandRefusedError, match=r"asks joint 'fr3_joint\d' to go at .* outside of the .*nothing was"):
        robot.send(JointCommand(arm.upper + 1.0, 0.0))
    assert robot.fault is None


def test_reading_moves_nothing_and_sends_nothing(franka_cell):
    robot = driver(franka_cell, passive=True)
    robot.connect()
    with pytest.raises(RobotError, match="for reading only; nothing was sent"):
        robot.send(JointCommand(robot.read().q, 0.0))
    check = Check()
    robot.check_settings(check)
    assert {finding.name: finding.verdict for finding in check.findings if finding.verdict == "no-go"} == {}
    q, pose = robot.reported_tool()
    if importlib.util.find_spec("franky_sim") is not None:
        ours = Kinematics(robot.spec).tcp(q)
        np.testing.assert_allclose(pose.position, ours.position, atol=1e-5)
        np.testing.assert_allclose(pose.rotation, ours.rotation, atol=1e-5)
    robot.take_control()
    stream(robot, 3)
    robot.close()


def test_a_reflex_stops_the_arm_and_stays_until_the_operator_recovers(robot, franka_standin):
    threading.Timer(0.4, franka_standin.reflex).start()
    with pytest.raises(RobotError, match=r"a reflex stopped the arm \(joint_reflex\).*until the operator recovers"):
        stream(robot, 60, 0.1)
    for call in (robot.read, robot.advance, robot.take_control):
        with pytest.raises(RobotError, match="joint_reflex"):
            call()
    robot.stop()
    robot.recover()
    assert robot.fault is None
    stream(robot, 3)


@pytest.mark.parametrize(
    ("sign", "said"), [(signal.SIGKILL, "worker process ended"), (signal.SIGSTOP, "no sign of life")]
)
def test_a_worker_that_dies_or_hangs_is_a_fault(robot, sign, said):
    stream(robot, 5)
    pid = robot.worker_pid
    os.kill(pid, sign)
    try:
        assert said in (fault_of(robot) or "")
    finally:
        if sign == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
    robot.close()
    sleep(0.5)
    robot.recover()
    stream(robot, 3)


def test_no_more_targets_bring_the_arm_to_rest_and_are_a_fault(franka_standin):
    robot = driver(cell(franka_standin.host, late_periods=4.0))
    robot.connect()
    q = np.array(robot.read().q)
    for period in range(8):
        q = q - np.eye(7)[0] * 0.015
        robot.send(JointCommand(q, 0.0))
        if period < 7:
            robot.advance()
    assert "no new target came for 4 control periods" in (fault_of(robot) or "")
    sleep(1.0)
    assert np.abs(robot.latest().dq).max() < 0.005
    robot.close()


@pytest.mark.thorough
def test_fingers_that_another_program_moves_while_we_drive_are_a_fault(franka_standin, robot):
    stream(robot, 40, speed=0.0, closed=1.0)
    assert robot.read().driver_q[0] < 0.002
    franka_standin.open_hand()
    with pytest.raises(RobotError, match=r"the hand's fingers went from 0\.\d to .* although td3robot did"):
        stream(robot, 100, speed=0.0, closed=1.0)


class StillHand(Hand):
    """A hand whose width and clock are the test's; it carries out every command at once."""

    def __init__(self):
        self._wake, self.fault, self._wanted, self._commanded = threading.Condition(), None, None, None
        self._watch, self._asked_at, self.width, self.stamp = FingerWatch(MOVED_M, NOISE_M), 0.0, 0.08, 0.0

    def report(self, width, now):
        self.width, self.stamp = width, now
        self._require_ours()


@pytest.mark.parametrize("driven", [True, False])
def test_a_hand_at_rest_that_opens_by_itself_is_noticed(driven):
    hand = StillHand()
    hand._wanted = hand._commanded = 1.0
    hand._watch.told(0.0, 0.0)
    for tick in range(40):
        hand.report(0.03, 0.05 * tick)
    hand._asked_at = 1.9 if driven else 0.0
    hand.report(0.08, 2.0)
    assert (hand.fault is not None) == driven
    assert (hand._wanted, hand._commanded) == (None, None)  # the same request is sent again


def test_the_hand_says_what_it_holds(franka_standin, hosts):
    host = hosts[3].replace("127.34.", "127.35.")
    standin = FrankaSimulator(host, object_width=0.03)
    robot = driver(cell(host))
    robot.connect()
    stream(robot, 10, closed=1.0)
    robot.stop()
    sleep(1.0)
    np.testing.assert_allclose(robot.read().driver_q, 0.015, atol=0.001)
    assert robot.holds
    robot.close()
    standin.close()


def absurd(step, commanded, home, rng):
    """Do the worst: jumps, reversals at every step, far beyond the limits, and the hand at random."""
    n, kind = len(home), (step // 37) % 5
    if kind == 0:
        return JointCommand(rng.uniform(-4.0, 4.0, n), float(rng.integers(2)))
    if kind == 1:
        return JointCommand(commanded + rng.normal(0.0, 10.0, n), float(rng.uniform()))
    if kind == 2:
        return JointCommand(commanded + (1e9 if step % 2 else -1e9) * np.ones(n), 0.0)
    if kind == 3:
        return JointCommand(commanded + np.where(rng.uniform(size=n) < 0.5, -0.3, 0.3), 1.0)
    return JointCommand(home + rng.normal(0.0, 0.02, n), 0.0)


def drive_absurdly(robot, config, seconds):
    """Drive a connected robot for so many seconds of its control clock, and stop; returns the guard that was asked."""
    rng, home = np.random.default_rng(0), robot.spec.arm.home
    guard = Guard(robot.spec, config, Kinematics(robot.spec, config.clearance_m))
    guard.reset(robot.read().q)
    for step in range(round(seconds * robot.spec.control_rate_hz)):
        wish = absurd(step, guard.commanded.q, home, rng)
        robot.send(guard.filter(wish, robot.read(), robot.now()).command)
        robot.advance()
    robot.stop()
    return guard


@pytest.mark.parametrize(
    "seconds", [pytest.param(10.0, marks=pytest.mark.thorough), pytest.param(600.0, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(900)
def test_absurd_policies_break_no_limit_of_the_arm(hosts, tmp_path, franka_standin, seconds):
    host = hosts[3].replace("127.34.", "127.36.")
    config = RobotEnvironmentConfig.model_validate({"robot": KIT, "guard": {"max_state_age_s": 1.0}}).guard
    standin, robot = FrankaSimulator(host, log=tmp_path / "log"), driver(cell(host))
    robot.connect()
    asked = drive_absurdly(robot, config, seconds)
    robot.close()
    standin.close()
    assert standin.events_of("reflex") == standin.events_of("violation") == []
    assert asked.interventions.total() > 100
    verdict = check_log(tmp_path / "log")
    assert verdict["commands"] > 500 * seconds
    assert verdict["violations"] == []
    assert verdict["acceleration"] <= 10.0 and verdict["jerk"] <= 5000.0 and verdict["speed_share"] <= 1.0
