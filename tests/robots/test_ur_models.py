"""Which arm and which controller it is: what is known of others is said, and they are not driven."""

import socket
import struct
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from td3robot.config import RobotConfig
from td3robot.errors import ConfigError
from td3robot.registry import ARMS
from td3robot.robots.cells.ur import UrCell
from td3robot.robots.driver.link import StoppedError, StreamSettings
from td3robot.robots.interface import robot_spec
from td3robot.robots.ur import link as module
from td3robot.robots.ur.generations import is_ur, model_names
from td3robot.robots.ur.link import UrLink

SETTINGS = {
    "host": "127.0.0.1",
    "models": ["UR5", "UR5e"],
    "connect_timeout_s": 1.0,
    "servo_stop_deceleration_m_s2": 10.0,
    "watchdog_hz": 10.0,
}
STREAM = StreamSettings(125, 0.05, True, None, 2.5, 10.0, 0, (), (), (), ())


class Dashboard:
    def __init__(self, model="UR5", polyscope="URSoftware 5.11.6.1092 (Jan 01 2024)", serial="20195500001"):
        self.getRobotModel = lambda: model
        self.polyscopeVersion = lambda: polyscope
        self.getSerialNumber = lambda: serial


@pytest.mark.parametrize(
    ("name", "names"),
    [("ur5e", ("UR5", "UR5e")), ("ur16e", ("UR16", "UR16e")), ("ur20", ("UR20",)), ("ur3e", ("UR3", "UR3e"))],
)
def test_what_a_controller_calls_its_arm(name, names):
    assert model_names(replace(ARMS["ur5e"], name=name)) == names


@pytest.mark.parametrize("name", ["ur3", "ur5", "ur10"])
@pytest.mark.parametrize("models", [None, ("UR5",)])
def test_an_arm_of_a_cb3_is_not_taken_for_the_e_series_arm_whose_controller_answers_alike(name, models):
    spec = robot_spec(RobotConfig())
    cell = UrCell.model_validate({"ur": {"host": "127.0.0.1", "models": models}})
    with pytest.raises(ConfigError, match=f"robot.arm is '{name}'.*PolyScope 3.*not driven.*has a {name}e"):
        cell.driver(replace(spec, arm=replace(spec.arm, name=name)))
    assert not is_ur(name)
    assert is_ur(f"{name}e")


def test_an_arm_of_another_maker_is_refused():
    with pytest.raises(ConfigError, match="fr3 is not an arm of Universal Robots"):
        model_names(replace(ARMS["ur5e"], name="fr3"))


def test_the_right_arm_is_taken():
    assert UrLink(SETTINGS, STREAM)._identify(Dashboard()) == {
        "model": "UR5", "serial_number": "20195500001", "polyscope": "URSoftware 5.11.6.1092 (Jan 01 2024)",
    }  # fmt: skip


def test_another_arm_is_refused_and_why():
    with pytest.raises(StoppedError, match=r"says it is a 'UR10', not one of UR5, UR5e, and what was trained for one"):
        UrLink(SETTINGS, STREAM)._identify(Dashboard(model="UR10"))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("URSoftware 3.15.8.106339 (Dec 01 2021)", r"PolyScope 3\.15, which is a CB3: its arms have other kinematics"),
        ("PolyScope 10.8.0", r"PolyScope X 10\.8: ur_rtde starts no program on it before 10\.10"),
    ],
)
def test_another_generation_is_refused_though_its_arm_has_the_same_name(version, said):
    with pytest.raises(StoppedError, match=said):
        UrLink(SETTINGS, STREAM)._identify(Dashboard(polyscope=version))


def serve_rtde(host, answer):
    listener = socket.create_server((host, 0))

    def run():
        for _ in range(2):  # one looks whether somebody listens, one asks
            link, _ = listener.accept()
            if link.recv(3) == b"\x00\x03v":
                link.sendall(answer)
            link.close()

    threading.Thread(target=run, daemon=True).start()
    return listener


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (struct.pack(">HB4I", 19, ord("v"), 10, 8, 0, 0), r"PolyScope X 10\.8.*use PolyScope 5"),
        (struct.pack(">HB4I", 19, ord("v"), 5, 11, 0, 0), "no UR controller at .* port 1 "),
        (struct.pack(">HB4I", 19, ord("V"), 10, 8, 0, 0), "no UR controller at .* port 1 "),
        (b"", "no UR controller at .* port 1 "),
    ],
)
def test_a_controller_without_a_dashboard_is_asked_what_it_is(another_host, monkeypatch, answer, said):
    with serve_rtde(another_host, answer) as listener:
        monkeypatch.setattr(module, "RTDE_PORT", listener.getsockname()[1])
        monkeypatch.setattr(module, "DASHBOARD_PORT", 1)
        with pytest.raises(StoppedError, match=said) as stop:
            UrLink(SETTINGS | {"host": another_host}, STREAM)._require_controller()
    assert not stop.value.connected


def test_an_arm_of_one_generation_does_not_run_on_a_controller_of_another():
    link = UrLink(SETTINGS | {"generation": "3"}, STREAM)
    with pytest.raises(
        StoppedError, match=r"runs PolyScope 5\.11, and the cell's arm has controllers with PolyScope 3"
    ):
        link._identify(Dashboard())


def test_targets_are_sent_at_once_and_wait_for_no_acknowledgement(another_host, monkeypatch):
    class Control:
        """Holds its connection as ur_rtde does, with Nagle's algorithm on."""

        def __init__(self, host, rate):
            self.link = socket.create_connection(listener.getsockname())
            self.isProgramRunning = lambda: True
            self.setWatchdog = lambda rate: True

    with (
        socket.create_server((another_host, 0)) as listener,
        socket.create_server((another_host, 0)) as other,
        socket.create_connection(other.getsockname()) as stranger,
    ):
        monkeypatch.setattr(module, "RTDE_PORT", listener.getsockname()[1])
        monkeypatch.setitem(sys.modules, "rtde_control", SimpleNamespace(RTDEControlInterface=Control))
        link = UrLink(SETTINGS | {"host": another_host}, STREAM)
        link._take_control(125.0)
        with link._control.link as used:
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not stranger.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            used.send(b"still open")
