"""A camera is calibrated with the simulated controller's arm and pictures of its cell; and what ends that safely."""

from contextlib import suppress

import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.config import GuardConfig, RobotConfig
from td3robot.deploy.deployment import grip
from td3robot.deploy.hand_eye import HandEyeRequest, proposed, record
from td3robot.deploy.ledger import Ledger
from td3robot.deploy.operator import Signals
from td3robot.errors import CommandRefusedError, ConfigError
from td3robot.geometry import angle_of, compose, rotation_matrix, rotation_vector
from td3robot.robots.guard import Guard
from td3robot.robots.kinematics import Kinematics
from td3robot.simulators.camera import Look, SimulatedCamera
from td3robot.state import ObjectModel, Pose
from td3robot.vision.camera import looking_at, pinhole
from td3robot.vision.recording import solve_recording
from td3robot.vision.tags import TableTag, TaggedObject, Tags
from td3robot.vision.target import target_of

CAMERA = pinhole(800, 600, np.radians(35.0))
PLACE = looking_at(np.array([0.4, 1.1, 0.7]), np.array([-0.1, 0.5, 0.3]))
SIZE = (0.06, 0.06, 0.06)
CARRIED = Pose(np.array([0.0, 0.0, 0.05]), np.diag([1.0, -1.0, -1.0]))  # hangs below the fingers
WRIST = Pose(np.array([0.0, -0.08, 0.02]), rotation_matrix([-0.1, 0.05, 0.1]))
TAGS = Tags(
    objects={"object": TaggedObject(size_m=SIZE)},
    table=tuple(
        TableTag(id=300 + number, position_m=(x - 0.13, y + 0.49, 0.0), yaw_rad=0.4 * number)
        for number, (x, y) in enumerate([(-0.1, -0.1), (0.1, -0.1), (0.1, 0.1), (-0.1, 0.1)])
    ),
)


class Eye:
    """A simulated camera that looks at the simulated controller's arm, from its place or from its flange."""

    def __init__(self, standin, mode):
        self.spec, self.mode, self._standin = robot_spec(RobotConfig()), mode, standin
        self._kinematics, self._rng = Kinematics(self.spec), np.random.default_rng(0)
        self._camera = SimulatedCamera(self.spec, (ObjectModel("object", "box", SIZE, 0.1, 0.7),), TAGS, CAMERA, 2)

    def __call__(self):
        q = np.array(self._standin.state()["q"])
        tool = self._kinematics.tcp(q)
        flange = compose(tool, Pose(np.array([0.0, 0.0, -self.spec.tcp_offset_m]), np.eye(3)))
        carried = compose(tool, CARRIED) if self.mode == "carry" else Pose(np.array([0.5, -0.5, 0.03]), np.eye(3))
        place = compose(flange, WRIST) if self.mode == "wrist" else PLACE
        sharp = self._camera.draw(q, self.spec.gripper.drivers_at(0.6), {"object": carried}, place)
        return Look().apply(sharp, self._rng)

    def close(self):
        self._camera.close()


@pytest.fixture
def eye(standin):
    made = []

    def make(mode):
        try:
            made.append(Eye(standin, mode))
        except ConfigError as error:
            pytest.skip(str(error))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "target", "place", "poses"), [("carry", "object", PLACE, 12), ("wrist", "table", WRIST, 7)]
)
def test_a_camera_is_found_by_driving_the_arm(standin, cell, person, eye, tmp_path, mode, target, place, poses):
    looked_at = target_of(target, TAGS, 1.0)
    request = HandEyeRequest(cell, mode, tmp_path / "pairs", tmp_path, speed=1.0, poses=poses)
    look = eye(mode)
    look()  # the first picture takes long, and so does the first motion
    with suppress(CommandRefusedError):
        grip(cell, 0.5, tmp_path, person)
    person.agreed.clear()
    recording = record(request, look, looked_at, person)
    assert len(recording.poses) == len(list((tmp_path / "pairs").glob("*.png"))) >= poses - 1
    assert len(person.agreed) == 1 + poses + 1 and f"{poses} poses around this one" in person.agreed[0]
    solved = solve_recording(tmp_path / "pairs", CAMERA, looked_at, TAGS)
    found = solved.found.pose
    assert np.linalg.norm(found.position - place.position) < 0.003
    assert angle_of(found.rotation @ place.rotation.T) < np.radians(0.3)
    assert solved.check_m < 0.002
    assert Ledger(tmp_path).waiting() == []


@pytest.mark.parametrize("mode", ["carry", "wrist"])
def test_proposed_poses_tilt_the_tool_to_every_side_where_the_guard_admits_them(mode):
    spec = robot_spec(RobotConfig())
    guard = Guard(spec, GuardConfig(), Kinematics(spec))
    postures = proposed(guard, spec.arm.home, mode, 12)
    assert len(postures) == 12 and all(guard.admits(q) is None for q in postures)
    first = guard.kinematics.tcp(postures[0]).rotation
    turns = [rotation_vector(first.T @ guard.kinematics.tcp(q).rotation) for q in postures[1:]]
    assert 0.3 < max(np.linalg.norm(turn) for turn in turns) < 0.6
    assert np.linalg.svd(np.array(turns), compute_uv=False)[1] / np.sqrt(len(turns)) > 0.1


def test_nothing_moves_without_a_person(tmp_path):
    request = HandEyeRequest(None, "carry", tmp_path)
    with pytest.raises(ConfigError, match="asks before every motion, and standard input is no terminal"):
        record(request, None, None, Signals())


def test_a_recording_is_not_overwritten(tmp_path, person):
    (tmp_path / "poses.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds a recording already"):
        record(HandEyeRequest(None, "carry", tmp_path), None, None, person)
