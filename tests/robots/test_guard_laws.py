"""What a guard promises besides its limits: who may change what, refusals, and arms that are not like a UR5e."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from td3robot.config import Box, GuardConfig
from td3robot.errors import CommandRefusedError
from td3robot.robots.arms.model import ArmModel, Chain, Region, Servo
from td3robot.robots.grippers.robotiq_2f85 import ROBOTIQ_2F85
from td3robot.robots.guard import JOINT_SHARE, WALL_M, Guard
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics, Links
from td3robot.state import JointCommand, RobotState

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
    np.testing.assert_array_equal(guard.commanded.q, commanded.q)


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
        guard.velocity[0], JOINT_SHARE * CONFIG.max_joint_acceleration_rad_s2 * PERIOD_S * direction
    )


def test_asking_counts_nothing_and_moves_nothing(spec, guard):
    wish(guard, spec.arm.home + 0.01)
    before = guard.q.copy(), guard.velocity.copy(), guard.commands, dict(guard.interventions)
    guard.admits(spec.arm.home)
    guard.admits(spec.arm.home + np.array([np.pi, 0, 0, 0, 0, 0]))
    np.testing.assert_array_equal(guard.q, before[0])
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
        np.testing.assert_allclose(guard.velocity[0], count * change * turn, rtol=1e-12)
    for count in (2, 1, 0):
        wish(guard, guard.commanded.q)
        np.testing.assert_allclose(guard.velocity[0], count * change * turn, atol=1e-12)


def test_a_wish_is_followed_as_near_to_a_wall_as_braking_allows(spec, kinematics):
    """Bisection ends within a hundredth of the way from braking to the wish, so that the arm gets near the wall."""
    x, y, z = kinematics.tcp(spec.arm.home).position
    box = Box(low=(x - 0.3, y - 0.3, z - 0.3), high=(x + 0.3, y + 0.3, z + 0.03))
    guard = Guard(spec, GuardConfig(workspace=box), kinematics)
    for _ in range(60):
        wish(guard, guard.commanded.q + np.array([0.0, -0.02, 0.0, 0.0, 0.0, 0.0]))
    height = kinematics.tcp(guard.commanded.q).position[2]
    assert z + 0.03 - WALL_M - 1e-3 < height <= z + 0.03 - WALL_M + 1e-9


# An invented arm: seven joints with links of a millimetre, which could touch nothing and hardly move the tool.
STOP = 2.75
STOPS = np.full(7, STOP)
FASTEST = np.full(7, 2.6)
NEAR = Region((-5.0, -5.0, -5.0), (5.0, 5.0, 5.0))
TINY = ArmModel(
    name="tiny",
    joint_names=tuple(f"joint_{number}" for number in range(7)),
    chain=Chain.from_dh(a=[0.001] * 7, d=[0.001] * 7, alpha=[np.pi / 2] * 7),
    lower=-STOPS,
    upper=STOPS,
    velocity=FASTEST,
    home=np.zeros(7),
    servo=Servo((1000.0,) * 7),
    payload_kg=1.0,
    regions=dict.fromkeys(("workspace", "goals", "patch", "table"), NEAR),
    make_spec=lambda: pytest.fail("nobody needs this arm's model"),
)
WIDE = GuardConfig(workspace=Box(low=(-5, -5, -5), high=(5, 5, 5)), max_tcp_speed_m_s=2.0)
# A joint's end as far away as this leaves its speed limit as it is.
FAR_AWAY = 1e6


class Untouchable(Kinematics):
    """Kinematics of an arm without a body."""

    def _compile(self, spec):
        self.spec, self.links = spec, Links.of(spec)

    def too_close(self, q):
        return False


def spec_of(lowest=-FAR_AWAY, highest=FAR_AWAY, deceleration=1.0, offset=0.0):
    """Give the invented arm joint speed limits that fall, with the way to the ends, to 0 at the offset."""
    envelope = np.array([np.broadcast_to(value, 7) for value in (lowest, highest, deceleration, offset, 0.0)])
    return spec_with(replace(TINY, speed_envelope=envelope))


def spec_with(arm):
    return RobotSpec(
        arm=arm,
        gripper=ROBOTIQ_2F85,
        law=arm.servo.law,
        control_rate_hz=20.0,
        tcp_offset_m=0.001,
        table_height_m=0.0,
    )


def guard_of(spec):
    return Guard(spec, WIDE, Untouchable(spec))


def shrinking(deceleration):
    """Limits that fall as those of the FR3 do, to 0 a little before the stop."""
    return spec_of(0.02 - STOP, STOP - 0.02, deceleration, 0.1)


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
    guard = guard_of(spec)
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
    guard, rng = guard_of(spec), np.random.default_rng(0)
    wishes = [q for _ in range(40) for q in [rng.uniform(-6.0, 6.0, 7)] * rng.integers(1, 40)]
    path = follow(guard, wishes)
    assert_speed_limits_kept(spec, path)
    assert np.abs(path).max() > 2.0
    stopping = follow(guard, [guard.commanded.q] * 10)
    np.testing.assert_array_equal(stopping[-1], stopping[-2])


def test_limits_that_fall_only_beyond_the_stops_are_as_constant_ones():
    wishes = np.random.default_rng(1).uniform(-3.0, 3.0, (200, 7))
    paths = [follow(guard_of(spec), wishes) for spec in (spec_with(TINY), spec_of())]
    np.testing.assert_array_equal(*paths)


def test_each_direction_has_its_own_limit():
    spec = spec_of(-(0.5**2) * FAR_AWAY, 2.0**2 * FAR_AWAY, 0.5 / FAR_AWAY)
    for direction, fastest in ((1.0, 2.0), (-1.0, 0.5)):
        guard = guard_of(spec)
        follow(guard, [direction * np.full(7, 2.0)] * 8)
        np.testing.assert_allclose(guard.velocity[0], direction * JOINT_SHARE * 0.5 * fastest, rtol=1e-5)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_joint_that_may_not_move_stops_the_wish_and_nothing_is_divided_by_zero(direction):
    end = np.array([0.0] + [FAR_AWAY] * 6)
    guard = guard_of(spec_of(highest=end) if direction > 0 else spec_of(lowest=-end))
    with np.errstate(all="raise"):
        follow(guard, [direction * np.full(7, 1.0)] * 5)
        assert np.abs(guard.velocity).max() < 1e-8
        follow(guard, [direction * np.array([-1.0] + [1.0] * 6)] * 5)
    assert direction * guard.velocity[0, 0] < -0.1


@pytest.mark.parametrize("direction", [1.0, -1.0])
@pytest.mark.parametrize("excess", [0.99, 1.01, 1.2, 1.45, 2.0])
def test_a_wish_a_little_too_fast_is_slowed_to_the_limit_and_one_below_is_left_alone(excess, direction):
    guard = guard_of(spec_with(TINY))
    limit = JOINT_SHARE * WIDE.joint_speed_fraction * FASTEST[0]
    wished = direction * excess * limit * np.array([1.0, 0.3, 0, 0, 0, 0, 0])
    for _ in range(8):
        ruling = wish(guard, guard.commanded.q + wished * PERIOD_S)
    np.testing.assert_allclose(guard.velocity[0], wished / max(1.0, excess))
    assert ruling.reasons == (("joint_speed",) if excess > 1.0 else ())


def test_the_largest_part_of_a_wish_is_taken_to_a_thirtysecond(spec, kinematics):
    """At a wall, between braking and the wish; a thirtysecond more of that way would have been changed, too."""
    x, y, z = kinematics.tcp(spec.arm.home).position
    box = Box(low=(x - 0.5, y - 0.5, z - 0.5), high=(x + 0.5, y + 0.5, z + 0.05))
    guard = Guard(spec, GuardConfig(workspace=box, max_tcp_speed_m_s=2.0), kinematics)
    along = np.array([0.0, -0.6, 0.0, 0.0, 0.0, 0.0])  # [rad/s]: the shoulder lifts the tool
    change, stopped = JOINT_SHARE * guard.config.max_joint_acceleration_rad_s2 * PERIOD_S, 0
    for _ in range(30):
        one, other = guard.twin(), guard.twin()
        last, here = guard.velocity[0], guard.commanded.q
        brake = last * max(0.0, 1.0 - change / max(np.abs(last).max(), 1e-12))
        limited = np.clip(along, last - change, last + change)
        if "workspace" in wish(guard, here + along * PERIOD_S).reasons:
            stopped += 1
            share = float((guard.velocity[0] - brake)[1] / (limited - brake)[1])
            assert -1e-9 <= share < 1.0
            nearer, further = (brake + part * (limited - brake) for part in (share, share + 1 / 32 + 1e-6))
            if share > 1e-9:  # an arm that has stopped may still swing by 0.1 mm, within the margin to the wall
                assert wish(one, here + nearer * PERIOD_S).reasons == ()
            assert "workspace" in wish(other, here + further * PERIOD_S).reasons
    assert stopped > 5


def test_a_command_for_another_arm_is_refused():
    guard = guard_of(spec_with(TINY))
    with pytest.raises(CommandRefusedError, match=r"shape \(6,\) was refused: the arm has 7 joints"):
        wish(guard, np.zeros(6))


# A guard over rows is as many guards over one.
ROWS = 3
CALM = np.array([0.002, -0.001, 0.003, 0.002, -0.002, 0.001])


def wishes_of(spec, seed, count):
    """Give desired postures (count, rows, n): far away, each kept for a while."""
    rng = np.random.default_rng(seed)
    return spec.arm.home + np.repeat(3.0 * rng.normal(size=(count // 20, ROWS, len(spec.arm.home))), 20, axis=0)


def starts_of(guard, seed):
    rng, found = np.random.default_rng(seed), []
    while len(found) < ROWS:
        q = guard.home + 0.3 * rng.normal(size=len(guard.home))
        if guard.admits(q) is None:
            found.append(q)
    return found


def decide(guard, desired, rows, gripper=0.0):
    rows = np.asarray(rows)
    return guard.decide(desired, np.full(len(rows), gripper), guard.q[rows], np.zeros(len(rows)), rows)


def state_of(guard):
    return guard.q.copy(), guard.velocity.copy(), guard.gripper.copy(), guard.commands, dict(guard.interventions)


def assert_same_state(one, other):
    for first, second in zip(one, other, strict=True):
        np.testing.assert_equal(first, second)


def test_deciding_over_rows_is_filtering_one_by_one(spec, guard):
    together, starts = guard.over(ROWS), starts_of(guard, 0)
    alone = [guard.over(1) for _ in starts]
    for row, q in enumerate(starts):
        together.reset(q, 0.1 * row, row)
        alone[row].reset(q, 0.1 * row)
    for step, desired in enumerate(wishes_of(spec, 1, 120)):
        gripper = np.array([-0.2, 0.01 * step, 0.5])
        reasons = together.decide(desired, gripper, together.q, np.zeros(ROWS), np.arange(ROWS))
        for row, single in enumerate(alone):
            decision = single.filter(JointCommand(desired[row], gripper[row]), at_rest(single.commanded.q), 0.0)
            assert decision.reasons == reasons[row]
            np.testing.assert_array_equal(decision.command.q, together.q[row])
            np.testing.assert_array_equal(single.velocity[0], together.velocity[row])
            assert decision.command.gripper == together.gripper[row]
    assert together.commands == sum(single.commands for single in alone)
    assert together.interventions == sum((single.interventions for single in alone), start=Counter())
    assert {"joint_speed", "tcp_speed", "acceleration", "workspace"} <= set(together.interventions)


def test_what_a_row_gets_depends_on_no_other_row(spec, guard):
    """One that is calm beside others that are anything but, and decided on alone, in any order."""
    wild = wishes_of(spec, 2, 60)
    paths = []
    for order in ([0], [0, 1, 2], [2, 1, 0], [1, 0]):
        rows, path = guard.over(ROWS), []
        for desired in wild:
            desired[0] = rows.q[0] + CALM
            assert decide(rows, desired[order], order)[order.index(0)] == ()
            path.append(rows.q[0].copy())
        assert order == [0] or rows.interventions
        paths.append(path)
    for path in paths[1:]:
        np.testing.assert_array_equal(path, paths[0])


def test_rows_that_are_not_decided_on_stay_as_they_are(spec, guard):
    rows = guard.over(ROWS)
    for desired in wishes_of(spec, 3, 20):
        decide(rows, desired, range(ROWS))
    before = state_of(rows)
    decide(rows, wishes_of(spec, 4, 20)[0, :1], [1])
    rows.reset(spec.arm.home, row=1)
    for kept, now in zip(before[:3], state_of(rows)[:3], strict=True):
        np.testing.assert_array_equal(kept[[0, 2]], now[[0, 2]])


@pytest.mark.parametrize("row", range(ROWS))
@pytest.mark.parametrize(
    ("wrong", "named"),
    [("desired", "not finite"), ("gripper", "not finite"), ("measured", "not usable"), ("age_s", "nan s old")],
)
def test_a_number_that_is_none_in_one_row_refuses_all_and_changes_nothing(spec, guard, row, wrong, named):
    rows = guard.over(ROWS)
    for desired in wishes_of(spec, 5, 20):
        decide(rows, desired, range(ROWS))
    before, count = state_of(rows), np.arange(ROWS)
    given = {
        "desired": rows.q + CALM,
        "gripper": np.full(ROWS, 0.5),
        "measured": rows.q.copy(),
        "age_s": np.zeros(ROWS),
    }
    given[wrong][row] = np.nan
    with pytest.raises(CommandRefusedError, match=f"(?s){named}.*nothing was sent"):
        rows.decide(**given, rows=count)
    assert_same_state(before, state_of(rows))


@pytest.mark.parametrize(("age_s", "named"), [(1.0, "1.000 s old"), (-1.0, "1.000 s in the future")])
def test_a_state_of_one_row_that_is_not_of_now_refuses_all(guard, age_s, named):
    rows = guard.over(ROWS)
    with pytest.raises(CommandRefusedError, match=named):
        rows.decide(rows.q + CALM, rows.gripper, rows.q, np.array([0.0, age_s, 0.0]), np.arange(ROWS))


def test_a_twin_goes_on_from_the_same_state_and_shares_none_of_it(spec, guard):
    rows, wishes = guard.over(ROWS), wishes_of(spec, 6, 40)
    for desired in wishes[:20]:
        decide(rows, desired, range(ROWS))
    twin, before = rows.twin(), state_of(rows)
    ahead = []
    for desired in wishes[20:]:
        decide(twin, desired, range(ROWS))
        ahead.append(twin.q.copy())
    twin.reset(spec.arm.home, 0.7, 1)
    assert_same_state(before, state_of(rows))
    for desired, expected in zip(wishes[20:], ahead, strict=True):
        decide(rows, desired, range(ROWS))
        np.testing.assert_array_equal(rows.q, expected)
