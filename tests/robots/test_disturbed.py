"""What a disturbance adds is exactly what its configuration says, and with it off nothing is added."""

from itertools import pairwise

import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import DISTURBANCES, DisturbanceConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.robots.arms import UR_LAW
from td3robot.robots.simulated.disturbed import Camera, DisturbedRobot
from td3robot.robots.simulated.mujoco import MujocoRobot, SimulatedObjects
from td3robot.robots.simulated.robot import Variation
from td3robot.robots.toolbox import KinematicRobot
from td3robot.simulators.arm import RATE_HZ, SimulatedArm
from td3robot.simulators.presets import FrictionModel, ToolModel
from td3robot.state import JointCommand, ObjectModel, Pose
from td3robot.tasks.grasp import GraspConfig

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 0.1, 0.7)
FIRST = np.eye(6)[0]
LYING = Pose(np.array([0.1, 0.5, 0.02]), np.eye(3))
EVERYTHING = Variation(
    servo_stiffness=1.3, servo_lag=0.7, servo_damping=0.6, payload_kg=0.3, table_offset_m=0.005, object_mass_kg=0.3,
    object_friction=1.2, object_scale=1.1, tool_offset_m=(0.003, -0.002, 0.001), gripper_speed=0.5, gripper_delay_s=0.1,
    joint_friction_rad=(0.001,) * 6,
)  # fmt: skip


def simulated():
    robot = MujocoRobot(robot_spec(RobotConfig()), 400.0, (CUBE,))
    robot.connect()
    return robot


@pytest.fixture(scope="module")
def cell():
    robot = simulated()
    yield robot
    robot.close()


@pytest.fixture(scope="module", params=["mujoco", "kinematic"])
def either(request, cell):
    if request.param == "mujoco":
        return cell
    robot = KinematicRobot(robot_spec(RobotConfig()))
    robot.connect()
    return robot


def disturbed(robot, seed=0, **config):
    """Make a disturbed robot whose episode has begun, at home."""
    made = DisturbedRobot(robot, DisturbanceConfig(**config))
    made.connect()
    made.begin(np.random.default_rng(seed))
    made.move_home()
    return made


def commands(robot, count, seed=1):
    """Draw a random walk of commands from home."""
    rng = np.random.default_rng(seed)
    q = robot.spec.arm.home + np.cumsum(rng.uniform(-0.03, 0.03, (count, 6)), axis=0)
    return [JointCommand(row, float(rng.random())) for row in q]


def held(robot):
    return JointCommand(robot.spec.arm.home.copy(), 0.0)


def play(robot, sent, look=None):
    """Send the commands from home; return the states after each, as they are."""
    robot.move_home()
    states = []
    for command in sent:
        robot.send(command)
        robot.advance()
        states.append((look or robot.read)())
    return states


def same(a, b, stamps=True):
    return (
        np.array_equal(a.q, b.q)
        and np.array_equal(a.dq, b.dq)
        and np.array_equal(a.driver_q, b.driver_q)
        and (not stamps or a.stamp == b.stamp)
    )


@pytest.mark.parametrize("delay", [0, 1, 2, 3])
def test_a_command_acts_exactly_so_many_periods_later(either, delay):
    walk = commands(either, 20)
    made = disturbed(either, action_delay_s=(delay / 20, delay / 20))
    late = play(made, walk, made.truth)
    straight = play(either, [held(either)] * delay + walk)
    assert all(same(a, b) for a, b in zip(late, straight, strict=False))
    assert not same(late[-1], late[0], stamps=False)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_a_state_is_read_exactly_so_many_periods_later_with_its_own_stamp(either, delay):
    made = disturbed(either, observation_delay_s=(delay / 20, delay / 20))
    first, truths = made.truth(), []
    for t, command in enumerate(commands(either, 20)):
        made.send(command)
        made.advance()
        truths.append(made.truth())
        seen, true = made.read(), truths[t - delay] if t >= delay else first
        assert same(seen, true)
        # Before anything else has been measured, the start is what is read.
        assert made.now() - seen.stamp == pytest.approx(min(delay, t + 1) * made.spec.period_s)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_a_camera_that_sees_in_every_period_is_late_by_its_latency_alone(cell, delay):
    made = disturbed(cell, camera_latency_s=(delay / 20, delay / 20), observation_delay_s=(0.1, 0.1))
    objects = Camera(SimulatedObjects(cell), made)
    objects.arrange({"object": Pose(np.array([0.1, 0.5, 0.3]), LYING.rotation)})  # it falls
    objects.read()
    heights = [objects.truth()["object"].position[2]]
    for count in range(1, 6):
        made.send(held(made))
        made.advance()
        heights.append(objects.truth()["object"].position[2])
        seen = objects.read()["object"]
        assert seen.pose.position[2] == heights[max(0, count - delay)]
        if count >= delay:
            assert seen.age_s == pytest.approx(delay / 20)
    assert len(set(heights)) == 6


