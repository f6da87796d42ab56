"""A rehearsal's camera: where it stands, what its files say, and that its frames show what the simulated arm does."""

import time
from contextlib import closing
from itertools import product

import numpy as np
import pytest

from td3robot.errors import CameraError, ConfigError
from td3robot.registry import ARMS
from td3robot.simulators.cell_camera import LIFTED_M, Eyes, calibrated, tags_of, true_camera
from td3robot.simulators.presets import NOMINAL, preset
from td3robot.state import ObjectModel, Pose
from td3robot.vision.camera import load_camera
from td3robot.vision.tags import load_tags

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 0.1, 0.7)
PATCH = (-0.2, 0.35), (0.2, 0.65)


@pytest.mark.parametrize("arm", ["ur3e", "ur5e", "ur10e", "ur20"])
@pytest.mark.parametrize("table_m", [0.0, -0.1])
def test_it_sees_all_of_an_arms_patch_and_what_is_lifted_there(arm, table_m):
    region = ARMS[arm].regions["patch"]
    camera = true_camera((region.low, region.high), table_m)
    place = camera.pose.pose
    corners = np.array(list(product(*zip(region.low, region.high, strict=True), (table_m, table_m + LIFTED_M))))
    pixels = camera.project((corners - place.position) @ place.rotation)
    assert (pixels > 0).all() and (pixels < [camera.width - 1, camera.height - 1]).all()
    assert place.position[2] > table_m + 0.3
    assert np.linalg.norm(place.position[:2]) > np.linalg.norm(corners[:, :2].mean(axis=0))  # not between arm and patch


def test_its_calibration_has_errors_and_the_same_ones_for_a_seed():
    camera = true_camera(PATCH, 0.0)
    found = [calibrated(camera, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    for each in found:
        away = each.pose.pose.position - camera.pose.pose.position
        assert 0.0 < 1e3 * np.linalg.norm(away) < 3.0
        assert each.K[0, 0] == pytest.approx(camera.K[0, 0], rel=0.005) and each.K[0, 0] != camera.K[0, 0]
        assert each.latency_s == pytest.approx(camera.latency_s, abs=0.02) and each.latency_s != camera.latency_s


def test_each_object_has_tags_of_its_own():
    tags = tags_of([CUBE, ObjectModel("box", "box", (0.03, 0.05, 0.04), 0.1, 0.7)])
    assert [item.first_id for item in tags.objects.values()] == [0, 5]
    assert tags.objects["box"].size_m == (0.03, 0.05, 0.04)


@pytest.mark.parametrize(
    ("objects", "sentence"),
    [
        ([], "the task has no object that a camera could see; rehearse it without --eyes"),
        ([ObjectModel("can", "cylinder", (0.04, 0.04, 0.1), 0.1, 0.7)], "'can' is a cylinder, not a box"),
    ],
)
def test_what_has_no_faces_for_tags_is_refused(objects, sentence):
    with pytest.raises(ConfigError, match=sentence):
        tags_of(objects)


def test_a_cells_own_camera_is_left_out_where_another_one_sees():
    assert NOMINAL.without_camera() is NOMINAL
    cell = preset("webcam").without_camera()
    assert cell.name == "webcam" and cell.differences() == {}
    assert "camera.rate_hz" in preset("webcam").differences()


@pytest.fixture
def filmed(running, tmp_path):
    """Film the stand-in's cell, or skip where nothing can be drawn."""
    pytest.importorskip("cv2", reason="the extra vision is not installed")
    from td3robot.simulators.camera_process import CellCamera

    try:
        with closing(CellCamera(Eyes(tmp_path, PATCH), running.config)) as camera:
            yield camera
    except CameraError as error:
        pytest.skip(str(error))


@pytest.mark.thorough
def test_its_frames_show_where_an_object_is_now(running, filmed):
    from td3robot.vision.eye import TagEye
    from td3robot.vision.frames import FrameSource

    eye = TagEye(load_camera(filmed.files[0]), load_tags(filmed.files[1]), {"object": 0.02})
    with FrameSource(filmed.url, eye.camera) as frames:
        number = 0
        for x in (-0.1, 0.1):
            running.place({"object": Pose(np.array([x, 0.5, 0.02]), np.eye(3))})
            placed = time.time()
            end = time.monotonic() + 20.0
            while True:
                frame = frames.read(number)
                number = frame.number
                if frame.exposed_at > placed + filmed.settled_s:
                    break
                assert time.monotonic() < end
            sight = eye.look(frame.image)
            assert 1e3 * np.linalg.norm(sight.objects["object"].pose.position - [x, 0.5, 0.02]) < 8.0
    shots = filmed.shots()
    assert len(shots) >= 2
    assert np.diff([shot.exposed_at for shot in shots]).min() > 0.0
    np.testing.assert_allclose(shots[-1].positions_m["object"], [0.1, 0.5, 0.02], atol=0.001)


@pytest.mark.thorough
def test_a_camera_whose_cell_is_gone_says_so(own_standin, tmp_path):
    pytest.importorskip("cv2", reason="the extra vision is not installed")
    from td3robot.simulators.camera_process import CellCamera

    with own_standin() as standin, closing(CellCamera(Eyes(tmp_path, PATCH), standin.config)) as camera:
        standin.kill()
        with pytest.raises(CameraError, match=r"the simulated camera (failed: the stand-in|'s process ended)"):
            for _ in range(100):
                camera.shots()
                time.sleep(0.05)


@pytest.fixture
def own_standin():
    from td3robot.simulators.process import start_ur_simulator

    return lambda: start_ur_simulator(objects={"object": {}})
