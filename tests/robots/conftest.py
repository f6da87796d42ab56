"""A stand-in cell for the tests of physical robots."""

import importlib.util

import pytest

from td3robot.errors import ConfigError
from td3robot.registry import GRIPPERS
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.urcap import RobotiqGripper
from td3robot.standin.franka.process import FrankaStandin, simulator_python
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


def require_franka():
    """Skip where an FR3 cannot be stood in for, and say what is missing."""
    for package in ("franka", "franky_sim"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package!r} of the extra 'franka' is not installed")
    try:
        simulator_python()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def franka_standin(hosts):
    """Start one stand-in for an FR3 for all tests of this folder."""
    require_franka()
    standin = FrankaStandin(hosts[3])
    yield standin
    standin.close()


@pytest.fixture(scope="session")
def franka_cell(franka_standin):
    """Describe the cell of the FR3's stand-in."""
    franka = {"host": franka_standin.host, "realtime": "ignore", "late_periods": 30, "max_state_age_s": 1.0}
    return CellConfig.model_validate({"franka": franka})
