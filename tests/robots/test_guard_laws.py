"""What a guard promises besides its limits: who may change what, refusals, and arms that are not like a UR5e."""

import numpy as np
import pytest

from td3robot.config import Box, GuardConfig
from td3robot.errors import CommandRefusedError
from td3robot.robots.arms.model import Servo
from td3robot.robots.grippers.robotiq_2f85 import ROBOTIQ_2F85
from td3robot.robots.guard import JOINT_SHARE, WALL_M, Guard
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Posture
from td3robot.state import JointCommand, Pose, RobotState

CONFIG = GuardConfig()
PERIOD_S = 0.05


def at_rest(q, stamp=0.0):
    return RobotState(q.copy(), np.zeros_like(q), np.zeros(2), stamp)


def wish(guard, q):
    return guard.filter(JointCommand(q, 0.0), at_rest(guard.commanded.q), 0.0)


@pytest.fixture
def guard(spec, kinematics):
    return Guard(spec, CONFIG, kinematics)


def test_a_state_from_the_future_is_refused_beyond_one_period(spec, guard):
    state = at_rest(spec.arm.home, stamp=1.0)
    guard.filter(JointCommand(spec.arm.home, 0.0), state, 1.0 - 0.9 * PERIOD_S)
    with pytest.raises(CommandRefusedError, match=r"stamped 0\.055 s in the future; set the clocks right"):
        guard.filter(JointCommand(spec.arm.home, 0.0), state, 1.0 - 1.1 * PERIOD_S)


def test_a_state_is_refused_from_its_age_on_and_not_before(spec, guard):
    guard.filter(JointCommand(spec.arm.home, 0.0), at_rest(spec.arm.home), CONFIG.max_state_age_s)
    with pytest.raises(CommandRefusedError, match="old"):
        guard.filter(JointCommand(spec.arm.home, 0.0), at_rest(spec.arm.home), CONFIG.max_state_age_s + 1e-6)


def test_nobody_changes_a_command_once_it_is_ruled(spec, guard):
    command = wish(guard, spec.arm.home + 0.01).command
    with pytest.raises(ValueError, match="read-only"):
        command.q[0] = 0.0
    mine = spec.arm.home.copy()
    guard.reset(mine)
    mine += 1.0
    np.testing.assert_array_equal(guard.commanded.q, spec.arm.home)


def test_a_twin_keeps_the_same_limits_and_counts_for_itself(spec, guard):
    far = spec.arm.home + np.array([0.4, 0.0, 0.0, 0.0, 0.0, 0.0])
    expected = [wish(guard, far).command.q for _ in range(5)]
    counted, commanded = dict(guard.interventions), guard.commanded
    twin = guard.twin()
    assert (twin.commands, dict(twin.interventions)) == (0, {})
    twin.reset(spec.arm.home)
    for q in expected:
        np.testing.assert_array_equal(wish(twin, far).command.q, q)
    assert (twin.commands, guard.commands) == (5, 5)
    assert dict(guard.interventions) == counted == dict(twin.interventions)
    assert guard.commanded is commanded


def test_the_gripper_is_open_after_a_reset_unless_said_otherwise(spec, guard):
    guard.reset(spec.arm.home, 0.4)
    assert guard.commanded.gripper == 0.4
    guard.reset(spec.arm.home)
    assert guard.commanded.gripper == 0.0


@pytest.mark.parametrize("size", [1.0, 1e6, 1e150, 1e300])
def test_a_wish_however_far_away_is_a_direction(spec, guard, size):
    direction = np.array([0.0, 0.0, 0.0, 0.0, -0.5, 1.0])
    wish(guard, guard.commanded.q + size * direction)
    np.testing.assert_allclose(
        guard.velocity, JOINT_SHARE * CONFIG.max_joint_acceleration_rad_s2 * PERIOD_S * direction
    )