def watched(cell, periods, seed=0, **config):
    """Watch a cube that lies still for some periods; give the sightings, and the camera."""
    made = disturbed(cell, seed, **config)
    camera = Camera(SimulatedObjects(cell), made)
    camera.arrange({"object": LYING})
    found = []
    for _ in range(periods):
        made.send(held(made))
        made.advance()
        found.append(camera.read()["object"])
    return found, camera


@pytest.mark.parametrize("rate", [7.0, 30.0, 60.0])
def test_a_camera_keeps_its_rate(cell, rate):
    found, _ = watched(cell, 100, camera_rate_hz=(rate, rate))
    assert found[-1].number - 1 == pytest.approx(5.0 * rate, abs=1)
    assert all(0.0 <= seen.age_s <= 1.0 / rate + 1e-9 for seen in found)


def test_frames_are_late_by_latency_and_jitter_and_come_in_their_order(cell):
    found, camera = watched(cell, 200, camera_rate_hz=(30.0, 30.0), camera_latency_s=(0.1, 0.1), camera_jitter_s=0.2)
    exposed = [cell.now() - seen.age_s for seen in found]
    ages = np.array([seen.age_s for seen in found])
    assert ages.min() >= 0.1
    assert ages.max() <= 0.1 + camera._jitter + 1 / 30 + 0.05 + 1e-9
    assert ages.std() > 0.005
    numbers = [seen.number for seen in found]
    assert numbers == sorted(numbers)
    assert len(exposed) == 200


def test_so_many_frames_are_lost(cell):
    found, camera = watched(cell, 400, camera_rate_hz=(60.0, 60.0), camera_drop=0.6)
    sent = 20.0 * 60.0
    wanted = sent * (1.0 - camera._drop)
    assert found[-1].number == pytest.approx(wanted, abs=5 * np.sqrt(sent * 0.25))
    assert camera._drop > 0.05


def test_the_hand_hides_what_is_near_it(cell):
    made = disturbed(cell, camera_hidden_m=(0.08, 0.08))
    camera, tool = Camera(SimulatedObjects(cell), made), made.robot.tool_position()
    for away, seen_again in ((0.05, False), (0.11, True)):
        made.move_home()
        camera.arrange({"object": Pose(tool - [0.0, 0.0, away], np.eye(3))})
        before = camera.read()["object"].number
        made.robot.place({"object": Pose(tool - [0.0, 0.0, away], np.eye(3))})
        assert (camera.read()["object"].number > before) is seen_again


def test_a_turned_camera_shifts_what_is_far_from_the_base_most(cell):
    made, shifts = disturbed(cell, camera_turn_rad=0.01), []
    camera, rng = Camera(SimulatedObjects(cell), made), np.random.default_rng(3)
    for _ in range(30):
        made.begin(rng)
        made.move_home()
        camera.arrange({"object": LYING})
        shifts.append(np.linalg.norm(camera.read()["object"].pose.position - camera.truth()["object"].position))
    reach = float(np.linalg.norm(LYING.position))
    assert 0.3 * 0.01 * reach < max(shifts) <= np.sqrt(3) * 0.01 * reach + 1e-6


def test_what_moves_is_seen_where_it_was_when_the_frame_was_exposed(cell):
    made = disturbed(cell, camera_rate_hz=(37.0, 37.0))
    camera = Camera(SimulatedObjects(cell), made)
    camera.arrange({"object": Pose(np.array([0.1, 0.5, 0.45]), np.eye(3))})  # it falls
    truths = [(made.now(), camera.truth()["object"].position[2])]
    for _ in range(4):
        made.send(held(made))
        made.advance()
        truths.append((made.now(), camera.truth()["object"].position[2]))
        seen = camera.read()["object"]
        at = made.now() - seen.age_s
        if seen.number > 1:
            assert seen.pose.position[2] == pytest.approx(np.interp(at, *zip(*truths, strict=True)), abs=1e-9)


def test_delays_are_drawn_from_their_whole_range_and_are_no_multiples_of_a_period(cell):
    made = DisturbedRobot(cell, DisturbanceConfig(action_delay_s=(0.02, 0.15), observation_delay_s=(0.0, 0.1)))
    rng, drawn = np.random.default_rng(0), []
    for _ in range(2000):
        made.begin(rng)
        drawn.append(((made._periods_late + cell.late_share) / 20, made._observation_delay_s))
    for delays, (low, high) in zip(np.array(drawn).T, ((0.02, 0.15), (0.0, 0.1)), strict=True):
        spread = np.histogram(delays, 10, (low, high))[0]
        assert spread.sum() == 2000 and spread.min() > 150
        assert len(set(np.round(delays * 20 % 1.0, 2))) > 80
    cell.late_share = 0.0


