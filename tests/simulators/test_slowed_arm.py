"""What a controller and its joints hold back: a servoJ that blocks, speed scaling, friction."""

import numpy as np
import pytest

from td3robot.robots.ur import JOINTS
from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.controller import Controller
from td3robot.simulators.motion import Move, Reference, Servo, Speed
from td3robot.simulators.ports.rtde import sources
from td3robot.simulators.presets import NAMED, CellModel, FrictionModel, LimitModel, ServoModel, drawn
from td3robot.simulators.settings import ControllerConfig

LAG_S = 0.1
BLOCKS = ServoModel(blocks=True)


def stream(model, targets, time_s, scale=1.0, ticks=None):
    """Send targets (one a tick; None sends none) to a servo; return it and its goal's first joint, a row a tick."""
    servo, reference, goals = Servo(np.zeros(6), model), Reference(np.zeros(6)), []
    for tick in range(ticks or len(targets)):
        target = targets[tick] if tick < len(targets) else None
        if target is not None:
            servo.aim(np.full(6, target), time_s)
        servo.step(reference, scale)
        goals.append(servo.goal[0])
    return servo, np.array(goals)


def test_of_targets_that_come_too_fast_the_newest_is_taken():
    ramp = [0.01 * tick for tick in range(1, 41)]
    servo, goals = stream(BLOCKS, ramp, 4 * PERIOD_S)
    # A call takes four ticks, in which three targets are overwritten; the first call begins with the first target.
    assert servo.skipped == 3 * 9
    assert servo.repeated == 0
    np.testing.assert_allclose(goals[3::4], ramp[0::4], atol=1e-12)
    _, free = stream(ServoModel(), ramp, 4 * PERIOD_S)
    assert len(set(np.round(np.diff(free), 6))) > len(set(np.round(np.diff(goals[4:]), 6))) == 1


def test_where_no_target_came_the_old_one_is_held_for_another_time():
    time_s = 4 * PERIOD_S
    servo, goals = stream(BLOCKS, [1.0, None, None, None, None, 2.0], time_s, ticks=16)
    # The target at tick 5 comes one tick into the second call for 1.0, and waits for its end at tick 8.
    np.testing.assert_allclose(goals[:12], [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1.25, 1.5, 1.75, 2.0])
    assert (servo.skipped, servo.repeated) == (0, 2)


def test_a_target_every_time_is_neither_skipped_nor_repeated():
    ramp = [0.01 * tick for tick in range(1, 101)]
    servo, goals = stream(BLOCKS, ramp, PERIOD_S)
    _, same = stream(ServoModel(), ramp, PERIOD_S)
    assert (servo.skipped, servo.repeated) == (0, 0)
    np.testing.assert_array_equal(goals, same)


def test_speed_scaling_stretches_a_servoj_and_so_skips_targets():
    ramp = [0.01 * tick for tick in range(1, 101)]
    servo, _ = stream(BLOCKS, ramp, PERIOD_S, scale=0.5)
    # UR: at 50 %, a servoj of 2 ms takes 4 ms.
    assert servo.skipped == pytest.approx(50, abs=1)


@pytest.fixture(scope="module")
def arm(spec):
    return SimulatedArm(spec)


@pytest.fixture
def limited(arm):
    """Make a controller whose cell has limits."""

    def make(damping=None, **limits):
        arm.reset(arm.spec.arm.home)
        servo = ServoModel(damping=damping, blocks=True)
        return Controller(arm, ControllerConfig(cell_model=CellModel(servo=servo, limits=LimitModel(**limits))))

    return make


def sweep(controller, rad_s, way_rad, seconds):
    """Turn the base by servoJ; return the reference's and the tool's speeds and the scaling, a row a tick."""
    home, rows = controller.arm.spec.arm.home, []
    for tick in range(round(seconds / PERIOD_S)):
        q = home.copy()
        q[0] += min(rad_s * tick * PERIOD_S, way_rad)
        controller.servo(q, PERIOD_S, LAG_S)
        controller.tick()
        tool = controller.arm.tool_speed_at(controller.reference.q, controller.reference.v)
        rows.append((abs(controller.reference.v[0]), tool, controller.limiter.scale))
    return np.array(rows)


@pytest.mark.parametrize("damping", [None, (0.6,) * 6])
@pytest.mark.parametrize(("limits", "column"), [({"joint_rad_s": 0.3}, 0), ({"tool_m_s": 0.2}, 1)])
def test_a_trajectory_is_slowed_down_to_a_limit_and_still_arrives(limited, damping, limits, column):
    controller, limit = limited(damping, **limits), next(iter(limits.values()))
    report = sources(controller)["speed_scaling"]
    assert report() == 1.0
    rows = sweep(controller, 0.8, 0.6, 4.0)
    speed, scale = rows[:, column], rows[:, 2]
    # A limit is noticed in the period after.
    assert 0.98 * limit < speed.max() < 1.1 * limit
    assert np.sort(speed)[-100] < 1.02 * limit
    assert scale.min() < 0.5
    assert scale[-1] == report() == pytest.approx(1.0)
    assert controller.arm.q[0] - controller.arm.spec.arm.home[0] == pytest.approx(0.6, abs=1e-3)
    assert controller.safety_mode.name == "NORMAL"


