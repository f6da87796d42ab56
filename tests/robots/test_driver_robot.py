"""What the robot in front of a worker does when the worker cannot keep its promises."""

import threading
from types import SimpleNamespace

import pytest

from td3robot.build import robot_spec
from td3robot.config import RobotConfig
from td3robot.errors import RobotError
from td3robot.robots.cells import CellConfig
from td3robot.robots.driver import process as process_module
from td3robot.robots.ur.link import UrLink


class StuckProcess:
    """A worker that never reports that the arm came to rest."""

    when_gone = "the controller's watchdog stops the arm"
    stall_s = None
    ended = False

    def __init__(self):
        self.killed = self.closed = False

    def stop(self):
        return False

    def request_stop(self):
        return True

    def kill(self):
        self.killed = True

    def close(self):
        self.closed = True


@pytest.fixture
def robot():
    cell = CellConfig.model_validate({"ur": {"host": "127.0.0.9"}})
    robot = cell.driver(robot_spec(RobotConfig()))
    robot._process = StuckProcess()
    return robot


def test_a_stop_that_does_not_end_ends_the_worker_so_that_the_watchdog_acts(robot):
    process = robot._process
    robot.stop()
    assert process.killed
    assert "did not come to rest in time, and its worker was ended; the controller's watchdog" in robot.fault
    with pytest.raises(RobotError, match=r"did not come to rest in time.*until the operator recovers"):
        robot.read()


def test_a_worker_that_had_ended_says_why_itself(robot):
    robot._process.ended = True
    threading.Timer(0.01, robot._latch_fault, ("the connection to the control box failed",)).start()
    robot.stop()
    assert robot.fault == "the connection to the control box failed"


def test_reading_alone_stops_nothing(robot):
    robot.passive = True
    robot.stop()
    assert robot.fault is None and not robot._process.killed


def test_its_own_stall_is_named_before_what_was_missed_meanwhile(robot):
    robot._process.stall_s = 0.8
    error = robot._failed("the gripper has not answered for 0.90 s")
    assert str(error).startswith("this program stood still for 0.80 s: its policy, or what else runs here, held it up;")
    assert "gripper" not in str(error)


def test_the_worker_s_word_for_a_stall_comes_first(robot):
    robot._process.stall_s = 0.8
    threading.Timer(0.01, robot._latch_fault, ("no new target came for 2.5 control periods",)).start()
    assert str(robot._failed("the gripper has not answered")).startswith("no new target came for 2.5 control periods;")


@pytest.mark.parametrize(("silent_s", "stall"), [(0.0, False), (0.1, False), (0.6, True)])
def test_a_process_knows_that_it_stood_still(monkeypatch, silent_s, stall):
    now = [100.0]
    monkeypatch.setattr(process_module, "monotonic", lambda: now[0])
    process = process_module.WorkerProcess(SimpleNamespace(link=UrLink), lambda reason: None)
    now[0] += silent_s
    assert (process.stall_s is not None) == stall


def test_closing_is_always_legal(robot):
    process = robot._process
    robot.stop()
    robot.close()
    robot.close()
    assert process.closed
    with pytest.raises(RobotError, match=r"did not come to rest in time"):
        robot.read()


@pytest.mark.parametrize("deceleration", [0.05, 1.99, 41.0])
def test_a_stop_that_takes_too_long_is_refused_in_the_cell(deceleration):
    with pytest.raises(ValueError, match="stop_deceleration_rad_s2"):
        CellConfig.model_validate({"ur": {"host": "127.0.0.9", "stop_deceleration_rad_s2": deceleration}})