@pytest.mark.parametrize("delay_s", [0.013, 0.02, 0.0875, 0.141])
def test_a_command_acts_a_delay_later_that_is_no_multiple_of_a_period(either, delay_s):
    """On a ramp, a delay is a way: it trails by so much more than the prompt arm."""
    made, behind = disturbed(either, action_delay_s=(delay_s, delay_s)), []
    for robot in (made, disturbed(either)):
        robot.begin(np.random.default_rng(0))
        robot.move_home()
        home = robot.spec.arm.home
        for period in range(1, 31):
            robot.send(JointCommand(home + 0.01 * period, 0.0))
            robot.advance()
        behind.append((0.3 - (robot.truth().q - home)) / 0.2)
    np.testing.assert_allclose(behind[0] - behind[1], delay_s, atol=2e-4)


@pytest.mark.parametrize("delay_s", [0.013, 0.0275, 0.08])
def test_a_state_is_read_a_delay_later_that_is_no_multiple_of_a_period(delay_s):
    """What is read is where the same arm is then, at 400 commands a second on the same lines."""
    made, fine = (KinematicRobot(robot_spec(RobotConfig(control_rate_hz=rate))) for rate in (20.0, 400.0))
    fine.connect()
    made = disturbed(made, observation_delay_s=(delay_s, delay_s))
    walk, times, states = commands(made, 20), [0.0], [fine.read()]
    for before, after in pairwise([held(made), *walk]):
        for step in range(1, 21):
            fine.send(JointCommand(before.q + (after.q - before.q) * step / 20, 0.0))
            fine.advance()
            times.append(fine.now())
            states.append(fine.read())
    for period, command in enumerate(walk, start=1):
        made.send(command)
        made.advance()
        seen, at = made.read(), period / 20 - delay_s
        if at > 0.0:
            assert seen.stamp == pytest.approx(at)
            for name, within in (("q", 2e-4), ("dq", 0.02)):
                values = np.array([getattr(state, name) for state in states])
                true = [np.interp(at, times, column) for column in values.T]
                np.testing.assert_allclose(getattr(seen, name), true, atol=within)


def test_now_and_then_the_target_stands_still_and_time_passes(either):
    made = disturbed(either, hold_rate_hz=0.5, hold_s=(0.3, 0.3))
    gaps = []
    for period in range(1, 401):
        before = made.now()
        made.send(JointCommand(made.spec.arm.home + 0.0005 * period, 0.0))
        made.advance()
        gaps.append(made.now() - before)
        if gaps[-1] > 0.1:  # the arm arrived meanwhile
            np.testing.assert_allclose(made.truth().q, made.spec.arm.home + 0.0005 * period, atol=5e-4)
    gaps = np.array(gaps)
    held_for = gaps[gaps > 0.051]
    np.testing.assert_allclose(held_for, 0.35, atol=0.003)
    assert 4 <= len(held_for) <= 18, "0.5 a second, in 20 s"
    assert made.now() == pytest.approx(20.0 + 0.3 * len(held_for), abs=0.05)


def test_encoder_noise_has_its_size_and_is_new_at_every_reading(either):
    made = disturbed(either, encoder_noise_rad=0.002, driver_noise_rad=0.004)
    true = made.truth()
    readings = [made.read() for _ in range(4000)]
    q = np.array([reading.q for reading in readings]) - true.q
    drivers = np.array([reading.driver_q for reading in readings]) - true.driver_q
    np.testing.assert_allclose(q.std(axis=0), 0.002, rtol=0.06)  # five standard errors
    np.testing.assert_allclose(drivers.std(axis=0), 0.004, rtol=0.06)
    np.testing.assert_allclose(q.mean(axis=0), 0.0, atol=5 * 0.002 / np.sqrt(4000))
    np.testing.assert_array_equal(readings[0].dq, true.dq)


def test_bias_stays_for_an_episode_and_fills_its_bounds_over_many(either):
    made = disturbed(either, encoder_bias_rad=0.003, driver_bias_rad=0.01)
    rng, q, drivers = np.random.default_rng(0), [], []
    for _ in range(300):
        made.begin(rng)
        made.move_home()
        first, second = made.read(), made.read()
        assert same(first, second)
        q.append(first.q - made.truth().q)
        drivers.append(first.driver_q - made.truth().driver_q)
    for drawn, bound in ((np.array(q), 0.003), (np.array(drivers), 0.01)):
        assert np.abs(drawn).max() <= bound * (1 + 1e-9)
        # Uniform between its bounds: standard deviation bound / sqrt(3).
        np.testing.assert_allclose(drawn.std(axis=0), bound / np.sqrt(3), rtol=0.15)
        assert abs(drawn.mean()) < 0.1 * bound
    assert len({tuple(row) for row in q}) == 300
    # The two fingers are driven by one motor and share its encoder.
    assert all(right == pytest.approx(left) for right, left in drivers)


