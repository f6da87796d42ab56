"""One arm's own kinematics: read from its controller or a file, put into the model, and held against each other."""

import socket
import struct
import threading
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import yaml

from td3robot.errors import ConfigError, RobotError
from td3robot.registry import ARMS
from td3robot.robots.cells import CellConfig
from td3robot.robots.interface import robot_spec
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.arm_spec import calibrated_arm
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.robots.ur import calibration as module
from td3robot.robots.ur.calibration import (
    Calibration,
    DhParameters,
    largest_difference,
    load_calibration,
    read_calibration,
    require_same_arm,
)
from td3robot.robots.ur.generations import model_names
from td3robot.robots.ur.robot import UrRobot
from td3robot.simulators.arm import drawn_parameters
from td3robot.simulators.ports.primary import kinematics_info
from td3robot.simulators.presets import CalibrationConfig


def is_ur(name):
    try:
        return bool(model_names(ARMS[name]))
    except ConfigError:
        return False


URS = [name for name in ARMS if is_ur(name)]


def far_along_the_axes(arm, seed=3):
    """Make up a calibration in the style of UR's: nearly parallel axes, whose common normals are metres away."""
    rng, nominal = np.random.default_rng(seed), DhParameters.of(arm.chain)
    near = drawn_parameters(arm, CalibrationConfig(seed=seed, angle_rad=1e-3))
    shifts = [0.0, 4.0, -3.5, -0.5, *rng.normal(0.0, 3e-4, 2)]
    return replace(near, d=tuple(d + shift for d, shift in zip(nominal.d, shifts, strict=True)))


def postures(count=100):
    return np.random.default_rng(1).uniform(-np.pi, np.pi, (count, 6))


