"""The controller without sockets and without a clock: laws that must hold to the number."""

import numpy as np
import pytest
from servo_laws import overshoot

from td3robot.config import Box, RobotConfig
from td3robot.geometry import rotation_matrix, rotation_vector
from td3robot.robots.arms import ServoLaw
from td3robot.robots.interface import robot_spec
from td3robot.simulators.accounting import Accounting
from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.controller import Controller
from td3robot.simulators.motion import Brake, Hold, Move, Reference, Servo, Speed
from td3robot.simulators.settings import ControllerConfig
from td3robot.state import JointCommand


@pytest.fixture(scope="module")
def arm(spec):
    return SimulatedArm(spec)


@pytest.fixture
def controller(arm):
    arm.reset(arm.spec.arm.home)
    return Controller(arm, ControllerConfig())


def run(controller, seconds, target=None):
    for _ in range(round(seconds / PERIOD_S)):
        if target is not None:
            controller.servo(target(controller.time_s), PERIOD_S, 0.1)
        controller.tick()


@pytest.mark.parametrize("lookahead_s", [0.03, 0.1, 0.2])
def test_the_arm_overshoots_as_the_law_says_and_all_joints_alike(controller, lookahead_s):
    home = controller.arm.q.copy()
    step = home + 0.002 * np.array([1, -1, 1, 1, -1, 1])  # small enough for the motors' torque
    reached = []
    for _ in range(round(max(0.5, 8 * lookahead_s) / PERIOD_S)):
        controller.servo(step, PERIOD_S, lookahead_s)
        controller.tick()
        reached.append((controller.arm.q - home) / (step - home))
    reached = np.array(reached)
    law = ServoLaw(300.0, lookahead_s)
    assert np.allclose(reached.max(axis=0) - 1.0, overshoot(law.damping), atol=0.02)
    # All joints alike, as no recording shows heavy ones softer.
    assert np.ptp(reached, axis=1).max() < 0.03


def test_stopping_takes_the_time_of_its_deceleration(controller):
    start = controller.arm.q.copy()
    run(controller, 1.0, lambda t: start + np.array([0.3 * t, 0, 0, 0, 0, 0]))
    assert controller.arm.dq[0] == pytest.approx(0.3, abs=0.01)
    before = controller.arm.q.copy()
    controller.drive(Brake(2.0))
    run(controller, 0.6)
    # v^2 / 2a, and the motion stays on its line.
    assert (controller.arm.q - before)[0] == pytest.approx(0.3**2 / 4, abs=0.01)
    assert np.abs((controller.arm.q - before)[1:]).max() < 3e-3
    assert controller.is_steady() and isinstance(controller.motion, Hold)


def test_a_protective_stop_brakes_from_what_the_arm_does(controller):
    start = controller.arm.q.copy()
    run(controller, 1.0, lambda t: start + np.array([1.0 * t, 0, 0, 0, 0, 0]))
    before = controller.arm.q[0]
    controller.protective_stop("test")
    run(controller, 1.0)
    assert 0.0 < controller.arm.q[0] - before < 0.12
    assert controller.is_steady()
    assert controller.unlock().startswith("Cannot unlock protective stop until 5s")
    run(controller, 4.1)
    assert controller.unlock() == "Protective stop releasing"
    run(controller, 0.2)
    assert controller.safety_mode.name == "NORMAL"


def test_a_motion_ends_exactly_and_in_its_time():
    q = np.zeros(6)
    reference, move = Reference(q), Move(q, np.array([0.3, -0.1, 0, 0, 0, 0.2]), 0.5, 2.0)
    ticks = 0
    while not move.done:
        move.step(reference, 1.0)
        ticks += 1
        assert np.abs(reference.v).max() <= 0.5 + 1e-9
    assert np.allclose(reference.q, [0.3, -0.1, 0, 0, 0, 0.2], atol=1e-6)
    # A trapezoid: the way over the speed, and one ramp's time.
    assert ticks * PERIOD_S == pytest.approx(0.3 / 0.5 + 0.5 / 2.0, abs=0.02)


