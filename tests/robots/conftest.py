"""A stand-in cell for the tests of physical robots."""

import os

import pytest

from td3robot.cell import CellConfig
from td3robot.robots.robotiq import RobotiqGripper
from td3robot.standin.process import start_standin


def own_host(number=0):
    """Give a loopback address that no other test process uses."""
    pid = os.getpid()
    return f"127.{31 + number}.{pid // 250 % 250}.{1 + pid % 250}"


@pytest.fixture
def another_host():
    """Give an address beside the one that all tests share."""
    return own_host(1)


@pytest.fixture(scope="session")
def standin():
    """Start one stand-in for all tests of this folder; its gripper is active."""
    pytest.importorskip("rtde_control")
    with start_standin(own_host()) as standin:
        RobotiqGripper(standin.host, CellConfig.model_validate({"ur": {"host": standin.host}}).gripper).activate()
        yield standin


@pytest.fixture(scope="session")
def ur_cell(standin):
    """Describe the stand-in's cell."""
    return CellConfig.model_validate({"ur": {"host": standin.host}})
