"""Environments of the grasp task, each made once, and the script that solves them."""

import pytest

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.scripted import scripted_grasp

OBJECTS = {
    "cube": ObjectConfig(),
    "cylinder": ObjectConfig(shape="cylinder", size_m=(0.05, 0.05, 0.06)),
    "narrow box": ObjectConfig(size_m=(0.03, 0.07, 0.05)),
    "wide box": ObjectConfig(size_m=(0.07, 0.03, 0.03)),
}


@pytest.fixture(scope="session")
def grasping():
    """Give the environment of an object under a disturbance, and its script."""
    made = {}

    def make(item="cube", disturbance="off"):
        if (item, disturbance) not in made:
            config = RobotEnvironmentConfig(
                task=GraspConfig(object=OBJECTS[item]), episode_s=6.0, disturbance=disturbance
            )
            environment = make_robot_env(config)
            script = scripted_grasp(
                environment.task.layout, config.task, config.action, environment.robot.spec,
                config.guard.max_tcp_speed_m_s,
            )  # fmt: skip
            made[item, disturbance] = environment, script
        return made[item, disturbance]

    yield make
    for environment, _ in made.values():
        environment.close()
