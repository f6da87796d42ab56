"""What reaches the arm behind the guard, looked at command by command."""

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from td3robot.config import Box, GuardConfig
from td3robot.errors import CommandRefusedError
from td3robot.robots.arms import UR_LAW
from td3robot.robots.guard import JOINT_SHARE, REASONS, Guard
from td3robot.robots.servo import follow_line
from td3robot.state import JointCommand, RobotState

CONFIG = GuardConfig()
PERIOD_S = 0.05
# Rounding of sums and products.
EXACT = 1e-9
# Where a run starts [rad] and how it speeds up [rad/s], one row a period, before it wishes to stand still.
# Both were found by search: the path is admissible where it is and where braking ends, but not in between.
FAST_SELF_MOTION = (
    (-1.35, -1.221, 1.801, -0.301, -1.289, -0.616),
    (
        (0.151, -0.048, -0.29, -0.602, -0.367, -0.246),
        (0.416, -0.627, -0.577, -0.786, -0.81, -0.011),
        (1.111, -0.552, -0.73, -1.186, -0.575, -0.207),
        (1.146, -1.047, -1.179, -1.376, -1.041, -0.176),
        (1.35, -1.241, -1.304, -1.574, -1.297, -0.292),
    ),
)
GRIPPER_PAST_FOREARM = (
    (1.647, -2.798, 0.447, -0.141, -1.792, 0.889),
    (
        (-0.468, 0.598, 0.105, 0.375, 0.209, -0.194),
        (0.369, 0.212, -0.071, 0.912, 0.03, 0.103),
        (0.102, 0.219, 0.471, 0.947, 0.506, 0.298),
        (0.95, 1.173, -0.308, 1.564, 1.056, 0.539),
        (0.167, 0.719, -0.051, 1.593, 0.869, 0.622),
    ),
)


class Commanded:
    """A measured state that is the last command."""

    def __init__(self, q):
        self.q = q

    def state(self):
        return at_rest(self.q)

    def take(self, command):
        self.q = command.q


class Lagging(Commanded):
    """A measured state that follows the straight line to each command by the servo's law."""

    def __init__(self, q):
        super().__init__(q)
        self.commanded, self.speed = q, np.zeros_like(q)

    def take(self, command):
        q, gain = self.q.copy(), np.full(len(self.q), UR_LAW.gain)
        follow_line(gain, UR_LAW.lookahead_s, PERIOD_S, self.commanded, command.q, q, self.speed)
        self.commanded, self.q = command.q, q


class Stuck(Commanded):
    """A measured state that does not follow."""

    def take(self, command):
        pass


class Simulated:
    """The simulated arm."""

    def __init__(self, robot, q):
        self.robot = robot
        robot.move_to(q)

    def state(self):
        return self.robot.read()

    def take(self, command):
        sent = self.robot.send(command)
        np.testing.assert_array_equal(sent.q, command.q)
        self.robot.advance()


class Run:
    """Every command that reached an arm, after the posture it started from."""

    def __init__(self, guard, body, q):
        guard.reset(q)
        self.guard, self.body = guard, body
        self.q, self.measured, self.reasons = [q], [], []

    def wish(self, q):
        state = self.body.state()
        ruling = self.guard.filter(JointCommand(q, 0.0), state, state.stamp)
        self.body.take(ruling.command)
        self.q.append(ruling.command.q.copy())
        self.measured.append(state.q)
        self.reasons.append(ruling.reasons)
        return ruling

    def move(self, velocity):
        return self.wish(self.q[-1] + np.asarray(velocity) * PERIOD_S)

    def stand_still(self):
        return self.wish(self.q[-1])

    @property
    def velocities(self):
        """Commanded joint velocities, one row a period, the first from rest."""
        return np.vstack([np.zeros_like(self.q[0]), np.diff(self.q, axis=0) / PERIOD_S])


def at_rest(q, stamp=0.0):
    return RobotState(q.copy(), np.zeros_like(q), np.zeros(2), stamp)


