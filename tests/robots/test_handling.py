"""What evaluations measure of how gently objects are handled, against pushes and forces that are known."""

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.cli.evaluation import evaluation_lines
from td3robot.config import RobotConfig
from td3robot.envs.playing import EpisodeFigures, summarize, summarize_handling
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.handling import EpisodeHandling, Handling, handling_of
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.state import JointCommand, ObjectModel, Pose

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 0.1, 0.7)
PLACE = np.array([0.1, 0.5, 0.026])


@pytest.fixture(scope="module")
def robot():
    made = MujocoRobot(robot_spec(RobotConfig()), 400.0, (CUBE,))
    made.connect()
    yield made
    made.close()


def drive(robot, beside_m, to_m, gripper=0.0):
    """Put the open gripper beside the cube, move it, and close it if asked to; return the figures."""
    kinematics, home = Kinematics(robot.spec), robot.spec.arm.home
    down = kinematics.tcp(home).rotation

    def at(offset):
        return kinematics.inverse(PLACE + np.array([offset, 0.0, 0.0]), home, down)

    robot.move_to(at(beside_m))
    robot.place({"object": Pose(np.array([*PLACE[:2], 0.02]), np.eye(3))})
    handling = Handling(robot)
    figures = handling.begin()
    for share in np.minimum(np.arange(1, 51) / 30, 1.0):
        robot.send(JointCommand(at(beside_m + share * (to_m - beside_m)), gripper))
        robot.advance()
        handling.look()
    return figures, handling


def test_a_cube_between_open_fingers_is_neither_pushed_nor_pressed(robot):
    figures, _ = drive(robot, 0.0, 0.0)
    assert figures.push_m < 1e-4
    assert figures.force_n == 0.0


def test_a_push_is_as_long_as_the_cube_moved_and_its_force_is_friction(robot):
    figures, handling = drive(robot, 0.0, 0.06)
    moved = np.hypot(*(robot.object_poses()["object"].position[:2] - PLACE[:2]))
    assert moved > 0.02
    assert figures.push_m == pytest.approx(moved, abs=1e-3)
    assert not handling._gripped
    # Friction of 0.7 on 0.1 kg is 0.7 N; the first touch is harder.
    assert 0.2 < figures.force_before_grip_n < 20.0
    assert figures.force_n == figures.force_before_grip_n


def test_a_grip_presses_harder_than_before_it_and_ends_what_counts_as_a_push(robot):
    figures, handling = drive(robot, 0.0, 0.0, gripper=1.0)
    assert handling._gripped == {"object"}
    assert figures.push_m < 0.01
    assert figures.force_n > max(5.0, figures.force_before_grip_n)


def test_what_moves_out_of_reach_was_not_pushed(robot):
    drive(robot, 0.0, 0.0)
    handling = Handling(robot)
    robot.place({"object": Pose(PLACE + np.array([0.0, 0.2, 0.0]), np.eye(3))})
    figures = handling.begin()
    robot.place({"object": Pose(PLACE + np.array([0.0, 0.25, 0.0]), np.eye(3))})
    handling.look()
    assert figures.push_m == 0.0


def test_figures_of_episodes_and_their_lines():
    episodes = [
        EpisodeFigures(n, 0, 1, True, handling=EpisodeHandling(n / 1000, 2.0 * n, 30.0), ended="time")
        for n in range(21)
    ]
    found = summarize(episodes).to_json()
    assert found["handling"] == pytest.approx(
        {"push_median_m": 0.010, "push_p95_m": 0.019, "max_force_before_grip_n": 40.0, "max_force_n": 30.0}
    )
    lines = evaluation_lines(found, "grasped")
    assert "objects pushed 10 mm before the grip in the median, 19 mm in the 95th percentile" in lines
    assert "force of a finger on an object at most 40 N before the grip, 30 N in all" in lines
    assert summarize_handling([]) is None
    assert summarize([EpisodeFigures(0, 0, 1, True, ended="time")]).handling is None


def test_only_a_simulation_with_objects_is_looked_at(robot):
    class Environment:
        unwrapped = None

    environment = Environment()
    environment.unwrapped = environment
    assert handling_of(environment) is None
    environment.robot = robot
    assert isinstance(handling_of(environment), Handling)
    environment.robot = MujocoRobot(robot.spec, 400.0)
    assert handling_of(environment) is None
