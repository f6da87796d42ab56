"""What actions ask of the arm, followed without guard and physics: what is desired becomes the next posture."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td3robot.build import robot_spec
from td3robot.config import ActionConfig, GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.config.robot import TURN_RAD_S
from td3robot.envs import actions
from td3robot.envs.actions import make_action_kind, move_to_posture, signed_share
from td3robot.robots.guard import Guard
from td3robot.robots.kinematics import Kinematics
from td3robot.row_math import turns_down
from td3robot.state import JointCommand, RobotState

SPEC = robot_spec(RobotConfig())
GUARD = GuardConfig()
KINEMATICS = Kinematics(SPEC, GUARD.clearance_m)
PERIOD = SPEC.period_s
FULL_SPEED = 0.9 * GUARD.max_tcp_speed_m_s


def make(**changes):
    config = ActionConfig(**{"dead_zone": 0.0} | changes)
    return make_action_kind(config, GUARD, SPEC, KINEMATICS, uses_gripper=True, turns_tool=True)


@pytest.fixture
def at_once(monkeypatch):
    """Have arms take on what is desired within one period."""
    monkeypatch.setattr(actions, "RESPONSE_S", PERIOD)


class Follower:
    """Take everything that is desired for done, from home on; one row."""

    def __init__(self, kind):
        self.kind = kind
        self.q, self.velocity = SPEC.arm.home[None], np.zeros((1, 6))
        self.gripper = self.intent = np.zeros(1)

    def step(self, *action):
        action = np.array([action], np.float32)
        self.intent = self.kind.intend(action, self.intent)
        self.gripper = self.kind.gripper_command(self.intent, self.gripper)
        desired = self.kind.desired(action, self.q, self.velocity, self.gripper, np.zeros(1))
        self.velocity, self.q = (desired - self.q) / PERIOD, desired

    def jacobian(self):
        return KINEMATICS.tools(self.q).jacobian[0]

    def tool_velocity(self):
        """Give the tool's linear and angular velocity (6,)."""
        return self.jacobian() @ self.velocity[0]

    def tool(self):
        return KINEMATICS.tcp(self.q[0])


@pytest.mark.parametrize("direction", [(1, 0, 0), (0, -1, 0), (0, 0, 1), (-0.6, 0, 0.8)])
def test_a_full_action_approaches_full_speed_by_the_response_each_period(direction):
    follower, share = Follower(make(exponent=1.0)), 0.0
    for _ in range(12):
        follower.step(*direction, 0, -1)
        share += 0.4 * (1 - share)
        np.testing.assert_allclose(follower.tool_velocity()[:3], share * FULL_SPEED * np.array(direction), atol=0.02)
    assert np.linalg.norm(follower.tool_velocity()[:3]) == pytest.approx(FULL_SPEED, rel=0.07)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
@pytest.mark.usefixtures("at_once")
def test_speed_grows_with_the_exponent_of_the_action_s_components(exponent):
    follower = Follower(make(exponent=exponent))
    follower.step(0, 0.5, 0, 0, -1)
    assert np.linalg.norm(follower.tool_velocity()[:3]) == pytest.approx(0.5**exponent * FULL_SPEED, rel=0.03)


@pytest.mark.parametrize(("length", "share"), [(0.39, 0.0), (0.4, 0.0), (0.7, 0.25), (1.0, 1.0)])
@pytest.mark.usefixtures("at_once")
def test_actions_in_the_dead_zone_ask_for_rest_and_speed_grows_from_there(length, share):
    dead = {"dead_zone": 0.4, "exponent": 2.0}
    follower = Follower(make(**dead))
    follower.step(0, -length, 0, -length, -1)
    assert np.linalg.norm(follower.tool_velocity()[:3]) == pytest.approx(share * FULL_SPEED, rel=0.03, abs=1e-9)
    rate = max(-share * TURN_RAD_S, -0.8 * GUARD.max_joint_acceleration_rad_s2 * PERIOD)
    assert follower.tool_velocity()[5] == pytest.approx(rate, rel=0.05, abs=1e-4)

    joints = Follower(make(kind="joint_delta", speed_fraction=0.2, **dead))
    joints.step(0, 0, 0, 0, -length, 0, -1)
    assert joints.velocity[0, 4] == pytest.approx(-share * full_speeds(0.2)[4], rel=1e-6, abs=1e-9)


@settings(deadline=None)
@given(st.floats(1e-6, 1.0), st.sampled_from([0.0, 0.4]), st.sampled_from([1.0, 2.0, 3.0]))
def test_the_length_of_an_action_follows_from_the_share_of_full_speed(share, dead_zone, exponent):
    config = ActionConfig(dead_zone=dead_zone, exponent=exponent)
    for sign in (1.0, -1.0):
        found = signed_share(sign * config.length(share), dead_zone, exponent)
        assert found == pytest.approx(sign * share, rel=1e-6)
    assert config.length(0.0) == 0.0