@pytest.fixture(scope="module")
def guard(spec, kinematics):
    assert spec.period_s == PERIOD_S
    return Guard(spec, CONFIG, kinematics)


def assert_limits_kept(run, arm):
    config, kinematics = run.guard.config, run.guard.kinematics
    low, high = np.array(config.workspace.low), np.array(config.workspace.high)
    q, v = np.array(run.q), run.velocities

    assert (q >= arm.lower + config.position_margin_rad - EXACT).all()
    assert (q <= arm.upper - config.position_margin_rad + EXACT).all()
    assert (np.abs(v) <= arm.velocity * config.joint_speed_fraction + EXACT).all()
    assert (np.abs(np.diff(v, axis=0)) / PERIOD_S <= config.max_joint_acceleration_rad_s2 + 1e-6).all()

    fastest = config.max_tcp_speed_m_s + EXACT
    # The tool's velocity turns by at most twice the limit in a period, so that it leaves the chord by at most that
    # times an eighth of the period (3 mm; micrometres are seen).
    apart = 2 * config.max_tcp_speed_m_s * PERIOD_S / 8
    before, jacobian_before = kinematics.tcp_and_jacobian(q[0])
    for step in range(1, len(q)):
        tool, jacobian = kinematics.tcp_and_jacobian(q[step])
        assert not kinematics.too_close(q[step]), (step, kinematics.closest_pair(q[step]))
        assert np.linalg.norm(jacobian_before[:3] @ v[step]) <= fastest, step
        assert np.linalg.norm(jacobian[:3] @ v[step]) <= fastest, step
        assert np.linalg.norm(tool.position - before.position) / PERIOD_S <= fastest, step
        assert (tool.position >= low - EXACT).all() and (tool.position <= high + EXACT).all(), step
        for share in (0.25, 0.5, 0.75):
            between = kinematics.tcp(q[step - 1] + share * (q[step] - q[step - 1])).position
            assert (between >= low - apart).all() and (between <= high + apart).all(), step
        before, jacobian_before = tool, jacobian


def assert_comes_to_rest(run):
    arm_peak = np.abs(run.velocities[-1]).max()
    periods = int(arm_peak / (CONFIG.max_joint_acceleration_rad_s2 * PERIOD_S)) + 1
    for _ in range(periods):
        run.stand_still()
    resting = run.q[-1]
    run.stand_still()
    np.testing.assert_array_equal(run.q[-1], resting)
    assert run.reasons[-1] == ()


# Adversaries: each makes, from its own randomness, a wish (step, commanded posture) -> posture.


def absurd(rng, arm, kinematics):
    return lambda step, q: rng.choice([-1e6, 1e6], len(q))


def between_the_limits(rng, arm, kinematics):
    steps = rng.integers(1, 12)
    return lambda step, q: arm.upper if step // steps % 2 else arm.lower


def anywhere(rng, arm, kinematics):
    return lambda step, q: rng.uniform(arm.lower, arm.upper)


def push_tool(rng, arm, kinematics):
    """Push toward the table, the base, a wall of the workspace, or anywhere."""
    tool = kinematics.tcp(arm.home).position
    known = [(0, 0, -1), (0, 0, 1), (1, 0, 0), (-1, 0, 0), (0, 1, 0), -tool, rng.normal(size=3)]
    direction = np.array(known[rng.integers(len(known))], dtype=float)

    def wish(step, q):
        _, jacobian = kinematics.tcp_and_jacobian(q)
        return q + np.linalg.pinv(jacobian[:3], rcond=1e-2) @ direction

    return wish


def push_joint(rng, arm, kinematics):
    move = np.zeros(len(arm.home))
    move[rng.integers(len(move))] = rng.choice([-1.0, 1.0])
    return lambda step, q: q + move


def push_joints(rng, arm, kinematics):
    move = rng.normal(size=len(arm.home)) * rng.choice([0.0, 1.0], len(arm.home))
    return lambda step, q: q + move


def spin_wrist(rng, arm, kinematics):
    move = rng.normal(size=len(arm.home)) * np.where(np.arange(len(arm.home)) < 3, 0.05, 1.0)
    return lambda step, q: q + move


