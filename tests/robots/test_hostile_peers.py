"""Whatever a gripper, a dashboard or a tracker sends: one sentence in time, and one bad datagram costs one datagram."""

import json
import socket
import threading
from contextlib import contextmanager
from time import monotonic, time

import numpy as np
import pytest

from td3robot.config import RobotConfig
from td3robot.errors import RobotError
from td3robot.registry import GRIPPERS
from td3robot.robots.cells.ur import GripperConfig
from td3robot.robots.trackers.udp import UdpTracker, UdpTrackerConfig
from td3robot.robots.ur import connection as connection_module
from td3robot.robots.ur.connection import DashboardClient
from td3robot.robots.ur.urcap import RobotiqGripper, UrCapSocket

BANNER = b"Connected: Universal Robots Dashboard Server\n"


@contextmanager
def peer(answer):
    """Serve connections on loopback: ``answer(link, request)`` is called with each line that arrives, None first."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                try:
                    answer(link, None)
                    while data := link.recv(1024):
                        answer(link, data)
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def trickle(link):
    """Send a byte every 20 ms for ever, as long as somebody is there."""
    while True:
        link.sendall(b"x")
        threading.Event().wait(0.02)


def flood(link):
    while True:
        link.sendall(b"x" * 4096)


HOSTILE = {
    "trickles": (trickle, "did not answer|within"),
    "floods": (flood, "bytes without the end of a line|keeps sending"),
    "is no text": (lambda link: link.sendall(b"\xff\xfe\n"), "codec can't decode|as a dashboard does"),
    "closes": (lambda link: link.close(), "closed"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_dashboard_that_does_not_answer_as_one_is_one_sentence_in_time(monkeypatch, kind):
    misbehave, said = HOSTILE[kind]
    monkeypatch.setattr(connection_module, "TIMEOUT_S", 0.3)
    with peer(lambda link, request: link.sendall(BANNER) if request is None else misbehave(link)) as port:
        monkeypatch.setattr(connection_module, "PORT", port)
        client, begin = DashboardClient("127.0.0.1"), monotonic()
        with pytest.raises(RobotError, match=said):
            client.ask("robotmode")
        assert monotonic() - begin < 5.0
        client.close()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_dashboard_whose_greeting_is_none_is_one_sentence_in_time(monkeypatch, kind):
    misbehave, _ = HOSTILE[kind]
    monkeypatch.setattr(connection_module, "TIMEOUT_S", 0.3)
    with peer(lambda link, request: misbehave(link)) as port:
        monkeypatch.setattr(connection_module, "PORT", port)
        begin = monotonic()
        with pytest.raises(RobotError, match=r"accepted the connection and .*: the dashboard hangs, or something else"):
            DashboardClient("127.0.0.1")
        assert monotonic() - begin < 5.0


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_gripper_that_does_not_answer_as_one_is_one_sentence_in_time(kind):
    misbehave, _ = HOSTILE[kind]
    with peer(lambda link, request: misbehave(link) if request else None) as port:
        link, begin = UrCapSocket("127.0.0.1", port, 0.3), monotonic()
        with pytest.raises(RobotError, match=r"gripper at 127\.0\.0\.1"):
            link.get("POS")
        assert monotonic() - begin < 5.0
        link.close()


@pytest.mark.parametrize(
    ("answer", "name"),
    [("POS 256", "POS"), ("POS 999", "POS"), ("POS " + "9" * 200, "POS"), ("OBJ 77", "OBJ"), ("STA 4", "STA")],
)
def test_a_register_outside_of_its_range_is_refused(answer, name):
    with peer(lambda link, request: link.sendall(answer.encode() + b"\n") if request else None) as port:
        link = UrCapSocket("127.0.0.1", port, 1.0)
        with pytest.raises(RobotError, match=rf"reports \d+ for {name}, which goes from 0 to \d+: something else"):
            link.get(name)
        link.close()


@pytest.mark.parametrize("answer", ["POS " + "9" * 5000, "POS ²", "POS -1", "POS 1 2", "", "POS"])
def test_an_answer_of_another_form_is_refused(answer):
    with peer(lambda link, request: link.sendall(answer.encode() + b"\n") if request else None) as port:
        link = UrCapSocket("127.0.0.1", port, 0.3)
        with pytest.raises(RobotError, match="gripper at"):
            link.get("POS")
        link.close()


def test_a_gripper_that_turns_hostile_is_a_fault_and_its_thread_ends():
    state = {"POS": "3", "OBJ": "3", "STA": "3", "FLT": "0"}

    def answer(link, request):
        for line in (request or b"").decode().splitlines():
            name = line.split()[1]
            link.sendall(b"ack\n" if line.startswith("SET") else f"{name} {state[name]}\n".encode())

    with peer(answer) as port:
        gripper = RobotiqGripper("127.0.0.1", GripperConfig(port=port), GRIPPERS[RobotConfig().gripper])
        gripper.connect()
        state["POS"] = "9" * 100
        end = monotonic() + 10.0
        while gripper.fault is None and monotonic() < end:
            threading.Event().wait(0.01)
        assert "goes from 0 to 255" in gripper.fault
        gripper.close()


def pose(**changes):
    return json.dumps(
        {"name": "cube", "stamp": time(), "position_m": [0.1, 0.5, 0.02], "quaternion_wxyz": [1, 0, 0, 0]} | changes
    ).encode()


@pytest.mark.parametrize(
    "datagram",
    [
        b"", b"\xff" * 1000, b"[" * 60000, b"{}", b"null", b"[]", b'"cube"', b"1e999", pose(stamp=int("9" * 400)),
        pose(position_m=[int("9" * 400), 0, 0]), pose(quaternion_wxyz=[int("9" * 400), 0, 0, 0]),
        pose(position_m=[[0.1], [0.5, 1], 0.02]), pose(position_m="abc"), pose(name=["cube"]), pose(name={"a": 1}),
        pose(name="x" * 50000), pose(quaternion_wxyz=[0, 0, 0, 0]), pose(stamp=None), pose(stamp=1e308),
    ],
    ids=lambda datagram: "",  # they have the time of their collection
)  # fmt: skip
def test_a_bad_datagram_costs_one_datagram(datagram, free_udp_port):
    tracker = UdpTracker(("cube",), UdpTrackerConfig(host="127.0.0.1", port=free_udp_port, max_age_s=5.0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stop = threading.Event()

    def send():
        while not stop.is_set():
            sender.sendto(datagram, ("127.0.0.1", free_udp_port))
            sender.sendto(pose(), ("127.0.0.1", free_udp_port))
            stop.wait(0.005)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            np.testing.assert_array_equal(tracker.arrange({})["cube"].position, [0.1, 0.5, 0.02])
        assert tracker.refused > 0
        assert len(tracker._last_refusal) <= 200
    finally:
        stop.set()
        thread.join()
        tracker.close()
        sender.close()


@pytest.fixture
def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind(("127.0.0.1", 0))
        return link.getsockname()[1]
