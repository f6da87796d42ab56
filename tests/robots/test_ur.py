"""The driver against the stand-in: what is sent, what happens when something breaks, and how long that takes."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from td3robot.build import ROBOTS, robot_spec
from td3robot.config import GuardConfig, RobotConfig
from td3robot.errors import ConfigError, MissingExtraError, RobotError
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.robot import UrRobot
from td3robot.robots.ur.urcap import ACTIVE
from td3robot.simulators.process import start_ur_simulator
from td3robot.state import JointCommand

SPEED = 0.3  # [rad/s]
AT_REST = 0.01  # [rad/s]


# On a loaded machine these tests themselves are late; how late a program may be has a test of its own.
PATIENT = {"late_periods": 30, "max_state_age_s": 1.0}


def make(host, passive=False, **ur):
    gripper = {"max_age_s": 5.0, "answer_timeout_s": 0.3}
    cell = CellConfig.model_validate({"ur": {"host": host, **PATIENT, **ur}, "gripper": gripper})
    return UrRobot(robot_spec(cell.robot), cell, passive)


@pytest.fixture
def cell(standin):
    """Put the stand-in's arm home, all faults ended and the gripper active."""
    standin.reset()
    standin.ask(remote=True, speed_slider=1.0)
    if standin.state()["gripper"]["STA"] != ACTIVE:
        make(standin.host).gripper.activate()
    return standin


@pytest.fixture
def robot(cell):
    robot = make(cell.host)
    robot.connect()
    yield robot
    robot.close()


class Hand:
    """Moves the shoulder at a steady speed."""

    def __init__(self, robot):
        self.robot, self.q = robot, robot.read().q

    def drive(self, periods, speed=SPEED, gripper=0.0):
        move = np.array([speed, 0, 0, 0, 0, 0]) * self.robot.spec.period_s
        for _ in range(periods):
            self.robot.read()
            self.q = self.q + move
            self.robot.send(JointCommand(self.q, gripper))
            self.robot.advance()


def drive_until_fault(hand, limit_s=3.0):
    """Go on as a policy would; returns the error and when it came."""
    begin = time.monotonic()
    with pytest.raises(RobotError) as error:
        while time.monotonic() - begin < limit_s:
            hand.drive(1)
    return error.value, time.monotonic() - begin


def seconds_to_rest(standin, begin, limit_s=3.0):
    """Watch the true arm until it rests, and that it stays; returns when it came to rest, after ``begin``."""
    moved_at, now = begin, time.monotonic()
    while now - max(moved_at, begin) < 0.5:
        assert now - begin < limit_s, "the arm does not come to rest"
        if np.abs(standin.state()["dq"]).max() > AT_REST:
            moved_at = time.monotonic()
        now = time.monotonic()
    return moved_at - begin


def assert_latched(robot, reason):
    """Whatever is tried, the first reason is told and nothing moves; stopping stays legal."""
    q = np.array(robot.spec.arm.home)
    for call in (robot.read, robot.advance, lambda: robot.send(JointCommand(q, 0.0))):
        with pytest.raises(RobotError, match=rf"{reason}.*nothing moves until the operator recovers"):
            call()
    robot.stop()
    robot.stop()
    with pytest.raises(RobotError, match=reason):
        robot.read()


def test_targets_are_streamed_at_the_rtde_rate_as_straight_lines(cell):
    for rate in (125, 500):
        robot = make(cell.host, rtde_rate_hz=rate)
        robot.connect()
        cell.record()
        hand = Hand(robot)
        hand.drive(20)
        robot.stop()
        figures = robot.figures()
        record = np.array(cell.record())
        robot.close()
        assert figures["period_p50_ms"] == pytest.approx(1e3 / rate, rel=0.05)
        moving = record[(record[:, 1] > record[0, 1] + 0.05) & (record[:, 1] < record[-1, 1] - 0.05)]
        assert len(moving) > 0.4 * rate
        steps = np.diff(moving[:, 1])
        assert np.median(steps) == pytest.approx(SPEED / rate, rel=0.05)
        over_20_ms = moving[round(0.02 * rate) :, 1] - moving[: -round(0.02 * rate), 1]
        assert np.quantile(over_20_ms, 0.95) < 1.5 * SPEED * round(0.02 * rate) / rate
        np.testing.assert_allclose(record[-1, 1:], hand.q, rtol=0, atol=0.02 * SPEED)  # less what braking cuts off


