"""A stand-in as a child: its proof, its lab, its end; and what it refuses."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner
from ur_rtde_client import run_client

from td3robot.cli import app
from td3robot.cli.rehearsal import robot_and_objects
from td3robot.errors import ConfigError, RobotError
from td3robot.simulators import motion, process
from td3robot.simulators.faults import AnyFault, load_faults
from td3robot.simulators.process import free_host, start_ur_simulator
from td3robot.simulators.server import Server
from td3robot.simulators.settings import PORTS, ControllerConfig, check_controller_config, make_controller_config

CHILD = """
import sys, time
from td3robot.simulators.process import start_ur_simulator
standin = start_ur_simulator()
print(standin.child.pid, standin.host, flush=True)
time.sleep(60)
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_dies_with_its_parent(eventually):
    parent = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        pid = int(parent.stdout.readline().split()[0])
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait(10.0)
        eventually(lambda: not is_alive(pid), 3.0)
    finally:
        parent.kill()
        parent.stdout.close()


def test_an_address_serves_one_only(standin):
    with pytest.raises(RobotError, match=f"cannot listen on {standin.host}:30004: Address already in use"):
        start_ur_simulator(standin.host)


def test_another_ones_controller_is_not_taken_for_ours(standin, monkeypatch):
    monkeypatch.setattr(ControllerConfig, "serial_number", property(lambda self: "12345"))
    with pytest.raises(RobotError, match=r"something else listens there, and nothing was moved"):
        process._prove(standin)


def test_the_lab_shows_places_and_explains(standin):
    standin.ask(place={"object": {"position_m": [0.1, 0.4, 0.02], "quaternion_wxyz": [0.0, 0.0, 0.0, 2.0]}})
    state = standin.state()
    assert state["objects"]["object"]["position_m"] == pytest.approx([0.1, 0.4, 0.02], abs=1e-3)
    assert abs(state["objects"]["object"]["quaternion_wxyz"][3]) == pytest.approx(1.0)
    home = state["q"]
    standin.reset([home[0] + 0.3, *home[1:]])
    assert standin.state()["q"][0] == pytest.approx(home[0] + 0.3, abs=1e-4)
    assert standin.state()["clock"]["ticks"] > 100
    for request, said in [
        ({"place": {"cup": {}}}, "unknown object 'cup'"),
        ({"place": {"object": {"position_m": [0, 0]}}}, "is no pose"),
        ({"fault": {"kind": "latancy"}}, "did you mean 'latency'"),
        ({"fault": {"kind": "latency"}}, "delay_s"),
        ({"stat": True}, "did you mean 'state'"),
        ({"reset": {"q": [0.0]}}, "6 finite joint angles"),
        ({}, "some of"),
    ]:
        with pytest.raises(RobotError, match="refused") as refusal:
            standin.ask(**request)
        assert said in str(refusal.value)


def test_the_clock_keeps_its_rate(standin):
    ticks, start = standin.state()["clock"]["ticks"], time.monotonic()
    time.sleep(1.0)
    clock = standin.state()["clock"]
    made = (clock["ticks"] - ticks) / (time.monotonic() - start)
    assert made == pytest.approx(500.0, rel=0.05)
    assert clock["late_p50_s"] < 1e-3


@contextmanager
def ended(process):
    """End a process where a test fails, which would wait for it otherwise."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.thorough
def test_the_command_serves_another_version_until_it_is_interrupted(spec):
    pytest.importorskip("rtde_control", reason="ur_rtde is not installed; pip install 'td3robot[ur]'")
    host = free_host(PORTS)
    command = [sys.executable, "-m", "td3robot", "standin", "ur5e", "--host", host, "--polyscope", "5.23"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served, ended(served):
        assert f"serves on {host}" in served.stderr.readline()
        for _ in range(100):
            try:
                with socket.create_connection((host, 29999), 30.0) as dashboard:
                    assert dashboard.recv(100).startswith(b"Connected")
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        program = """
receive = rtde_receive.RTDEReceiveInterface(host)
control = rtde_control.RTDEControlInterface(host)
say(ok=stream(control, 0.2, lambda t: q0), fk=control.getForwardKinematics(), tcp=receive.getActualTCPPose())
"""
        said = run_client(program, host, spec.arm.home)
        assert said["ok"] and said["fk"][:3] == pytest.approx(said["tcp"][:3], abs=1e-4)
        served.send_signal(signal.SIGINT)
        assert served.wait(5.0) == 0


def test_the_command_says_that_it_serves_once_it_does():
    host = free_host(PORTS)
    with socket.create_server((host, 29999)):
        command = [sys.executable, "-m", "td3robot", "standin", "ur5e", "--host", host]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "cannot listen" in done.stderr
    assert "serves on" not in done.stderr


def test_the_command_refuses_the_network():
    refused = CliRunner().invoke(app, ["standin", "ur5e", "--host", "10.1.1.1"])
    assert isinstance(refused.exception, ConfigError) and "--allow-network" in str(refused.exception)


def test_only_loopback_unless_told():
    with pytest.raises(ConfigError, match="can be reached by other computers"):
        check_controller_config({"host": "192.168.0.10"})
    with pytest.raises(ConfigError, match="is no IP address"):
        check_controller_config({"host": "localhost"})
    assert check_controller_config({"host": "192.168.0.10", "allow_network": True}).host == "192.168.0.10"


def test_settings_explain_themselves(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'host'"):
        check_controller_config({"hosst": "127.0.0.2"})
    with pytest.raises(ConfigError, match="polyscope"):
        check_controller_config({"polyscope": "4.2"})
    with pytest.raises(ConfigError, match="unknown stand-in 'ur5'; did you mean 'ur5e'"):
        make_controller_config("ur5")
    file = tmp_path / "faults.yaml"
    for text, said in [
        ("[1, 2]", "one key, faults"),
        ("faults: [{kind: latency, delay: 1}]", "did you mean 'delay_s'"),
        ("faults: [{kind: latency}]", "delay_s"),
        ("faults: [{kind: latency, delay_s: -1}]", "greater than or equal to 0"),
        ("faults: [3]", "a mapping with a kind"),
        ("faults: [", "not valid YAML"),
    ]:
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"faults\.yaml") as error:
            load_faults(file)
        assert said in str(error.value)


def test_a_run_puts_up_its_table_and_objects(tmp_path):
    configs = Path(__file__).resolve().parents[2] / "configs"
    file = tmp_path / "faults.yaml"
    file.write_text("faults:\n  - {kind: frozen_stream, episode: 3, at_s: 1.5, for_s: 0.5}\n")
    config = make_controller_config(
        "ur5e", *robot_and_objects(configs / "ur5e_grasp_quick.yaml"), faults=file, host="127.0.0.5"
    )
    assert config.objects["object"].size_m == (0.04, 0.04, 0.04)
    fault: AnyFault = config.faults[0]
    assert (fault.kind, fault.episode, fault.at_s) == ("frozen_stream", 3, 1.5)
    assert ControllerConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ConfigError, match="has no robot to stand in for"):
        robot_and_objects(configs / "gym_pendulum.yaml")


def test_the_servo_makes_its_first_step_before_time_counts(monkeypatch):
    """Its first step loads compiled code, which takes longer than a driver waits for the controller's clock."""
    steps = []
    monkeypatch.setattr(motion, "follow_line", lambda *values: steps.append(values))
    server = Server(check_controller_config({"host": free_host(PORTS)}))
    try:
        server._warm_up()
        assert steps
    finally:
        server.loop.close()
