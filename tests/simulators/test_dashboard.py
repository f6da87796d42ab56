"""The dashboard's words."""

import socket
import time

import pytest


@pytest.fixture
def ask(standin):
    with socket.create_connection((standin.host, 29999), 3.0) as connection:
        stream = connection.makefile("rw", encoding="utf-8", newline="\n")
        assert stream.readline() == "Connected: Universal Robots Dashboard Server\n"

        def ask(command):
            stream.write(f"{command}\n")
            stream.flush()
            return stream.readline().rstrip("\n")

        yield ask


def test_who_it_is(standin, ask):
    assert ask("PolyscopeVersion").startswith("URSoftware 5.11.")
    assert ask("get robot model") == "UR5"
    assert ask("get serial number") == standin.config.serial_number
    assert standin.config.serial_number.isdigit()
    assert ask("is in remote control") == "true"
    assert ask("dance") == 'could not understand: "dance"'


def test_wrong_model_as_a_fault(standin, ask):
    standin.fault("wrong_model", model="UR16")
    time.sleep(0.05)
    assert ask("get robot model") == "UR16"
    standin.ask(clear_faults=True)
    assert ask("get robot model") == "UR5"


def test_states_and_commands(standin, ask):
    assert [ask(word) for word in ("robotmode", "safetymode", "safetystatus", "running", "programState")] == [
        "Robotmode: RUNNING", "Safetymode: NORMAL", "Safetystatus: NORMAL", "Program running: false",
        "STOPPED <unnamed>",
    ]  # fmt: skip
    assert ask("power off") == "Powering off" and ask("robotmode") == "Robotmode: POWER_OFF"
    assert ask("brake release") == "Brake releasing" and ask("robotmode") == "Robotmode: BOOTING"
    assert ask("stop") == "Stopped"
    assert ask("load x.urp") == "File not found: x.urp"
    assert ask("popup mind the gap") == "showing popup"
    assert standin.state()["popup"] == "mind the gap"
    time.sleep(1.2)
    assert ask("robotmode") == "Robotmode: RUNNING"


@pytest.mark.parametrize("command", ["power off", "unlock protective stop", "stop", "brake release"])
def test_nothing_moves_in_local_control(standin, ask, command):
    standin.ask(remote=False)
    assert "not in remote control" in ask(command)
    assert ask("robotmode") == "Robotmode: RUNNING"
    assert ask("is in remote control") == "false"