def test_the_arm_follows_as_the_simulated_one_does(robot, standin):
    hand = Hand(robot)
    hand.drive(26)
    lags = []
    for _ in range(5):  # a busy host may delay one reading
        hand.drive(1)
        lags.append((hand.q - robot.read().q)[0] / SPEED)
    assert 0.09 < np.median(lags) < 0.15  # the lookahead time, and what streaming and reporting add
    np.testing.assert_allclose(robot.read().q, standin.state()["q"], rtol=0, atol=0.02 * SPEED)


def test_a_pause_by_stop_is_no_fault_and_motion_goes_on_from_there(robot):
    hand = Hand(robot)
    hand.drive(10)
    robot.stop()
    time.sleep(0.5)
    rest = robot.read()
    assert np.abs(rest.dq).max() < AT_REST
    Hand(robot).drive(10, -SPEED)
    robot.stop()
    assert robot.read().q[0] < rest.q[0]


def test_a_target_that_was_followed_by_stop_at_once_is_not_played(robot, cell):
    q = robot.read().q
    for _ in range(5):
        robot.send(JointCommand(q + 0.05, 0.0))
        begin = time.monotonic()
        robot.stop()
        assert time.monotonic() - begin < 1.0
    assert np.abs(robot.read().q - q).max() < 0.05
    assert robot.fault is None


def test_without_new_targets_the_arm_holds_and_the_driver_says_late(cell):
    robot = make(cell.host, late_periods=2.5)
    robot.connect()
    hand = Hand(robot)
    hand.drive(5)
    begin = time.monotonic()
    time.sleep(0.3)
    assert seconds_to_rest(cell, begin) < 0.8
    assert_latched(robot, r"no new target came for 2\.5 control periods \(125 ms\)")
    short = hand.q[0] - cell.state()["q"][0]
    assert -1e-3 < short < 0.1 * SPEED  # it was on its way to where it was sent last, and went no further
    robot.recover()
    assert robot.fault is None
    Hand(robot).drive(1, -SPEED)
    robot.close()


def test_missed_ticks_are_counted_and_not_caught_up(robot):
    hand = Hand(robot)
    hand.drive(5)
    before = robot.missed_ticks
    time.sleep(0.07)
    hand.drive(5)
    assert robot.missed_ticks >= before + 1
    assert robot.status().missed_ticks == robot.missed_ticks


@pytest.mark.thorough
def test_the_clock_waits_for_a_worker_that_is_held_up_again_and_again(cell):
    robot = make(cell.host, late_periods=6)
    robot.connect()
    hand = Hand(robot)
    hand.drive(5)
    for _ in range(10):
        os.kill(robot.worker_pid, signal.SIGSTOP)
        threading.Timer(0.035, os.kill, (robot.worker_pid, signal.SIGCONT)).start()
        hand.drive(3)  # on time, all the while
    assert robot.fault is None  # 0.3 s in all, and 0.25 s behind would be too late
    assert robot.figures()["stretched_ms"] > 200.0
    robot.close()


def test_a_killed_worker_is_noticed_and_the_watchdog_stops_the_arm(robot, cell):
    hand = Hand(robot)
    hand.drive(20)
    begin = time.monotonic()
    os.kill(robot._process.pid, signal.SIGKILL)
    _, noticed = drive_until_fault(hand)
    assert noticed < 0.2
    assert seconds_to_rest(cell, begin) < 0.5
    assert not cell.state()["program_running"]
    assert_latched(robot, r"the arm's worker process ended \(status -9\)")
    robot.recover()
    Hand(robot).drive(5, -SPEED)


