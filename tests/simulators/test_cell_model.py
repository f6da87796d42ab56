"""CellModel of a cell: laws that its servo, gripper, camera and network keep, and cells drawn by a seed."""

import json
import socket

import numpy as np
import pytest
from servo_laws import LAWS, overshoot

from td3robot.errors import ConfigError
from td3robot.robots.arms import UR_LAW, ServoLaw
from td3robot.robots.grippers import GRIPPERS
from td3robot.robots.simulated.scene import GRIPPER_PREFIX
from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.controller import Controller
from td3robot.simulators.gripper import Gripper
from td3robot.simulators.loop import Line
from td3robot.simulators.motion import Reference, Servo
from td3robot.simulators.presets import (
    NAMED,
    NOMINAL_CELL,
    CameraModel,
    CellModel,
    GripperTiming,
    NetworkModel,
    ServoModel,
    ToolModel,
    drawn,
    preset,
)
from td3robot.simulators.settings import ControllerConfig
from td3robot.simulators.vision import VisionSystem
from td3robot.state import Pose


def follow(model, target, seconds, law=UR_LAW):
    """Send one target again and again; return the reference's first joint, a row a period."""
    servo, reference, ways = Servo(np.zeros(6), model), Reference(np.zeros(6)), []
    for tick in range(round(seconds / PERIOD_S)):
        aim = target(tick * PERIOD_S)
        servo.aim(np.full(6, aim), PERIOD_S, law)
        servo.step(reference, 1.0)
        ways.append(reference.q[0])
    return np.array(ways)


@pytest.mark.parametrize("law", [ServoLaw(*numbers) for numbers in LAWS])
def test_a_step_overshoots_as_the_law_of_gain_and_lookahead_says(law):
    way = follow(ServoModel(), lambda t: 1.0, 3.0, law)
    assert way.max() - 1.0 == pytest.approx(overshoot(law.damping), abs=0.005)
    assert way[-1] == pytest.approx(1.0, abs=0.01)


def test_a_cell_that_assumes_less_damping_overshoots_as_much_more():
    way = follow(ServoModel(damping=(0.6,) * 6), lambda t: 1.0, 2.0)
    assert way.max() - 1.0 == pytest.approx(overshoot(0.6 * UR_LAW.damping), abs=0.005)


def test_a_ramp_lags_by_the_lookahead_whatever_the_damping():
    for damping in (None, (0.5,) * 6, (1.2,) * 6):
        for law in (UR_LAW, ServoLaw(600.0, 0.15)):
            way = follow(ServoModel(damping=damping), lambda t: 0.3 * t, 3.0, law)
            assert 3.0 - way[-1] / 0.3 == pytest.approx(law.lookahead_s, abs=0.002)


def test_only_cells_that_say_so_have_what_no_recording_shows():
    for name, cell in NAMED.items():
        model = cell.cell_model
        assumed = model.servo.damping is not None or model.friction != NOMINAL_CELL.friction
        assert assumed is ("assumed" in cell.reason), name
    assert NOMINAL_CELL.servo.damping is None and not any(NOMINAL_CELL.friction.model_dump().values())


def test_a_target_is_heard_of_after_the_transport_delay():
    way = follow(ServoModel(transport_s=0.01), lambda t: 1.0, 0.1)
    prompt = follow(ServoModel(), lambda t: 1.0, 0.1)
    np.testing.assert_allclose(way[5:], prompt[:-5])
    assert not way[:5].any()


def test_a_payload_that_nobody_told_of_bends_the_arm_and_a_longer_tool_reaches_farther(spec):
    nominal = SimulatedArm(spec)
    loaded = SimulatedArm(spec, tool=ToolModel(payload_kg=0.5, longer_m=0.003))
    hand = loaded._model.body(GRIPPER_PREFIX + spec.gripper.palm).id
    assert loaded._model.body_mass[hand] - nominal._model.body_mass[hand] == pytest.approx(0.5)
    assert np.linalg.norm(loaded.tcp().position - nominal.tcp().position) == pytest.approx(0.003, abs=1e-6)
    for arm in (nominal, loaded):
        for _ in range(500):
            arm.step(arm.spec.arm.home, 0.0)
    assert np.abs(loaded.q - spec.arm.home).max() > 2 * np.abs(nominal.q - spec.arm.home).max()
    controller = Controller(loaded, ControllerConfig())
    assert controller.tcp_offset.position[2] == pytest.approx(spec.tcp_offset_m)


def close(model, positions, seconds=2.0):
    """Close an active gripper by positions, each at its time; return the commanded fraction, a row a period."""
    gripper, fractions = Gripper(GRIPPERS["robotiq_2f85"], model), []
    gripper.activate_at_once()
    gripper.write({"GTO": 1, "SPE": 255})
    waiting = dict(positions)
    for tick in range(round(seconds / PERIOD_S)):
        if tick in waiting:
            gripper.write({"POS": waiting[tick]})
        gripper.tick(gripper.fraction)
        fractions.append(gripper.fraction)
    return np.array(fractions), gripper


def test_the_fingers_begin_after_the_latency_and_no_object_is_met_meanwhile():
    fractions, gripper = close(GripperTiming(latency_s=0.1), {0: 255}, 0.09)
    assert not fractions.any()
    assert gripper.get("OBJ") == 0
    assert gripper.get("PRE") == 255
    fractions, _ = close(GripperTiming(latency_s=0.1), {0: 255}, 2.0)
    prompt, _ = close(GripperTiming(), {0: 255}, 2.0)
    np.testing.assert_allclose(fractions[50:], prompt[:-50])


