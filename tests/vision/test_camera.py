"""A camera's file, and its frames: what is wrong with either is said."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
import yaml

from td3robot.errors import CameraError, ConfigError
from td3robot.vision.camera import CameraPose, load_camera, looking_at, pinhole, save_camera
from td3robot.vision.frames import FrameSource, exposure_fault

PLACE = looking_at(np.array([0.5, 1.2, 0.8]), np.array([0.0, 0.45, 0.0]))


def video(path, frames, size=(64, 64)):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 100.0, size)
    for frame in frames:
        writer.write(frame)
    writer.release()
    return str(path)


def noise(count, size=(64, 64)):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (*size[::-1], 3), np.uint8) for _ in range(count)]


def test_a_camera_looks_where_it_is_pointed():
    camera = pinhole(640, 480, 0.7, PLACE)
    target = (np.array([[0.0, 0.45, 0.0], [0.0, 0.45, 0.1]]) - PLACE.position) @ PLACE.rotation
    middle, above = camera.project(target)
    np.testing.assert_allclose(middle, [319.5, 239.5], atol=1e-9)
    assert above[0] == pytest.approx(middle[0]) and above[1] < middle[1] - 20.0
    np.testing.assert_allclose(camera.normalized(middle[None]), [[0.0, 0.0]], atol=1e-9)


def test_a_camera_file_is_read_as_it_was_written(tmp_path):
    camera = pinhole(640, 480, 0.7, PLACE).model_copy(update={"distortion": (-0.1, 0.02, 0.0, 0.0, 0.0)})
    save_camera(tmp_path / "camera.yaml", camera)
    assert load_camera(tmp_path / "camera.yaml") == camera
    np.testing.assert_allclose(camera.pose.pose.rotation, PLACE.rotation, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"matrix": [[600, 0, 320], [0, 600, 240], [0, 0, 2]]}, "matrix must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]"),
        ({"matrix": [[0.6, 0, 320], [0, 600, 240], [0, 0, 1]]}, "fx = 0.6, no focal length of a frame of 640 pixels"),
        ({"matrix": [[600, 0, 900], [0, 600, 240], [0, 0, 1]]}, "principal point at (900, 240), outside of the frame"),
        ({"distortion": [0.1, 0.2]}, "distortion has 2 values"),
        ({"focal": 600}, "unknown key 'focal'"),
        ({"pose": {"position_m": [0, 0, 1], "quaternion_wxyz": [1, 1, 0, 0]}}, "has length 1.414, not 1"),
    ],
)
def test_a_camera_file_that_cannot_be_is_refused(tmp_path, changes, sentence):
    values = pinhole(640, 480, 0.7).model_dump(mode="json") | changes
    (tmp_path / "camera.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r"camera\.yaml") as error:
        load_camera(tmp_path / "camera.yaml")
    assert sentence in str(error.value)


def test_a_flange_camera_says_so():
    assert CameraPose.of(PLACE, "flange").mount == "flange"


def test_all_frames_of_a_file_come_in_order(tmp_path):
    with FrameSource(video(tmp_path / "a.avi", noise(5))) as source:
        frames = list(source)
    assert [frame.number for frame in frames] == [1, 2, 3, 4, 5]
    assert all(a.exposed_at < b.exposed_at for a, b in pairwise(frames))


def test_frames_of_another_size_are_refused(tmp_path):
    camera = pinhole(640, 480, 0.7)
    source = FrameSource(video(tmp_path / "a.avi", noise(2)), camera, "camera.yaml")
    with source, pytest.raises(CameraError) as error:
        source.read()
    assert "sends frames of 64x64, and camera.yaml is for 640x480; set that resolution, or calibrate" in str(
        error.value
    )


def test_a_frozen_camera_is_told(tmp_path):
    source = FrameSource(video(tmp_path / "a.avi", noise(1) * 300))
    with source, pytest.raises(CameraError, match="is frozen: it sent the same frame"):
        list(source)


def test_a_live_camera_that_ends_was_unplugged(tmp_path, monkeypatch):
    monkeypatch.setattr(FrameSource, "_exposed_at", lambda self: 5.0)
    path = video(tmp_path / "a.avi", noise(3))
    source = FrameSource(f"file://{path}")  # a URL is live: only its newest frame counts
    with source, pytest.raises(CameraError, match="stopped sending frames; was it unplugged"):
        list(source)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nowhere.mp4", "there is no video file nowhere.mp4; give a file, a camera's number such as 0, or a URL"),
        ("97", "camera 97 cannot be opened; is it plugged in, and used by no other program?"),
    ],
)
def test_a_camera_that_is_not_there_is_told(source, sentence):
    with pytest.raises(CameraError) as error:
        FrameSource(source)
    assert str(error.value) == sentence


def test_a_file_that_is_no_video_is_told(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(CameraError, match="is it a video that OpenCV can read"):
        FrameSource(str(tmp_path / "text.mp4"))


@pytest.mark.parametrize(("level", "word"), [(3, "underexposed"), (254, "overexposed"), (120, None)])
def test_exposure_is_judged(level, word):
    fault = exposure_fault(np.full((480, 640, 3), level, np.uint8))
    assert fault is None if word is None else word in fault