def test_the_slider_slows_what_servoj_reaches():
    q, target = np.zeros(6), np.full(6, 0.01)
    ways = []
    for scale in (1.0, 0.5, 0.0):
        servo, reference = Servo(q), Reference(q)
        servo.aim(target, 0.02)
        for _ in range(5):
            servo.step(reference, scale)
        ways.append(servo.goal[0])
    assert ways == pytest.approx([0.005, 0.0025, 0.0])


@pytest.mark.parametrize("slider", [1.0, 0.5])
def test_the_slider_makes_the_arm_lag_behind_a_stream(controller, slider):
    start = controller.arm.q.copy()
    controller.inputs.slider = slider
    run(controller, 2.0, lambda t: start + np.array([0.2 * t, 0, 0, 0, 0, 0]))
    assert (start[0] + 0.2 * 2.0 - controller.arm.q[0]) / 0.2 == pytest.approx(0.1 / slider, abs=0.01)


def test_speedj_changes_speed_within_its_acceleration():
    reference, speed = Reference(np.zeros(6)), Speed(np.array([0.4, 0.2, 0, 0, 0, 0]), 2.0)
    before = 0.0
    for _ in range(150):
        speed.step(reference, 1.0)
        assert abs(reference.v[0] - before) <= 2.0 * PERIOD_S + 1e-12
        assert reference.v[1] == pytest.approx(reference.v[0] / 2)
        before = reference.v[0]
    assert reference.v[0] == pytest.approx(0.4)


def test_safety_planes_and_the_way_back_out(arm):
    arm.reset(arm.spec.arm.home)
    x, y, z = arm.tcp().position
    box = Box(low=(x - 1, y - 1, z - 1), high=(x + 0.02, y + 1, z + 1))
    controller = Controller(arm, ControllerConfig(safety_box=box))
    start = arm.q.copy()

    def turned(t):
        return start - np.array([0.1 * t, 0, 0, 0, 0, 0])

    assert (controller.arm.flange_at(turned(1.0)).position - controller.arm.flange_at(start).position)[0] > 0
    run(controller, 2.0, turned)
    assert controller.safety_mode.name == "PROTECTIVE_STOP"
    assert "beyond the safety plane at x" in controller.entries[-1][1]
    run(controller, 5.1)
    controller.unlock()
    run(controller, 0.5)
    assert controller.safety_mode.name == "NORMAL", "where it is, it may stay"
    outside = arm.q.copy()
    began = controller.time_s
    run(controller, 1.5, lambda t: outside + np.array([0.1 * (t - began), 0, 0, 0, 0, 0]))
    assert controller.safety_mode.name == "NORMAL", "out of it, it may move"
    assert arm.tcp().position[0] < x + 0.02


def test_power_goes_and_comes(controller):
    controller.emergency_stop()
    assert controller.robot_mode.name == "POWER_OFF" and not controller.gripper.powered
    controller.power_on()
    assert controller.robot_mode.name == "POWER_OFF", "not while the button is pressed"
    controller.release_emergency_stop()
    controller.release_brakes()
    run(controller, 1.2)
    assert controller.robot_mode.name == "RUNNING" and controller.gripper.powered
    assert controller.gripper.get("STA") == 0, "the gripper's activation went with its power"


def test_the_wire_sees_no_more_than_a_guard_lets_through(spec):
    """A sender that changes its velocity by at most a T a period T is never counted above a, at any phase."""
    rng = np.random.default_rng(3)
    period, limit, top = 0.05, 8.0, 1.0
    accounting = Accounting(spec, window_s=0.05)
    q, v, now = spec.arm.home.copy(), np.zeros(6), 0.0
    largest = 0.0
    for _ in range(200):
        wanted = np.clip(v + rng.uniform(-limit * period, limit * period, 6), -top, top)
        largest = max(largest, np.abs(wanted - v).max() / period)
        v = wanted
        for step in np.diff([0.0, *np.sort(rng.uniform(0.0, period, 8)), period]):
            q, now = q + v * step, now + step
            accounting.received(now, q)
    seen = accounting.targets
    assert largest > 0.9 * limit
    assert 0.9 * largest < seen.joint_acceleration_rad_s2 <= largest + 1e-6
    assert 0.9 * top < seen.joint_speed_rad_s <= top + 1e-9