def test_a_tracker_s_offset_stays_for_an_episode_and_its_noise_does_not(cell):
    made = disturbed(
        cell, object_offset_m=0.005, object_turn_rad=0.08, object_noise_m=0.001, object_turn_noise_rad=0.02
    )
    objects, rng, offsets, turns = Camera(SimulatedObjects(cell), made), np.random.default_rng(0), [], []
    for _ in range(60):
        made.begin(rng)
        made.move_home()
        objects.arrange({"object": LYING})
        seen = [objects.read()["object"].pose for _ in range(60)]
        true = objects.truth()["object"]
        way = np.array([pose.position for pose in seen]) - true.position
        turn = np.array([np.arctan2(pose.rotation[1, 0], pose.rotation[0, 0]) for pose in seen])
        assert np.linalg.norm(seen[0].rotation @ seen[0].rotation.T - np.eye(3)) < 1e-12
        offsets.append((way.mean(axis=0), way.std()))
        turns.append((turn.mean(), turn.std()))
    means, spread = np.array([mean for mean, _ in offsets]), np.mean([std for _, std in offsets])
    assert np.abs(means).max() <= 0.005 + 5 * 0.001 / np.sqrt(60)
    np.testing.assert_allclose(means.std(axis=0), 0.005 / np.sqrt(3), rtol=0.3)
    assert np.mean([std for _, std in turns]) == pytest.approx(0.02, rel=0.1)
    assert np.std([mean for mean, _ in turns]) == pytest.approx(0.08 / np.sqrt(3), rel=0.3)
    # The offset differs along the three axes, and this is the noise's and the offset's spread about their mean.
    assert spread == pytest.approx(np.mean([np.sqrt(0.001**2 + mean.var()) for mean in means]), rel=0.05)


def test_stopping_empties_the_pipe(either):
    made = disturbed(either, action_delay_s=(3 / 20, 3 / 20))
    far = made.spec.arm.home + 0.05 * np.arange(1, 7)[:, None]
    for q in far:
        made.send(JointCommand(q, 0.0))
        made.advance()
    made.stop()
    for _ in range(30):
        made.advance()
    stopped = made.truth().q
    assert stopped.max() - made.spec.arm.home.max() < 0.16  # the third of the six acted last
    for _ in range(3):  # and the last three never do
        made.send(JointCommand(stopped + 0.2, 0.0))
        made.advance()
        assert np.abs(made.truth().q - stopped).max() < 0.08
    for _ in range(30):
        made.send(JointCommand(stopped + 0.2, 0.0))
        made.advance()
    np.testing.assert_allclose(made.truth().q, stopped + 0.2, atol=0.01)


def test_an_episode_s_pipe_does_not_reach_into_the_next(either):
    made = disturbed(either, action_delay_s=(3 / 20, 3 / 20), observation_delay_s=(2 / 20, 2 / 20))
    first = play(made, [held(made)] * 5, made.read)
    play(made, commands(made, 10))
    again = play(made, [held(made)] * 5, made.read)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))


def test_a_disturbed_robot_may_be_stopped_and_closed_before_anything_else():
    made = DisturbedRobot(MujocoRobot(robot_spec(RobotConfig()), 400.0), DISTURBANCES["real"])
    made.stop()
    made.close()
    made.stop()


def test_a_disturbance_of_nothing_changes_no_bit(either):
    walk = commands(either, 30)
    straight, through = play(either, walk), play(disturbed(either), walk)
    assert all(same(a, b) for a, b in zip(straight, through, strict=True))


def arrays(model):
    """Give copies of all arrays of a compiled model."""
    names = (name for name in dir(model) if not name.startswith("_"))
    return {n: getattr(model, n).copy() for n in names if isinstance(getattr(model, n), np.ndarray)}


def differences(one, other):
    return [name for name in one if not np.array_equal(one[name], other[name])]


def test_no_variation_leaves_every_number_of_the_compiled_model_and_one_is_taken_back_exactly():
    cell = simulated()
    compiled = arrays(cell.model)
    assert len(compiled) > 200
    cell.vary(Variation())
    assert differences(compiled, arrays(cell.model)) == []
    cell.vary(EVERYTHING)
    assert len(differences(compiled, arrays(cell.model))) > 10
    cell.vary(Variation())
    assert differences(compiled, arrays(cell.model)) == []
    cell.close()