def test_a_contract_says_what_actions_mean():
    terms = make(dead_zone=0.4).to_json()
    assert terms.items() >= {"dead_zone": 0.4, "per_axis": True, "wait_for_gripper": True, "response": 0.4}.items()


@pytest.mark.usefixtures("at_once")
def test_an_axis_at_full_speed_leaves_the_others_fine():
    follower = Follower(make(exponent=2.0))
    follower.step(0.5, 0, 1, 0, -1)
    np.testing.assert_allclose(follower.tool_velocity()[0], 0.25 / np.hypot(0.25, 1.0) * FULL_SPEED, rtol=0.03)


@pytest.mark.usefixtures("at_once")
def test_the_length_of_a_velocity_is_cut_and_not_its_components():
    follower = Follower(make())
    follower.step(1, 1, 0, 0, -1)
    np.testing.assert_allclose(follower.tool_velocity()[:2], FULL_SPEED / np.sqrt(2), rtol=0.03)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_tool_turns_about_the_vertical_at_its_rate_and_reverses_within_the_guard_s_acceleration(sign):
    follower = Follower(make())
    for _ in range(15):
        follower.step(0, 0, 0, sign, -1)
    assert follower.tool_velocity()[5] == pytest.approx(sign * TURN_RAD_S, rel=0.1)
    for _ in range(15):
        before = follower.velocity
        follower.step(0, 0, 0, -sign, -1)
        assert np.abs(follower.velocity - before).max() <= GUARD.max_joint_acceleration_rad_s2 * PERIOD
    assert follower.tool_velocity()[5] == pytest.approx(-sign * TURN_RAD_S, rel=0.1)


def test_the_tool_keeps_pointing_down_while_it_goes_and_turns():
    follower = Follower(make())
    rng = np.random.default_rng(0)
    for _ in range(20):  # not to the edge of the arm's reach, where position comes first
        action = rng.uniform(-1, 1, 4)
        for _ in range(5):
            follower.step(*action, -1)
        assert follower.tool().rotation[2, 2] < -0.9998


def test_the_tool_slides_along_the_wall_of_the_workspace():
    follower = Follower(make())
    for _ in range(120):
        follower.step(0.3, 0, -1, 0, -1)
    low = GUARD.workspace.low[2]
    assert low <= follower.tool().position[2] <= low + 0.01
    assert follower.tool_velocity()[0] > 0.005


def tilt_of(follower):
    return float(np.linalg.norm(turns_down(follower.tool().rotation[None])))


def full_speeds(speed_fraction):
    """Give the joint speeds of a full ``joint_delta``."""
    return SPEC.arm.velocity * GUARD.joint_speed_fraction * speed_fraction


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joints_that_ask_for_more_slide_along_the_wall_of_the_workspace(axis, sign):
    """Joints that move the tool into a wall and along it; without the slide, the guard would stop them there."""
    middle, along = KINEMATICS.tcp(SPEC.arm.home).position, (axis + 1) % 3
    half = np.full(3, 0.3)
    half[axis] = 0.05
    guard = GuardConfig(workspace={"low": tuple(middle - half), "high": tuple(middle + half)})
    config = ActionConfig(kind="joint_delta", speed_fraction=0.4, dead_zone=0.0, exponent=1.0)
    kind = make_action_kind(config, guard, SPEC, KINEMATICS, uses_gripper=True, turns_tool=True)
    follower, direction, beyond = Follower(kind), np.zeros(6), []
    direction[axis], direction[along] = sign, 0.4
    for _ in range(40):
        joints = np.linalg.lstsq(follower.jacobian(), direction, rcond=None)[0] / full_speeds(0.4)
        follower.step(*(joints / np.abs(joints).max()), -1)
        beyond.append(sign * (follower.tool().position[axis] - middle[axis]) - 0.05)
    assert max(beyond) < -0.003
    assert beyond[-1] == pytest.approx(-0.005, abs=0.003)
    assert follower.tool_velocity()[along] > 0.01
    assert tilt_of(follower) < 0.05


