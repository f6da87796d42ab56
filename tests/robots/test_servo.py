"""The servo's law: exact over any time, in both simulations, and as recordings of a UR5e show it."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import expm
from servo_laws import LAWS, overshoot

from td3robot.build import robot_spec
from td3robot.config import RobotConfig
from td3robot.errors import ConfigError
from td3robot.robots.arms import ServoLaw
from td3robot.robots.servo import follow_line
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.toolbox import KinematicRobot
from td3robot.state import JointCommand

MARK_RAD = 0.01


def moved(law, target, end, q, speed, seconds):
    q, speed = np.array([q]), np.array([speed])
    follow_line(np.array([law.gain]), law.lookahead_s, seconds, np.array([target]), np.array([end]), q, speed)
    return q[0], speed[0]


@pytest.mark.parametrize("law", [ServoLaw(*each) for each in (*LAWS, (400.0, 0.1), (400.0 + 1e-9, 0.1), (1e5, 0.1))])
def test_a_ramp_is_followed_as_the_matrix_exponential_has_it(law):
    change = np.array([[0, 1, 0, 0], [-law.gain, -law.gain * law.lookahead_s, law.gain, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    for seconds in (1e-4, 0.002, 0.05, 0.5):
        q, speed, *_ = expm(change * seconds) @ [0.1, -0.3, 0.25, 0.4]
        np.testing.assert_allclose(moved(law, 0.25, 0.25 + 0.4 * seconds, 0.1, -0.3, seconds), (q, speed), atol=1e-9)


def test_many_short_times_are_a_long_one():
    law, q, speed = ServoLaw(300.0, 0.1), 0.0, 0.0
    for before, after in pairwise(np.linspace(0.0, 0.05, 26)):
        q, speed = moved(law, before, after, q, speed, 0.002)
    np.testing.assert_allclose((q, speed), moved(law, 0.0, 0.05, 0.0, 0.0, 0.05), rtol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_damping_is_the_square_root_of_the_gain_times_half_the_lookahead(law):
    assert ServoLaw(*law).damping == pytest.approx(LAWS[law], abs=0.005)


def test_factors_on_lag_and_damping_are_what_is_multiplied():
    law = ServoLaw(300.0, 0.1).varied(1.3, 0.6)
    assert (law.lookahead_s, law.damping) == (pytest.approx(0.13), pytest.approx(0.6 * 0.8660254))
    assert ServoLaw(300.0, 0.1).varied(1.0, 1.0) == ServoLaw(300.0, 0.1)


def stepped(make, law=(300.0, 0.1), rate_hz=400.0, seconds=1.0):
    """Return the times [s] and the shares of a step of all joints that are made at them, at 400 commands a second."""
    robot = make(robot_spec(RobotConfig(control_rate_hz=rate_hz, servo_gain=law[0], servo_lookahead_s=law[1])))
    robot.connect()
    home, rows = robot.spec.arm.home, []
    for _ in range(round(seconds * rate_hz)):
        robot.send(JointCommand(home + MARK_RAD, 0.0))
        robot.advance()
        rows.append((robot.read().q - home) / MARK_RAD)
    robot.close()
    return np.arange(1, len(rows) + 1) / rate_hz, np.array(rows)


MAKERS = {"mujoco": lambda spec: MujocoRobot(spec, 400.0), "kinematic": KinematicRobot}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_step_is_made_in_the_times_of_the_recorded_arm(make):
    times, shares = stepped(make)
    for joint in range(6):
        # Half a control period, in which the target moves, comes on top of 113 and 219 ms.
        assert np.interp(0.63, shares[:200, joint], times[:200]) == pytest.approx(0.113 + 0.00125, abs=0.003)
        assert np.interp(0.95, shares[:200, joint], times[:200]) == pytest.approx(0.219 + 0.00125, abs=0.004)
    assert shares.max() - 1.0 == pytest.approx(0.004, abs=0.003)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_arm_overshoots_as_its_gain_and_lookahead_say(make, law):
    _, shares = stepped(make, law)
    np.testing.assert_allclose(shares.max(axis=0) - 1.0, overshoot(ServoLaw(*law).damping), atol=0.015)


@pytest.mark.parametrize("rate_hz", [20.0, 50.0])
def test_physics_keep_to_the_law_within_a_quarter_of_a_milliradian(rate_hz):
    spec = robot_spec(RobotConfig(control_rate_hz=rate_hz))
    robots = [make(spec) for make in MAKERS.values()]
    rng, q, v = np.random.default_rng(0), spec.arm.home.copy(), np.zeros(6)
    for robot in robots:
        robot.connect()
    for _ in range(round(2 * rate_hz)):
        v = np.clip(v - 4.0 * (q - spec.arm.home) / rate_hz + rng.uniform(-4, 4, 6) / rate_hz, -0.4, 0.4)
        q = q + v / rate_hz
        states = []
        for robot in robots:
            robot.send(JointCommand(q, 0.0))
            robot.advance()
            states.append(robot.read())
        np.testing.assert_allclose(states[0].q, states[1].q, atol=2.5e-4)
    for robot in robots:
        robot.close()


def test_an_arm_whose_controller_takes_no_gain_refuses_one():
    with pytest.raises(ConfigError, match=r"robot\.servo_gain is 600, but the arm 'fr3' .*leave servo_gain out"):
        robot_spec(RobotConfig(arm="fr3", gripper="franka_hand", servo_gain=600.0))
    assert robot_spec(RobotConfig(servo_lookahead_s=0.05)).law == ServoLaw(300.0, 0.05)
