"""From a camera's frames to a tracker's poses, through the commands and through a cell's file."""

import dataclasses
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import cv2
import numpy as np
import pytest
from test_camera import PLACE
from test_eye import LYING, off
from test_tags import detected

from td3robot.cli.vision import _object
from td3robot.errors import ConfigError, TrackerError
from td3robot.robots.cells import load_cell
from td3robot.robots.objects import ObjectBounds, Sighting
from td3robot.robots.trackers.udp import UdpTrackerConfig
from td3robot.simulators.camera import Look
from td3robot.state import Pose
from td3robot.vision.camera import CameraPose, load_camera, save_camera
from td3robot.vision.eye import Sight
from td3robot.vision.frames import Frame
from td3robot.vision.sheet import pages
from td3robot.vision.show import LivePage
from td3robot.vision.tags import Tags, load_tags, save_tags
from td3robot.vision.track import TrackFigures, TrackSettings, track
from td3robot.vision.track import _page as tracked_page

HOST = "127.0.0.1"
BOUNDS = ObjectBounds(((-0.2, 0.35), (0.2, 0.65)), {"object": 0.02}, ((-0.6, 0.15, 0.02), (0.6, 0.95, 0.8)))


@pytest.fixture
def place(simulated, spec, lens, tmp_path):
    """Make a folder with a camera's file, a tags file and a video of a cube that lies."""
    sharp = simulated(lens).draw(spec.arm.home, spec.gripper.drivers_at(0.0), {"object": LYING}, PLACE)
    rng, writer = (
        np.random.default_rng(0),
        cv2.VideoWriter(str(tmp_path / "cube.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 60.0, (lens.width, lens.height)),
    )
    for _ in range(12):
        writer.write(Look().apply(sharp, rng))
    writer.release()
    save_camera(tmp_path / "camera.yaml", lens)
    save_tags(tmp_path / "tags.yaml", Tags())
    return tmp_path


@pytest.fixture
def port():
    """A socket that listens as a tracker does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind((HOST, 0))
        link.settimeout(5.0)
        yield link


def options(place, **changes):
    values = {"camera": place / "cube.avi", "calibration": place / "camera.yaml", "tags": place / "tags.yaml"} | changes
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def test_every_frame_of_a_video_becomes_a_datagram(td3robot, place, port):
    status, out, err = td3robot("track", *options(place, to=f"{HOST}:{port.getsockname()[1]}"), "--json")
    assert status == 0, err
    figures = json.loads(out)
    assert figures["frames"] == 12 and figures["seen"] == {"object": 1.0}
    assert figures["lost"] == {} and figures["latency_ms"] >= figures["work_ms"] > 0.0
    received = [json.loads(port.recv(4096)) for _ in range(12)]
    stamps = [message["stamp"] for message in received]
    assert stamps == sorted(stamps) and received[0]["name"] == "object"
    assert 1e3 * np.linalg.norm(received[0]["position_m"] - LYING.position) < 0.5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"camera": "97"}, "camera 97 cannot be opened; is it plugged in"),
        ({"calibration": "none.yaml"}, "camera none.yaml cannot be read"),
        ({"tags": "none.yaml"}, "tags file none.yaml cannot be read"),
        ({"to": "47300"}, "--to '47300' is not of the form HOST:PORT, such as 127.0.0.1:47300"),
    ],
)
def test_what_cannot_be_tracked_is_one_sentence(td3robot, place, changes, sentence):
    status, _, err = td3robot("track", *options(place, **changes))
    assert status == 2 and sentence in err and "Traceback" not in err


def test_the_sheets_and_the_tags_file_belong_together(td3robot, tmp_path):
    sheets = tmp_path / "sheets.pdf"
    status, _, err = td3robot("tags", sheets, "--object", "cube=40", "--object", "box=40x60x30", "--table", "2")
    assert status == 0, err
    assert sheets.read_bytes().startswith(b"%PDF") and b"595.27" in sheets.read_bytes()  # A4: 210 mm are 595.28 points
    tags = load_tags(tmp_path / "sheets.yaml")
    assert {name: item.first_id for name, item in tags.objects.items()} == {"cube": 0, "box": 5}
    assert tags.objects["box"].size_m == (0.04, 0.06, 0.03)
    status, _, err = td3robot("tags", sheets)
    assert status == 2 and "exists, and may hold what you measured" in err


@pytest.mark.parametrize("size", [0.03, 0.04, 0.06])
def test_a_net_folds_to_the_object(size):
    """In the picture of the page, each face's tag has its size, its place, and its upper edge at the top's edge."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    tags = Tags.model_validate({"objects": {"object": {"size_m": [size] * 3}}})
    canvas = FigureCanvasAgg(next(pages(tags)))
    canvas.figure.dpi = 200
    canvas.draw()
    grey = np.asarray(canvas.buffer_rgba())[..., 0].copy()
    pixels = {tag: corners * 25.4 / 200 for tag, corners in detected(grey).items()}
    assert sorted(pixels) == [0, 1, 2, 3, 4]
    for tag in tags.of_object("object"):
        corners = pixels[tag.id]
        edges = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
        np.testing.assert_allclose(edges, 1e3 * tag.size_m, atol=0.3)
        out = tag.rotation[:2, 2] * [1, -1]  # on the page, y is down
        np.testing.assert_allclose(corners.mean(axis=0) - pixels[0].mean(axis=0), 1e3 * size * out, atol=0.3)
        if tag.id:
            up = corners[:2].mean(axis=0) - corners[2:].mean(axis=0)
            np.testing.assert_allclose(up / np.linalg.norm(up), -out, atol=0.05)


def test_an_object_too_large_for_a_page_gets_a_page_for_each_face():
    tags = Tags.model_validate({"objects": {"box": {"size_m": [0.2, 0.1, 0.15]}}})
    assert len(list(pages(tags, range(300, 304)))) == 5 + 1 + 1


@pytest.mark.parametrize(("text", "size"), [("a=40", (0.04,) * 3), ("b=40x60x30.5", (0.04, 0.06, 0.0305))])
def test_objects_are_given_by_their_edges(text, size):
    assert _object(text) == (text[0], pytest.approx(size))
    for wrong in ("40", "a=", "a=4x5", "a=big"):
        with pytest.raises(ConfigError, match="is not of the form object=40"):
            _object(wrong)
    with pytest.raises(ConfigError, match=r"looks like metres; edges are in millimetres"):
        _object("cube=0.04")


def cell(place, **changes):
    """Write a cell whose tracker sees tags; its paths start at its folder."""
    lines = {"kind": "tags", "source": str(place / "cube.avi"), "camera": "camera.yaml", "tags": "tags.yaml"} | changes
    (place / "cell.yaml").write_text(
        "robot: {backend: ur, arm: ur5e, gripper: robotiq_2f85}\nur: {host: 127.0.0.1}\ngripper: {}\n"
        f"tracker: {json.dumps(lines)}\n"
    )
    return load_cell(place / "cell.yaml")


def test_a_cell_starts_its_own_tracker_of_tags(place):
    objects = cell(place, max_age_s=5.0).objects(BOUNDS)
    try:
        found = objects.arrange({})["object"]
        assert off(Sighting(found, 0.0, 1), LYING)[0] < 0.5
    finally:
        objects.close()
        objects.close()


def test_a_camera_that_fails_is_the_trackers_fault(place):
    objects = cell(place, source=97).objects(BOUNDS)
    try:
        with pytest.raises(TrackerError, match="camera 97 cannot be opened; is it plugged in"):
            objects.arrange({})
    finally:
        objects.close()


def test_a_cell_without_a_camera_file_is_refused(place):
    (place / "cell.yaml").write_text(
        "robot: {backend: ur, arm: ur5e, gripper: robotiq_2f85}\nur: {host: 127.0.0.1}\ngripper: {}\n"
        "tracker: {kind: tags, tags: tags.yaml}\n"
    )
    with pytest.raises(ConfigError, match=r"tracker\.camera is missing"):
        load_cell(place / "cell.yaml")


def test_frames_are_shown_on_a_page(place, lens):
    page = LivePage()
    try:
        page.show(np.full((48, 64, 3), 90, np.uint8))
        with urllib.request.urlopen(page.url, timeout=5.0) as answer:
            assert "multipart/x-mixed-replace" in answer.headers["Content-Type"]
            page.show(np.full((48, 64, 3), 90, np.uint8))
            assert b"image/jpeg" in answer.read(60)
    finally:
        page.close()


@pytest.mark.thorough
def test_a_table_at_another_height_moves_the_cube(place, port):
    settings = TrackSettings(
        str(place / "cube.avi"), place / "camera.yaml", place / "tags.yaml", Tags().rest_m(-0.005), port.getsockname()
    )
    higher = CameraPose.of(Pose(PLACE.position - np.array([0.0, 0.0, 0.005]), PLACE.rotation))
    save_camera(place / "camera.yaml", load_camera(place / "camera.yaml").model_copy(update={"pose": higher}))
    track(settings, lambda figures: None)
    assert json.loads(port.recv(4096))["position_m"][2] == pytest.approx(0.015)


def test_the_sender_on_the_page_reaches_a_tracker(port):
    page = (Path(__file__).parents[2] / "docs/objects.md").read_text(encoding="utf-8")
    (program,) = re.findall(r'```python title="send_poses.py"\n(.*?)```', page, re.DOTALL)
    assert len(program.splitlines()) <= 25
    number = port.getsockname()[1]
    port.close()
    tracker = UdpTrackerConfig(host=HOST, port=number, max_age_s=5.0).tracker(("object",), BOUNDS)
    sender = subprocess.Popen([sys.executable, "-c", program.replace("47300", str(number))])
    try:
        assert tracker.arrange({})["object"].position.tolist() == [0.1, 0.5, 0.02]
    finally:
        sender.kill()
        sender.wait()
        tracker.close()


def test_a_trackers_figures_are_of_all_its_frames(place):
    objects = cell(place).objects(BOUNDS)
    assert objects.figures() is None
    second = TrackFigures(20, 20.0, 50.0, 10.0, {"object": 1.0}, 0.01, {})
    objects._seconds = [second, dataclasses.replace(second, frames=10, rate_hz=10.0, seen={"object": 0.4})]
    figures = objects.figures()
    assert figures["frames"] == 30 and figures["rate_hz"] == pytest.approx(15.0)
    assert figures["seen"] == {"object": pytest.approx(0.8)}


def test_what_a_tracker_sees_is_on_its_page_while_somebody_watches():
    """The page of a cell's file, which the viewer shows beside the arm."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        free = probe.getsockname()[1]
    frame, sight = Frame(np.full((48, 64, 3), 90, np.uint8), 0.0, 1), Sight(lost={"object": "no tag is in sight"})
    over = threading.Event()

    def track_on(show):
        while not over.wait(0.02):
            show(frame, sight)

    with tracked_page(free) as show:
        tracker = threading.Thread(target=track_on, args=(show,))
        tracker.start()
        try:
            with urllib.request.urlopen(f"http://{HOST}:{free}", timeout=20.0) as answer:
                assert b"image/jpeg" in answer.read(60)
        finally:
            over.set()
            tracker.join()
    with tracked_page(None) as show:
        assert show is None
