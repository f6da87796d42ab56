"""A stand-in cell for the tests of physical robots."""

import importlib.util
import time
from pathlib import Path

import pytest

from td3robot.build import robot_spec
from td3robot.config import RobotConfig
from td3robot.errors import ConfigError
from td3robot.registry import GRIPPERS
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.urcap import RobotiqGripper
from td3robot.simulators.franka.process import FrankaSimulator, simulator_python
from td3robot.simulators.process import start_ur_simulator

FRANKA = RobotConfig(arm="fr3", gripper="franka_hand")


@pytest.fixture
def another_host(hosts):
    """Give an address for one test alone."""
    return hosts[2]


@pytest.fixture(scope="session")
def standin(hosts, ends_with):
    """Start one stand-in for all tests of this folder; its gripper is active."""
    pytest.importorskip("rtde_control")
    with start_ur_simulator(hosts[0]) as standin:
        ends_with(Path(__file__).parent, standin)
        gripper = CellConfig.model_validate({"ur": {"host": standin.host}}).gripper
        RobotiqGripper(standin.host, gripper, GRIPPERS["robotiq_2f85"]).activate()
        yield standin


@pytest.fixture(scope="session")
def ur_cell(standin):
    """Describe the stand-in's cell, with patience for a busy host."""
    ur = {"host": standin.host, "late_periods": 30, "max_state_age_s": 1.0, "watchdog_hz": 2.0}
    return CellConfig.model_validate({"ur": ur, "gripper": {"max_age_s": 5.0, "answer_timeout_s": 2.0}})


def require_franka():
    """Skip where an FR3 cannot be stood in for, and say what is missing."""
    for package in ("franka", "franky_sim"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package!r} of the extra 'franka' is not installed")
    try:
        simulator_python()
    except ConfigError as error:
        pytest.skip(str(error))


# Franka's client expects a state each millisecond. A simulator that loses more of its time than this share has stalls
# of a quarter of a second as well, and what is tested then is the computer.
MAY_LOSE = 0.01
WATCHED_S = 3.0


def lost_share(standin):
    """Return which share of its time a stand-in loses while its arm is held."""
    robot = CellConfig.model_validate(franka_values(standin)).driver(robot_spec(FRANKA))
    robot.connect()
    try:
        first = robot.latest()
        time.sleep(WATCHED_S)
        last = robot.latest()
    finally:
        robot.close()
    return 1.0 - (last.controller_time - first.controller_time) / (last.stamp - first.stamp)


@pytest.fixture(scope="session")
def franka_standin(hosts, ends_with):
    """Start one stand-in for an FR3 for all tests of this folder, where this computer can."""
    require_franka()
    standin = FrankaSimulator(hosts[3])
    ends_with(Path(__file__).parent, standin)
    try:
        if (lost := lost_share(standin)) > MAY_LOSE:
            pytest.skip(
                f"franka-sim does not keep time on this computer: it lost {100 * lost:.0f} % (limit "
                f"{100 * MAY_LOSE:.0f} %), and an FR3's driver cannot be tested against it"
            )
        yield standin
    finally:
        standin.close()


def franka_values(standin):
    franka = {"host": standin.host, "realtime": "ignore", "late_periods": 30, "max_state_age_s": 1.0}
    return {"robot": {"backend": "franka", "arm": "fr3", "gripper": "franka_hand"}, "franka": franka}


@pytest.fixture(scope="session")
def franka_cell(franka_standin):
    """Describe the cell of the FR3's stand-in."""
    return CellConfig.model_validate(franka_values(franka_standin))