def test_a_variation_depends_on_none_before_it(cell):
    cell.vary(EVERYTHING)
    once = arrays(cell.model)
    cell.vary(Variation(servo_stiffness=0.7, object_scale=0.9, object_mass_kg=0.02, table_offset_m=-0.005))
    cell.vary(EVERYTHING)
    assert differences(once, arrays(cell.model)) == []
    cell.vary(Variation())


@pytest.fixture
def varied(cell):
    """Apply a variation for one test."""

    def vary(**changes):
        cell.vary(Variation(**changes))
        cell.move_home()
        return cell

    yield vary
    cell.vary(Variation())


def test_servo_gains_reach_the_model(cell, varied):
    nominal = cell.model.actuator_gainprm[:6, 0].copy(), cell.model.actuator_biasprm[:6].copy()
    gripper = cell.model.actuator_gainprm[6:].copy()
    varied(servo_stiffness=1.3)
    np.testing.assert_allclose(cell.model.actuator_gainprm[:6, 0], 1.3 * nominal[0])
    np.testing.assert_allclose(cell.model.actuator_biasprm[:6, 1], 1.3 * nominal[1][:, 1])
    np.testing.assert_allclose(cell.model.actuator_biasprm[:6, 2], 1.3 * nominal[1][:, 2])
    np.testing.assert_array_equal(cell.model.actuator_gainprm[6:], gripper)


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.3])
def test_a_servo_lags_by_its_factor(either, factor):
    either.vary(Variation(servo_lag=factor))
    either.move_home()
    q = either.spec.arm.home.copy()
    for _ in range(40):
        q = q + np.array([0.025, 0, 0, 0, 0, 0])  # 0.5 rad/s
        either.send(JointCommand(q, 0.0))
        either.advance()
    assert (q - either.read().q)[0] / 0.5 == pytest.approx(UR_LAW.lookahead_s * factor, rel=0.06)
    either.vary(Variation())


def test_an_object_s_size_mass_and_friction_reach_the_model(varied):
    model = varied(object_mass_kg=0.2, object_friction=1.1, object_scale=1.1).model
    assert model.body("object").mass[0] == 0.2
    np.testing.assert_allclose(model.geom("object").size, 0.022)
    # A cube's inertia: m a^2 / 6.
    np.testing.assert_allclose(model.body("object").inertia, 0.2 * 0.044**2 / 6)
    pads = [i for i in range(model.ngeom) if "_pad" in model.geom(i).name]
    assert len(pads) >= 4
    np.testing.assert_array_equal(model.geom_friction[pads, 0], 1.1)


@pytest.mark.parametrize(
    ("shape", "size", "scaled"),
    [("box", (0.04, 0.06, 0.05), (0.044, 0.066, 0.055)), ("cylinder", (0.05, 0.05, 0.06), (0.055, 0.055, 0.066))],
)
def test_a_scaled_object_is_the_one_that_would_have_been_compiled_so(shape, size, scaled):
    spec, models = robot_spec(RobotConfig()), []
    for extents, mass in ((size, 0.1), (scaled, 0.2)):
        robot = MujocoRobot(spec, 400.0, (ObjectModel("object", shape, extents, mass, 0.7),))
        robot.connect()
        if extents == size:
            robot.vary(Variation(object_scale=1.1, object_mass_kg=0.2))
        models.append(robot.model)
    varied, compiled = models
    for name in ("geom_size", "geom_rbound", "geom_aabb"):
        one, other = (getattr(model, name)[model.geom("object").id] for model in models)
        np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=name)
    for name in ("body_mass", "body_inertia", "body_subtreemass", "body_invweight0"):
        one, other = (getattr(model, name)[model.body("object").id] for model in models)
        np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=name)
    assert varied.nbody == compiled.nbody


def test_a_larger_object_is_gripped_earlier(varied, kinematics):
    stopped = []
    for scale in (0.9, 1.0, 1.1):
        cell = varied(object_scale=scale)
        q = kinematics.inverse(
            np.array([0.1, 0.5, 0.026]), cell.spec.arm.home, kinematics.tcp(cell.spec.arm.home).rotation
        )
        cell.move_to(q)
        cell.place({"object": LYING})
        for _ in range(40):
            cell.send(JointCommand(q, 1.0))
            cell.advance()
        stopped.append(cell.read().driver_q.mean() / 0.8)
    # 4 mm of 85 mm of stroke each; the linkage is not quite linear.
    np.testing.assert_allclose(-np.diff(stopped), 4 / 85, rtol=0.25)


