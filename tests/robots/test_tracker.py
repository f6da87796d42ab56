import json
import socket
import time

import numpy as np
import pytest

from td3robot.errors import ConfigError, RobotError, TrackerError
from td3robot.robots.objects import TaughtObjects, TaughtPose, taught_from_text, taught_from_texts
from td3robot.robots.trackers import Repeats
from td3robot.robots.trackers.udp import UdpTracker, UdpTrackerConfig

HOST = "127.0.0.31"


@pytest.fixture
def port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


@pytest.fixture
def tracker(port):
    tracker = UdpTracker(("object",), UdpTrackerConfig(host=HOST, port=port))
    tracker._start()
    yield tracker
    tracker.close()
    tracker.close()


@pytest.fixture
def send(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:

        def send(raw=None, **changes):
            message = {
                "name": "object",
                "stamp": time.time(),
                "position_m": [0.1, 0.5, 0.02],
                "quaternion_wxyz": [1, 0, 0, 0],
            }
            data = raw if raw is not None else json.dumps(message | changes).encode()
            link.sendto(data, (HOST, port))

        yield send


def settled(tracker, count=1):
    """Wait until so many datagrams were taken or refused."""
    end = time.monotonic() + 2.0
    while time.monotonic() < end and len(tracker._seen) + tracker.refused < count:
        time.sleep(0.002)


def wait_until(fulfilled):
    end = time.monotonic() + 5.0
    while not fulfilled():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_poses_arrive_in_the_base_frame(tracker, send):
    half = np.sqrt(0.5)
    send(position_m=[0.2, 0.6, 0.03], quaternion_wxyz=[half, 0, 0, half])
    settled(tracker)
    pose = tracker.read()["object"].pose
    np.testing.assert_array_equal(pose.position, [0.2, 0.6, 0.03])
    np.testing.assert_allclose(pose.rotation, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)


def test_rotations_are_those_of_mujoco(tracker, send):
    import mujoco

    quaternion = np.random.default_rng(0).normal(size=4)
    quaternion /= np.linalg.norm(quaternion)
    expected = np.zeros(9)
    mujoco.mju_quat2Mat(expected, quaternion)
    send(quaternion_wxyz=quaternion.tolist())
    settled(tracker)
    np.testing.assert_allclose(tracker.read()["object"].pose.rotation, expected.reshape(3, 3), atol=1e-12)


def silent(tracker):
    """Wait until nothing was heard for too long."""
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        time.sleep(0.02)
        tracker.require_recent("object")
    raise AssertionError("nobody minds")


def test_silence_is_a_fault_where_somebody_asks_and_says_for_how_long(tracker, send):
    send()
    settled(tracker)
    tracker.require_recent("object")
    with pytest.raises(TrackerError, match=r"object tracker silent for 0\.\d\d s \(limit 0\.5 s\)"):
        silent(tracker)
    assert tracker.read()["object"].age_s > 0.5  # what was seen last is still known
    before = tracker.read()["object"].number
    send()
    wait_until(lambda: tracker.read()["object"].number > before)
    tracker.require_recent("object")  # heard again


def test_a_sighting_s_age_is_by_its_stamp_and_never_below_zero(tracker, send):
    for ahead in (-0.3, 0.2):
        before = tracker._seen["object"].number if tracker._seen else 0
        send(stamp=time.time() + ahead)
        wait_until(lambda before=before: tracker._seen and tracker._seen["object"].number > before)
        age = tracker.read()["object"].age_s
        assert age >= 0.3 if ahead < 0 else age == pytest.approx(0.0, abs=0.2)


def test_what_was_hidden_may_reappear_elsewhere(tracker, send):
    send()
    settled(tracker)
    with pytest.raises(TrackerError, match="silent"):
        silent(tracker)
    send(position_m=[0.1, 0.5, 0.15])
    wait_until(lambda: tracker.read()["object"].number == 2)
    assert tracker.read()["object"].pose.position[2] == 0.15


class Seer(UdpTracker):
    """Sees the object at one x after the other, 30 times a second, by a clock of its own."""

    def __init__(self, *places):
        super().__init__(("object",), UdpTrackerConfig(host=HOST, port=1))
        self.places, self.at = list(places), 1000.0

    def _start(self):
        """Nothing has to start."""

    def _now(self):
        self.at += 1 / 30
        if self.places:
            stamp, place = self.at, [self.places.pop(0), 0.5, 0.02]
            message = {"name": "object", "stamp": stamp, "position_m": place, "quaternion_wxyz": [1, 0, 0, 0]}
            self._take(json.dumps(message).encode(), stamp, stamp)
        return self.at

    def _clock(self):
        return self.at


@pytest.mark.parametrize(
    "places",
    [
        (0.1, 0.101, 0.102),
        (0.15, 0.101, 0.1, 0.102),  # an odd one first
        (0.1, 0.15, 0.101, 0.1, 0.102),
        (0.3, 0.28, 0.2, 0.15, 0.1, 0.101, 0.102),  # put down meanwhile
    ],
)
def test_an_episode_begins_where_sightings_agree(places):
    assert Seer(*places).arrange({})["object"].position[0] == 0.102


def test_a_carried_object_need_not_agree_any_more():
    seer = Seer(0.1, 0.1, 0.1)
    seer.arrange({})
    for x in (0.2, 0.3, 0.4):
        seer.places = [x]
        seer._now()
        assert seer.read()["object"].pose.position[0] == x


def test_no_episode_begins_where_sightings_do_not_agree():
    with pytest.raises(
        TrackerError, match=r"'object' was seen 56 times in 2 s, the last time 100 mm from .* 20 mm; let"
    ):
        Seer(*[0.1, 0.2] * 28).arrange({})


def test_an_object_never_seen_is_a_fault(tracker):
    with pytest.raises(TrackerError, match=r"no pose of 'object' has arrived at .*; is the object in view"):
        tracker.read()


def test_a_picture_that_stands_still_is_refused_and_is_not_silence(tracker, send):
    def show(x):
        taken = tracker.refused + (tracker._seen["object"].number if tracker._seen else 0)
        send(position_m=[x, 0.5, 0.02])
        wait_until(lambda: tracker.refused + tracker._seen["object"].number > taken if tracker._seen else False)

    for step in range(25):
        show(0.1 + 1e-6 * step)
    assert not tracker.refused and not tracker.read()["object"].refused
    for _ in range(6):
        show(0.2)
    assert tracker.refused == 2 and tracker.read()["object"].refused
    with pytest.raises(TrackerError, match=r"silent for .* its picture is old; check that the camera still sends"):
        wait_until(lambda: tracker.require_recent("object"))
    show(0.21)
    assert not tracker.read()["object"].refused


def test_a_tracker_that_rounds_its_poses_may_repeat_them():
    repeats = Repeats()
    assert not any(repeats.count((0.1, 0.5, 0.02)) for _ in range(100))


def test_small_moves_are_followed(tracker, send):
    for step in range(20):
        send(position_m=[0.1 + 0.004 * step, 0.5, 0.02])
        time.sleep(0.005)
    wait_until(lambda: tracker.read()["object"].number == 20)
    assert tracker.read()["object"].pose.position[0] == pytest.approx(0.176)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"raw": b"\xff\x00 no json"}, "not a pose"),
        ({"raw": b"[1, 2]"}, "not a pose"),
        ({"raw": b'{"name": "object"}'}, "not a pose.*stamp"),
        ({"raw": b"[" * 4000}, "not a pose"),
        ({"name": "objekt"}, "unknown object 'objekt'; did you mean 'object'"),
        ({"name": ["object"]}, "unknown object"),
        ({"position_m": [0.1, 0.2]}, "3 finite numbers"),
        ({"position_m": [0.1, float("nan"), 0.2]}, "3 finite numbers"),
        ({"position_m": "here"}, "not a pose"),
        ({"position_m": [40.0, 0.0, 0.0]}, "further than 3 m"),
        ({"quaternion_wxyz": [0, 0, 0, 0]}, r"length 0\.000, not 1"),
        ({"quaternion_wxyz": [2, 0, 0, 0]}, r"length 2\.000, not 1"),
        ({"quaternion_wxyz": [1e308, 1e308, 0, 0]}, "length inf, not 1"),
        ({"stamp": 5e8}, "far from this computer's clock"),
        ({"stamp": float("nan")}, "is not finite"),
        ({"stamp": float("inf")}, "is not finite"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_datagrams_without_sense_are_refused_and_named_when_nothing_else_comes(tracker, send, changes, reason):
    send(**changes)
    settled(tracker)
    assert tracker.refused == 1
    with pytest.raises(TrackerError, match=f"refused 1 poses, the last because .*{reason}"):
        tracker.read()
    send()
    settled(tracker, 2)
    tracker.read()


CLOCKS = {
    "a minute ago": (lambda: time.time() - 60.0, "behind this computer's clock"),
    "ms": (lambda: 1e3 * time.time(), "is Unix time in milliseconds; send seconds"),
    "us": (lambda: 1e6 * time.time(), "is Unix time in microseconds; send seconds"),
    "ns": (time.time_ns, "is Unix time in nanoseconds; send seconds"),
    "monotonic": (time.monotonic, "is of a monotonic clock"),
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_stamp_of_another_clock_is_named_and_no_latency(tracker, send, clock):
    stamp, named = CLOCKS[clock]
    send(stamp=stamp())
    settled(tracker)
    with pytest.raises(TrackerError, match=named):
        tracker.read()
    assert (tracker.arrivals() == ()) is (clock != "a minute ago")


def test_a_stamp_that_stands_still_is_a_frozen_tracker(tracker, send):
    stamp = time.time()
    for _ in range(3):
        send(stamp=stamp)
    settled(tracker, 3)
    with pytest.raises(TrackerError, match=r"silent for .* did not move on"):
        silent(tracker)


def test_an_address_in_use_is_said(tracker):
    other = UdpTracker(("object",), tracker.config)
    with pytest.raises(TrackerError, match="is another program listening there"):
        other.read()


def test_a_tracker_error_is_a_robot_error():
    assert issubclass(TrackerError, RobotError)


def test_taught_objects_lie_where_they_were_said_to():
    name, pose = taught_from_text("object=0.1,0.5,0.02,1.5707963267948966")
    assert (name, pose.position_m) == ("object", (0.1, 0.5, 0.02))
    objects = TaughtObjects(["object"], {name: pose})
    for found in (objects.arrange({})["object"], objects.read()["object"].pose):
        np.testing.assert_array_equal(found.position, [0.1, 0.5, 0.02])
        np.testing.assert_allclose(found.rotation[:2, 0], [0, 1], atol=1e-12)
    assert objects.read()["object"].number == objects.read()["object"].number  # and are never seen anew
    objects.require_recent("object")
    assert taught_from_text("object=1,2,3")[1].yaw_rad == 0.0


@pytest.mark.parametrize(
    "text", ["object", "object=1,2", "object=1,2,3,4,5", "=1,2,3", "object=a,b,c", "object=1,2,nan"]
)
def test_poses_told_in_another_form_are_refused(text):
    with pytest.raises(ConfigError, match=r"is not of the form name=x,y,z or name=x,y,z,yaw"):
        taught_from_text(text)


def test_objects_must_be_known_and_all_taught():
    pose = TaughtPose(position_m=(0.1, 0.5, 0.02))
    with pytest.raises(ConfigError, match="unknown object 'objet'; did you mean 'object'"):
        TaughtObjects(["object"], {"objet": pose})
    with pytest.raises(ConfigError, match="does not say where 'object' lies"):
        TaughtObjects(["object"], {})


def test_the_pose_of_one_object_given_twice_is_refused():
    texts = ["object=0.1,0.5,0.02", "support=0,0.4,0.02"]
    assert list(taught_from_texts(texts)) == ["object", "support"]
    with pytest.raises(ConfigError, match="--object gives the pose of 'object' twice; give each object one"):
        taught_from_texts([*texts, "object=0.2,0.5,0.02"])


def test_a_tracker_that_sees_one_of_two_objects_names_the_other(port, send):
    tracker = UdpTracker(("object", "support"), UdpTrackerConfig(host=HOST, port=port))
    tracker._start()
    try:
        send()
        settled(tracker)
        with pytest.raises(TrackerError, match=r"^no pose of 'support' has arrived at .*; is the object in view and"):
            tracker.read()
    finally:
        tracker.close()
