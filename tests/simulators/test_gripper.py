"""The gripper's socket: pyrobotiqur as the client, and the words themselves."""

import socket
import time

import pytest

pyrobotiqur = pytest.importorskip("pyrobotiqur")


@pytest.fixture
def gripper(standin):
    gripper = pyrobotiqur.RobotiqGripper(standin.host, timeout=3.0)
    gripper.connect()
    if standin.state()["gripper"]["STA"] != 3:
        gripper.activate()
    yield gripper
    gripper.disconnect()


def test_activation_takes_a_while(standin):
    with pyrobotiqur.RobotiqGripper(standin.host, timeout=3.0) as gripper:
        gripper.reset()
        assert gripper.get_status() == 0
        gripper.move(200, wait=False)
        assert gripper.get_fault() == 5, "not without activation"
        start = time.monotonic()
        gripper.activate()
        assert 0.8 < time.monotonic() - start < 2.5
        assert standin.state()["gripper"]["driver_q"] < 0.02


def test_closing_and_opening(standin, gripper):
    position, found = gripper.close(speed=255)
    assert position > 220 and found == 3, "nothing was in between"
    assert standin.state()["gripper"]["driver_q"] > 0.75
    position, found = gripper.open(speed=255)
    assert position < 6 and found == 3


def test_counts_are_those_of_a_real_gripper(standin, gripper):
    position, _ = gripper.move(116, speed=255)
    # 3 is open and 230 closed, at 0.8 rad.
    assert position == pytest.approx(116, abs=2)
    assert standin.state()["gripper"]["driver_q"] == pytest.approx((116 - 3) / 227 * 0.8, abs=0.01)


def talk(host, *lines):
    with socket.create_connection((host, 63352), 3.0) as connection:
        found = []
        for line in lines:
            connection.sendall(line)
            connection.settimeout(0.3)
            try:
                found.append(connection.recv(1024))
            except TimeoutError:
                found.append(None)
        return found


def test_the_words(standin, gripper):
    found = talk(
        standin.host, b"SET POS 50 SPE 255 FOR 10 GTO 1\n", b"GET PRE\nGET FOR\n", b"GET NOT\n", b"SET POS 999\n"
    )
    assert found == [b"ack", b"PRE 50\nFOR 10\n", b"NOT ?\n", b"?\n"]
    assert talk(standin.host, b"GET", b" ACT\n")[1] == b"ACT 1\n", "a line may come in pieces"


def test_silent_and_not_activated_as_faults(standin, gripper):
    standin.fault("gripper_silent", for_s=0.5)
    time.sleep(0.05)
    assert talk(standin.host, b"GET POS\n") == [None]
    time.sleep(0.5)
    assert talk(standin.host, b"GET ACT\n") == [b"ACT 1\n"]
    standin.fault("gripper_not_activated", for_s=60.0)
    time.sleep(0.05)
    assert gripper.get_status() == 0
    gripper.set_var("ACT", 1)
    time.sleep(1.2)
    assert gripper.get_status() == 0, "it cannot be activated while the fault lasts"


def test_without_power_every_register_is_a_question_mark(standin, gripper):
    standin.emergency_stop()
    assert talk(standin.host, b"GET STA\n", b"SET GTO 1\n") == [b"STA ?\n", b"?\n"]
