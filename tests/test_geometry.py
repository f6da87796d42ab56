"""Rotations against MuJoCo's and SciPy's, and the laws that hold between them."""

from math import pi

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from spatialmath import SE3

from td3robot import geometry
from td3robot.state import Pose


def rotations(count=300):
    rng = np.random.default_rng(0)
    turns = [geometry.about_vertical(angle) for angle in rng.uniform(-pi, pi, count)]
    return [*Rotation.random(count, random_state=1).as_matrix(), *turns, np.eye(3), np.diag([-1.0, -1.0, 1.0]),
            np.diag([1.0, -1.0, -1.0]), np.diag([-1.0, 1.0, -1.0])]  # fmt: skip


def test_quaternions_are_those_of_mujoco_bit_for_bit():
    theirs = np.zeros(4)
    for rotation in rotations():
        mujoco.mju_mat2Quat(theirs, rotation.flatten())
        np.testing.assert_array_equal(geometry.quaternion(rotation), theirs)


def test_every_form_of_a_rotation_leads_back_to_it():
    for rotation in rotations():
        np.testing.assert_allclose(geometry.rotation_of(geometry.quaternion(rotation)), rotation, atol=1e-14)
        vector = geometry.rotation_vector(rotation)
        assert np.linalg.norm(vector) <= pi + 1e-12
        assert np.linalg.norm(vector) == pytest.approx(geometry.angle_of(rotation), abs=1e-7)
        np.testing.assert_allclose(geometry.rotation_matrix(vector), rotation, atol=1e-14)
        np.testing.assert_allclose(
            geometry.rotation_matrix(vector), Rotation.from_rotvec(vector).as_matrix(), atol=1e-14
        )


def test_no_turn_is_no_vector_and_back():
    np.testing.assert_array_equal(geometry.rotation_vector(np.eye(3)), 0.0)
    np.testing.assert_array_equal(geometry.rotation_matrix(np.zeros(3)), np.eye(3))


@pytest.mark.parametrize("angle", [-3.0, -pi / 2, -0.1, 0.0, 0.4, 2.0, 3.1])
def test_a_turn_about_the_vertical_has_that_yaw_and_angle(angle):
    turn = geometry.about_vertical(angle)
    assert geometry.yaw(turn) == pytest.approx(angle, abs=1e-15)
    assert geometry.angle_of(turn) == pytest.approx(abs(angle), abs=1e-7)
    np.testing.assert_allclose(geometry.rotation_vector(turn), [0.0, 0.0, angle], atol=1e-15)
    # A quarter turn about the vertical takes x to y.
    np.testing.assert_allclose(geometry.about_vertical(pi / 2) @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-15)


def test_composing_moves_the_offset_into_the_frame_of_the_pose():
    pose = Pose(np.array([1.0, 2.0, 3.0]), geometry.about_vertical(pi / 2))
    moved = geometry.compose(pose, Pose(np.array([0.1, 0.0, 0.2]), geometry.about_vertical(0.3)))
    np.testing.assert_allclose(moved.position, [1.0, 2.1, 3.2], atol=1e-15)
    assert geometry.yaw(moved.rotation) == pytest.approx(pi / 2 + 0.3)


def test_a_pose_goes_to_spatialmath_and_back():
    for position, rotation in zip(np.random.default_rng(2).normal(size=(20, 3)), rotations(20), strict=False):
        pose = Pose(position, rotation)
        there = pose.to_se3()
        np.testing.assert_array_equal(there.t, position)
        back = Pose.from_se3(there * SE3.Tx(0.1) * SE3.Tx(-0.1))
        np.testing.assert_allclose(back.position, position, atol=1e-15)
        np.testing.assert_allclose(back.rotation, rotation, atol=1e-15)
    with pytest.raises(ValueError, match="an SE3 of 2 poses is given where one is wanted"):
        Pose.from_se3(SE3([np.eye(4), np.eye(4)]))