@pytest.mark.parametrize(
    "changes", [{}, {"table_offset_m": 0.005}, {"table_offset_m": -0.005}, {"object_scale": 1.1}, {"object_scale": 0.9}]
)
def test_an_object_lies_on_the_table_wherever_it_is(varied, changes):
    cell = varied(**changes)
    cell.place({"object": LYING})
    bottom = 0.02 * changes.get("object_scale", 1.0)
    height = cell.object_poses()["object"].position[2]
    assert height == pytest.approx(bottom + changes.get("table_offset_m", 0.0))
    for _ in range(40):
        cell.advance()
    assert cell.object_poses()["object"].position[2] == pytest.approx(height, abs=1e-4)


def test_an_untold_payload_pulls_the_arm_down_by_its_weight(varied):
    cell = varied(payload_kg=0.3)
    for _ in range(60):
        cell.send(held(cell))
        cell.advance()
    sag = np.abs(cell.read().q - cell.spec.arm.home)
    # 0.3 kg * 9.81 m/s^2 at about 0.49 m (the lower arm's 0.392 and the wrist's 0.0997) on the elbow's 4000 N m/rad.
    assert 1e-4 < sag.max() < 1e-3
    assert cell.model.body("gripper_base").mass[0] == pytest.approx(0.3 + nominal_hand_mass())
    assert varied().read() is not None
    for _ in range(60):
        cell.send(held(cell))
        cell.advance()
    np.testing.assert_allclose(cell.read().q, cell.spec.arm.home, atol=1e-6)


def nominal_hand_mass():
    robot = simulated()
    mass = float(robot.model.body("gripper_base").mass[0])
    robot.close()
    return mass


def test_mass_is_drawn_log_uniformly_and_every_range_is_filled(cell):
    made, drawn = DisturbedRobot(cell, DISTURBANCES["real"]), []
    vary, cell.vary = cell.vary, drawn.append
    try:
        rng = np.random.default_rng(0)
        for _ in range(2000):
            made.begin(rng)
    finally:
        cell.vary = vary
    masses = np.log([variation.object_mass_kg for variation in drawn])
    low, high = np.log(0.02), np.log(0.3)
    assert masses.min() >= low and masses.max() <= high
    assert masses.mean() == pytest.approx((low + high) / 2, abs=0.1)
    for name, (low, high) in {
        "servo_stiffness": (0.7, 1.3), "servo_lag": (0.7, 1.3), "servo_damping": (0.58, 1.73),
        "object_friction": (0.5, 1.2), "object_scale": (0.9, 1.1), "payload_kg": (0.0, 0.3),
        "table_offset_m": (-0.005, 0.005),
        "gripper_speed": (0.13, 1.0), "gripper_delay_s": (0.0, 0.15),
    }.items():  # fmt: skip
        values = np.array([getattr(variation, name) for variation in drawn])
        assert low <= values.min() < low + 0.02 * (high - low), name
        assert high >= values.max() > high - 0.02 * (high - low), name


# Whole environments.


def rollout(environment, seed, steps=40):
    rng = np.random.default_rng(7)
    observation, _ = environment.reset(seed=seed)
    observations, rewards, truths = [observation], [], []
    for _ in range(steps):
        action = rng.uniform(-1, 1, environment.action_space.shape).astype(np.float32)
        observation, reward, *_ = environment.step(action)
        observations.append(observation)
        rewards.append(reward)
        truths.append(environment.world.robot.q)
    return np.array(observations), np.array(rewards), np.array(truths)


@pytest.fixture(scope="module")
def environments():
    made = {}

    def make(disturbance, **more):
        key = str(disturbance), str(more)
        if key not in made:
            config = {"task": GraspConfig(), "episode_s": 6.0, "disturbance": disturbance} | more
            made[key] = make_robot_env(RobotEnvironmentConfig(**config))
        return made[key]

    yield make
    for environment in made.values():
        environment.close()


def reach_on(backend):
    return {"task": RobotEnvironmentConfig().task, "robot": RobotConfig(backend=backend), "episode_s": 5.0}


@pytest.mark.parametrize("more", [{}, reach_on("mujoco"), reach_on("kinematic")], ids=["grasp", "reach", "kinematic"])
def test_an_episode_under_a_disturbance_repeats_bit_for_bit_by_its_seed(environments, more):
    environment = environments("real", **more)
    one = rollout(environment, seed=3)
    other = rollout(environment, seed=4)
    again = rollout(environment, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0], other[0])


def test_off_is_the_undisturbed_environment(environments):
    straight = environments("off")
    assert isinstance(straight.robot, MujocoRobot)
    assert isinstance(straight._objects, SimulatedObjects)
    through = environments(DisturbanceConfig(payload_kg=(0.0, 1e-300)))  # disturbed by nothing, yet not off
    assert isinstance(through.robot, DisturbedRobot)
    assert all(np.array_equal(a, b) for a, b in zip(rollout(straight, 5), rollout(through, 5), strict=True))


