"""Every fault that can be asked for, seen from the other side of the wire."""

import json
import socket
import struct
import time

import numpy as np
import pytest
from rtde_client import RtdeClient

from td3robot.errors import RobotError
from td3robot.simulators.process import start_ur_simulator
from td3robot.state import Pose


@pytest.fixture
def stream(standin):
    """A client that is sent the controller's time and joint angles at 500 Hz."""
    with RtdeClient(standin.host) as client:
        client.request("V", struct.pack(">H", 2))
        client.outputs(["timestamp", "actual_q"], 500.0)
        client.inputs(["input_int_register_40"])
        client.request("S")

        def take(seconds):
            """Give arrival time and stamp of every package in the next while."""
            found, end = [], time.monotonic() + seconds
            client.socket.settimeout(0.05)
            while time.monotonic() < end:
                try:
                    found.append((time.monotonic(), struct.unpack(">Bd6d", client.data())[1]))
                except TimeoutError:
                    continue
            return np.array(found)

        take.client = client
        yield take


def test_latency_and_jitter(standin, stream):
    stream(0.1)
    standin.fault("latency", delay_s=0.1, jitter_s=0.05, for_s=1.0)
    time.sleep(0.3)
    stream(0.2)
    before = standin.state()["time_s"]
    late = before - stream(0.1)[0, 1]
    assert 0.08 < late < 0.25
    stream.client.send("U", struct.pack(">Bi", 1, 5))
    time.sleep(0.9)
    stream(0.3)
    stamps = stream(0.2)[:, 1]
    assert standin.state()["time_s"] - stamps[-1] < 0.05, "it is over"
    assert (np.diff(stamps) > 0).all(), "packages keep their order, as on TCP"


def test_dropped_and_delayed_packages(standin, stream):
    standin.fault("dropped_packets", probability=0.5, for_s=0.5)
    time.sleep(0.1)
    stamps = stream(0.3)[:, 1]
    assert 0.3 < len(stamps) / (np.ptp(stamps) / 0.002) < 0.7
    stream(0.3)
    standin.fault("delayed_packets", probability=0.02, delay_s=0.05, for_s=0.8)
    time.sleep(0.05)
    found = stream(0.6)
    assert np.diff(found[:, 1]).max() == pytest.approx(0.002, abs=1e-6), "none is lost"
    assert np.diff(found[:, 0]).max() > 0.04, "some come late, and others with them"


@pytest.mark.parametrize("repeat", [False, True])
def test_frozen_stream(standin, stream, repeat):
    stream(0.1)
    standin.fault("frozen_stream", repeat=repeat, for_s=0.6)
    time.sleep(0.05)
    stream(0.1)
    found = stream(0.3)
    if repeat:
        assert len(found) > 50 and np.ptp(found[:, 1]) == 0.0, "the same package again and again"
    else:
        assert len(found) == 0
    time.sleep(0.4)
    assert np.ptp(stream(0.2)[:, 1]) > 0.1


def test_closed_sockets_open_again(standin, stream, eventually):
    standin.fault("closed_sockets", service="rtde", for_s=0.5)
    with pytest.raises(ConnectionError):
        while True:
            stream.client.data()
    with RtdeClient(standin.host) as other, pytest.raises(ConnectionError):
        other.request("v")
    with socket.create_connection((standin.host, 29999), 3.0) as dashboard:
        assert dashboard.recv(100).startswith(b"Connected")

    def is_open():
        with RtdeClient(standin.host) as other:
            try:
                return len(other.request("v")) == 16
            except ConnectionError:
                return False

    eventually(is_open)


