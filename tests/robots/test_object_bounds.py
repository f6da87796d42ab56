"""Poses are believed where a task's objects can be, and nowhere else."""

import json
import re
import socket
import time

import numpy as np
import pytest

from td3robot.build import make_robot_env, object_bounds, robot_spec
from td3robot.config import RobotConfig, RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.errors import ConfigError, TrackerError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.robots.cells import CellConfig
from td3robot.robots.objects import TaughtObjects, taught_from_text
from td3robot.robots.trackers import AGREEING
from td3robot.robots.trackers.udp import UdpTracker, UdpTrackerConfig
from td3robot.state import Pose
from td3robot.tasks.grasp import GraspConfig

CONFIG = RobotEnvironmentConfig(task=GraspConfig())
BOUNDS = object_bounds(CONFIG, robot_spec(RobotConfig()))
BOX = RobotEnvironmentConfig(task=GraspConfig(object=ObjectConfig(size_m=(0.04, 0.04, 0.05))))
BOX_BOUNDS = object_bounds(BOX, robot_spec(RobotConfig()))
HEIGHT = GraspConfig().object.size_m[2]
UPRIGHT, TIPPED, ON_EDGE = (rotation_matrix([angle, 0.0, 0.0]) for angle in (0.0, np.pi / 2, np.pi / 4))


@pytest.mark.parametrize(
    ("position", "rotation", "named"),
    [
        ((0.0, 0.5, HEIGHT / 2), UPRIGHT, None),
        ((0.2, 0.65, HEIGHT / 2), about_vertical(2.0), None),
        ((0.24, 0.5, HEIGHT / 2 + 0.02), UPRIGHT, None),
        ((0.3, 0.5, HEIGHT / 2), UPRIGHT, r"x = 0\.3 m is outside of -0\.25 to 0\.25 m, where the task's objects lie"),
        ((0.0, 0.2, HEIGHT / 2), UPRIGHT, "y = 0.2 m"),
        ((0.0, 0.5, -0.02), UPRIGHT, "z = -0.02 m"),
        ((0.0, 0.5, 0.2), UPRIGHT, "z = 0.2 m"),
        ((np.nan, 0.5, 0.02), UPRIGHT, "x = nan m"),
        ((0.0, 0.5, HEIGHT / 2), ON_EDGE, r"tilted by 45 degrees \(limit 20\)"),
        ((0.0, 0.5, HEIGHT / 2), TIPPED, None),  # a cube that rolled onto another side is still one
    ],
)
def test_objects_lie_upright_on_the_patch(position, rotation, named):
    objection = BOUNDS.objection_to_lying("object", Pose(np.array(position), rotation))
    if named is None:
        assert objection is None
    else:
        assert objection is not None and re.search(named, objection)


@pytest.mark.parametrize(
    ("position", "rotation", "believed"),
    [
        ((0.0, 0.5, 0.3), UPRIGHT, True),
        ((0.5, 0.9, 0.7), UPRIGHT, True),
        ((0.0, 0.5, HEIGHT / 2), UPRIGHT, True),
        ((0.0, 0.5, 1.2), UPRIGHT, False),
        ((0.0, -0.3, 0.1), UPRIGHT, False),
        ((0.0, 0.5, -0.2), UPRIGHT, False),
    ],
)
def test_objects_are_carried_within_the_workspace(position, rotation, believed):
    assert (BOUNDS.objection_to_carried("object", Pose(np.array(position), rotation)) is None) is believed


def test_a_box_on_its_side_is_another_object():
    pose = Pose(np.array([0.0, 0.5, 0.02]), TIPPED)
    for objection in (BOX_BOUNDS.objection_to_lying("object", pose), BOX_BOUNDS.objection_to_carried("object", pose)):
        assert "tilted by 90 degrees" in objection


@pytest.fixture
def tracker(hosts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((hosts[0], 0))
        port = free.getsockname()[1]
    tracker = UdpTracker(("object",), UdpTrackerConfig(host=hosts[0], port=port, max_age_s=5.0), BOUNDS)
    tracker._start()
    yield tracker
    tracker.close()


def see(tracker, position, quaternion=(1, 0, 0, 0)):
    """Send a pose, and wait until it was taken or refused."""
    before = tracker.refused, id(tracker._seen.get("object"))
    message = {"name": "object", "stamp": time.time(), "position_m": position, "quaternion_wxyz": quaternion}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.sendto(json.dumps(message).encode(), (tracker.config.host, tracker.config.port))
    end = time.monotonic() + 5.0
    while (tracker.refused, id(tracker._seen.get("object"))) == before and time.monotonic() < end:
        time.sleep(0.001)
    return tracker.refused - before[0]


def test_an_object_must_first_be_seen_on_the_patch(tracker):
    assert see(tracker, [0.0, 0.5, 0.3]) == 1
    with pytest.raises(TrackerError, match=r"'object' is not believed: z = 0\.3 m is outside of .* objects lie"):
        tracker.read()
    for number in range(AGREEING):
        assert see(tracker, [0.0, 0.5 + 1e-4 * number, HEIGHT / 2]) == 0
    assert see(tracker, [0.0, 0.5, 0.3]) == 0
    np.testing.assert_allclose(tracker.read()["object"].pose.position, [0.0, 0.5, 0.3])
    tracker.require_possible("object", tracker.read()["object"].pose)
    away = Pose(np.array([0.0, -0.4, 0.3]), UPRIGHT)
    with pytest.raises(TrackerError, match=r"'object' is seen where it cannot be: y = -0\.4 m .* put it back"):
        tracker.require_possible("object", away)


def test_an_object_on_its_edge_is_not_believed(tracker):
    assert see(tracker, [0.0, 0.5, HEIGHT / 2], [np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0]) == 1
    with pytest.raises(TrackerError, match="tilted by 45 degrees"):
        tracker.read()


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("object=50,500,20", "0.05,0.5,0.02"),
        ("object=0.05,0.5,-0.1", "0.05,0.5,-0.01"),
        ("object=0.4,0.5,0.02", "0.25,0.5,0.02"),
        ("object=1e300,0.5,0.02", "0.25,0.5,0.02"),
    ],
)
def test_an_object_taught_where_none_can_lie_is_refused_with_the_nearest_place(text, nearest):
    cell = CellConfig.model_validate({"ur": {"host": "robot"}}).with_taught(dict([taught_from_text(text)]))
    with pytest.raises(
        ConfigError, match=rf"'object' cannot lie .* metres.* nearest admissible one is object={nearest}$"
    ):
        make_robot_env(CONFIG, cell=cell)


def test_the_nearest_place_is_admissible():
    for text in ("object=50,500,20", "object=0.05,0.5,-0.1", "object=-9,9,9"):
        name, pose = taught_from_text(text)
        nearest = BOUNDS.nearest(name, np.array(pose.position_m))
        TaughtObjects([name], {name: pose.model_copy(update={"position_m": tuple(nearest)})}, BOUNDS)


def test_the_patch_lies_on_the_table_that_the_cell_has():
    config = CONFIG.model_copy(update={"robot": RobotConfig(table_height_m=-0.1)})
    bounds = object_bounds(config, robot_spec(config.robot))
    assert bounds.objection_to_lying("object", Pose(np.array([0.0, 0.5, HEIGHT / 2 - 0.1]), UPRIGHT)) is None
    assert bounds.objection_to_lying("object", Pose(np.array([0.0, 0.5, HEIGHT / 2]), UPRIGHT)) is not None