@pytest.mark.thorough
def test_a_hanging_worker_is_noticed_and_stops_when_it_wakes(robot, cell):
    hand = Hand(robot)
    hand.drive(20)
    begin, pid = time.monotonic(), robot._process.pid
    os.kill(pid, signal.SIGSTOP)
    error, noticed = drive_until_fault(hand)
    assert noticed < 0.25
    assert "no sign of life" in str(error)
    assert seconds_to_rest(cell, begin) < 0.6
    os.kill(pid, signal.SIGCONT)
    assert seconds_to_rest(cell, time.monotonic()) < 0.1


PARENT = """
import sys, time, numpy as np
from td3robot.build import robot_spec
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.robot import UrRobot
from td3robot.state import JointCommand
cell = CellConfig.model_validate({"ur": {"host": sys.argv[1], "late_periods": 30, "max_state_age_s": 1.0}})
robot = UrRobot(robot_spec(cell.robot), cell)
robot.connect()
print(robot._process.pid, *[name for name in ("torch", "rtde_control", "rtde_receive") if name in sys.modules])
q = robot.read().q
for step in range(200):
    q = q + [0.015, 0, 0, 0, 0, 0]
    robot.send(JointCommand(q, 0.0))
    robot.advance()
    if step == 20:
        print("moving", flush=True)
"""


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.thorough
def test_a_killed_parent_leaves_no_motion_and_no_worker(cell):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, cell.host], stdout=subprocess.PIPE, text=True)
    worker, *imported = parent.stdout.readline().split()
    assert imported == []  # neither the learner's torch, nor ur_rtde outside its worker
    assert parent.stdout.readline().strip() == "moving"
    begin = time.monotonic()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert seconds_to_rest(cell, begin) < 0.8
    end = time.monotonic() + 3.0
    while not gone(int(worker)) and time.monotonic() < end:
        time.sleep(0.01)
    assert gone(int(worker))
    assert not cell.state()["program_running"]
    robot = make(cell.host)
    robot.connect()  # the controller is free again
    robot.close()


@pytest.mark.thorough
def test_a_protective_stop_latches_until_it_is_unlocked_after_five_seconds(robot, cell):
    hand = Hand(robot)
    hand.drive(20)
    begin = time.monotonic()
    cell.fault("protective_stop")
    _, noticed = drive_until_fault(hand)
    assert noticed < 0.2
    assert seconds_to_rest(cell, begin) < 0.5
    assert_latched(robot, "a protective stop holds the arm: find its cause")
    assert cell.state()["safety_mode"] == "PROTECTIVE_STOP"  # nobody clears it
    rest = np.array(cell.state()["q"])
    robot.recover()
    assert time.monotonic() - begin > 5.0
    assert cell.state()["safety_mode"] == "NORMAL"
    np.testing.assert_allclose(robot.read().q, rest, rtol=0, atol=1e-3)
    cell.record()
    Hand(robot).drive(3, -0.05)
    assert np.abs(np.array(cell.record())[0, 1:] - rest).max() < 0.005  # from the measured posture


@pytest.mark.slow
def test_after_an_emergency_stop_hands_are_needed_at_the_pendant(robot, cell):
    hand = Hand(robot)
    hand.drive(20)
    begin = time.monotonic()
    cell.emergency_stop()
    drive_until_fault(hand)
    assert seconds_to_rest(cell, begin) < 0.5
    assert_latched(robot, "an emergency stop holds the arm: release the button")
    with pytest.raises(RobotError, match="release the button, then power the arm on"):
        robot.recover()
    with pytest.raises(RobotError, match="an emergency stop"):
        robot.read()
    cell.emergency_stop(False)
    with pytest.raises(RobotError, match=r"power it on and release its brakes|power the arm on"):
        robot.recover()
    cell.reset()
    robot.recover(activate_gripper=True)
    Hand(robot).drive(3, -0.05)