def test_asking_counts_nothing_and_moves_nothing(spec, guard):
    wish(guard, spec.arm.home + 0.01)
    before = guard.commanded, guard.velocity.copy(), guard.commands, dict(guard.interventions)
    guard.admits(spec.arm.home)
    guard.admits(spec.arm.home + np.array([np.pi, 0, 0, 0, 0, 0]))
    assert guard.commanded is before[0]
    np.testing.assert_array_equal(guard.velocity, before[1])
    assert (guard.commands, dict(guard.interventions)) == before[2:]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(("outside", "limit"), [(0.0, None), (0.0029, None), (0.0031, "workspace")])
def test_an_arm_may_rest_a_little_outside_of_any_wall(spec, kinematics, axis, side, outside, limit):
    tool = kinematics.tcp(spec.arm.home).position
    walls = {-1: tool - 0.3, 1: tool + 0.3}
    walls[side][axis] = tool[axis] - side * outside
    guard = Guard(spec, GuardConfig(workspace=Box(low=tuple(walls[-1]), high=tuple(walls[1]))), kinematics)
    guard.reset(spec.arm.home)
    assert guard.admits(spec.arm.home) == limit


def test_a_contract_holds_every_limit(guard):
    assert GuardConfig.model_validate(guard.to_json()) == CONFIG


def test_the_whole_of_the_acceleration_is_used(spec, guard):
    """From rest, a far wish speeds up by the limit in every period, and stopping takes as many as starting."""
    change = JOINT_SHARE * CONFIG.max_joint_acceleration_rad_s2 * PERIOD_S
    turn = np.eye(len(spec.arm.home))[5]
    for count in (1, 2, 3):
        wish(guard, guard.commanded.q + turn)
        np.testing.assert_allclose(guard.velocity, count * change * turn, rtol=1e-12)
    for count in (2, 1, 0):
        wish(guard, guard.commanded.q)
        np.testing.assert_allclose(guard.velocity, count * change * turn, atol=1e-12)


def test_a_wish_is_followed_as_near_to_a_wall_as_braking_allows(spec, kinematics):
    """Bisection ends within a hundredth of the way from braking to the wish, so that the arm gets near the wall."""
    x, y, z = kinematics.tcp(spec.arm.home).position
    box = Box(low=(x - 0.3, y - 0.3, z - 0.3), high=(x + 0.3, y + 0.3, z + 0.03))
    guard = Guard(spec, GuardConfig(workspace=box), kinematics)
    for _ in range(60):
        wish(guard, guard.commanded.q + np.array([0.0, -0.02, 0.0, 0.0, 0.0, 0.0]))
    height = kinematics.tcp(guard.commanded.q).position[2]
    assert z + 0.03 - WALL_M - 1e-3 < height <= z + 0.03 - WALL_M + 1e-9


# An invented arm: seven joints that move the tool along straight lines, and no links that could touch.
DIRECTIONS = np.random.default_rng(5).normal(size=(3, 7)) * 0.05
STOP = 2.75
LIMITS = np.full(7, STOP)
WIDE = GuardConfig(workspace=Box(low=(-5, -5, -5), high=(5, 5, 5)), max_tcp_speed_m_s=2.0)


class Straight:
    """Kinematics of the invented arm."""

    clearance_m = 0.0

    def tcp_and_jacobian(self, q):
        return Pose(DIRECTIONS @ q, np.eye(3)), DIRECTIONS

    def posture(self, q):
        return Posture(q, *self.tcp_and_jacobian(q))

    def too_close(self, posture):
        return False


class InventedArm:
    """Seven joints between stops, with the same speed limit everywhere, or with one that depends on the posture."""

    home, lower, upper, velocity = np.zeros(7), -LIMITS, LIMITS, np.full(7, 2.6)
    servo = Servo((1000.0,) * 7)

    def __init__(self, joint_speeds=None):
        self.joint_speeds = joint_speeds

    def velocity_at(self, q):
        return (-self.velocity, self.velocity) if self.joint_speeds is None else self.joint_speeds(q)