@pytest.mark.parametrize("make", [drawn_parameters, lambda arm, _: far_along_the_axes(arm)], ids=["drawn", "metres"])
@pytest.mark.parametrize("name", URS)
def test_the_model_has_exactly_the_forward_kinematics_of_the_chain(name, make):
    chain = make(ARMS[name], CalibrationConfig(seed=5)).chain()
    model = calibrated_arm(ARMS[name], chain).make_spec().compile()
    data = mujoco.MjData(model)
    for q in postures():
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        flange, expected = data.site("attachment_site"), chain.flange(q)
        np.testing.assert_allclose(flange.xpos, expected[:3, 3], rtol=0, atol=1e-9)
        np.testing.assert_allclose(flange.xmat.reshape(3, 3), expected[:3, :3], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", URS)
def test_links_stay_where_they_are_but_for_the_calibration(name):
    arm = ARMS[name]
    chain = far_along_the_axes(arm).chain()
    assert max(abs(transform[2, 3]) for transform in chain.transforms()) > 3.0
    own = calibrated_arm(arm, chain).make_spec().compile()
    nominal = arm.make_spec().compile()
    places = []
    for model in (own, nominal):
        data = mujoco.MjData(model)
        data.qpos[:] = arm.home
        mujoco.mj_kinematics(model, data)
        places.append(data.xpos.copy())
    assert np.abs(places[0] - places[1]).max() < 0.03


@pytest.mark.parametrize("name", URS)
def test_the_nominal_chain_leaves_the_model_as_it_is(name):
    arm = ARMS[name]
    same, nominal = calibrated_arm(arm, arm.chain).make_spec().compile(), arm.make_spec().compile()
    np.testing.assert_allclose(same.body_pos, nominal.body_pos, rtol=0, atol=1e-12)
    np.testing.assert_allclose(same.site_pos, nominal.site_pos, rtol=0, atol=1e-12)
    assert largest_difference(arm, DhParameters.of(arm.chain).chain(), 0.15) < 1e-12


def test_the_default_arm_of_a_stand_in_is_off_by_millimetres():
    arm = ARMS["ur5e"]
    away = [
        1e3 * largest_difference(arm, drawn_parameters(arm, CalibrationConfig(seed=seed)).chain(), 0.1558)
        for seed in range(20)
    ]
    assert min(away) > 0.5 and max(away) < 5.0
    assert drawn_parameters(arm, CalibrationConfig(seed=1)) == drawn_parameters(arm, CalibrationConfig(seed=1))
    assert drawn_parameters(arm, CalibrationConfig(seed=1)) != drawn_parameters(arm, CalibrationConfig(seed=2))


# The messages, written by hand from UR's documents: nothing of the driver or the stand-in is in them.


def part(kind, body):
    return struct.pack(">IB", 5 + len(body), kind) + body


def message(kind, body):
    return struct.pack(">IB", 5 + len(body), kind) + body


def kinematics(theta, a, d, alpha):
    return struct.pack(">6I", 1, 2, 3, 4, 5, 6) + struct.pack(">24d", *theta, *a, *d, *alpha) + struct.pack(">I", 1)


THETA, A, D, ALPHA = [np.arange(6) * scale for scale in (1e-3, 0.01, 0.02, 0.1)]
INFO = part(5, kinematics(THETA, A, D, ALPHA))
HELLO = message(20, bytes(9) + b"\x03\x09URControl" + bytes(20))
STATE = message(16, part(4, bytes(96)) + part(0, bytes(42)))
WHOLE = HELLO + STATE + message(16, part(4, bytes(96)) + INFO + part(9, bytes(3)))


@pytest.fixture
def controller(another_host, monkeypatch):
    """Serve what a test says, in pieces, at the primary interface."""
    listeners = []

    def serve(*pieces, close=True):
        listener = socket.create_server((another_host, 0))
        listeners.append(listener)
        monkeypatch.setattr(module, "PRIMARY_PORT", listener.getsockname()[1])

        def run():
            link, _ = listener.accept()
            for piece in pieces:
                link.sendall(piece)
            if close:
                link.close()
            else:
                listeners.append(link)

        threading.Thread(target=run, daemon=True).start()
        return another_host

    yield serve
    for item in listeners:
        item.close()


@pytest.mark.parametrize("pieces", [[WHOLE], [WHOLE[:3], WHOLE[3:100], WHOLE[100:]], [WHOLE, STATE]])
def test_kinematics_are_found_among_other_messages(controller, pieces):
    calibration = read_calibration(controller(*pieces), 2.0)
    expected = DhParameters(*(tuple(row.tolist()) for row in (THETA, A, D, ALPHA))).chain()
    assert calibration.chain == expected
    q = postures(1)[0]
    pose = np.eye(4)
    for angle, theta, a, d, alpha in zip(q, THETA, A, D, ALPHA, strict=True):
        ct, st, ca, sa = np.cos(angle + theta), np.sin(angle + theta), np.cos(alpha), np.sin(alpha)
        pose = pose @ [[ct, -st * ca, st * sa, a * ct], [st, ct * ca, -ct * sa, a * st], [0, sa, ca, d], [0, 0, 0, 1]]
    np.testing.assert_allclose(calibration.chain.flange(q), pose, rtol=0, atol=1e-12)


def test_the_checksum_tells_calibrations_apart(controller):
    other = message(16, part(5, kinematics(THETA, A, D + 1e-9, ALPHA)))
    first, again, second = (read_calibration(controller(data), 2.0).checksum for data in (WHOLE, WHOLE, other))
    assert first == again != second


@pytest.mark.parametrize(
    ("pieces", "close", "said"),
    [
        ([HELLO, STATE], False, "sent no kinematics within 0.2 s; power the robot on, or give a calibration.yaml"),
        ([HELLO], True, "it closed the connection"),
        ([b"HTTP/1.1 400 Bad Request\r\n" * 4000], False, "no message of a UR controller"),
        ([bytes(64)], False, "no message of a UR controller"),
        ([message(16, bytes(16))], False, "no message of a UR controller"),
        ([message(16, part(5, kinematics(THETA, A, D * np.nan, ALPHA)))], False, "not finite"),
    ],
)
def test_what_is_no_calibration_is_said(controller, pieces, close, said):
    with pytest.raises(RobotError, match=said):
        read_calibration(controller(*pieces, close=close), 0.2)


def test_nobody_there_is_said(another_host, monkeypatch):
    monkeypatch.setattr(module, "PRIMARY_PORT", 1)
    with pytest.raises(
        RobotError, match=r"cannot be read at .* port 1 \(Connection refused\); enable .*primary client"
    ):
        read_calibration(another_host, 0.5)


def test_a_stand_in_sends_what_the_documents_say(standin):
    with socket.create_connection((standin.host, 30001), 3.0) as link:
        data = b""
        while len(data) < 400:
            data += link.recv(4096)
    size, kind = struct.unpack(">iB", data[:5])
    assert kind == 20 and data[14] == 3 and data[16:25] == b"URControl"
    state = data[size:]
    assert state[4] == 16
    start = 5 + struct.unpack(">i", state[5:9])[0]
    assert struct.unpack(">iB", state[start : start + 5]) == (225, 5)
    values = struct.unpack(">6I24dI", state[start + 5 : start + 225])
    arm = ARMS["ur5e"]
    own = drawn_parameters(arm, CalibrationConfig())
    assert values[6:12] == own.theta and values[12:18] == own.a
    assert values[18:24] == own.d and values[24:30] == own.alpha
    assert len(kinematics_info(own)) == 220


# Files as UR's ROS drivers write them.

NOMINAL = {
    "shoulder": (0, 0, 0.1625, 0, 0, 0),
    "upper_arm": (0, 0, 0, np.pi / 2, 0, 0),
    "forearm": (-0.425, 0, 0, 0, 0, 0),
    "wrist_1": (-0.3922, 0, 0.1333, 0, 0, 0),
    "wrist_2": (0, -0.0997, 0, np.pi / 2, 0, 0),
    "wrist_3": (0, 0.0996, 0, np.pi / 2, np.pi, np.pi),
}


def write(path, **changes):
    frames = {
        name: dict(zip(("x", "y", "z", "roll", "pitch", "yaw"), map(float, changes.get(name, values)), strict=True))
        for name, values in NOMINAL.items()
    }
    path.write_text(yaml.safe_dump({"kinematics": {**frames, "hash": "calib_1"}}))
    return path


def test_the_file_of_the_nominal_arm_is_the_nominal_arm(tmp_path):
    calibration = load_calibration(write(tmp_path / "calibration.yaml"))
    for q in postures():
        np.testing.assert_allclose(calibration.chain.flange(q), ARMS["ur5e"].chain.flange(q), rtol=0, atol=1e-12)


def test_angles_of_the_file_are_those_of_urdf(tmp_path):
    roll, pitch, yaw = 0.3, -0.2, 0.7
    calibration = load_calibration(write(tmp_path / "calibration.yaml", shoulder=(0, 0, 0, roll, pitch, yaw)))
    wxyz, expected = np.zeros(4), np.zeros(9)
    mujoco.mju_euler2Quat(wxyz, np.array([roll, pitch, yaw]), "XYZ")  # about fixed axes, x first
    mujoco.mju_quat2Mat(expected, wxyz)
    np.testing.assert_allclose(calibration.chain.transforms()[0][:3, :3], expected.reshape(3, 3), atol=1e-12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "is no calibration.yaml"),
        ("kinematics: {shoulder: {x: 0}}", "is no calibration.yaml"),
        ("kinematics: [", "is no calibration.yaml"),
    ],
)
def test_another_file_is_refused(tmp_path, text, said):
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_calibration(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_calibration(tmp_path / "nothing.yaml")


def test_a_calibration_of_another_arm_is_refused(tmp_path):
    path = write(tmp_path / "calibration.yaml", forearm=(-0.6127, 0, 0, 0, 0, 0))
    with pytest.raises(RobotError, match=r"mm from a ur5e \(limit 20 mm\): it belongs to another arm"):
        require_same_arm(ARMS["ur5e"], load_calibration(path))


# A real UR10e of the tests of UR's ROS 2 driver (``calibration_test.cpp``, the third set), as calibration_correction
# writes it today, and as it did before #1017, with atan in place of atan2.
UR10E = {
    "shoulder": (0, 0, 0.18054, 0, 0, -2.41478e-07),
    "upper_arm": (2.12235e-05, 0, 0, 1.57015, -1.89115e-06, 1.22972e-09),
    "forearm": (-0.612541, 0, 0, -4.39734e-05, 0.00139347, -4.95354e-06),
    "wrist_1": (-0.571354, -0.00120655, 0.174508, 0.00691388, -0.000580273, 1.75689e-06),
    "wrist_2": (-4.61409e-05, -0.119811, 9.72438e-05, 1.56998, 1.0126e-07, -8.21871e-11),
    "wrist_3": (-6.3928e-05, 0.115671, 4.75547e-05, -1.57039, 3.91986e-08, 1.61153e-11),
}
FOLDED = UR10E | {
    "forearm": (-0.612541, 0, 0, 4.39734e-05, -0.00139347, 3.14159),
    "wrist_1": (-0.571152, 0.00120655, 0.174508, 0.00691388, -0.000580273, -3.14159),
}
# The nominal arms of the CB3 series.
UR5_CB3 = {
    "shoulder": (0, 0, 0.089159, 0, 0, 0), "upper_arm": (0, 0, 0, np.pi / 2, 0, 0), "forearm": (-0.425, 0, 0, 0, 0, 0),
    "wrist_1": (-0.39225, 0, 0.10915, 0, 0, 0), "wrist_2": (0, -0.09465, 0, np.pi / 2, 0, 0),
    "wrist_3": (0, 0.0823, 0, np.pi / 2, np.pi, np.pi),
}  # fmt: skip


def test_a_genuine_calibration_is_accepted(tmp_path):
    require_same_arm(ARMS["ur10e"], load_calibration(write(tmp_path / "calibration.yaml", **UR10E)))


@pytest.mark.parametrize(
    ("arm", "links", "said"),
    [
        ("ur10e", FOLDED, r"its elbow is folded by half a turn.*extract it again"),
        ("ur5e", UR5_CB3, r"it belongs to a ur5 \(CB3\); check ur.host"),
        ("ur5e", UR10E, r"it belongs to a ur1[02]e; check ur.host"),
        ("ur5e", {"forearm": (-0.425, 0, 303.0, 0, 0, 0)}, r"neighbouring joints 303 m apart.*extract it again"),
    ],
)
def test_what_a_refused_calibration_is_gets_said(tmp_path, arm, links, said):
    path = write(tmp_path / "calibration.yaml", **links)
    with pytest.raises(RobotError, match=said):
        require_same_arm(ARMS[arm], load_calibration(path))


def test_the_controllers_own_parameters_may_be_hundreds_of_metres_along_an_axis():
    """As a controller sends them, before calibration_correction: the second set of UR's tests, a UR10e."""
    nominal = DhParameters.of(ARMS["ur10e"].chain)
    theta = (1.6e-7, -0.917209621528830232, 7.12936131346499469, 0.0710299029424392298, -1.6e-6, 9.2e-8)
    a = (1.1e-4, 0.240324175250532346, 0.00180628180213493472, 2.6e-5, 4e-6, 0.0)
    d = (-1.4e-4, 303.469135666158195, -309.88394307789747, 6.41459904397394975, -4.5e-5, -8.7e-4)
    alpha = (-4.4e-4, -0.00160215112531214153, 0.00631917793331091861, -0.00165055247340828437, 7.6e-4, 0.0)
    real = DhParameters(*(
        tuple(x + y for x, y in zip(ours, theirs, strict=True))
        for ours, theirs in zip((nominal.theta, nominal.a, nominal.d, nominal.alpha), (theta, a, d, alpha), strict=True)
    ))  # fmt: skip
    require_same_arm(ARMS["ur10e"], Calibration(real.chain(), "", "a controller"))


# The driver and the stand-in, whose kinematics the driver has never been told.


def robot_of(standin, **ur):
    cell = CellConfig.model_validate({"ur": {"host": standin.host, **ur}, "gripper": {"max_age_s": 5.0}})
    return UrRobot(robot_spec(cell.robot), cell, passive=True)


def tool_error(robot):
    """Hold the driver's kinematics against the tool pose that the controller computes [m]."""
    position = Kinematics(robot.spec).tcp(np.array(robot.facts["q"])).position
    return float(np.linalg.norm(position - robot.facts["tcp_pose"][:3]))


def test_the_driver_computes_with_the_controllers_own_kinematics(standin):
    standin.reset()
    robot = robot_of(standin)
    nominal = robot.spec
    robot.connect()
    robot.close()
    assert tool_error(robot) < 1e-6
    assert robot.facts["kinematics"] == f"the controller at {standin.host}"
    assert len(robot.facts["calibration"]) == 12
    assert 0.5 < robot.facts["nominal_tool_error_mm"] < 5.0
    assert robot.spec.to_json() == nominal.to_json()  # a policy's contract knows no calibration
    plain = robot_of(standin, calibration="nominal")
    plain.connect()
    plain.close()
    assert 1e-4 < tool_error(plain) < 5e-3  # the two disagree
    assert plain.spec is not None and plain.facts["calibration"] is None


def test_the_guard_computes_with_them_too(standin):
    robot = robot_of(standin)
    robot.connect()
    robot.close()
    q = robot.spec.arm.home
    tool = robot.spec.arm.chain.flange(q) @ [0.0, 0.0, robot.spec.tcp_offset_m, 1.0]
    np.testing.assert_allclose(Kinematics(robot.spec, 0.005).tcp(q).position, tool[:3], rtol=0, atol=1e-6)


def test_a_calibration_that_changed_between_two_connections_is_named(standin, monkeypatch):
    robot = robot_of(standin)
    robot.connect()
    robot.close()
    old = robot.calibration
    robot.calibration = replace(old, checksum="0123456789ab")
    with pytest.raises(RobotError, match=f"changed from 0123456789ab to {old.checksum} since this program read them"):
        robot.connect()


def test_a_controller_with_another_serial_number_is_refused(standin):
    robot = robot_of(standin, serial_number="20195500001")
    with pytest.raises(
        RobotError, match=rf"serial number {standin.config.serial_number}, and the cell's file was made"
    ):
        robot.connect()
    robot_of(standin, serial_number=standin.config.serial_number).connect()


def test_kinematics_made_before_adopt_the_arms_own_once_it_is_connected(standin):
    """An environment is built before anybody asks the controller: its guard must not stay with the data sheet."""
    robot = robot_of(standin)
    kinematics, ik = Kinematics(robot.spec, 0.005), ToolboxKinematics(robot.spec)
    robot.connect()
    robot.close()
    q = np.array(robot.facts["q"])
    before = kinematics.tcp(q).position
    for each in (kinematics, ik):
        each.adopt(robot.spec)
        np.testing.assert_allclose(each.tcp(q).position, robot.facts["tcp_pose"][:3], rtol=0, atol=1e-6)
    assert np.abs(before - kinematics.tcp(q).position).max() > 1e-4
    assert kinematics.clearance_m == 0.005