def reverse(rng, arm, kinematics):
    steps, move = rng.integers(1, 15), rng.normal(size=len(arm.home))
    return lambda step, q: q + (move if step // steps % 2 else -move)


def walk(rng, arm, kinematics):
    return lambda step, q: q + rng.normal(size=len(q)) * 0.03


def wait(rng, arm, kinematics):
    return lambda step, q: q


ADVERSARIES = [
    absurd, between_the_limits, anywhere, push_tool, push_joint, push_joints, spin_wrist, reverse, walk, wait,
]  # fmt: skip
# What comes one after the other: who wishes, with which randomness, for how many periods.
CAMPAIGN = st.lists(
    st.tuples(st.sampled_from(ADVERSARIES), st.integers(0, 2**16), st.integers(1, 80)), min_size=1, max_size=5
)
# A start: home, or how far from it and which way.
START = st.one_of(st.none(), st.tuples(st.sampled_from([0.1, 0.5, 1.5]), st.integers(0, 2**16)))
CALM = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def start_posture(start, arm, guard):
    if start is None:
        return arm.home
    spread, seed = start
    rng = np.random.default_rng(seed)
    while True:
        q = np.clip(arm.home + spread * rng.normal(size=len(arm.home)), arm.lower, arm.upper)
        if guard.admits(q) is None:
            return q


def play(run, campaign, arm):
    for adversary, seed, periods in campaign:
        wish = adversary(np.random.default_rng(seed), arm, run.guard.kinematics)
        for step in range(periods):
            run.wish(wish(step, run.q[-1]))


@settings(**CALM)
@given(start=START, campaign=CAMPAIGN)
def test_no_sequence_of_wishes_breaks_a_limit(spec, guard, start, campaign):
    q = start_posture(start, spec.arm, guard)
    run = Run(guard, Commanded(q), q)
    play(run, campaign, spec.arm)
    assert_comes_to_rest(run)
    assert_limits_kept(run, spec.arm)


@settings(**CALM)
@given(start=START, campaign=CAMPAIGN)
@example(start=None, campaign=[(absurd, 0, 80), (between_the_limits, 0, 80), (push_tool, 0, 80)])
def test_no_sequence_of_wishes_breaks_a_limit_with_the_simulated_arm(spec, guard, robot, start, campaign):
    q = start_posture(start, spec.arm, guard)
    run = Run(guard, Simulated(robot, q), q)
    play(run, campaign, spec.arm)
    assert_comes_to_rest(run)
    assert_limits_kept(run, spec.arm)
    assert np.abs(np.array(run.q[1:]) - run.measured).max() <= CONFIG.max_lead_rad


@settings(**CALM)
@given(start=START, campaign=CAMPAIGN)
def test_the_limits_hold_for_other_settings_too(spec, kinematics, start, campaign):
    config = GuardConfig(
        max_tcp_speed_m_s=0.5,
        joint_speed_fraction=1.0,
        max_joint_acceleration_rad_s2=3.0,
        position_margin_rad=0.5,
        workspace=Box(low=(-0.4, 0.2, 0.1), high=(0.4, 0.7, 0.6)),
    )
    guard = Guard(spec, config, kinematics)
    q = start_posture(start, spec.arm, guard)
    run = Run(guard, Commanded(q), q)
    play(run, campaign, spec.arm)
    assert_limits_kept(run, spec.arm)


@pytest.mark.parametrize("scenario", [FAST_SELF_MOTION, GRIPPER_PAST_FOREARM], ids=["self motion", "past forearm"])
def test_limits_hold_all_the_way_while_braking(spec, guard, scenario):
    start, velocities = np.array(scenario[0]), scenario[1]
    run = Run(guard, Commanded(start), start)
    for velocity in velocities:
        run.move(velocity)
    assert_comes_to_rest(run)
    assert_limits_kept(run, spec.arm)


def test_a_measured_arm_that_follows_is_never_left_behind(spec, guard):
    run = Run(guard, Lagging(spec.arm.home), spec.arm.home)
    play(run, [(adversary, 1, 60) for adversary in ADVERSARIES], spec.arm)
    assert np.abs(np.array(run.q[1:]) - run.measured).max() <= CONFIG.max_lead_rad
    assert guard.commands > 0


def test_an_arm_that_does_not_follow_is_waited_for(spec, guard):
    run = Run(guard, Stuck(spec.arm.home), spec.arm.home)
    for _ in range(40):
        run.move(np.eye(6)[5] * 1.5)
    assert "lead" in run.reasons[-1]
    np.testing.assert_array_equal(run.velocities[-1], 0.0)
    braking = 1.5**2 / (2 * CONFIG.max_joint_acceleration_rad_s2)
    assert np.abs(run.q[-1] - spec.arm.home).max() <= CONFIG.max_lead_rad + braking


def test_an_arm_that_does_not_follow_can_be_backed_off(spec, guard):
    run = Run(guard, Stuck(spec.arm.home), spec.arm.home)
    for _ in range(40):
        run.move(np.eye(6)[5] * 1.5)
    for _ in range(20):
        run.wish(spec.arm.home)
    np.testing.assert_allclose(run.q[-1], spec.arm.home, atol=1e-6)


SANE = {"q": (0.0,) * 6, "gripper": 0.0, "measured": (0.0,) * 6, "stamp": 0.0, "now": 0.0}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"q": (0.0, 0.0, np.nan, 0.0, 0.0, 0.0)}, "not finite"),
        ({"q": (np.inf, 0.0, 0.0, 0.0, 0.0, 0.0)}, "not finite"),
        ({"gripper": np.nan}, "gripper nan"),
        ({"gripper": np.inf}, "gripper inf"),
        ({"q": (0.0,) * 5}, r"shape \(5,\) .* 6 joints"),
        ({"q": (0.0,) * 7}, r"shape \(7,\) .* 6 joints"),
        ({"q": ((0.0,) * 6,)}, r"shape \(1, 6\) .* 6 joints"),
        ({"measured": (0.0, np.nan, 0.0, 0.0, 0.0, 0.0)}, "measured joint angles"),
        ({"measured": (0.0, 0.0, 0.0, 0.0, 0.0, -np.inf)}, "measured joint angles"),
        ({"measured": (0.0,) * 5}, "measured joint angles"),
        ({"now": 0.2}, r"measured state is 0\.200 s old.*guard\.max_state_age_s 0\.15 s"),
        ({"stamp": np.nan}, "measured state is nan s old"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_no_filtering_makes_safe_is_refused_and_changes_nothing(spec, kinematics, wrong, named):
    refusing, untroubled = (Guard(spec, CONFIG, kinematics) for _ in range(2))
    runs = [Run(guard, Commanded(spec.arm.home), spec.arm.home) for guard in (refusing, untroubled)]
    for run in runs:
        run.move(np.full(6, 0.2))
    case = SANE | wrong
    offset = run.q[-1]
    wish = np.array(case["q"])
    wish = offset + wish if wish.shape == offset.shape else wish
    measured = np.array(case["measured"])
    measured = offset + measured if measured.shape == offset.shape else measured
    with pytest.raises(CommandRefusedError, match=f"(?s){named}.*nothing was sent"):
        refusing.filter(JointCommand(wish, case["gripper"]), at_rest(measured, case["stamp"]), case["now"])

    assert refusing.commands == untroubled.commands
    assert refusing.interventions == untroubled.interventions
    for run in runs:
        run.move(np.full(6, 0.3))
    np.testing.assert_array_equal(runs[0].q, runs[1].q)
    assert runs[0].reasons == runs[1].reasons


@pytest.mark.parametrize("size", [1e6, 1e100, 1e300, 1.7e308])
def test_an_astronomic_wish_is_scaled_or_refused_by_name(spec, guard, size):
    run = Run(guard, Commanded(spec.arm.home), spec.arm.home)
    try:
        run.wish(np.array([size, -size, 0.0, 0.0, 0.0, size]))
    except CommandRefusedError:
        return
    assert_comes_to_rest(run)
    assert_limits_kept(run, spec.arm)


def test_a_small_wish_passes_untouched(spec, guard):
    run = Run(guard, Commanded(spec.arm.home), spec.arm.home)
    rng = np.random.default_rng(0)
    for _ in range(50):
        wish = run.q[-1] + rng.uniform(-1, 1, 6) * 0.003
        ruling = run.wish(wish)
        assert ruling.reasons == ()
        np.testing.assert_allclose(ruling.command.q, wish, rtol=0, atol=1e-12)
    assert guard.filter(JointCommand(run.q[-1], 0.4), at_rest(run.q[-1]), 0.0).command.gripper == 0.4


@pytest.mark.parametrize(("wished", "sent"), [(-0.5, 0.0), (0.0, 0.0), (0.7, 0.7), (1.0, 1.0), (1e6, 1.0)])
def test_the_gripper_stays_between_open_and_closed(spec, guard, wished, sent):
    guard.reset(spec.arm.home)
    ruling = guard.filter(JointCommand(spec.arm.home, wished), at_rest(spec.arm.home), 0.0)
    assert ruling.command.gripper == sent


@pytest.mark.parametrize("limit", ["joint_speed", "tcp_speed"])
def test_a_wish_that_is_too_fast_keeps_its_direction(spec, guard, limit):
    # The last joint turns the tool about its own axis: fast joints, still tool.
    direction = np.eye(6)[5] * 3.0 if limit == "joint_speed" else np.array([1.0, 0.2, -0.3, 0.1, 0.2, 2.0])
    run = Run(guard, Commanded(spec.arm.home), spec.arm.home)
    for _ in range(6):
        run.move(direction)
    assert limit in run.reasons[-1]
    for velocity in run.velocities[1:]:
        alignment = velocity @ direction / np.linalg.norm(velocity) / np.linalg.norm(direction)
        assert alignment == pytest.approx(1.0, abs=1e-9)
    top = run.velocities[-1]
    if limit == "joint_speed":
        assert np.abs(top).max() == pytest.approx(JOINT_SHARE * spec.arm.velocity[5] * CONFIG.joint_speed_fraction)
    else:
        _, jacobian = guard.kinematics.tcp_and_jacobian(run.q[-2])
        assert np.linalg.norm(jacobian[:3] @ top) == pytest.approx(CONFIG.max_tcp_speed_m_s, rel=0.03)


def reason_run(reason, spec, guard):
    home = spec.arm.home
    run = Run(guard, (Stuck if reason == "lead" else Commanded)(home), home)
    turn = np.eye(6)
    wishes = {
        "joint_speed": (1, lambda: run.move(turn[5] * 100)),
        "tcp_speed": (1, lambda: run.move(turn[0] * 1.0)),
        "acceleration": (1, lambda: run.move(turn[5] * 1.0)),
        "position": (100, lambda: run.move(turn[5] * 1.5)),
        "workspace": (100, lambda: run.move(turn[0] * 0.3)),
        "clearance": (100, lambda: run.move(turn[4] * -1.5 + turn[3] * -1.5)),
        "lead": (40, lambda: run.move(turn[5] * 1.5)),
    }
    periods, wish = wishes[reason]
    for _ in range(periods):
        wish()
    return run


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_given_and_counted(spec, kinematics, reason):
    guard = Guard(spec, CONFIG, kinematics)
    run = reason_run(reason, spec, guard)
    given_for = sum(reason in reasons for reasons in run.reasons)
    assert given_for > 0
    assert guard.interventions[reason] == given_for
    assert guard.commands == len(run.reasons)
    assert set(guard.interventions) <= set(REASONS)


def test_a_reason_is_given_once_a_command(spec, kinematics):
    guard = Guard(spec, CONFIG, kinematics)
    run = Run(guard, Commanded(spec.arm.home), spec.arm.home)
    play(run, [(adversary, seed, 60) for seed in range(4) for adversary in ADVERSARIES], spec.arm)
    for reasons in run.reasons:
        assert len(set(reasons)) == len(reasons), reasons
    assert max(guard.interventions.values()) <= guard.commands


def test_admits_names_the_limit_a_posture_breaks(spec, guard):
    assert guard.admits(spec.arm.home) is None
    over = spec.arm.home.copy()
    over[5] = spec.arm.upper[5] - CONFIG.position_margin_rad / 2
    assert guard.admits(over) == "position"
    behind = spec.arm.home.copy()
    behind[0] += np.pi
    assert guard.admits(behind) == "workspace"


def test_asking_what_is_admitted_changes_no_ruling(spec, guard):
    runs, elsewhere = [], spec.arm.home + np.array([0.4, 0.3, -0.5, 0.2, 0.1, 0.0])
    for asking in (False, True):
        runs.append(Run(guard, Commanded(spec.arm.home), spec.arm.home))
        for step in range(10):
            if asking and step == 5:
                guard.admits(elsewhere)
            runs[-1].move([1.0, 0.2, -0.3, 0.1, 0.2, 2.0])
    np.testing.assert_array_equal(runs[0].q, runs[1].q)


def test_rulings_repeat_bit_for_bit_after_a_reset(spec, guard):
    campaign = [(absurd, 3, 20), (reverse, 4, 40), (walk, 5, 40)]
    runs = []
    for _ in range(2):
        runs.append(Run(guard, Commanded(spec.arm.home), spec.arm.home))
        play(runs[-1], campaign, spec.arm)
    np.testing.assert_array_equal(runs[0].q, runs[1].q)


def test_a_command_is_not_the_wish_in_disguise(spec, guard):
    wish = spec.arm.home + 0.001
    guard.reset(spec.arm.home)
    ruling = guard.filter(JointCommand(wish, 0.0), at_rest(spec.arm.home), 0.0)
    before = ruling.command.q.copy()
    wish += 1.0
    np.testing.assert_array_equal(guard.commanded.q, before)


def test_an_arm_that_rests_just_outside_its_workspace_can_leave_that_wall_and_not_pass_it(spec, kinematics):
    home = spec.arm.home
    x, y, z = kinematics.tcp(home).position
    for outside, limit in ((0.002, None), (0.004, "workspace")):
        box = Box(low=(x - 0.3, y - 0.3, z - 0.3), high=(x + 0.3, y + 0.3, z - outside))
        guard = Guard(spec, GuardConfig(workspace=box), kinematics)
        guard.reset(home)
        assert guard.admits(home) == limit
    box = Box(low=(x - 0.3, y - 0.3, z - 0.3), high=(x + 0.3, y + 0.3, z - 0.002))
    heights, stopped = [], 0
    for direction in (1.0, -1.0):  # the shoulder lifts, or lowers, the tool
        guard = Guard(spec, GuardConfig(workspace=box), kinematics)
        guard.reset(home)
        for _ in range(20):
            wish = JointCommand(guard.commanded.q + direction * np.array([0.0, -0.02, 0.0, 0.0, 0.0, 0.0]), 0.0)
            guard.filter(wish, at_rest(guard.commanded.q), 0.0)
            heights.append(kinematics.tcp(guard.commanded.q).position[2])
        stopped += guard.interventions["workspace"]
    assert max(heights) <= z + 1e-6
    assert min(heights) < z - 0.05
    assert stopped >= 15


def test_every_limit_either_scales_with_speed_or_holds_at_any():
    config = GuardConfig()
    half = config.scaled(0.5)
    scaled = {name for name in GuardConfig.model_fields if getattr(half, name) != getattr(config, name)}
    assert scaled == {"max_tcp_speed_m_s", "joint_speed_fraction", "max_joint_acceleration_rad_s2"}
    assert all(getattr(half, name) == getattr(config, name) / 2 for name in scaled)
    fixed = {"position_margin_rad", "workspace", "clearance_m", "max_lead_rad", "max_state_age_s"}
    fixed |= {"max_contact_force_n"}
    assert set(GuardConfig.model_fields) - scaled == fixed  # of a new limit, say which it is