def spec_of(joint_speeds=None):
    arm = InventedArm(joint_speeds)
    return RobotSpec(arm=arm, gripper=ROBOTIQ_2F85, control_rate_hz=20.0, tcp_offset_m=0.1, table_height_m=0.0)


def shrinking(steepness):
    """Limits that fall with the root of the way to the stop, as those of the FR3 do, to 0 a little before it."""

    def joint_speeds(q):
        towards = np.sqrt(np.maximum(2 * steepness * (STOP - np.array([q, -q]) - 0.02), 0.0)) - 0.1
        upper, lower = np.clip(towards, 0.0, 2.6)
        return -lower, upper

    return spec_of(joint_speeds)


def assert_speed_limits_kept(spec, path):
    share = JOINT_SHARE * WIDE.joint_speed_fraction * (1 + 2e-6)
    velocity = np.diff(path, axis=0) / PERIOD_S
    for before, after, v in zip(path[:-1], path[1:], velocity, strict=True):
        for q in (before, after):
            lower, upper = spec.arm.velocity_at(q)
            assert (v <= share * upper + 1e-8).all() and (v >= share * lower - 1e-8).all()
    changes = np.diff(np.vstack([np.zeros(7), velocity]), axis=0) / PERIOD_S
    assert np.abs(changes).max() <= WIDE.max_joint_acceleration_rad_s2


def follow(guard, wishes):
    path = [guard.commanded.q]
    for q in wishes:
        wish(guard, q)
        path.append(guard.commanded.q)
    return np.array(path)


# At a steepness s and half of the limit, keeping to it takes braking with s / 4; the guard's own limit is 7.76 rad/s^2.
@pytest.mark.parametrize("steepness", [1.0, 12.0, 40.0])
@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_limit_that_shrinks_towards_the_stop_holds_all_the_way_there(steepness, direction):
    spec = shrinking(steepness)
    guard = Guard(spec, WIDE, Straight())
    joints = np.array([1.0, 0, 0, 0.4, 0, 0, 0])
    path = follow(guard, [direction * joints * 10] * 300)
    assert_speed_limits_kept(spec, path)
    assert np.abs(path[:, 0]).max() > STOP - 0.3
    assert guard.interventions["joint_speed"] > 10
    # There it may still turn back, and does so at the speed that is allowed in that direction.
    back = follow(guard, [-direction * joints * 10] * 100)
    assert_speed_limits_kept(spec, back)
    assert direction * back[-1, 0] < 0.0


def test_a_limit_that_shrinks_holds_whatever_is_wished():
    spec = shrinking(20.0)
    guard, rng = Guard(spec, WIDE, Straight()), np.random.default_rng(0)
    wishes = [q for _ in range(40) for q in [rng.uniform(-6.0, 6.0, 7)] * rng.integers(1, 40)]
    path = follow(guard, wishes)
    assert_speed_limits_kept(spec, path)
    assert np.abs(path).max() > 2.0
    stopping = follow(guard, [guard.commanded.q] * 10)
    np.testing.assert_array_equal(stopping[-1], stopping[-2])


def test_a_limit_that_rises_on_the_way_is_used_where_the_arm_is():
    spec = spec_of(lambda q: (np.full(7, -0.5), np.full(7, 0.5 + max(0.0, float(q[0])))))
    guard = Guard(spec, WIDE, Straight())
    follow(guard, [np.array([10.0] + [0.0] * 6)] * 40)
    fastest = JOINT_SHARE * WIDE.joint_speed_fraction * (0.5 + guard.commanded.q[0])
    assert guard.velocity[0] > 0.9 * fastest > 0.5


