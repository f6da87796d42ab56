"""What every arm promises, whoever adds it: ``pytest tests/robots/test_arms.py -k NAME``."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import Box, GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.envs.initial_states import InitialStateSampler
from td3robot.errors import ConfigError, MissingExtraError
from td3robot.robots.arms import ARMS
from td3robot.robots.arms.model import MOTOR_DAMPING_S
from td3robot.robots.grippers import GRIPPERS
from td3robot.robots.guard import Guard
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.scene import FLANGE_SITE, SAME_PLACE_M, require_chain, simulation_spec
from td3robot.robots.toolbox import ToolboxKinematics

POSTURES = 50


@pytest.fixture(scope="module", params=sorted(ARMS))
def spec(request):
    """The arm with the first gripper that it can carry."""
    payload = ARMS[request.param].payload_kg
    light = [name for name in ("robotiq_2f85", *GRIPPERS) if GRIPPERS[name].mass_kg <= payload]
    if not light:
        pytest.skip(f"no registered gripper is lighter than the payload of {request.param}, {payload:g} kg")
    return robot_spec(RobotConfig(arm=request.param, gripper=light[0]))


@pytest.fixture(scope="module")
def model(spec):
    try:
        return simulation_spec(spec, physics_rate_hz=400.0).compile()
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture
def postures(spec):
    arm = spec.arm
    return np.random.default_rng(0).uniform(arm.lower, arm.upper, (POSTURES, len(arm.home)))


def test_sizes_agree_and_home_is_legal(spec):
    arm = spec.arm
    sizes = {len(x) for x in (arm.joint_names, arm.lower, arm.upper, arm.velocity, arm.servo.stiffness, arm.home)}
    assert sizes == {arm.chain.joints}
    assert (arm.lower < arm.home).all() and (arm.home < arm.upper).all()
    assert ARMS[arm.name] is arm


def test_joints_and_actuators_come_in_order(spec, model):
    n = len(spec.arm.home)
    assert [model.joint(i).name for i in range(n)] == list(spec.arm.joint_names)
    assert [int(model.actuator_trnid[i, 0]) for i in range(n)] == list(range(n))


def test_joint_limits_are_those_of_the_model(spec, model):
    limits = np.stack([spec.arm.lower, spec.arm.upper], axis=1)
    np.testing.assert_allclose(model.jnt_range[: len(limits)], limits, rtol=0, atol=1e-4)


def test_the_model_and_the_numbers_put_the_flange_in_one_place(spec, model, postures):
    require_chain(model, spec)
    data = mujoco.MjData(model)
    for q in postures:
        data.qpos[: len(q)] = q
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(data.site(FLANGE_SITE).xpos, spec.arm.chain.flange(q)[:3, 3], atol=SAME_PLACE_M)


def test_the_toolbox_computes_the_same_tool_pose(spec, postures):
    toolbox = ToolboxKinematics(spec)
    for q in postures[:5]:
        flange = spec.arm.chain.flange(q)
        pose = toolbox.tcp(q)
        np.testing.assert_allclose(pose.rotation, flange[:3, :3], atol=1e-9)
        np.testing.assert_allclose(pose.position, flange[:3, 3] + spec.tcp_offset_m * flange[:3, 2], atol=1e-9)


def test_links_that_touch_at_home_are_named():
    folded = replace(ARMS["ur5e"], home=np.array([-np.pi / 2, -np.pi / 2, 3.0, -np.pi / 2, -np.pi / 2, 0.0]))
    spec, config = replace(robot_spec(RobotConfig()), arm=folded), GuardConfig()
    guard = Guard(spec, config, Kinematics(spec, config.clearance_m))
    low, high = np.array([-0.1, 0.4, 0.1]), np.array([0.1, 0.5, 0.2])
    with pytest.raises(ConfigError, match=r"at home, \w+ and \w+ overlap by \d+ mm; .*touching, otherwise change"):
        InitialStateSampler(None, guard, Box(low=tuple(low), high=tuple(high))).require_reachable("the box", low, high)


def test_home_points_the_tool_down_in_front_of_the_arm(spec):
    flange = spec.arm.chain.flange(spec.arm.home)
    np.testing.assert_allclose(flange[:3, 2], [0, 0, -1], atol=1e-6)
    assert flange[1, 3] > 0.15


def test_no_motor_swings_at_the_inertia_that_its_joint_sees(spec, model, postures):
    """Without another payload than its gripper: 4 I <= k lag^2."""
    data, n = mujoco.MjData(model), len(spec.arm.home)
    full, largest = np.zeros((model.nv, model.nv)), np.zeros(n)
    for q in postures:
        data.qpos[:n] = q
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_fullM(model, data, full)
        largest = np.maximum(largest, full.diagonal()[:n])
    assert (4 * largest <= np.array(spec.arm.servo.stiffness) * MOTOR_DAMPING_S**2 * 1.001).all(), largest


def test_every_goal_can_be_reached_and_a_random_policy_stays_inside_the_limits(spec, model):
    config = RobotEnvironmentConfig.model_validate({"robot": {"arm": spec.arm.name, "gripper": spec.gripper.name}})
    environment = make_robot_env(config)
    rng, fastest = np.random.default_rng(0), 0.0
    environment.reset(seed=0)
    for _ in range(60):
        action = rng.choice([-1.0, 1.0], environment.action_space.shape).astype(np.float32)
        info = environment.step(action)[4]
        fastest = max(fastest, info["tcp_speed_m_s"])
    assert 0.05 < fastest <= config.guard.max_tcp_speed_m_s * 1.02
    environment.close()


def test_a_model_with_other_link_lengths_is_refused_with_the_distance(spec, model):
    body = model.jnt_bodyid[1]
    model.body_pos[body, 2] += 0.002
    try:
        with pytest.raises(ConfigError, match=r"puts its flange 2\.00 mm from where its own numbers put it"):
            require_chain(model, spec)
    finally:
        model.body_pos[body, 2] -= 0.002


def test_a_misspelt_arm_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"the UR10 of the CB3 series is not driven.*for example the ur10e"):
        RobotConfig(arm="ur10")
    with pytest.raises(ValueError, match="unknown arm 'ur5ee'; did you mean 'ur5e'"):
        RobotConfig(arm="ur5ee")


def test_an_arm_that_is_withheld_says_why():
    with pytest.raises(ValueError, match="the UR30 is not offered: UR's own description gives it the UR16e's inertias"):
        RobotConfig(arm="ur30")


def changed(**fields):
    return replace(ARMS["ur10e"], **fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"velocity": np.ones(5)}, "the arm 'ur10e' has 6 joints by its chain, and 5 in velocity"),
        ({"home": np.full(6, 9.0)}, "the home posture of the arm 'ur10e' is outside of its joint limits"),
        ({"regions": {}}, "the arm 'ur10e' names no region 'workspace'"),
    ],
)
def test_numbers_that_are_not_of_one_arm_are_refused(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        changed(**fields)


def broken(edit):
    """The UR10e with its model edited."""

    def make_spec():
        spec = ARMS["ur10e"].make_spec()
        edit(spec)
        return spec

    arm = changed(make_spec=make_spec)
    return replace(robot_spec(RobotConfig(arm="ur10e")), arm=arm)


def missing_file(spec):
    raise FileNotFoundError("no such file: arm.xml")


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (missing_file, "the MuJoCo model of the arm 'ur10e' cannot be made: no such file: arm.xml"),
        (lambda spec: spec.delete(spec.site(FLANGE_SITE)), "has no site 'attachment_site'"),
        (lambda spec: spec.delete(spec.actuators[2]), "give each of the joints"),
        (lambda spec: setattr(spec.joints[1], "name", "elbow"), "name and order them alike"),
    ],
)
def test_a_model_that_is_not_the_arm_is_refused_when_an_environment_is_made(edit, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Kinematics(broken(edit))


def test_a_model_with_plain_motors_gets_the_same_servo():
    def motors(spec):
        for actuator in spec.actuators:
            actuator.biastype, actuator.gear[0] = mujoco.mjtBias.mjBIAS_NONE, 100.0
            actuator.ctrlrange = [0.0, 0.0]

    ours = simulation_spec(broken(motors), 400.0).compile()
    theirs = simulation_spec(robot_spec(RobotConfig(arm="ur10e")), 400.0).compile()
    for name in ("actuator_biastype", "actuator_biasprm", "actuator_gainprm", "actuator_gear", "actuator_actlimited"):
        np.testing.assert_allclose(getattr(ours, name)[:6], getattr(theirs, name)[:6], err_msg=name)