def test_a_tilted_tool_slides_higher():
    """One finger is nearer to the table."""
    follower = Follower(make(kind="joint_delta", speed_fraction=0.4))
    turn, down = np.array([0.0, 0, 0, 1, 0, 0]), np.array([0.0, 0, -1, 0, 0, 0])
    for direction in [turn] * 5 + [down] * 60:
        joints = np.linalg.lstsq(follower.jacobian(), direction, rcond=None)[0] / full_speeds(0.4)
        follower.step(*(joints / np.abs(joints).max()), -1)
    height, tilt = follower.tool().position[2] - GUARD.workspace.low[2] - 0.005, tilt_of(follower)
    assert tilt > 0.1
    assert height == pytest.approx(0.08 * tilt, abs=0.002)


def test_the_contract_of_joint_actions_says_how_they_slide():
    assert make(kind="joint_delta").to_json()["slide"] == {"margin_m": 0.005, "tilt_radius_m": 0.08}


def test_a_close_is_one_position_and_an_open_is_one():
    """Full action moves the intent by 0.15 in a period of 50 ms: five periods close, five more open again."""
    follower = Follower(make())
    told = []
    for wished in [1.0] * 8 + [-1.0] * 5:
        follower.step(0, 0, 0, 0, wished)
        told.append(float(follower.gripper[0]))
    assert told == [0.0] * 4 + [1.0] * 8 + [0.0]


def test_the_intent_grows_with_the_action_and_ends_at_open_and_closed():
    follower = Follower(make())
    intents = []
    for wished in (-1.0, 0.5, -0.2, *[1.0] * 9):
        follower.step(0, 0, 0, 0, wished)
        intents.append(float(follower.intent[0]))
    np.testing.assert_allclose(intents, [0.0, 0.075, 0.045, 0.195, 0.345, 0.495, 0.645, 0.795, 0.945, 1.0, 1.0, 1.0])


def test_a_dithering_policy_neither_closes_nor_opens():
    follower = Follower(make())
    told = []
    for wished in [1.0] * 3 + [0.3, -0.3] * 20 + [1.0] * 2 + [0.6, -0.6] * 20:
        follower.step(0, 0, 0, 0, wished)
        told.append(float(follower.gripper[0]))
    assert told == [0.0] * 44 + [1.0] * 41


def test_an_action_without_a_gripper_has_no_intent():
    kind = make_action_kind(ActionConfig(), GUARD, SPEC, KINEMATICS, uses_gripper=False, turns_tool=False)
    assert kind.intend(np.ones((1, 3), np.float32), np.array([0.4])) == 0.4


def test_each_component_of_a_joint_action_moves_its_joint():
    follower, full = Follower(make(kind="joint_delta", speed_fraction=0.2)), full_speeds(0.2)
    action = np.array([1, -1, 0.5, 0, 0, 0])
    follower.step(*action, -1)
    np.testing.assert_allclose(follower.velocity[0], 0.4 * full * np.sign(action) * action**2, atol=1e-9)


@pytest.mark.usefixtures("at_once")
def test_joints_that_add_up_move_the_tool_no_faster_than_its_limit_and_keep_their_proportions():
    follower, full = Follower(make(kind="joint_delta", speed_fraction=0.2)), full_speeds(0.2)
    linear = follower.jacobian()[:3]
    fastest = np.array([1, 1, 1, 1, 0, 0], np.float32)
    assert np.linalg.norm(linear @ (fastest * full)) > 1.2 * FULL_SPEED  # else there is nothing to see
    follower.step(*fastest, -1)
    velocity = follower.velocity[0]
    assert np.linalg.norm(linear @ velocity) == pytest.approx(FULL_SPEED)
    np.testing.assert_allclose(velocity / full, velocity[0] / full[0] * fastest, atol=1e-9)

    follower = Follower(make(kind="joint_delta", speed_fraction=0.2))
    follower.step(0, 0, 0, 0, 1, 0, -1)
    assert follower.velocity[0, 4] == pytest.approx(full[4])  # the tool hardly moves: nothing is slowed down


@pytest.fixture(scope="module")
def seven():
    """Give an arm with a joint to spare: its spec, geometry, and what actions ask of it."""
    if importlib.util.find_spec("franky_sim") is None:
        pytest.skip("the FR3's model is in the extra 'franka', which is not installed")
    spec = robot_spec(RobotConfig(arm="fr3", gripper="franka_hand"))
    guard = RobotEnvironmentConfig.model_validate({"robot": {"arm": "fr3", "gripper": "franka_hand"}}).guard
    kinematics = Kinematics(spec, guard.clearance_m)
    kind = make_action_kind(ActionConfig(), guard, spec, kinematics, uses_gripper=True, turns_tool=True)
    return spec, kinematics, kind, Guard(spec, guard, kinematics)