def test_a_constant_limit_that_is_asked_for_rules_as_one_that_is_given():
    given, asked = spec_of(), spec_of(lambda q: (-InventedArm.velocity, InventedArm.velocity.copy()))
    wishes = np.random.default_rng(1).uniform(-3.0, 3.0, (200, 7))
    paths = [follow(Guard(spec, WIDE, Straight()), wishes) for spec in (given, asked)]
    np.testing.assert_array_equal(*paths)


def test_each_direction_has_its_own_limit():
    spec = spec_of(lambda q: (np.full(7, -0.5), np.full(7, 2.0)))
    for direction, fastest in ((1.0, 2.0), (-1.0, 0.5)):
        guard = Guard(spec, WIDE, Straight())
        follow(guard, [direction * np.full(7, 2.0)] * 8)
        np.testing.assert_allclose(guard.velocity, direction * JOINT_SHARE * 0.5 * fastest, rtol=1e-9)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_joint_that_may_not_move_stops_the_wish_and_nothing_is_divided_by_zero(direction):
    some, none = np.full(7, 1.0), np.array([0.0] + [1.0] * 6)
    spec = spec_of(lambda q: (-some, none) if direction > 0 else (-none, some))
    guard = Guard(spec, WIDE, Straight())
    with np.errstate(all="raise"):
        follow(guard, [direction * np.full(7, 1.0)] * 5)
        assert np.abs(guard.velocity).max() < 1e-8
        follow(guard, [direction * np.array([-1.0] + [1.0] * 6)] * 5)
    assert direction * guard.velocity[0] < -0.1


@pytest.mark.parametrize("direction", [1.0, -1.0])
@pytest.mark.parametrize("excess", [0.99, 1.01, 1.2, 1.45, 2.0])
def test_a_wish_a_little_too_fast_is_slowed_to_the_limit_and_one_below_is_left_alone(excess, direction):
    guard = Guard(spec_of(), WIDE, Straight())
    limit = JOINT_SHARE * WIDE.joint_speed_fraction * InventedArm.velocity[0]
    wished = direction * excess * limit * np.array([1.0, 0.3, 0, 0, 0, 0, 0])
    for _ in range(8):
        ruling = wish(guard, guard.commanded.q + wished * PERIOD_S)
    np.testing.assert_allclose(guard.velocity, wished / max(1.0, excess))
    assert ruling.reasons == (("joint_speed",) if excess > 1.0 else ())


def test_the_largest_part_of_a_wish_is_taken_to_a_thirtysecond():
    """At a wall, between braking and the wish; a thirtysecond more of that way would have been changed, too."""
    box = Box(low=(-5, -5, -5), high=(5, 5, 5)).model_copy(update={"high": (0.12, 5, 5)})
    config = WIDE.model_copy(update={"workspace": box})
    guard, along = Guard(spec_of(), config, Straight()), np.sign(DIRECTIONS[0])
    change, stopped = JOINT_SHARE * config.max_joint_acceleration_rad_s2 * PERIOD_S, 0
    for _ in range(30):
        one, other = guard.twin(), guard.twin()
        last, here = guard.velocity, guard.commanded.q
        brake = last * max(0.0, 1.0 - change / max(np.abs(last).max(), 1e-12))
        limited = np.clip(0.6 * along, last - change, last + change)
        if "workspace" in wish(guard, here + 0.6 * along * PERIOD_S).reasons:
            stopped += 1
            share = float((guard.velocity - brake)[0] / (limited - brake)[0])
            assert -1e-9 <= share < 1.0
            nearer, further = (brake + part * (limited - brake) for part in (share, share + 1 / 32 + 1e-6))
            assert wish(one, here + nearer * PERIOD_S).reasons == ()
            assert "workspace" in wish(other, here + further * PERIOD_S).reasons
    assert stopped > 5


def test_a_command_for_another_arm_is_refused():
    guard = Guard(spec_of(), WIDE, Straight())
    with pytest.raises(CommandRefusedError, match=r"shape \(6,\) was refused: the arm has 7 joints"):
        wish(guard, np.zeros(6))
