"""What is seen in a picture: poses where the objects are, and a sentence where there is none."""

import numpy as np
import pytest
from test_camera import PLACE

from td3robot.errors import CameraError
from td3robot.geometry import about_vertical, angle_of, rotation_matrix
from td3robot.simulators.camera import Look
from td3robot.state import ObjectModel, Pose
from td3robot.vision.camera import CameraPose
from td3robot.vision.eye import TagEye
from td3robot.vision.tags import TableTag, TaggedObject, Tags

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 0.1, 0.7)
LYING = Pose(np.array([0.05, 0.45, 0.02]), about_vertical(0.6))
LIFTED = Pose(np.array([0.05, 0.45, 0.12]), rotation_matrix([0.1, -0.1, 0.0]) @ about_vertical(0.9))
REST = {"object": 0.02}
TABLE = (TableTag(id=300, position_m=(-0.1, 0.4, 0.0)), TableTag(id=301, position_m=(0.12, 0.52, 0.0), yaw_rad=0.7))


@pytest.fixture
def picture(simulated, spec, lens):
    """Take pictures of the cube."""

    def picture(pose=LYING, tags=None, look=None, objects=None, camera=lens, models=(CUBE,), **printed):
        drawn = simulated(camera, models, tags, **printed)
        sharp = drawn.draw(spec.arm.home, spec.gripper.drivers_at(0.0), objects or {"object": pose}, PLACE)
        return (look or Look()).apply(sharp, np.random.default_rng(0))

    return picture


def off(seen, pose):
    """Return how far a pose is off [mm, degrees]."""
    turned = angle_of(seen.pose.rotation.T @ pose.rotation)
    return 1e3 * np.linalg.norm(seen.pose.position - pose.position), np.degrees(turned)


def test_a_cube_that_lies_is_found_to_a_tenth_of_a_millimetre(picture, lens):
    seen = TagEye(lens, Tags(), REST).look(picture()).objects["object"]
    assert seen.is_lying and len(seen.tags) >= 2
    assert np.less(off(seen, LYING), (0.3, 0.3)).all()


def test_a_lifted_cube_is_found_by_all_its_faces(picture, lens):
    seen = TagEye(lens, Tags(), REST).look(picture(LIFTED)).objects["object"]
    assert not seen.is_lying
    assert np.less(off(seen, LIFTED), (3.0, 1.0)).all()


@pytest.mark.thorough
def test_a_distorted_lens_is_as_good(picture, lens):
    camera = lens.model_copy(update={"distortion": (-0.25, 0.08, 0.001, -0.001, 0.0)})
    seen = TagEye(camera, Tags(), REST).look(picture(camera=camera)).objects["object"]
    assert np.less(off(seen, LYING), (0.3, 0.3)).all()


@pytest.mark.thorough
def test_a_box_of_another_size_is_found(picture, lens):
    box = ObjectModel("box", "box", (0.05, 0.07, 0.045), 0.1, 0.7)
    tags = Tags(objects={"box": TaggedObject(size_m=box.size_m, first_id=20)})
    pose = Pose(np.array([0.0, 0.45, 0.0225]), about_vertical(-0.4))
    image = picture(tags=tags, objects={"box": pose}, models=(box,))
    seen = TagEye(lens, tags, {"box": 0.0225}).look(image).objects["box"]
    assert np.less(off(seen, pose), (0.3, 0.3)).all()


def test_dark_and_bright_pictures_say_so(picture, lens):
    eye = TagEye(lens, Tags(), REST)
    for light, word in ((0.02, "underexposed"), (20.0, "overexposed")):
        sight = eye.look(picture(look=Look(light=light)))
        assert not sight.objects and word in sight.lost["object"]


def test_a_cube_out_of_sight_is_lost(picture, lens):
    sight = TagEye(lens, Tags(), REST).look(picture(Pose(np.array([-0.4, 0.9, 0.02]), np.eye(3))))
    assert sight.lost == {"object": "no tag of 'object' is in sight"}


def test_a_print_at_97_percent_is_told_and_mended_by_its_scale(picture, lens):
    image = picture(tags=Tags(scale=0.97))
    sentence = TagEye(lens, Tags(), REST).look(image).lost["object"]
    assert "look 97 % as large as the tags file says, on an object that lies; measure the ruler" in sentence
    assert sentence.endswith("set scale to 0.97")
    seen = TagEye(lens, Tags(scale=0.97), REST).look(image).objects["object"]
    assert np.less(off(seen, LYING), (0.3, 0.3)).all()


def test_a_tag_that_is_glued_upside_down_is_named(picture, lens, monkeypatch):
    from td3robot.simulators import camera as simulator

    upright = simulator.tag_image
    monkeypatch.setattr(simulator, "tag_image", lambda tag: upright(tag)[::-1, ::-1] if tag else upright(tag))
    sentence = TagEye(lens, Tags(), REST).look(picture(upside_down=True)).lost["object"]
    assert "is turned by 180 degrees; glue it as the printed net shows it" in sentence


def test_two_cubes_with_the_same_tags_are_told(picture, lens):
    image = picture()
    twice = np.roll(image, 150, axis=1)
    sentence = TagEye(lens, Tags(), REST).look(np.where(twice < 60, twice, image)).lost["object"]
    assert "is seen twice; give the second object tags of its own" in sentence


def test_a_camera_that_was_moved_is_told_by_the_table(picture, lens):
    tags = Tags(table=TABLE)
    image = picture(tags=tags)
    assert "object" in TagEye(lens, tags, REST).look(image).objects
    moved = Pose(PLACE.position + np.array([0.03, 0.0, 0.0]), PLACE.rotation)
    camera = lens.model_copy(update={"pose": CameraPose.of(moved)})
    sentence = TagEye(camera, tags, REST, "camera.yaml").look(image).lost["object"]
    assert (
        "pixels from where camera.yaml puts them (limit 5); the camera was moved, or the file is of another" in sentence
    )


@pytest.mark.thorough
def test_tags_on_the_table_tell_where_the_camera_is(picture, lens):
    tags = Tags(table=TABLE)
    camera = lens.model_copy(update={"pose": None})
    seen = TagEye(camera, tags, REST).look(picture(tags=tags)).objects["object"]
    assert np.less(off(seen, LYING), (4.0, 2.0)).all()


@pytest.mark.parametrize(
    ("pose", "names", "sentence"),
    [
        (None, REST, "camera.yaml has no pose, and no tag lies on the table"),
        (CameraPose.of(PLACE, "flange"), REST, "camera.yaml is of a camera on the flange"),
        (CameraPose.of(PLACE), {"cup": 0.05}, "the tags file has no object 'cup' (it has: object)"),
    ],
)
def test_an_eye_that_cannot_know_is_refused(lens, pose, names, sentence):
    with pytest.raises(CameraError) as error:
        TagEye(lens.model_copy(update={"pose": pose}), Tags(), names, "camera.yaml")
    assert sentence in str(error.value)