def test_the_policy_sees_the_disturbed_state_and_is_scored_by_the_true_one(environments):
    straight, late = environments("off"), environments(DisturbanceConfig(driver_bias_rad=0.05, object_noise_m=0.01))
    observations, rewards, truths = rollout(straight, 5)
    seen, scored, true = rollout(late, 5)
    np.testing.assert_array_equal(true, truths)
    np.testing.assert_array_equal(scored, rewards)
    fields = late.task.layout.slices
    off = seen - observations
    assert np.abs(off[:, fields["target_from_commanded"]]).mean() > 0.004
    bias = off[:, fields["driver_q"]]
    np.testing.assert_allclose(bias, bias[0, 0], atol=1e-6)
    assert bias[0, 0] != 0.0
    np.testing.assert_array_equal(off[:, fields["q"]], 0.0)
    assert late.world is not late.seen


def test_a_disturbance_is_drawn_anew_for_every_episode(environments):
    environment, drawn = environments("real"), []
    for seed in range(8):
        environment.reset(seed=seed)
        robot = environment.robot
        drawn.append((float(robot._bias[0]), float(robot.robot.model.body("object").mass[0])))
    assert len(set(drawn)) == 8
    environment.reset(seed=0)
    first = environment.robot._bias.copy()
    environment.reset()
    assert (environment.robot._bias != first).all()


def test_mild_lies_within_real_and_adds_something_everywhere():
    off, mild, real = (DISTURBANCES[level].model_dump() for level in ("off", "mild", "real"))
    for name, value in mild.items():
        if isinstance(value, tuple):
            assert real[name][0] <= value[0] <= value[1] <= real[name][1], name
        else:
            assert 0.0 < value < real[name], name
        assert value != off[name] and real[name] != value, name


def closing(robot, periods=60):
    """Close from home by one command; give the closed fraction after every period."""
    robot.move_home()
    found = []
    for _ in range(periods):
        robot.send(JointCommand(robot.spec.arm.home, 1.0))
        robot.advance()
        found.append(robot.spec.gripper.closed_fraction(robot.truth().driver_q))
    return np.array(found)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.2])
def test_fingers_close_at_the_speed_that_was_drawn(either, share):
    closed = closing(disturbed(either, gripper_speed=(share, share)))
    moving = (closed > 0.1) & (closed < 0.9)
    rate = np.diff(closed)[moving[1:] & moving[:-1]].mean() * 20.0
    assert rate == pytest.approx(share * either.spec.gripper.closing_rate, rel=0.1)


def test_fingers_wait_before_they_move(either):
    prompt, late = (closing(disturbed(either, gripper_delay_s=(delay, delay))) for delay in (0.0, 0.15))
    assert int(np.argmax(late > 0.05)) - int(np.argmax(prompt > 0.05)) == 3


@pytest.mark.parametrize("factor", [0.46, 1.0, 1.73])
def test_joints_overshoot_where_damping_is_low_and_trail_by_the_lag_in_any_case(either, factor):
    made = disturbed(either, servo_damping_factor=(factor, factor))
    start, way = made.spec.arm.home.copy(), []
    for count in range(1, 41):  # a ramp, and then a stop
        made.send(JointCommand(start + 0.02 * min(count, 20), 0.0))
        made.advance()
        way.append(float(made.truth().q[0] - start[0]))
    assert 0.4 - way[19] == pytest.approx(0.4 * UR_LAW.lookahead_s, rel=0.15)
    assert (max(way) > 0.401) is (factor < 0.6)
    assert way[-1] == pytest.approx(0.4, abs=2e-3)
    either.vary(Variation())


def rest_after(robot, *angles):
    """Move joint 0 of a robot to angles from home in turn [rad]; return where all joints rest beside their targets."""
    robot.move_home()
    q, at = robot.spec.arm.home.copy(), 0.0
    for angle in angles:
        for share in np.minimum(np.arange(1, 81) / 20, 1.0):  # a second on the way, and three to come to rest
            q[0] = robot.spec.arm.home[0] + at + share * (angle - at)
            robot.send(JointCommand(q, 0.0))
            robot.advance()
        at = angle
    return robot.read().q - q