@pytest.mark.parametrize(
    ("how", "least_s", "most_s"), [("stop", 0.0, 1.5), pytest.param("busy", 3.0, 6.0, marks=pytest.mark.slow)]
)
def test_refused_servoj(standin, ur_rtde, how, least_s, most_s):
    standin.fault("refused_servoj", how=how, at_s=0.6, for_s=15.0)
    said = ur_rtde("""
control = rtde_control.RTDEControlInterface(host)
start = time.perf_counter()
ok = stream(control, 2.0, lambda t: q0)
say(ok=ok, took=time.perf_counter() - start, running=control.isProgramRunning())
""")
    assert not said["ok"]
    assert said["running"] is (how == "busy")
    assert said["took"] < most_s
    assert how == "stop" or said["took"] > least_s, "ur_rtde waits three seconds for the script to be ready"


def test_protective_stop_and_speed_slider_on_request(standin):
    standin.fault("speed_slider", fraction=0.3)
    standin.fault("protective_stop", at_s=0.1)
    time.sleep(0.3)
    state = standin.state()
    assert state["safety_mode"] == "PROTECTIVE_STOP" and state["speed_slider"] == 0.3


@pytest.mark.slow
def test_an_object_is_lifted_over_the_wire_and_lost(standin, ur_rtde):
    pyrobotiqur = pytest.importorskip("pyrobotiqur")
    home = standin.state()["q"]
    standin.reset([home[0], home[1] + 0.5911, *home[2:]])
    x, y, _ = standin.state()["tcp_position_m"]
    standin.place({"object": Pose(np.array([x, y, 0.02]), np.eye(3))})
    with pyrobotiqur.RobotiqGripper(standin.host, timeout=3.0) as gripper:
        gripper.activate()
        assert gripper.close(speed=255)[1] == 2, "it stopped at the object, while closing"
    said = ur_rtde("""
control = rtde_control.RTDEControlInterface(host)
say(moved=control.moveJ([q0[0], q0[1] - 0.2, *q0[2:]], 0.3, 1.0))
""")
    assert said["moved"]
    assert standin.state()["objects"]["object"]["position_m"][2] > 0.08
    standin.fault("object_lost", for_s=0.8)
    time.sleep(1.2)
    assert standin.state()["objects"]["object"]["position_m"][2] < 0.05
    assert standin.state()["gripper"]["POS"] > 200, "nothing is between the fingers any more"


@pytest.mark.slow
def test_the_tracker_sends_falls_silent_and_jumps():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.02)

        def take(seconds):
            found, end = [], time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    found.append(json.loads(receiver.recv(2048)))
                except TimeoutError:
                    continue
            return found

        port = receiver.getsockname()[1]
        faults = [
            {"kind": "tracker_silent", "episode": 2, "at_s": 0.1, "for_s": 0.6},
            {"kind": "tracker_jump", "episode": 3, "offset_m": [0.0, 0.1, 0.0], "for_s": 0.5},
        ]
        with start_ur_simulator(objects={"cup": {}}, tracker=f"127.0.0.1:{port}", faults=faults) as standin:
            take(0.1)
            found = take(0.5)
            assert 24 < len(found) < 36, "60 Hz"
            assert found[0]["name"] == "cup" and abs(found[-1]["stamp"] - time.time()) < 1.0
            assert np.allclose(found[-1]["position_m"], [0.0, 0.5, 0.02], atol=1e-3)
            assert np.linalg.norm(found[-1]["quaternion_wxyz"]) == pytest.approx(1.0)
            standin.begin_episode(1)
            assert len(take(0.3)) > 12, "the first episode has no fault"
            standin.begin_episode(2)
            time.sleep(0.2)
            take(0.02)
            assert len(take(0.3)) <= 2
            time.sleep(0.4)
            standin.begin_episode(3)
            time.sleep(0.1)
            assert take(0.3)[-1]["position_m"][1] == pytest.approx(0.6, abs=0.01)


def test_a_killed_process_is_gone_without_a_word():
    with start_ur_simulator(faults=[{"kind": "killed_process", "at_s": 0.3}]) as standin:
        with RtdeClient(standin.host) as client:
            client.outputs(["timestamp"])
            client.request("S")
            with pytest.raises(ConnectionError):
                while True:
                    client.data()
        assert standin.child.process.wait(3.0) == -9
        with pytest.raises(RobotError, match="does not answer in its lab"):
            standin.state()
