"""A camera's figures from datagrams that a camera of known figures would send."""

import json
import socket
import time

import numpy as np
import pytest
from camera_datagrams import camera

from td3robot.robots.camera_figures import FRAMES, Arrival, camera_figures
from td3robot.robots.trackers.udp import UdpTracker, UdpTrackerConfig

HOST = "127.0.0.32"


@pytest.mark.parametrize("stamped", ["exposed", "sent"])
@pytest.mark.parametrize(("rate_hz", "jitter_s"), [(8.0, 0.03), (15.0, 0.03), (30.0, 0.01), (60.0, 0.005)])
def test_rate_lost_frames_jitter_and_noise_are_those_of_the_camera(rate_hz, jitter_s, stamped):
    for seed in range(5):
        arrivals = camera(rate_hz, 0.1, jitter_s, 0.1, 0.001, stamped, seed=seed)
        found = camera_figures(arrivals)
        assert found.rate_hz == pytest.approx(rate_hz, rel=0.02)
        first, last = (round((arrivals[n].stamp - 1e9 - 0.1 * (stamped == "sent")) * rate_hz - 0.3) for n in (0, -1))
        assert found.lost == pytest.approx(last - first + 1 - len(arrivals), abs=1)
        assert 0.5 * jitter_s < found.jitter_s < 1.2 * jitter_s
        assert 0.0006 < found.noise_m < 0.0014


def test_stamps_of_exposure_tell_the_latency_and_stamps_of_sending_do_not():
    assert camera_figures(camera(30.0, 0.12, 0.02)).latency_s == pytest.approx(0.121, abs=0.002)
    sent = camera_figures(camera(30.0, 0.12, 0.02, stamped="sent"))
    assert sent.latency_s is None
    assert sent.age_s == pytest.approx(2e-4, abs=1e-4)


def test_frames_later_than_their_period_are_told_by_their_stamps_alone():
    exposed = camera_figures(camera(60.0, 0.1, 0.033, 0.05))
    assert exposed.lost > 0
    assert exposed.rate_hz == pytest.approx(60.0, rel=0.01)
    assert exposed.jitter_s == pytest.approx(0.029, abs=0.004)
    sent = camera_figures(camera(60.0, 0.1, 0.033, 0.05, stamped="sent"))
    assert (sent.lost, sent.jitter_s, sent.latency_s) == (None, None, None)
    assert 50.0 < sent.rate_hz < 60.0


def test_one_late_moment_of_the_computer_is_no_jitter():
    arrivals = camera(60.0, stamped="sent")
    shifted = [Arrival(a.name, a.stamp + 0.03, a.clock + 0.03, a.received + 0.03, a.position) for a in arrivals[60:]]
    found = camera_figures(arrivals[:60] + shifted)
    assert found.rate_hz == pytest.approx(60.0, rel=0.03)
    assert found.jitter_s < 0.002


def test_repeated_and_impossible_stamps_are_no_frames():
    arrivals = camera(30.0)
    nan = Arrival("object", float("nan"), 1e9, 1.0, arrivals[0].position)
    repeated = [one for arrival in arrivals for one in (arrival, arrival, nan)]
    assert camera_figures(repeated) == camera_figures(arrivals)


def test_too_few_frames_say_nothing():
    arrivals = camera(30.0)
    assert camera_figures(arrivals[: FRAMES - 1]) is None
    assert camera_figures(arrivals[:FRAMES]) is not None


def test_a_tracker_keeps_what_told_a_pose_believed_or_not():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind((HOST, 0))
        port = link.getsockname()[1]
    tracker = UdpTracker(("object",), UdpTrackerConfig(host=HOST, port=port))
    message = {"name": "object", "position_m": [0.1, 0.5, 0.02], "quaternion_wxyz": [1, 0, 0, 0]}
    now = time.time()
    sent = [
        message | {"stamp": now},
        message | {"stamp": now - 100.0},  # refused as too old
        message | {"stamp": now, "name": "other"},
        {"no": "pose"},
    ]
    try:
        assert tracker.arrivals() == ()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            for one in sent:
                link.sendto(json.dumps(one).encode(), (HOST, port))
        end = time.monotonic() + 5.0
        while time.monotonic() < end and tracker.refused < 3:
            time.sleep(0.002)
        first, second = tracker.arrivals()
    finally:
        tracker.close()
    assert (first.name, first.stamp, second.stamp) == ("object", now, now - 100.0)
    np.testing.assert_array_equal(first.position, [0.1, 0.5, 0.02])
    assert second.clock - second.stamp > 99.0
