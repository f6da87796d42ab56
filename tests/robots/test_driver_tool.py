"""The worker's forward kinematics: those of every arm, calibrated or not, and the tool pose judged by them."""

import re

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.config import RobotConfig
from td3robot.geometry import rotation_vector
from td3robot.robots.driver.link import StoppedError
from td3robot.robots.driver.plausibility import TOOL_M, TOOL_RAD, ToolCheck, pose_of
from td3robot.robots.driver.robot import _links
from td3robot.robots.kinematics import Kinematics

ARMS = [("ur5e", "robotiq_2f85"), ("ur10e", "robotiq_2f140"), ("fr3", "franka_hand")]


def postures(spec, count=50):
    arm = spec.arm
    return np.random.default_rng(1).uniform(arm.lower, arm.upper, (count, len(arm.lower)))


@pytest.mark.parametrize(("arm", "gripper"), ARMS)
def test_the_tool_is_where_the_guard_computes_it(arm, gripper):
    spec = robot_spec(RobotConfig(arm=arm, gripper=gripper, coupling_thickness_m=0.013))
    check, kinematics = ToolCheck(_links(spec)), Kinematics(spec)
    for q in postures(spec):
        ours, theirs = np.array(check.pose(q.tolist())), kinematics.tcp(q)
        np.testing.assert_allclose(ours[9:], theirs.position, rtol=0, atol=1e-4)
        np.testing.assert_allclose(ours[:9].reshape(3, 3).T, theirs.rotation, rtol=0, atol=1e-4)
        check.require(q.tolist(), pose_of(theirs.position.tolist(), rotation_vector(theirs.rotation).tolist()))


def test_a_pose_of_a_rotation_vector_is_that_rotation():
    assert pose_of((1.0, 2.0, 3.0), (0.0, 0.0, 0.0)) == (1, 0, 0, 0, 1, 0, 0, 0, 1, 1.0, 2.0, 3.0)
    np.testing.assert_allclose(pose_of((0, 0, 0), (0, 0, np.pi / 2))[:9], [0, 1, 0, -1, 0, 0, 0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("joint", range(6))
def test_a_joint_that_is_told_wrongly_is_noticed_at_home(spec, joint):
    check = ToolCheck(_links(spec))
    q = spec.arm.home.tolist()
    tool = check.pose(q)
    q[joint] += 1.1 * TOOL_RAD
    with pytest.raises(StoppedError, match=r"its tool .* mm and 0\.066 rad away from where its joint angles put it"):
        check.require(q, tool)


def test_the_limits_hold_at_both_ends(spec):
    check = ToolCheck(_links(spec))
    q = spec.arm.home.tolist()
    *rotation, x, y, z = check.pose(q)
    check.require(q, (*rotation, x, y + 0.99 * TOOL_M, z))
    with pytest.raises(StoppedError, match=re.escape("(limits 10 mm, 0.06 rad)")):
        check.require(q, (*rotation, x, y + 1.01 * TOOL_M, z))
    with pytest.raises(StoppedError):
        check.require(q, (*rotation, x, y, float("nan")))
