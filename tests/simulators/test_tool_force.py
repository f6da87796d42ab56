"""The force that a simulated controller reports at the tool is that of the gripper's contacts."""

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.config import RobotConfig
from td3robot.robots.kinematics import Kinematics
from td3robot.simulators.arm import SimulatedArm
from td3robot.state import ObjectModel, Pose

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 1.0, 1.0)


def test_a_tool_in_the_air_feels_nothing_and_one_that_holds_something_its_weight():
    arm = SimulatedArm(robot_spec(RobotConfig()), (CUBE,))
    home, kinematics = arm.spec.arm.home, Kinematics(arm.spec)
    down = kinematics.tcp(home).rotation
    at = kinematics.inverse(np.array([0.1, 0.5, 0.026]), home, down)
    above = kinematics.inverse(np.array([0.1, 0.5, 0.1]), at, down)
    arm.reset(at)
    arm.place({"object": Pose(np.array([0.1, 0.5, 0.02]), np.eye(3))})
    arm.step(at, 0.0)
    assert not arm.tool_force().any()
    for _ in range(500):
        arm.step(at, 1.0)
    speed = (above - at) / 1.0
    for count in range(1, 501):
        arm.step(at + (above - at) * count / 500, 1.0, speed)
    for _ in range(500):
        arm.step(above, 1.0)
    assert arm.object_poses()["object"].position[2] > 0.08
    assert arm.tool_force()[2] == pytest.approx(-9.81, rel=0.05)
    assert np.linalg.norm(arm.tool_force()[:2]) < 1.0