@pytest.mark.parametrize(
    ("fault", "values", "reason"),
    [
        ("frozen_stream", {}, r"the controller's clock has not moved for 0\.1\d s \(limit 0\.1 s\)"),
        ("frozen_stream", {"repeat": True}, r"the controller's clock has not moved for 0\.1\d s"),
        ("closed_sockets", {}, "the connection to the controller was lost"),
        ("refused_servoj", {}, "the control script no longer runs|refused a target"),
        ("local_mode", {}, "the control script no longer runs"),
        ("speed_slider", {"fraction": 0.5}, "speed slider went to 50 %"),
        ("gripper_silent", {}, r"gripper at .* did not answer 'GET \w+' within 0\.3 s"),
        ("gripper_not_activated", {}, r"the gripper is not active \(STA 0, wanted 3\)"),
    ],
)
def test_faults_of_the_cell_stop_the_arm_and_latch(cell, fault, values, reason):
    sharp = {"max_state_age_s": 0.1} if fault == "frozen_stream" else {}
    with closing(make(cell.host, **sharp)) as robot:
        robot.connect()
        hand = Hand(robot)
        hand.drive(10)
        begin = time.monotonic()
        cell.fault(fault, for_s=1.0, **values)
        _, noticed = drive_until_fault(hand)
        assert noticed < 0.7
        assert seconds_to_rest(cell, begin) < 1.2
        assert_latched(robot, reason)


@pytest.mark.slow
def test_late_and_lost_packages_are_lived_with(robot, cell):
    cell.fault("latency", delay_s=0.01, jitter_s=0.01, for_s=1.0)
    hand = Hand(robot)
    hand.drive(20)
    cell.ask(clear_faults=True)
    cell.fault("dropped_packets", probability=0.1, for_s=1.0)
    hand.drive(20, -SPEED)
    assert robot.fault is None


@pytest.mark.slow
def test_a_controller_that_dies_is_noticed(another_host):
    with start_ur_simulator(another_host) as own:
        robot = make(own.host, max_state_age_s=0.5)
        robot.gripper.activate()
        robot.connect()
        hand = Hand(robot)
        hand.drive(5)
        own.kill()
        _, noticed = drive_until_fault(hand)
        assert noticed < 0.7
        assert_latched(robot, "the connection to the controller was lost|clock has not moved|worker process ended")
        with pytest.raises(RobotError, match="there is no UR controller at"):
            robot.recover()
        robot.close()


def test_nobody_there_is_said_in_time():
    robot = make("127.99.99.99")
    begin = time.monotonic()
    with pytest.raises(RobotError, match=r"no UR controller at 127\.99\.99\.99, port \d+ \(Connection refused\)"):
        robot.connect()
    assert time.monotonic() - begin < 5.0
    with pytest.raises(RobotError, match="not connected"):
        robot.read()


def test_local_control_is_refused_at_connect(cell):
    cell.ask(remote=False)
    robot = make(cell.host)
    with pytest.raises(RobotError, match="local control: switch it to remote control at the pendant"):
        robot.connect()
    cell.ask(remote=True)
    robot.connect()
    robot.close()


def test_another_robot_is_refused_at_connect(cell):
    cell.fault("wrong_model", model="UR10", for_s=30.0)
    robot = make(cell.host)
    with pytest.raises(RobotError, match=r"says it is a 'UR10', not one of UR5, UR5e"):
        robot.connect()
    cell.ask(clear_faults=True)


@pytest.mark.thorough
def test_there_is_only_one_who_controls_the_arm(robot, cell):
    with pytest.raises(RobotError, match=r"another program drives the controller at .*end that .*if there is none, a"):
        make(cell.host).connect()
    Hand(robot).drive(2)


def test_a_lowered_speed_slider_is_refused_before_anything_moves(cell):
    cell.ask(speed_slider=0.5)
    robot = make(cell.host)
    robot.connect()
    assert robot.status().speed_slider == pytest.approx(0.5)
    with pytest.raises(RobotError, match=r"speed slider is at 50 %, below ur\.min_speed_scaling 95 %"):
        robot.send(JointCommand(robot.read().q, 0.0))
    cell.ask(speed_slider=1.0)
    time.sleep(0.05)
    Hand(robot).drive(2)
    robot.close()


