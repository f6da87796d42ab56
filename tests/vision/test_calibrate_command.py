"""``td3robot calibrate``: pictures and recordings become a camera's file, and mistakes are told in one sentence."""

import json

import cv2
import numpy as np
import pytest
from board_pictures import LENS, BoardPictures, poses
from typer.testing import CliRunner

from td3robot.cli import app
from td3robot.errors import CameraError, ConfigError, Td3RobotError
from td3robot.geometry import angle_of, compose, rotation_matrix
from td3robot.robots.kinematics import Kinematics
from td3robot.simulators.camera import Look
from td3robot.state import ObjectModel, Pose
from td3robot.vision.camera import load_camera, looking_at, pinhole, save_camera
from td3robot.vision.recording import Recording, save_image, save_recording
from td3robot.vision.tags import TableTag, TaggedObject, Tags, save_tags

CAMERA = pinhole(640, 480, np.radians(40.0))
LARGE = pinhole(1280, 960, np.radians(40.0))
PLACE = looking_at(np.array([0.4, 1.1, 0.7]), np.array([-0.1, 0.5, 0.1]))
WRIST = Pose(np.array([0.0, -0.08, 0.02]), rotation_matrix([-0.1, 0.05, 0.1]))
SIZE = (0.06, 0.06, 0.06)
TABLE = {
    300: (-0.27, 0.4),
    301: (0.05, 0.4),
    302: (0.05, 0.6),
    303: (-0.27, 0.6),
    304: (-0.11, 0.42),
    305: (-0.11, 0.6),
}
TAGS = Tags(
    objects={"object": TaggedObject(size_m=SIZE)},
    table=tuple(TableTag(id=tag, position_m=(x, y, 0.0), yaw_rad=0.01 * tag) for tag, (x, y) in TABLE.items()),
)