def test_the_wire_sees_what_a_guard_would_not_let_through(spec):
    accounting = Accounting(spec, window_s=0.1)
    q = spec.arm.home
    for index in range(200):
        accounting.received(index * PERIOD_S, q + (0.4 if index > 100 else 0.0))
    assert accounting.targets.joint_speed_rad_s == pytest.approx(4.0)
    assert accounting.targets.joint_acceleration_rad_s2 > 30.0
    assert accounting.largest_step_rad == pytest.approx(0.4)
    assert accounting.take_record(101)[0][100] == pytest.approx([0.2, *q])


def test_time_that_the_controller_lost_is_no_motion(controller):
    home, lost = controller.arm.q.copy(), 0.5
    wall = 0.0
    controller.inputs.clock = lambda: wall - (lost if wall > 1.0 else 0.0)

    def target(at):
        q = home + 0.3 * at * np.array([1, 0, 0, 0, 0, 0])
        controller.inputs.write({"input_double_register_0": 0.0})
        controller.servo(q, PERIOD_S, 0.1)
        controller.tick()

    while wall < 1.0:
        target(wall)
        wall += PERIOD_S
    wall += lost
    controller.inputs.clock, settled = (lambda: wall), controller.inputs.clock
    controller.inputs.write({"input_double_register_0": 0.0})  # read late, stamped on the clock of before
    controller.inputs.clock = settled
    controller.lose(lost)
    while wall < 2.5:
        target(wall)
        wall += PERIOD_S
    assert controller.accounting.targets.joint_speed_rad_s == pytest.approx(0.3, rel=0.02)


def test_the_wire_forgets_targets_from_before_another_motion(controller, arm):
    """Where servoJ begins again somewhere else, nothing has moved there in one step."""
    servo = {"input_int_register_0": 11, "input_double_register_6": 0.002}
    away = arm.q + 0.05

    def write(q):
        controller.ticks += 1
        controller.inputs.write(servo | {f"input_double_register_{joint}": float(q[joint]) for joint in range(6)})
        controller.servo(q, PERIOD_S, 0.1)

    for _ in range(60):
        write(arm.q)
    controller.drive(Hold())
    for _ in range(60):
        write(away)
    assert controller.accounting.targets.joint_speed_rad_s == 0.0
    assert controller.accounting.largest_step_rad == 0.0


@pytest.mark.parametrize(("streaming_hz", "tolerance_rad"), [(125, 1e-3), (500, 4e-4)])
def test_the_arm_moves_as_in_training(spec, robot, arm, streaming_hz, tolerance_rad):
    """The same commands, to the training's simulation and, interpolated as a driver does, to the controller.

    The controller holds each target for a tick, and the simulation moves to it in a line: they are half a tick of 2 ms
    apart, at up to 0.39 rad/s.
    """
    robot.move_home()
    arm.reset(spec.arm.home)
    controller = Controller(arm, ControllerConfig(gripper_active=True))
    before = spec.arm.home
    rates = np.array([1.0, 1.3, 1.7, 2.0, 2.3, 2.6])
    for period in range(100):
        command = JointCommand(spec.arm.home + 0.15 * np.sin(rates * (period + 1) * 0.05), min(1.0, period / 12))
        robot.send(command)
        robot.advance()
        controller.gripper.write({"POS": round(3 + 227 * command.gripper), "GTO": 1})
        ticks_each = 500 // streaming_hz
        for tick in range(25):
            if tick % ticks_each == 0:
                share = min(1.0, (tick + ticks_each) / 25)
                controller.servo(before + (command.q - before) * share, 1 / streaming_hz, 0.1)
            controller.tick()
        before = command.q
        state = robot.read()
        assert np.abs(state.q - arm.q).max() < tolerance_rad
        # The fingers ramp here and step there: half a period apart at their highest speed.
        assert abs(state.driver_q.mean() - arm.driver_q) < 0.05
    assert abs(state.driver_q.mean() - arm.driver_q) < 1e-3


def test_rotation_vectors_turn_back():
    rng = np.random.default_rng(0)
    for vector in rng.normal(size=(20, 3)):
        assert np.allclose(rotation_vector(rotation_matrix(vector)), vector)
    assert np.allclose(rotation_matrix(np.zeros(3)), np.eye(3))


def test_the_default_cell_is_that_of_training(spec):
    assert robot_spec(ControllerConfig().robot) == robot_spec(RobotConfig())