def follow(seven, actions):
    """Yield each command that the guard makes of an action, and the tool's speed that the posture term alone has."""
    spec, kinematics, kind, guard = seven
    guard.reset(spec.arm.home)
    for action in actions:
        q, velocity = guard.q.copy(), guard.velocity.copy()
        jacobian, move = kinematics.tools(q).jacobian[0], np.zeros(q.shape[1])
        move_to_posture(kind._numbers, jacobian, q[0], velocity[0], move)
        moved = jacobian @ move / spec.period_s
        state = RobotState(q[0], velocity[0], np.zeros(2), 0.0)
        (desired,) = kind.desired(action[None], q, velocity, np.zeros(1), np.zeros(1))
        yield guard.filter(JointCommand(desired, 0.0), state, 0.0).command.q, moved


def test_a_seven_joint_arm_s_elbow_does_not_wander_and_its_tool_does_not_feel_it(seven):
    rng = np.random.default_rng(0)
    actions = np.repeat(rng.uniform(-1, 1, (250, 5)), 8, axis=0).astype(np.float32)
    rows = list(follow(seven, actions))
    elbow = np.array([q[2] for q, _ in rows])
    assert np.abs(elbow).max() < 0.7  # rad; 0.93 without the posture term
    assert max(np.linalg.norm(moved[:3]) for _, moved in rows) < 1e-3  # m/s
    assert max(np.linalg.norm(moved[3:]) for _, moved in rows) < 2e-3  # rad/s


def test_going_round_and_round_brings_a_seven_joint_arm_back_to_the_same_posture(seven):
    angle = 2 * np.pi * 0.05 / 6 * np.arange(4000)
    circle = np.stack([0.8 * np.cos(angle), 0.8 * np.sin(angle), 0.5 * np.sin(angle), 0.8 * np.cos(angle)], axis=1)
    actions = np.hstack([circle, np.zeros((4000, 1))]).astype(np.float32)
    elbow = np.array([q[2] for q, _ in follow(seven, actions)])
    assert np.abs(elbow).max() < 0.7  # rad; it drifts to 0.97, the end of its way, without the posture term


def test_only_an_arm_with_a_joint_to_spare_has_the_posture_term(seven):
    assert "posture_gain_hz" not in make().to_json()
    assert seven[2].to_json()["posture_gain_hz"] == 1.0


@pytest.mark.parametrize(
    ("rate", "gripper", "waits"),
    [
        (0.2, 1.0, True),
        (0.1, 1.0, False),  # at rest, but for noise
        (0.2, 0.0, False),  # about to open
        (-2.0, 0.0, False),
    ],
)
def test_what_an_action_asks_of_an_arm_that_waits(rate, gripper, waits):
    kind, q, velocity = make(), SPEC.arm.home[None], np.full((1, 6), 0.1)
    action = np.array([[0.1, -0.2, 0.3, 0.4, -0.5]], np.float32)
    desired = kind.desired(action, q, velocity, np.array([gripper]), np.array([rate]))
    anywhere = np.full(1, -np.inf)
    np.testing.assert_array_equal(desired, q + kind.move(0 * action if waits else action, q, velocity, anywhere))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("kind", ["tcp_delta", "joint_delta"])
def test_a_task_keeps_tools_up_and_lifts_none(kind):
    kind, q = make(kind=kind), np.repeat(SPEC.arm.home[None], 4, axis=0)
    height = KINEMATICS.tools(q).position[0, 2]
    down = np.zeros((4, kind.layout.size), np.float32)
    if kind.layout.fields[0].name == "tcp_delta":
        down[:, 2] = -1.0
    else:
        down[:, 1:3] = 0.5, 0.5
    lowest = height + np.array([-np.inf, -0.002, 0.0, 0.05])
    nothing = np.zeros(4)
    desired = kind.desired(down, q, np.zeros_like(q), nothing, nothing, lowest)
    moved = KINEMATICS.tools(desired).position[:, 2] - height
    assert moved[0] < -0.004
    above = moved[1:] - [-0.002, 0.0, 0.0]
    assert above.min() > -5e-4
    assert above.max() < 2e-3  # joint_delta tilts the tool, and keeps it higher for that


@pytest.mark.parametrize("kind", ["tcp_delta", "joint_delta"])
def test_a_row_moves_as_it_would_alone_bit_for_bit(kind):
    kind, rng = make(kind=kind, dead_zone=0.1), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (4, kind.layout.size)).astype(np.float32)
    rows = [actions, SPEC.arm.home + rng.uniform(-0.3, 0.3, (4, 6)), rng.uniform(-0.2, 0.2, (4, 6))]
    rows += [np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.2, 0.2, 0.0, -1.0])]
    desired = kind.desired(*rows)
    for row in range(4):
        np.testing.assert_array_equal(kind.desired(*(each[[row]] for each in rows))[0], desired[row])
