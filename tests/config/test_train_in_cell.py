"""A new run for a cell: ``td3robot train NAME --robot CELL`` trains in simulation what the cell's file describes."""

from pathlib import Path

import pytest

from td3robot.build import make_robot_env
from td3robot.cli.training import TrainRequest, configured
from td3robot.config import parse_config, to_yaml
from td3robot.errors import ConfigError
from td3robot.robots.cells import load_cell
from td3robot.robots.objects import TaughtPose


@pytest.fixture
def write_cell(tmp_path):
    def write(robot, driver="ur: {host: 127.255.255.250}"):
        path = tmp_path / "cell.yaml"
        path.write_text(f"robot: {{{robot}}}\n{driver}\n")
        return path

    return write


@pytest.mark.parametrize("name", ["ur5e_reach", "ur5e_grasp"])
def test_a_run_for_a_cell_has_the_contract_of_the_cell(write_cell, name):
    path = write_cell("backend: ur, table_height_m: -0.02, coupling_thickness_m: 0.012")
    config = configured(TrainRequest(Path(name), robots=[path], seed=3))
    robot = config.environment.robot
    assert (robot.backend, robot.table_height_m, robot.coupling_thickness_m) == ("mujoco", -0.02, 0.012)
    assert config.seed == 3
    taught = {"object": TaughtPose(position_m=(0.0, 0.5, 0.0))} if name == "ur5e_grasp" else {}
    driven = make_robot_env(config.environment, cell=load_cell(path).with_taught(taught))
    assert driven.contract().differences(make_robot_env(config.environment).contract()) == []


def test_a_run_for_a_cell_begins_from_a_checkpoints_own_configuration_as_well(write_cell, tmp_path):
    whole = tmp_path / "config.yaml"
    whole.write_text(to_yaml(parse_config(Path("configs/ur5e_grasp.yaml").read_text(), "test")))
    here = configured(TrainRequest(whole, robots=[write_cell("backend: ur, table_height_m: -0.05")])).environment
    assert here.guard.workspace.low[2] == pytest.approx(-0.03)
    make_robot_env(here).close()


def test_a_run_for_a_cell_with_another_arm_has_its_regions(write_cell):
    here = configured(TrainRequest(Path("ur5e_reach"), robots=[write_cell("backend: ur, arm: ur3e")])).environment
    own = configured(TrainRequest(Path("ur3e_reach"))).environment
    assert (here.robot.arm, here.task.goals, here.guard.workspace) == ("ur3e", own.task.goals, own.guard.workspace)
    make_robot_env(here).close()


def test_what_cannot_be_trained_for_a_cell_is_refused(write_cell):
    path = write_cell("backend: ur")
    with pytest.raises(ConfigError, match="give --robot once"):
        configured(TrainRequest(Path("ur5e_reach"), robots=[path, path]))
    with pytest.raises(ConfigError, match="gym_pendulum trains on Pendulum-v1, and --robot is for runs that train a"):
        configured(TrainRequest(Path("gym_pendulum"), robots=[path]))
    with pytest.raises(ConfigError, match=r"ur5e_grasp in the cell .*cell\.yaml: "):
        configured(TrainRequest(Path("ur5e_grasp"), robots=[write_cell("backend: ur, control_rate_hz: 25")]))
