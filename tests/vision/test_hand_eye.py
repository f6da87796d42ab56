"""A camera's place is found from poses of the arm or touched tags, and what does not tell it is refused and named."""

import cv2
import numpy as np
import pytest
from test_intrinsics import CORNERS

from td3robot.errors import CameraError
from td3robot.geometry import about_vertical, angle_of, compose, inverse, rotation_matrix
from td3robot.state import Pose
from td3robot.vision import hand_eye
from td3robot.vision.camera import looking_at, pinhole
from td3robot.vision.hand_eye import Sighting, solve
from td3robot.vision.tags import CORNERS as SQUARE
from td3robot.vision.target import Points
from td3robot.vision.touched import missed_m, solve_touched

CAMERA = pinhole(1280, 720, np.radians(42.0))
ZOOMED = CAMERA.model_copy(update={"matrix": ((1000.0, 0.0, 639.5), (0.0, 1000.0, 359.5), (0.0, 0.0, 1.0))})
PLACE = looking_at(np.array([0.5, 1.2, 0.8]), np.array([0.0, 0.45, 0.2]))
ON_FLANGE = Pose(np.array([0.06, 0.0, 0.03]), rotation_matrix([0.1, 0.0, 1.5]))
DOWN = np.diag([1.0, -1.0, -1.0])
CARRIED = Pose(np.array([0.02, -0.01, 0.1]), rotation_matrix([0.1, -0.5, 0.2]))
LYING = Pose(np.array([0.0, 0.5, 0.0]), DOWN)
TABLE = np.array([[-0.2, 0.35, 0.0], [0.2, 0.35, 0.0], [0.2, 0.6, 0.0], [-0.2, 0.6, 0.0]])


