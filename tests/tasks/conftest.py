"""Environments of the grasp task, each made once, and the script that solves them."""

import pytest

from td3robot.build import make_robot_env
from td3robot.config import Box, GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.errors import MissingExtraError
from td3robot.robots.grippers import GRIPPERS
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.scripted import scripted_grasp

OBJECTS = {
    "cube": ObjectConfig(),
    "cylinder": ObjectConfig(shape="cylinder", size_m=(0.05, 0.05, 0.06)),
    "narrow box": ObjectConfig(size_m=(0.03, 0.07, 0.05)),
    "wide box": ObjectConfig(size_m=(0.07, 0.03, 0.03)),
}


def suiting(gripper):
    """Give about a cube, nearly half as wide as the gripper's jaw."""
    jaw = GRIPPERS[gripper].jaw
    width = max(jaw.min_width_m, 0.45 * jaw.widest_m)
    return ObjectConfig(size_m=(width, width, min(max(width, jaw.lowest_m(width)), jaw.max_height_m)))


def down_to(workspace, height_m):
    """Lower a workspace to where a gripper with short fingers has its tool centre point [m]."""
    return Box(low=(*workspace.low[:2], min(workspace.low[2], height_m - 0.005)), high=workspace.high)


@pytest.fixture(scope="session")
def grasping():
    """Give the environment of an object under a disturbance, or of a gripper and what suits it, and its script."""
    made = {}

    def make(item="cube", disturbance="off"):
        if (item, disturbance) not in made:
            robot, task, guard = RobotConfig(), GraspConfig(object=OBJECTS.get(item, ObjectConfig())), GuardConfig()
            if item in GRIPPERS:
                robot, task = RobotConfig(gripper=item), GraspConfig(object=suiting(item))
                guard = GuardConfig(workspace=down_to(guard.workspace, GRIPPERS[item].jaw.grasp_height_m))
            config = RobotEnvironmentConfig(robot=robot, task=task, guard=guard, episode_s=6.0, disturbance=disturbance)
            try:
                environment = make_robot_env(config)
                environment.reset(seed=0)
            except MissingExtraError as error:
                pytest.skip(str(error))
            script = scripted_grasp(
                environment.task.layout, config.task, config.action, environment.robot.spec,
                config.guard.max_tcp_speed_m_s,
            )  # fmt: skip
            made[item, disturbance] = environment, script
        return made[item, disturbance]

    yield make
    for environment, _ in made.values():
        environment.close()