def test_a_slow_gripper_takes_longer_by_its_share():
    prompt, _ = close(GripperTiming(), {0: 230})
    slow, _ = close(GripperTiming(fastest=0.5), {0: 230})
    closed = [int(np.argmax(way >= 0.999)) for way in (prompt, slow)]
    assert closed[1] == pytest.approx(2 * closed[0], abs=2)


def test_positions_that_are_streamed_stop_and_start_the_fingers():
    stream = {tick: 30 + tick for tick in range(0, 200, 25)}
    smooth, _ = close(GripperTiming(), stream)
    jerky, _ = close(GripperTiming(pause_s=0.02), stream)
    assert (np.diff(jerky[:150]) == 0).sum() > (np.diff(smooth[:150]) == 0).sum() + 20
    assert jerky[-1] == pytest.approx(smooth[-1])


@pytest.fixture
def tracker():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        yield listener


class Scene:
    """An arm whose tool and object are where a test says."""

    def __init__(self):
        self.position, self.tool = np.array([0.1, 0.5, 0.02]), np.array([0.1, 0.5, 0.4])

    def object_poses(self):
        return {"cube": Pose(self.position.copy(), np.eye(3))}

    def tcp(self):
        return Pose(self.tool.copy(), np.eye(3))


def watch(tracker, model, seconds, scene=None, move=lambda scene, t: None):
    """Run a camera; return what came, with the camera's time of arrival."""
    scene = scene or Scene()
    camera = VisionSystem(scene, f"127.0.0.1:{tracker.getsockname()[1]}", model, seed=3)
    found = []
    for tick in range(round(seconds / PERIOD_S)):
        move(scene, tick * PERIOD_S)
        camera.tick()
        while True:
            try:
                found.append((tick * PERIOD_S, json.loads(tracker.recv(1 << 16))))
            except BlockingIOError:
                break
    camera._socket.close()
    return found


def test_frames_come_at_their_rate_and_late(tracker):
    def rise(scene, t):
        scene.position[2] = t

    found = watch(tracker, CameraModel(rate_hz=20.0, latency_s=0.1), 2.0, move=rise)
    times = np.array([at for at, _ in found])
    assert len(found) == pytest.approx(20 * 1.9, abs=1)
    np.testing.assert_allclose(np.diff(times), 0.05, atol=PERIOD_S + 1e-9)
    for at, message in found:  # what comes is what was, 0.1 s before
        assert at - message["position_m"][2] == pytest.approx(0.1, abs=2 * PERIOD_S)


def test_frames_are_lost_and_jitter_keeps_their_order(tracker):
    found = watch(tracker, CameraModel(rate_hz=100.0, drop=0.3, jitter_s=0.05), 10.0)
    assert len(found) == pytest.approx(700, abs=60)
    stamps = [message["stamp"] for _, message in found]
    assert stamps == sorted(stamps)


def test_the_hand_hides_what_is_near_it(tracker):
    def approach(scene, t):
        scene.tool = scene.position + np.array([0.0, 0.0, 0.2 - 0.1 * t])

    found = watch(tracker, CameraModel(hidden_m=0.06), 2.0, move=approach)
    assert max(at for at, _ in found) == pytest.approx(1.4, abs=0.03)


def test_noise_and_a_camera_that_is_off(tracker):
    found = watch(tracker, CameraModel(rate_hz=250.0, noise_m=0.001, offset_m=(0.002, 0.0, -0.001)), 4.0)
    away = np.array([message["position_m"] for _, message in found]) - Scene().position
    np.testing.assert_allclose(away.mean(axis=0), [0.002, 0.0, -0.001], atol=2e-4)
    np.testing.assert_allclose(away.std(axis=0), 0.001, rtol=0.15)


def test_a_network_is_as_bad_as_it_always_is_once_a_fault_ends():
    line = Line(lambda: 0.0, 0, NetworkModel(delay_s=0.002, hiccup=0.1, hiccup_s=0.02))
    assert (line.delay_s, line.hiccup, line.hiccup_s) == (0.002, 0.1, 0.02)


def test_a_seed_draws_the_same_cell_again_and_others_differ():
    assert drawn(3) == drawn(3) == preset("3")
    assert drawn(3).cell_model != drawn(4).cell_model
    for seed in range(50):
        place = drawn(seed)
        CellModel.model_validate(place.cell_model.model_dump())
        assert place.differences()
        assert place.stream_hz in (125, 500)


def test_named_cells_are_settings_of_a_standin_and_say_what_differs():
    for name, place in NAMED.items():
        settings = ControllerConfig(**place.settings())
        assert settings.cell_model == place.cell_model
        assert bool(place.differences()) == (name != "nominal")
        assert place.reason
    assert NAMED["slow-gripper"].differences() == {
        "gripper.latency_s": 0.1, "gripper.pause_s": 0.03, "gripper.fastest": 0.5
    }  # fmt: skip
    assert NAMED["nominal"].cell_model == NOMINAL_CELL


def test_a_cell_that_is_not_known_is_one_sentence():
    with pytest.raises(ConfigError, match=r"did you mean 'worn'.*or give a seed"):
        preset("wornn")


def test_a_gripper_lets_go_at_once_of_what_it_squeezed():
    gripper = Gripper(GRIPPERS["robotiq_2f85"])
    gripper.activate_at_once()
    gripper.write({"GTO": 1, "POS": 230})
    for _ in range(1000):
        gripper.tick(min(gripper.fraction, 0.5))  # something is in between
    assert gripper.fraction == pytest.approx(1.0)
    gripper.write({"POS": 3})
    gripper.tick(0.5)
    gripper.tick(0.5)
    assert gripper.fraction < 0.5