def test_the_reported_scaling_is_how_much_too_fast_the_motion_would_be(limited):
    controller = limited(joint_rad_s=0.3)
    home = controller.arm.spec.arm.home
    way = np.array([0.6, 0, 0, 0, 0, 0])
    controller.drive(Move(home, home + way, 1.0, 1.4))
    scales = []
    while not controller.motion.done:
        controller.tick()
        scales.append(controller.limiter.scale)
    assert np.median(scales) == pytest.approx(0.3, abs=0.01), "1 rad/s at 0.3 rad/s"
    np.testing.assert_allclose(controller.reference.q, home + way, atol=1e-6)
    controller.drive(Speed(np.array([1.0, 0, 0, 0, 0, 0]), 1.4))
    for _ in range(1000):
        controller.tick()
    assert controller.reference.v[0] == pytest.approx(0.3, rel=0.01)


def test_slower_than_its_limit_nothing_is_scaled(limited):
    slowed, free = limited(tool_m_s=0.25), limited()
    for controller in (slowed, free):
        controller.arm.reset(controller.arm.spec.arm.home)
        rows = sweep(controller, 0.2, 0.1, 1.0)
        assert (rows[:, 2] == 1.0).all()
    assert rows[:, 1].max() > 0.05, "it moved"


def test_the_slider_comes_on_top(limited):
    controller = limited(joint_rad_s=0.3)
    controller.inputs.slider = 0.5
    home = controller.arm.spec.arm.home
    controller.drive(Move(home, home + np.array([0.6, 0, 0, 0, 0, 0]), 1.0, 1.4))
    for _ in range(500):
        controller.tick()
    # Half of 1 rad/s is still above the limit.
    assert controller.reference.v[0] == pytest.approx(0.3, rel=0.01)
    assert controller.limiter.scale == pytest.approx(0.6, abs=0.02)


def settled(arm, target, seconds=1.0):
    """Hold a target; return how far from it the joints come to rest."""
    for _ in range(round(seconds / PERIOD_S)):
        arm.step(target, 0.0)
    return arm.q - target


def test_a_joint_rests_within_its_stick_band_and_stays(spec):
    arm, stick = SimulatedArm(spec, friction=FrictionModel(stick_rad=1e-3)), 1e-3
    arm.reset(spec.arm.home)
    settled(arm, spec.arm.home)
    still = arm.q.copy()
    settled(arm, still + 0.8 * stick)
    assert np.abs(arm.q - still).max() < 0.1 * stick, "a smaller step is not answered"
    target = spec.arm.home + 0.05
    away = settled(arm, target)
    # It stops short by the whole band, and creeps from there by a tenth of it at most in six seconds.
    np.testing.assert_allclose(away, -stick, rtol=0.05)
    later = settled(arm, target, 6.0)
    assert (np.abs(later) > 0.9 * np.abs(away)).all()


def test_viscous_friction_adds_to_the_lag_of_a_ramp(spec):
    behind = []
    for viscous_s in (0.0, 0.01):
        arm, rate = SimulatedArm(spec, friction=FrictionModel(viscous_s=viscous_s)), 0.2
        arm.reset(spec.arm.home)
        for tick in range(1, 1001):
            arm.step(spec.arm.home + rate * tick * PERIOD_S, 0.0)
        behind.append(1000 * PERIOD_S - (arm.q - spec.arm.home) / rate)
    np.testing.assert_allclose(behind[1] - behind[0], 0.01, atol=1e-4)


def test_joints_of_the_default_cell_have_no_friction(arm):
    assert not arm._model.dof_frictionloss[:JOINTS].any()
    assert not arm._model.dof_damping[:JOINTS].any()


def test_named_and_drawn_cells_have_what_their_reasons_say():
    assert NAMED["worn"].cell_model.friction.stick_rad > NAMED["new"].cell_model.friction.stick_rad == 0.0
    assert NAMED["restricted"].differences()["limits.tool_m_s"] == 0.25
    cells = [drawn(seed).cell_model for seed in range(50)]
    assert all(cell.servo.blocks for cell in cells)
    assert {cell.limits.tool_m_s for cell in cells} == {0.25, 0.75, 1.5}
    sticks = [cell.friction.stick_rad for cell in cells]
    assert 0.0 <= min(sticks) < 2e-4 < 8e-4 < max(sticks) <= 1e-3