@pytest.mark.parametrize(("angles", "short"), [((0.2,), -1.0), ((-0.2,), 1.0), ((0.2, 0.1), 1.0), ((0.2, 0.19), 1.0)])
def test_a_joint_with_dry_friction_stops_short_of_its_target_from_either_side(either, angles, short):
    either.vary(Variation(joint_friction_rad=(0.002, 0.001, 0.0, 0.0, 0.0, 0.0)))
    resting = rest_after(either, *angles)
    either.vary(Variation())
    assert resting[0] == pytest.approx(short * 0.002, abs=2e-4)  # the servo overshoots a little
    np.testing.assert_allclose(resting[1:], 0.0, atol=2e-5)  # joints that nobody moves rest where they were
    assert abs(rest_after(either, *angles)[0]) < 2e-5


def test_a_joint_does_not_move_until_its_target_is_further_than_its_friction(either):
    either.vary(Variation(joint_friction_rad=(0.002,) * 6))
    assert rest_after(either, 0.0019)[0] == pytest.approx(-0.0019, abs=1e-5)
    assert rest_after(either, 0.003)[0] == pytest.approx(-0.002, abs=2e-5)
    assert rest_after(either, 0.003, 0.0)[0] == pytest.approx(0.001, abs=2e-5)
    either.vary(Variation())


def test_dry_friction_rests_as_mujoco_s_own_in_a_simulated_controller(cell):
    """The simulated controller leaves friction to MuJoCo, as a torque; training's law is quicker."""
    friction, share = 0.0008, np.minimum(np.arange(1, 1501) / 500, 1.0)
    angles = 0.2 * (3.0 - 2.0 * share) * share**2  # without a jerk that carries the joint on
    arm = SimulatedArm(cell.spec, friction=FrictionModel(stick_rad=friction))
    speeds = np.diff(angles, prepend=0.0) * RATE_HZ
    for angle, v, a in zip(angles, speeds, np.diff(speeds, prepend=0.0) * RATE_HZ, strict=True):
        arm.step(arm.spec.arm.home + angle * FIRST, 0.0, v * FIRST, a * FIRST)
    theirs = (arm.q - arm.spec.arm.home)[0] - angles[-1]
    cell.vary(Variation(joint_friction_rad=(friction,) * 6))
    ours = rest_after(cell, 0.2)[0]
    cell.vary(Variation())
    assert ours < 0.0 and theirs < 0.0
    assert ours == pytest.approx(theirs, abs=0.2 * friction)


def test_every_joint_s_friction_is_drawn_for_itself(cell):
    made, drawn = DisturbedRobot(cell, DisturbanceConfig(joint_friction_rad=0.0005)), []
    for seed in range(200):
        made.begin(np.random.default_rng(seed))
        drawn.append(cell._friction)
    drawn = np.array(drawn)
    assert (drawn.min(axis=0) < 2e-5).all() and (drawn.max(axis=0) > 4.8e-4).all() and drawn.max() <= 5e-4
    assert np.abs(np.corrcoef(drawn.T) - np.eye(6)).max() < 0.3
    cell.vary(Variation())


def test_periods_take_longer_by_as_much_as_drawn(either):
    made = disturbed(either, period_jitter=0.3)
    lengths = []
    for _ in range(60):
        before = made.now()
        made.send(held(made))
        made.advance()
        lengths.append(made.now() - before)
    assert min(lengths) >= 0.05 - 1e-9
    assert 0.06 < max(lengths) <= 0.05 * 1.3 + 1 / 400
    either.period_share = 1.0


def test_the_pads_are_where_the_tool_s_offset_puts_them(cell):
    pads = [i for i in range(cell.model.ngeom) if "pad" in cell.model.geom(i).name]
    places = []
    for offset in (0.0, 0.004):
        cell.vary(Variation(tool_offset_m=(offset, 0.0, 0.0)))
        cell.move_home()
        places.append(cell.data.geom_xpos[pads].mean(axis=0))
    assert np.linalg.norm(places[1] - places[0]) == pytest.approx(0.004, abs=1e-6)
    cell.vary(Variation())


def test_cells_share_one_model_until_they_are_varied_and_a_standin_has_its_own():
    one, other = (MujocoRobot(robot_spec(RobotConfig()), 400.0) for _ in range(2))
    one.connect()
    other.connect()
    assert one.model is other.model
    nominal = {name: getattr(other.model, name).copy() for name in ("body_mass", "dof_damping")}
    one.vary(Variation(payload_kg=1.0, servo_lag=0.7))
    assert one.model is not other.model
    loaded = SimulatedArm(one.spec, tool=ToolModel(payload_kg=1.0), friction=FrictionModel(viscous_s=0.02))
    plain = MujocoRobot(loaded.spec, RATE_HZ)
    plain.connect()
    for name, values in nominal.items():
        for model in (other.model, plain.model):
            np.testing.assert_array_equal(getattr(model, name), values, err_msg=name)
        assert not np.array_equal(getattr(loaded._robot.model, name), values)
