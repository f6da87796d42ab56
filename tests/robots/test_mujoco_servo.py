import mujoco
import numpy as np
import pytest

from td3robot.config import GuardConfig
from td3robot.robots.guard import Guard
from td3robot.state import JointCommand

SPEED = 0.5  # [rad/s]


def follow_ramp(robot, joint, seconds):
    """Return commanded and measured angle of one joint after each period of a ramp upwards or back (joint 1)."""
    sign = -1.0 if joint == 1 else 1.0
    robot.move_home()
    command, commanded, measured = robot.spec.arm.home.copy(), [], []
    for _ in range(round(seconds * robot.spec.control_rate_hz)):
        command[joint] += sign * SPEED * robot.spec.period_s
        robot.send(JointCommand(command, 0.0))
        robot.advance()
        commanded.append(sign * command[joint])
        measured.append(sign * robot.read().q[joint])
    return np.array(commanded), np.array(measured), sign


@pytest.mark.parametrize("joint", range(6))
def test_a_ramp_is_followed_a_tenth_of_a_second_late(robot, joint):
    commanded, measured, _ = follow_ramp(robot, joint, seconds=1.5)
    lag = (commanded - measured) / SPEED
    np.testing.assert_allclose(lag[-10:], 0.1, rtol=0, atol=0.01)


@pytest.mark.parametrize("joint", range(6))
def test_a_stop_is_not_overshot(robot, joint):
    commanded, _, sign = follow_ramp(robot, joint, seconds=1.0)
    travel = SPEED * 1.0
    for _ in range(30):
        robot.advance()
        assert sign * robot.read().q[joint] <= commanded[-1] + 0.01 * travel
    assert sign * robot.read().q[joint] == pytest.approx(commanded[-1], abs=1e-3)


def test_holding_home_does_not_drift(robot):
    robot.move_home()
    for _ in range(100):
        robot.advance()
    np.testing.assert_allclose(robot.read().q, robot.spec.arm.home, rtol=0, atol=1e-6)


def adversary(kind, spec, kinematics):
    """Return a wish for every step, from the commanded posture."""
    rng = np.random.default_rng(0)
    if kind == "absurd":
        return lambda step, q: rng.choice([-1e6, 1e6], 6)
    if kind == "between the limits":
        return lambda step, q: spec.arm.upper if (step // 8) % 2 else spec.arm.lower
    if kind == "full speed reversals":
        directions = rng.normal(size=(100, 6))
        return lambda step, q: q + (1 if (step // 6) % 2 else -1) * directions[step // 12]
    pushes = rng.normal(size=(100, 3))
    return lambda step, q: q + np.linalg.pinv(kinematics.tcp_and_jacobian(q)[1][:3], rcond=1e-2) @ pushes[step // 15]


@pytest.mark.parametrize("kind", ["absurd", "between the limits", "full speed reversals", "tool pushes"])
def test_measured_tool_speed_keeps_the_limit_at_every_physics_step(robot, kinematics, monkeypatch, kind):
    config = GuardConfig()
    guard = Guard(robot.spec, config, kinematics)
    speeds = []
    whole_period = mujoco.mj_step

    def step_by_step(model, data, nstep):
        for _ in range(nstep):
            whole_period(model, data, 1)
            _, jacobian = kinematics.tcp_and_jacobian(data.qpos[:6])
            speeds.append(np.linalg.norm(jacobian[:3] @ data.qvel[:6]))

    monkeypatch.setattr(mujoco, "mj_step", step_by_step)
    robot.move_home()
    guard.reset(robot.spec.arm.home)
    wish = adversary(kind, robot.spec, kinematics)
    for step in range(300):
        ruling = guard.filter(JointCommand(wish(step, guard.commanded.q), 0.0), robot.read(), robot.now())
        robot.send(ruling.command)
        robot.advance()
    assert len(speeds) == 300 * 20
    assert 0.1 < max(speeds) <= config.max_tcp_speed_m_s * 1.01
