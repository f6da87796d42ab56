"""Which tags are where, and that a picture of them shows them there."""

import cv2
import numpy as np
import pytest
from test_camera import PLACE

from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.state import Pose
from td3robot.vision.tags import TableTag, TaggedObject, Tags, charuco_board, family, load_tags, save_tags, tag_image


def detected(image):
    """Return the corners (4, 2) of every tag in an image, by its id."""
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    parameters.relativeCornerRefinmentWinSize = 0.2
    corners, ids, _ = cv2.aruco.ArucoDetector(family(), parameters).detectMarkers(image)
    return {int(tag): found.reshape(4, 2) for tag, found in zip(np.ravel(ids), corners, strict=True)}


def test_faces_point_outwards_and_their_tags_stand_upright():
    tags = TaggedObject(size_m=(0.04, 0.06, 0.08), first_id=10).tags()
    assert [tag.id for tag in tags] == [10, 11, 12, 13, 14]
    for tag in tags:
        right, up, out = tag.rotation.T
        np.testing.assert_allclose(np.cross(right, up), out, atol=1e-12)
        np.testing.assert_allclose(tag.centre_m / np.linalg.norm(tag.centre_m), out, atol=1e-12)
        assert up[2] == 1.0 or out[2] == 1.0
    np.testing.assert_allclose([tag.size_m for tag in tags], [0.032, 0.048, 0.032, 0.048, 0.032])
    top = TaggedObject().tags(scale=0.97)[0]
    assert top.size_m == pytest.approx(0.97 * 0.032)
    np.testing.assert_allclose(top.corners_m[0], [-0.01552, 0.01552, 0.02], atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"objects": {"a": {}, "b": {"first_id": 4}}}, "tag 4 is on 'b' and on 'a'; give each its own"),
        ({"table": [{"id": 3, "position_m": [0, 0, 0]}]}, "tag 3 is on the table at [0.0, 0.0, 0.0] and on 'object'"),
        ({"objects": {"a": {"first_id": 398}}}, "tag 400 is on 'a' and on the board"),
        ({"objects": {"a": {"size_m": [0.04, 0.005, 0.04]}}}, "has an edge outside of 0.0125 to 1 m"),
        ({"scale": 97}, "scale is 97, but it should be less than or equal to 1.25"),
    ],
)
def test_tags_that_cannot_be_are_refused(tmp_path, changes, sentence):
    import yaml

    (tmp_path / "tags.yaml").write_text(yaml.safe_dump(changes))
    with pytest.raises(ConfigError) as error:
        load_tags(tmp_path / "tags.yaml")
    assert sentence in str(error.value)


def test_a_tags_file_is_read_as_it_was_written(tmp_path):
    tags = Tags(scale=0.99, table=(TableTag(id=300, position_m=(0.1, 0.2, 0.0), yaw_rad=0.5),))
    save_tags(tmp_path / "tags.yaml", tags)
    assert load_tags(tmp_path / "tags.yaml") == tags


def test_an_image_of_a_tag_is_that_tag():
    for tag_id in (0, 299, 586):
        assert list(detected(np.pad(tag_image(tag_id), 20, constant_values=255))) == [tag_id]


def test_the_board_is_seen_whole():
    board = charuco_board()
    corners, ids, _, _ = cv2.aruco.CharucoDetector(board).detectBoard(board.generateImage((700, 500)))
    assert len(ids) == 24
    square = np.linalg.norm(corners[1] - corners[0])
    assert square == pytest.approx(100.0, abs=0.5)


@pytest.mark.parametrize("distortion", [(), (-0.25, 0.08, 0.001, -0.001, 0.0)])
def test_a_simulated_camera_shows_tags_where_the_lens_projects_them(simulated, spec, lens, distortion):
    camera = lens.model_copy(update={"distortion": distortion})
    tags = Tags(table=(TableTag(id=300, position_m=(-0.1, 0.5, 0.0), yaw_rad=0.5),))
    pose = Pose(np.array([0.05, 0.45, 0.12]), about_vertical(0.9) @ rotation_matrix([0.2, 0.1, 0.0]))
    sharp = simulated(camera, tags=tags).draw(spec.arm.home, spec.gripper.drivers_at(0.0), {"object": pose}, PLACE)
    found = detected(sharp)
    assert {0, 300} <= set(found) and len(found) >= 3
    placed = {tag.id: pose.position + tag.corners_m @ pose.rotation.T for tag in tags.of_object("object")}
    placed |= {tag.id: tag.corners_m for tag in tags.of_table()}
    away = []
    for tag_id, corners in found.items():
        wanted = camera.project((placed[tag_id] - PLACE.position) @ PLACE.rotation)
        assert np.median(np.abs(corners - wanted)) < 0.6, tag_id
        away.append(np.median(corners - wanted, axis=0))
    assert np.abs(np.mean(away, axis=0)).max() < 0.2