def sightings(mount="base", count=10, axis=None, scale=1.0, noise_px=0.2):
    """Return poses of an arm that carries the board before a camera, or the camera over the board."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        side = 4 * np.pi * number / count
        turn = (0.45 * np.cos(side), 0.45 * np.sin(side), 0.3 * (-1) ** number)
        turn = turn if axis is None else np.array(axis) * (number / count - 0.5)
        rotation = DOWN @ rotation_matrix(turn)
        if mount == "base":
            flange = Pose(np.array([0.0, 0.45, 0.35]) + rng.uniform(-0.12, 0.12, 3), rotation)
            seen = compose(inverse(PLACE), compose(flange, CARRIED))
        else:
            flange = Pose(np.array([0.1, 0.55, 0.0]) - rng.uniform(0.3, 0.5) * rotation[:, 2], rotation)
            seen = compose(inverse(compose(flange, ON_FLANGE)), LYING)
        pixels = CAMERA.project(scale * CORNERS @ seen.rotation.T + seen.position)
        pixels = pixels + noise_px * rng.standard_normal(pixels.shape)
        found.append(Sighting(f"pose {number + 1}", flange, Points(np.arange(len(pixels)), CORNERS, pixels)))
    return found


def moved(sighting, *by):
    return Sighting(sighting.name, Pose(sighting.flange.position + by, sighting.flange.rotation), sighting.seen)


def touches(centres=TABLE, noise_m=0.0005, size_m=0.064):
    """Return where tags on the table were touched, and the corners that the camera sees."""
    rng = np.random.default_rng(0)
    square = np.pad(np.array(SQUARE) * size_m / 2, ((0, 0), (0, 1)))
    touched, corners = {}, {}
    for number, centre in enumerate(np.array(centres)):
        placed = centre + square @ about_vertical(rng.uniform(-3, 3)).T
        pixels = CAMERA.project((placed - PLACE.position) @ PLACE.rotation)
        touched[300 + number] = centre + noise_m * rng.standard_normal(3)
        corners[300 + number] = pixels + 0.15 * rng.standard_normal(pixels.shape)
    return touched, corners


@pytest.mark.parametrize(("mount", "place", "target"), [("base", PLACE, CARRIED), ("flange", ON_FLANGE, LYING)])
def test_a_camera_is_found_from_poses_of_the_arm(mount, place, target):
    found = solve(sightings(mount), CAMERA, mount)
    assert np.linalg.norm(found.pose.position - place.position) < 0.003
    assert angle_of(found.pose.rotation @ place.rotation.T) < np.radians(0.3)
    assert np.linalg.norm(found.target.position - target.position) < 0.003
    assert found.residual_m < 0.001 and found.residual_rad < np.radians(0.5)
    assert found.deviation_m < 0.002


@pytest.mark.parametrize("mount", ["base", "flange"])
def test_a_check_pose_tells_that_something_moved(mount):
    *used, last = sightings(mount, 11)
    found = solve(used, CAMERA, mount)
    assert found.residual(CAMERA, last).distance_m < 0.002
    assert found.residual(CAMERA, moved(last, 0.01, 0.0, 0.0)).distance_m > 0.005


def test_the_pose_that_disagrees_is_named():
    found = sightings()
    found[3] = moved(found[3], 0.012, 0.0, 0.0)
    with pytest.raises(CameraError, match=r"^pose 4 disagrees by \d+\.\d mm .* leave it out with --leave-out 4"):
        solve(found, CAMERA, "base")


@pytest.mark.parametrize(
    ("found", "camera", "sentence"),
    [
        (sightings(axis=[0, 0, 1]), CAMERA, "the 10 poses turn about one axis only"),
        (sightings(axis=[1, 1, 0], count=5), CAMERA, "the 5 poses turn about one axis only"),
        (sightings(axis=[0, 0, 0]), CAMERA, "turn about one axis only (0 degrees"),
        (sightings(count=4), CAMERA, "seen in 4 poses, and at least 5 are needed"),
        (sightings(scale=0.97), CAMERA, "the target is printed at 97.0 % of the size"),
        (sightings(), ZOOMED, "the camera's focal length is 93."),
        (sightings(), CAMERA.model_copy(update={"distortion": (-0.3, 0.1, 0.0, 0.0)}), "the lens bends straight lines"),
        (sightings(noise_px=4.0), CAMERA, "the target fits its own picture to"),
    ],
)
def test_poses_that_do_not_tell_are_refused(found, camera, sentence):
    with pytest.raises(CameraError) as error:
        solve(found, camera, "base")
    assert sentence in str(error.value)


def test_a_wrist_camera_of_another_lens_is_refused():
    with pytest.raises(CameraError, match="the camera's focal length is 9"):
        solve(sightings("flange"), ZOOMED, "flange")


def test_an_arm_that_did_not_rest_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(CameraError, match=r"disagree|is known to"):
        solve([moved(each, *0.006 * rng.standard_normal(3)) for each in sightings()], CAMERA, "base")


@pytest.mark.skipif(not hasattr(cv2, "calibrateRobotWorldHandEye"), reason="OpenCV 5 has no hand-eye calibration")
@pytest.mark.parametrize("mount", ["base", "flange"])
def test_the_first_guess_is_that_of_opencv(mount):
    found = sightings(mount)
    ours = [hand_eye._other_side(mount, each) for each in found]
    theirs = [each.seen.pose_in(CAMERA) for each in found]
    columns = [[getattr(pose, part) for pose in poses] for poses in (theirs, ours) for part in ("rotation", "position")]
    _, _, turn, shift = cv2.calibrateRobotWorldHandEye(*columns)
    X, _ = hand_eye._first_guess(found, CAMERA, mount)
    expected = inverse(Pose(shift.ravel(), turn))
    np.testing.assert_allclose(X.rotation, expected.rotation, atol=1e-9)
    np.testing.assert_allclose(X.position, expected.position, atol=1e-3)


@pytest.mark.parametrize("centres", [TABLE, TABLE[:3], TABLE + np.array([0.0, 0.0, 0.05])])
def test_a_camera_is_found_from_touched_tags(centres):
    touched, corners = touches(centres, noise_m=0.0002)
    found = solve_touched(touched, corners, 0.064, CAMERA)
    assert np.linalg.norm(found.pose.position - PLACE.position) < 0.003
    assert angle_of(found.pose.rotation @ PLACE.rotation.T) < np.radians(0.3)
    assert max(missed_m(found, CAMERA, touched[tag], corners[tag]) for tag in touched) < 0.002
    assert missed_m(found, CAMERA, touched[300] + [0.01, 0.0, 0.0], corners[300]) > 0.008


def test_the_tag_that_was_missed_is_named():
    touched, corners = touches()
    touched[301] = touched[301] + [0.012, 0.0, 0.0]
    with pytest.raises(CameraError, match=r"^tag 301 disagrees by 1\d\.\d mm .* leave it out with --leave-out 301"):
        solve_touched(touched, corners, 0.064, CAMERA)


@pytest.mark.parametrize(
    ("centres", "sentence"),
    [
        (TABLE[:2], "2 tags were touched, and at least 3 are needed"),
        ([[-0.2, 0.4, 0], [0, 0.4, 0], [0.2, 0.41, 0]], "the touched tags lie on one line (within 5 mm"),
    ],
)
def test_tags_that_do_not_tell_are_refused(centres, sentence):
    with pytest.raises(CameraError) as error:
        solve_touched(*touches(centres), 0.064, CAMERA)
    assert sentence in str(error.value)


def test_a_touched_tag_that_is_hidden_is_told():
    touched, corners = touches()
    del corners[302]
    with pytest.raises(CameraError, match="tag 302 was touched, and the camera does not see it"):
        solve_touched(touched, corners, 0.064, CAMERA)


def test_tags_of_another_size_are_refused():
    with pytest.raises(CameraError):
        solve_touched(*touches(noise_m=0.0), 0.058, CAMERA)
