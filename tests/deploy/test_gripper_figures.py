"""How late and how fast a gripper closes, worked out by hand and on simulated fingers."""

import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import DisturbanceConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.deploy.episode import ArmPlayer
from td3robot.deploy.gripper_figures import Closing, GripperWatch, summarize_closings
from td3robot.deploy.report import summarize
from td3robot.registry import GRIPPERS
from td3robot.report.figures import ROWS
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.robot import Variation
from td3robot.state import JointCommand

GRIPPER = GRIPPERS["robotiq_2f85"]
TRAINED = DisturbanceConfig(gripper_speed=(0.13, 1.0), gripper_delay_s=(0.0, 0.15))
PERIOD_S = 0.05


def watched(commands, closed_at, watch=None):
    """Let a gripper be told a command in each period, and be where ``closed_at`` says it is [s]."""
    watch = watch or GripperWatch(GRIPPER)
    for period, command in enumerate(commands):
        at = period * PERIOD_S
        watch.gripper_command(at + 0.003, command)
        watch.measured(at + PERIOD_S, GRIPPER.drivers_at(closed_at(at + PERIOD_S)))
    return watch


def closing(delay_s, speed, end=1.0, at_s=0.253):
    """Give where fingers are that are told to close at a time [s], with one speed and delay."""
    return lambda time: float(np.clip((time - at_s - delay_s) * speed * GRIPPER.closing_rate, 0.0, end))


@pytest.mark.parametrize(("delay_s", "speed"), [(0.0, 1.0), (0.1, 1.0), (0.15, 0.5), (0.02, 0.13)])
@pytest.mark.parametrize("end", [1.0, 0.5])
def test_delay_and_speed_are_those_of_the_fingers(delay_s, speed, end):
    (found,) = watched([0.0] * 5 + [1.0] * 120, closing(delay_s, speed, end)).closings
    assert delay_s - 0.015 <= found.delay_s <= delay_s + 1e-6
    assert found.speed == pytest.approx(speed, rel=1e-6)


def test_a_closing_that_an_episode_cuts_short_is_measured_when_it_ends():
    watch = watched([0.0] * 5 + [1.0] * 15, closing(0.05, 0.5))
    assert watch.closings == []
    watch.finish()
    (found,) = watch.closings
    assert found.speed == pytest.approx(0.5)


def test_fingers_that_do_not_move_and_dithering_are_no_closing():
    watch = watched([0.0] * 5 + [1.0] * 150, lambda time: 0.0)
    watch.finish()
    assert watch.closings == []
    watch = watched([0.05 * (n % 2) for n in range(100)], lambda time: 0.01)
    watch.finish()
    assert watch.closings == []


def test_every_closing_counts_and_opening_does_not():
    commands = [0.0] * 5 + [1.0] * 30 + [0.0] * 30 + [1.0] * 30

    def closed_at(time):
        return closing(0.1, 1.0)(time) if time < 1.76 else closing(0.1, 1.0, at_s=65 * PERIOD_S + 0.003)(time)

    found = watched(commands, closed_at).closings
    assert [one.delay_s for one in found] == pytest.approx([0.1, 0.1], abs=0.015)


@pytest.mark.parametrize("name", ["robotiq_2f85", "robotiq_2f140", "robotiq_hand_e"])
@pytest.mark.parametrize(("delay_s", "speed"), [(0.0, 1.0), (0.12, 0.5)])
def test_simulated_fingers_are_as_late_and_as_fast_as_they_were_made(name, delay_s, speed):
    spec = robot_spec(RobotConfig(gripper=name))
    robot, watch = MujocoRobot(spec, 400.0), GripperWatch(spec.gripper)
    robot.connect()
    robot.vary(Variation(gripper_speed=speed, gripper_delay_s=delay_s))
    for command in [0.0] * 5 + [1.0] * 60:
        watch.gripper_command(robot.now(), command)
        robot.send(JointCommand(spec.arm.home, command))
        robot.advance()
        state = robot.read()
        watch.measured(state.stamp, state.driver_q)
    robot.close()
    (found,) = watch.closings
    assert found.delay_s == pytest.approx(delay_s, abs=0.03)
    assert found.speed == pytest.approx(speed, rel=0.05)


def test_a_pause_is_not_measured():
    watch = GripperWatch(GRIPPER)
    watched([0.0] * 5 + [1.0] * 3, closing(0.0, 1.0), watch)
    watch.forget()
    watch.measured(10.0, GRIPPER.drivers_at(0.9))
    watch.finish()
    assert watch.closings == []


def test_closings_are_put_beside_training():
    found = summarize_closings([Closing(0.1, 0.5), Closing(0.2, 0.3)], TRAINED)
    assert found == {
        "closings": 2, "delay_s": pytest.approx(0.15), "speed": pytest.approx(0.4), "trained_delay_s": [0.0, 0.15],
        "trained_speed": [0.13, 1.0],
    }  # fmt: skip
    assert summarize_closings([], TRAINED) is None
    texts = {row.title: row.text({"gripper": found}).replace("\N{NO-BREAK SPACE}", " ") for row in ROWS}
    assert texts["Gripper: from a new position to its first motion"] == "150 ms (trained with 0 to 150)"
    assert texts["Gripper: speed of closing, of its fastest"] == "40 % (trained with 13 to 100)"
    nobody_knows = summarize_closings([Closing(0.1, 0.5)], None)
    texts = {row.title: row.text({"gripper": nobody_knows}) for row in ROWS}
    assert texts["Gripper: speed of closing, of its fastest"].startswith("50")
    assert "trained" not in texts["Gripper: speed of closing, of its fastest"]


def test_an_episode_has_the_closings_of_its_gripper():
    config = RobotEnvironmentConfig.model_validate({"task": {"name": "grasp"}, "episode_s": 3.0})
    environment, acted = make_robot_env(config), []
    environment.task.gripper_range = lambda state, goals: (np.zeros(1), np.ones(1))  # it closes anywhere
    environment.batch.retreat = None  # ... and stays closed on nothing

    def act(observation):
        """Rest, and close after half a second."""
        acted.append(observation)
        return np.array([0, 0, 0, 0, 1.0 if len(acted) > 10 else -1.0], np.float32)

    player = ArmPlayer(environment, act)
    player.begin(0, 7)
    while not player.step():
        pass
    environment.close()
    (found,) = player.figures.closings
    assert found.delay_s < 0.03
    assert found.speed == pytest.approx(1.0, rel=0.05)
    figures = summarize([player.figures], TRAINED)["gripper"]
    assert (figures["closings"], figures["trained_speed"]) == (1, [0.13, 1.0])
    assert figures["speed"] == found.speed
