"""Camera and gripper of a cell beside what a policy was trained for."""

import pytest
from camera_datagrams import camera

from td3robot.config import DISTURBANCES, DisturbanceConfig
from td3robot.deploy.trained import check_camera, check_gripper_speed, compare_camera
from td3robot.errors import TrackerError
from td3robot.registry import GRIPPERS
from td3robot.robots.cells import CellConfig
from td3robot.robots.physical import ATTENTION, GO, Check

OFF = DISTURBANCES["off"]
REAL = DisturbanceConfig(
    camera_rate_hz=(15.0, 60.0), camera_latency_s=(0.02, 0.15), camera_jitter_s=0.03, camera_drop=0.1,
    object_noise_m=0.001, gripper_speed=(0.13, 1.0),
)  # fmt: skip


def compared(trained, **figures):
    """Compare a camera of known figures at 20 Hz of control; give the findings by name."""
    check = Check()
    compare_camera(check, camera(**figures), trained, 20.0)
    assert check.go  # what is outside of training forbids nothing
    return {finding.name: finding for finding in check.findings}


def test_a_camera_inside_of_training_is_go():
    found = compared(REAL, rate_hz=30.0, latency_s=0.08, jitter_s=0.02, drop=0.05, noise_m=0.0008)
    assert {finding.verdict for finding in found.values()} == {GO}
    assert list(found) == ["camera rate", "camera frames lost", "camera latency", "camera jitter", "camera noise"]
    assert found["camera rate"].expected == "trained with 15 to 60 frames a second"
    assert found["camera rate"].found == "30 frames a second, inside"


@pytest.mark.parametrize(
    ("figures", "name", "advice"),
    [
        (
            {"rate_hz": 8.0, "latency_s": 0.1}, "camera rate",
            "the policy was trained with 15 to 60 frames a second, and this cell has 8 frames a second: raise the "
            "camera's rate, or train with environment.disturbance.camera_rate_hz=[8, 60]",
        ),
        ({"rate_hz": 30.0, "latency_s": 0.3}, "camera latency",
         "trained with 20 to 150 ms, and this cell has 300 ms by its stamps: see to exposure, computing and network, "
         "or train with environment.disturbance.camera_latency_s=[0.02, 0.31]"),
        ({"rate_hz": 10.0, "latency_s": 0.1, "jitter_s": 0.08}, "camera jitter",
         "trained with up to 30 ms, and this cell has"),
        ({"rate_hz": 30.0, "latency_s": 0.1, "drop": 0.4}, "camera frames lost", "trained with up to 10 %"),
        ({"rate_hz": 30.0, "latency_s": 0.1, "noise_m": 0.004}, "camera noise",
         "trained with a standard deviation of 1 mm"),
    ],
)  # fmt: skip
def test_a_camera_outside_of_training_draws_attention(figures, name, advice):
    finding = compared(REAL, **figures)[name]
    assert finding.verdict == ATTENTION
    assert finding.found.endswith("outside")
    assert advice in finding.advice
    assert "train with environment.disturbance." in finding.advice


def test_the_advice_is_a_configuration_that_would_do():
    finding = compared(REAL, rate_hz=8.0, latency_s=0.1)["camera rate"]
    key, _, value = finding.advice.rpartition("environment.disturbance.")[2].partition("=")
    low, high = map(float, value.strip("[]").split(","))
    trained = DisturbanceConfig.model_validate({**REAL.model_dump(), key: (low, high)})
    assert compared(trained, rate_hz=8.0, latency_s=0.1)["camera rate"].verdict == GO


def test_undisturbed_is_a_pose_in_each_control_period_without_delay():
    found = compared(OFF, rate_hz=60.0, latency_s=0.03)
    assert found["camera rate"].verdict == GO
    assert found["camera rate"].expected == "trained with a pose in each control period, 20 a second"
    assert found["camera latency"].verdict == ATTENTION
    slow = compared(OFF, rate_hz=15.0)["camera rate"]
    assert slow.verdict == ATTENTION
    assert slow.advice.endswith("camera_rate_hz=[15, 20]") or slow.advice.endswith("camera_rate_hz=[14, 20]")


