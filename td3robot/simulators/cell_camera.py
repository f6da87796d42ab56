"""Where a rehearsal's camera stands, what it sees, and how well its file describes it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.state import ObjectModel, Pose
from td3robot.vision.camera import Camera, CameraPose, looking_at, save_camera
from td3robot.vision.tags import FACES, Tags, save_tags

# Chosen so that two cores without a GPU draw and read every frame in time, beside the controller and its driver.
WIDTH, HEIGHT, RATE_HZ = 480, 360, 15.0
# From the exposure until a program has the frame: a webcam's, and longer than a picture takes to be drawn [s].
LATENCY_S = 0.05
# It stands on the side of the patch that is away from the arm, low, so that it looks under a raised hand: distance in
# diagonals of the patch, and angles above the table and to the side [rad].
DISTANCE, ABOVE_RAD, ASIDE_RAD = 2.2, 0.5, 0.35
# What it has to see: the patch with this margin, up to this height above the table [m].
MARGIN_M, LIFTED_M = 0.04, 0.16
# Calibration leaves this much (assumed): position [m], direction [rad], focal length, its centre [pixels], latency [s].
POSITION_M, TURN_RAD, FOCAL, CENTRE_PX, TIME_S = 0.0005, 0.0005, 0.0005, 0.3, 0.003
CAMERA_FILE, TAGS_FILE = "camera.yaml", "tags.yaml"


@dataclass(frozen=True, slots=True)
class Eyes:
    """A simulated camera that takes the place of poses told by the simulator.

    Attributes:
        folder: Where the files of the camera and of the tags are written.
        patch: Low and high corner (x, y) of the patch of the table on which objects lie [m].
        seed: Seed of noise and of the calibration's errors.
    """

    folder: Path
    patch: tuple[tuple[float, float], tuple[float, float]]
    seed: int = 0


def true_camera(patch: tuple[tuple[float, float], tuple[float, float]], table_m: float) -> Camera:
    """Return a camera that sees a patch of the table, low and high corner (x, y) [m], and what is lifted above it."""
    low, high = np.array(patch[0]) - MARGIN_M, np.array(patch[1]) + MARGIN_M
    middle = np.array([*(low + high) / 2, table_m + LIFTED_M / 3])
    out = about_vertical(ASIDE_RAD) @ np.array([*middle[:2], 0.0]) / np.linalg.norm(middle[:2])
    ray = np.cos(ABOVE_RAD) * out + np.sin(ABOVE_RAD) * np.array([0.0, 0.0, 1.0])
    pose = looking_at(middle + DISTANCE * float(np.linalg.norm(high - low)) * ray, middle)
    corners = np.array([(*xy, z) for *xy, z in product(*zip(low, high, strict=True), (table_m, table_m + LIFTED_M))])
    x, y, z = ((corners - pose.position) @ pose.rotation).T
    # Both ends of the picture show the outermost corners.
    left, right, top, bottom = min(x / z), max(x / z), min(y / z), max(y / z)
    focal = min((WIDTH - 1) / (right - left), (HEIGHT - 1) / (bottom - top))
    centre = (WIDTH - 1) / 2 - focal * (left + right) / 2, (HEIGHT - 1) / 2 - focal * (top + bottom) / 2
    return _camera(focal, centre, CameraPose.of(pose), LATENCY_S)


def calibrated(camera: Camera, seed: int) -> Camera:
    """Return a camera as its calibration finds it: with errors."""
    rng = np.random.default_rng(seed)
    assert camera.pose is not None
    pose = camera.pose.pose
    turn = rotation_matrix(TURN_RAD * rng.standard_normal(3))
    found = Pose(pose.position + POSITION_M * rng.standard_normal(3), pose.rotation @ turn)
    centre = camera.K[:2, 2] + CENTRE_PX * rng.standard_normal(2)
    focal = float(camera.K[0, 0]) * (1.0 + FOCAL * rng.standard_normal())
    latency_s = max(0.0, camera.latency_s + TIME_S * rng.standard_normal())
    return _camera(focal, (float(centre[0]), float(centre[1])), CameraPose.of(found), latency_s)


def tags_of(objects: Iterable[ObjectModel]) -> Tags:
    """Return the tags on a task's objects.

    Raises:
        ConfigError: There is no object, or one has no faces for tags.
    """
    found: dict[str, Mapping[str, object]] = {}
    for number, item in enumerate(objects):
        if item.shape != "box":
            raise ConfigError(
                f"a camera sees objects by the tags on their faces, and {item.name!r} is a {item.shape}, not a box; "
                "rehearse it without --eyes"
            )
        found[item.name] = {"size_m": item.size_m, "first_id": number * len(FACES)}
    if not found:
        raise ConfigError("the task has no object that a camera could see; rehearse it without --eyes")
    return Tags.model_validate({"objects": found})


def save_files(folder: Path, camera: Camera, tags: Tags) -> tuple[Path, Path]:
    """Write the files of a camera and of tags into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    save_camera(folder / CAMERA_FILE, camera)
    save_tags(folder / TAGS_FILE, tags)
    return folder / CAMERA_FILE, folder / TAGS_FILE


def _camera(focal: float, centre: tuple[float, float], pose: CameraPose, latency_s: float) -> Camera:
    matrix = (focal, 0.0, centre[0]), (0.0, focal, centre[1]), (0.0, 0.0, 1.0)
    return Camera(width=WIDTH, height=HEIGHT, matrix=matrix, pose=pose, rate_hz=RATE_HZ, latency_s=latency_s)
