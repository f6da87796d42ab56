"""A stand-in cell for the tests of physical robots."""

import pytest

from td3robot.registry import GRIPPERS
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.urcap import RobotiqGripper
from td3robot.standin.process import start_standin


@pytest.fixture
def another_host(hosts):
    """Give an address for one test alone."""
    return hosts[2]


@pytest.fixture(scope="session")
def standin(hosts):
    """Start one stand-in for all tests of this folder; its gripper is active."""
    pytest.importorskip("rtde_control")
    with start_standin(hosts[0]) as standin:
        gripper = CellConfig.model_validate({"ur": {"host": standin.host}}).gripper
        RobotiqGripper(standin.host, gripper, GRIPPERS["robotiq_2f85"]).activate()
        yield standin


@pytest.fixture(scope="session")
def ur_cell(standin):
    """Describe the stand-in's cell."""
    return CellConfig.model_validate({"ur": {"host": standin.host, "late_periods": 30}, "gripper": {"max_age_s": 5.0}})