def test_a_stamp_made_when_sending_cannot_tell_the_latency():
    finding = compared(REAL, rate_hz=30.0, latency_s=0.1, stamped="sent")["camera latency"]
    assert finding.verdict == ATTENTION
    assert finding.found == "not known: stamps are 0.2 ms old"
    assert finding.advice == (
        "a stamp that is made when sending cannot tell; stamp each pose with the time of its frame's exposure"
    )


def test_stamps_of_the_future_name_the_clocks():
    arrivals = [type(one)(one.name, one.stamp + 0.1, one.clock, one.received, one.position) for one in camera(30.0)]
    check = Check()
    compare_camera(check, arrivals, REAL, 20.0)
    (latency,) = [finding for finding in check.findings if finding.name == "camera latency"]
    assert "set both clocks by the network" in latency.advice


class Replayed:
    """A receiver to which a camera's datagrams come while it is watched."""

    def __init__(self, arrivals):
        self.coming, self.came = arrivals, []

    def arrivals(self):
        before, self.came = self.came, self.coming
        return before


def test_every_object_is_compared_and_what_came_before_is_left_out(monkeypatch):
    monkeypatch.setattr("td3robot.deploy.trained.sleep", lambda seconds: None)
    monkeypatch.setattr("td3robot.deploy.trained.monotonic", lambda: 1.0)
    cube = camera(30.0, 0.08)
    cone = [type(one)("cone", one.stamp, one.clock, one.received, one.position) for one in camera(5.0, 0.08)]
    check = Check()
    check_camera(check, Replayed([*cube, *cone]), REAL, 20.0)
    found = {finding.name: finding for finding in check.findings}
    assert found["camera rate of 'object'"].found == "30 frames a second, inside"
    assert "camera latency of 'object'" in found
    few = found["camera of 'cone'"]
    assert (few.expected, few.found, few.verdict) == ("at least 8 frames in 2 s", "5", ATTENTION)


def test_a_port_that_is_taken_is_a_no_go():
    class CollectedSteps:
        def arrivals(self):
            raise TrackerError("another program")

    check = Check()
    assert not check.answers("camera", lambda: check_camera(check, CollectedSteps(), REAL, 20.0))
    assert not check.go


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({"ur": {"host": "127.0.0.9"}}, 1.0),
        ({"ur": {"host": "127.0.0.9"}, "gripper": {"speed": 0}}, 20.0 / 150.0),
        ({"ur": {"host": "127.0.0.9"}, "gripper": {"speed": 51}}, 46.0 / 150.0),
        ({"franka": {"host": "127.0.0.9", "hand_speed_m_s": 0.04}}, 0.4),
        ({"franka": {"host": "127.0.0.9", "hand": False}}, None),
    ],
)
def test_a_cell_says_how_fast_its_gripper_is_driven(values, share):
    cell = CellConfig.model_validate(values)
    assert cell.gripper_speed(GRIPPERS[cell.robot.gripper]) == pytest.approx(share)


def test_the_gripper_speed_is_compared_with_training():
    for speed, trained, verdict in ((1.0, OFF, GO), (0.3, OFF, ATTENTION), (0.3, REAL, GO), (0.1, REAL, ATTENTION)):
        check = Check()
        check_gripper_speed(check, speed, trained)
        (finding,) = check.findings
        assert (finding.name, finding.verdict) == ("gripper speed", verdict)
        assert check.go
    assert finding.advice == (
        "the policy was trained with 13 to 100 % of its fastest, and this cell has 10 %: change its speed in the "
        "cell's file, or train with environment.disturbance.gripper_speed=[0.1, 1]"
    )
    check = Check()
    check_gripper_speed(check, None, REAL)
    assert check.findings == []