def test_a_gripper_that_is_not_active_keeps_nobody_from_reading_the_arm(cell):
    cell.fault("gripper_not_activated", for_s=0.5)
    robot = make(cell.host, passive=True)
    robot.connect()
    q, _ = robot.reported_tool()
    np.testing.assert_allclose(q, cell.state()["q"], rtol=0, atol=1e-3)
    with pytest.raises(RobotError, match="the gripper is not active"):
        robot.read()
    robot.close()


def test_reading_alone_starts_no_program_and_sends_nothing(cell):
    cell.record()
    robot = make(cell.host, passive=True)
    robot.connect()
    for _ in range(5):
        robot.read()
        robot.advance()
    with pytest.raises(RobotError, match="opened for reading only; nothing was sent"):
        robot.send(JointCommand(robot.read().q, 0.0))
    assert not cell.state()["program_running"]
    robot.stop()
    robot.close()
    assert cell.record() == []


def test_the_worker_is_lean(robot):
    """What holds the real-time loop imports neither the learner nor what users of the package get."""
    maps = pathlib.Path(f"/proc/{robot._process.pid}/maps").read_text()
    assert "rtde_control" in maps
    for package in ("torch", "mujoco", "numpy", "pydantic_core"):
        assert f"/{package}/" not in maps


@pytest.mark.slow
def test_the_gripper_is_observed_as_in_simulation(robot):
    hand = Hand(robot)
    hand.drive(40, 0.0, gripper=0.5)
    np.testing.assert_allclose(robot.read().driver_q, 0.4, rtol=0, atol=0.02)
    robot.stop()
    time.sleep(0.2)
    np.testing.assert_allclose(robot.read().driver_q, 0.4, rtol=0, atol=0.02)  # it keeps what it holds
    assert not robot.holds


def test_travelling_is_not_the_drivers_task(robot):
    with pytest.raises(RobotError, match="does not jump to a posture: travel there through the guard"):
        robot.move_home()


def test_without_ur_rtde_its_extra_is_named(monkeypatch, tmp_path, cell):
    for name in ("dashboard_client", "rtde_receive", "rtde_control"):
        (tmp_path / f"{name}.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"driving a UR arm needs the extra 'ur'.*td3robot\[ur\]"):
        make(cell.host).connect()


def test_an_arm_without_a_cell_is_refused():
    with pytest.raises(ConfigError, match="needs a cell that says where it is"):
        ROBOTS["ur"](RobotConfig(backend="ur"), (), None, GuardConfig())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ur3e", "ur10e", "ur16e", "ur20"])
def test_every_arm_of_the_family_is_driven(name, another_host):
    with start_ur_simulator(another_host, robot={"arm": name}, gripper_active=True) as own:
        cell = CellConfig.model_validate(
            {
                "robot": {"backend": "ur", "arm": name},
                "ur": {"host": own.host, **PATIENT},
                "gripper": {"max_age_s": 5.0, "answer_timeout_s": 0.3},
            }
        )
        with pytest.raises(RobotError, match="not one of UR5, UR5e"):
            make(own.host).connect()
        robot = UrRobot(robot_spec(cell.robot), cell)
        robot.connect()
        tool = robot.spec.arm.chain.flange(np.array(robot.facts["q"])) @ [0.0, 0.0, robot.spec.tcp_offset_m, 1.0]
        np.testing.assert_allclose(robot.facts["tcp_pose"][:3], tool[:3], rtol=0, atol=1e-6)
        hand = Hand(robot)
        start = hand.q.copy()
        hand.drive(10)
        robot.stop()
        assert robot.read().q[0] - start[0] == pytest.approx(9 * SPEED * robot.spec.period_s, abs=0.04)
        robot.close()