def run(*arguments):
    """Return what a command printed, or raise its sentence."""
    result = CliRunner().invoke(app, ["calibrate", *map(str, arguments)])
    if isinstance(result.exception, Td3RobotError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Work in a folder with a camera's file and a tags file."""
    monkeypatch.chdir(tmp_path)
    save_camera(tmp_path / "camera.yaml", CAMERA)
    save_tags(tmp_path / "tags.yaml", TAGS)
    (tmp_path / "pairs").mkdir()
    return tmp_path


@pytest.fixture
def cell(simulated, spec, files):
    """Draw the cell: its posture, what the gripper carries below its fingers, and where the camera is."""
    rng, objects = np.random.default_rng(0), (ObjectModel("object", "box", SIZE, 0.1, 0.7),)

    def draw(q, carried, place):
        eye = simulated(load_camera(files / "camera.yaml"), objects, TAGS)
        return Look().apply(eye.draw(q, spec.gripper.drivers_at(0.6), {"object": carried}, place), rng)

    return draw


def touched(folder, cell, spec, tip_m=0.0, wrong_m=0.0):
    """Record tags that were touched with the tool."""
    recording = Recording(mode="touch", tcp_offset_m=spec.tcp_offset_m, tip_m=tip_m)
    save_image(folder, "view.png", cell(spec.arm.home, Pose(np.array([0.5, -0.5, 0.03]), np.eye(3)), PLACE))
    for tag, (x, y) in TABLE.items():
        tool = Pose(np.array([x + (wrong_m if tag == 301 else 0.0), y, tip_m]), np.diag([1.0, -1.0, -1.0]))
        recording = recording.with_pose("view.png", tool, tag)
    save_recording(folder, recording)


@pytest.fixture
def large(files):
    """Use a camera of more pixels."""
    save_camera(files / "camera.yaml", LARGE)


def test_touched_tags_tell_where_the_camera_is(files, large, cell, spec):
    touched(files / "pairs", cell, spec, tip_m=0.012)
    figures = json.loads(run("hand-eye", "--recorded", "pairs", "--json"))
    camera = load_camera(files / "camera.yaml")
    assert np.linalg.norm(camera.pose.pose.position - PLACE.position) < 0.008
    assert angle_of(camera.pose.pose.rotation @ PLACE.rotation.T) < np.radians(0.3)
    assert (camera.pose.mount, figures["figures"]["used"], figures["figures"]["mode"]) == ("base", 5, "touch")
    assert figures["figures"]["check_mm"] < 2.0
    assert camera.matrix == LARGE.matrix


def test_a_tag_that_was_missed_changes_no_file(files, large, cell, spec):
    touched(files / "pairs", cell, spec, wrong_m=0.02)
    with pytest.raises(CameraError, match=r"leave it out with --leave-out|tags' corners are"):
        run("hand-eye", "--recorded", "pairs")
    assert load_camera(files / "camera.yaml").pose is None
    run("hand-eye", "--recorded", "pairs", "--leave-out", 301)
    assert load_camera(files / "camera.yaml").pose is not None


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["carry", "wrist"])
def test_recorded_poses_tell_where_the_camera_is(files, cell, spec, mode):
    kinematics, recording = Kinematics(spec), Recording(mode=mode, tcp_offset_m=spec.tcp_offset_m)
    home = kinematics.tcp(spec.arm.home)
    for number in range(9):
        side, tilt = 2.4 * number, 0.4 if number else 0.0
        rotation = home.rotation @ rotation_matrix([tilt * np.cos(side), tilt * np.sin(side), 0.25 * (-1) ** number])
        away = 0.08 * np.array([np.cos(side), np.sin(side), (-1) ** (number // 2)])
        q = kinematics.inverse(home.position + away + [0.0, 0.0, 0.05], spec.arm.home, rotation)
        tool = kinematics.tcp(q)
        flange = compose(tool, Pose(np.array([0.0, 0.0, -spec.tcp_offset_m]), np.eye(3)))
        carried = compose(tool, Pose(np.array([0.0, 0.0, 0.05]), np.diag([1.0, -1.0, -1.0])))
        aside = Pose(np.array([0.5, -0.5, 0.03]), np.eye(3))
        image = cell(q, carried if mode == "carry" else aside, PLACE if mode == "carry" else compose(flange, WRIST))
        save_image(files / "pairs", f"{number}.png", image)
        recording = recording.with_pose(f"{number}.png", tool)
    save_recording(files / "pairs", recording)
    run("hand-eye", "--recorded", "pairs", "--target", "object" if mode == "carry" else "table")
    place, pose = (PLACE, "base") if mode == "carry" else (WRIST, "flange"), load_camera(files / "camera.yaml").pose
    assert pose.mount == place[1]
    assert np.linalg.norm(pose.pose.position - place[0].position) < 0.003
    assert angle_of(pose.pose.rotation @ place[0].rotation.T) < np.radians(0.3)
    assert pose.figures.check_mm < 2.0


@pytest.mark.thorough
def test_pictures_of_the_board_become_a_camera_file(tmp_path):
    board = BoardPictures()
    (tmp_path / "views").mkdir()
    for number, pose in enumerate(poses(12)):
        cv2.imwrite(str(tmp_path / "views" / f"{number:02d}.png"), board.draw(pose))
    figures = json.loads(run("camera", "--camera", tmp_path / "views", "--out", tmp_path / "camera.yaml", "--json"))
    camera = load_camera(tmp_path / "camera.yaml")
    np.testing.assert_allclose(camera.matrix, LENS.matrix, rtol=0.01, atol=4.0)
    assert (camera.lens.views, camera.lens.source) == (figures["views"], str(tmp_path / "views"))
    with pytest.raises(ConfigError, match="exists; move it, or choose another name with --out"):
        run("camera", "--camera", tmp_path / "views", "--out", tmp_path / "camera.yaml")


def test_pictures_that_show_no_board_are_refused(tmp_path):
    for number in range(2):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.full((96, 128, 3), 128, np.uint8))
    with pytest.raises(CameraError, match=r"^0 different views of the board were found, and a calibration needs"):
        run("camera", "--camera", tmp_path, "--out", tmp_path / "camera.yaml")
    cv2.imwrite(str(tmp_path / "3.png"), np.full((128, 128, 3), 128, np.uint8))
    with pytest.raises(CameraError, match="has pictures of 128x128 and of 128x96 pixels"):
        run("camera", "--camera", tmp_path, "--out", tmp_path / "camera.yaml")
    cv2.imwrite(str(tmp_path / "0.png"), np.full((20, 20, 3), 128, np.uint8))
    with pytest.raises(CameraError, match="a picture of 20x20 pixels is too small"):
        run("camera", "--camera", tmp_path, "--out", tmp_path / "camera.yaml")
    (tmp_path / "0.png").write_text("no picture")
    with pytest.raises(CameraError, match=r"0\.png cannot be read as a picture"):
        run("camera", "--camera", tmp_path, "--out", tmp_path / "camera.yaml")
    (tmp_path / "none").mkdir()
    with pytest.raises(CameraError, match="has no picture"):
        run("camera", "--camera", tmp_path / "none", "--out", tmp_path / "camera.yaml")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--mode", "carrying"), "unknown mode 'carrying'; did you mean 'carry'?"),
        (("--mode", "carry", "--target", "objekt"), "unknown target 'objekt'; did you mean 'object'?"),
        (("--mode", "carry"), "--ruler is missing: the measured length of the 100 mm ruler"),
        (("--mode", "carry", "--ruler", "0.97"), "--ruler 0.97 is outside [80, 125] mm"),
        (("--mode", "touch"), "--robot is missing: the cell's file; or give --recorded FOLDER"),
        (("--calibration", "none.yaml"), "none.yaml"),
        (("--recorded", "nowhere"), "poses.json"),
    ],
)
def test_what_is_missing_is_told(files, arguments, sentence):
    with pytest.raises(ConfigError) as error:
        run("hand-eye", *arguments)
    assert sentence in str(error.value)


def test_pictures_of_another_size_and_broken_recordings_are_told(files):
    recording = Recording(mode="carry", tcp_offset_m=0.1).with_pose("a.png", Pose(np.zeros(3), np.eye(3)))
    save_recording(files / "pairs", recording)
    with pytest.raises(CameraError, match=r"a\.png cannot be read as a picture"):
        run("hand-eye", "--recorded", "pairs", "--target", "object")
    save_image(files / "pairs", "a.png", np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(CameraError, match="has 64x48 pixels, and the camera was calibrated at 640x480"):
        run("hand-eye", "--recorded", "pairs", "--target", "object")
    save_image(files / "pairs", "a.png", np.zeros((480, 640, 3), np.uint8))
    with pytest.raises(CameraError, match="'object' is seen in none of the 1 pictures"):
        run("hand-eye", "--recorded", "pairs", "--target", "object")
    values = json.loads((files / "pairs" / "poses.json").read_text())
    values["poses"][0]["image"] = "../a.png"
    (files / "pairs" / "poses.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match=r"poses\.json"):
        run("hand-eye", "--recorded", "pairs", "--target", "object")
