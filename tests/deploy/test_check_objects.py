"""What a check asks about the objects that it sees."""

from types import SimpleNamespace

import numpy as np
import pytest

from td3robot.deploy.check import _check_objects
from td3robot.robots.physical import Check
from td3robot.state import Pose
from td3robot.tasks.grasp import GraspConfig


def finding(z, holds=False, objection=None):
    setting = SimpleNamespace(objects=GraspConfig().objects())
    environment = SimpleNamespace(
        batch=SimpleNamespace(setting=setting),
        robot=SimpleNamespace(spec=SimpleNamespace(table_height_m=0.0)),
        find_objects=lambda: {"object": Pose(np.array([0.0, 0.5, z]), np.eye(3))},
        initial=SimpleNamespace(objection=lambda objects, goal: objection),
    )
    check = Check()
    _check_objects(check, SimpleNamespace(holds=holds), environment, None)
    return check.findings[-1]


@pytest.mark.parametrize(
    ("z", "verdict", "asked"),
    [
        (0.02, "go", ""),
        (0.025, "go", ""),
        (0.04, "attention", "20 mm above that: is this the pose of its top face instead of its centre"),
        (0.0, "attention", "20 mm below that: is this the pose of its bottom face instead of its centre"),
    ],
)
def test_a_pose_that_may_be_of_a_face_is_asked_about(z, verdict, asked):
    found = finding(z)
    assert found.verdict == verdict
    assert asked in found.advice


def test_what_the_gripper_holds_is_not_looked_for_on_the_table():
    found = finding(0.147, holds=True)
    assert (found.verdict, found.found) == ("no-go", "the gripper holds something")
    assert "td3robot gripper open --robot CELL" in found.advice


def test_objects_with_which_no_episode_can_begin_are_no_go_in_the_sentence_of_the_task():
    found = finding(0.02, objection="the goal is on top of the object; move it")
    assert (found.name, found.verdict, found.advice) == ("goal", "no-go", "the goal is on top of the object; move it")
