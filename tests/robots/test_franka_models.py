"""The FR3 and its hand: numbers against the model that comes with the extra, and against each other."""

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.errors import ConfigError, MissingExtraError, RobotError
from td3robot.robots.arms import ARMS
from td3robot.robots.arms.franka import ENVELOPE_LOWER, ENVELOPE_UPPER, PACKAGE
from td3robot.robots.arms.model import MOTOR_DAMPING_S
from td3robot.robots.grippers import GRIPPERS
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.robot import Variation
from td3robot.robots.simulated.scene import GRIPPER_PREFIX, TCP_SITE, require_chain, set_gripper
from td3robot.state import JointCommand
from td3robot.tasks.scripted import scripted_grasp

ARM, HAND = ARMS["fr3"], GRIPPERS["franka_hand"]
KIT = {"arm": "fr3", "gripper": "franka_hand"}
SPEC = robot_spec(RobotConfig(**KIT))
needs_model = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="the FR3's model is in the extra 'franka', which is not installed"
)


def environment(task, **more):
    return make_robot_env(RobotEnvironmentConfig.model_validate({"robot": KIT, "task": {"name": task}, **more}))


@pytest.fixture(scope="module")
def fr3():
    robot = MujocoRobot(SPEC, 400.0)
    robot.connect()
    yield robot
    robot.close()


@pytest.fixture(scope="module")
def reach():
    env = environment("reach")
    yield env
    env.close()


def test_without_the_extra_a_sentence_names_it(monkeypatch):
    monkeypatch.setattr("td3robot.robots.arms.franka.find_spec", lambda name: None)
    for make in (ARM.make_spec, HAND.make_spec):
        with pytest.raises(MissingExtraError, match=r"model of the FR3 and its hand needs the extra 'franka'"):
            make()


def test_a_model_file_that_is_missing_is_named(monkeypatch, tmp_path):
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("td3robot.robots.arms.franka.find_spec", lambda name: spec)
    with pytest.raises(RobotError, match=r"has no model .*fr3\.xml; install franky-sim==1\.0\.4 again"):
        ARM.make_spec()


@needs_model
def test_the_model_has_the_joints_in_order_and_their_limits(fr3):
    model, n = fr3.model, len(ARM.home)
    assert [model.joint(index).name for index in range(n)] == list(ARM.joint_names)
    limits = np.stack([ARM.lower, ARM.upper], axis=1)
    np.testing.assert_array_equal(model.jnt_range[:n], limits)
    assert [model.joint(model.actuator_trnid[i, 0]).name for i in range(n)] == list(ARM.joint_names)


@needs_model
def test_the_model_s_flange_is_where_franka_s_numbers_put_it(fr3):
    require_chain(fr3.model, SPEC, samples=200)  # to 0.1 mm
    worst = 0.0
    data = mujoco.MjData(fr3.model)
    for q in np.random.default_rng(0).uniform(ARM.lower, ARM.upper, (200, 7)):
        data.qpos[:7] = q
        mujoco.mj_kinematics(fr3.model, data)
        worst = max(worst, np.abs(data.site("attachment_site").xpos - ARM.chain.flange(q)[:3, 3]).max())
    assert worst < 1e-12


@needs_model
def test_another_chain_is_refused(fr3):
    with pytest.raises(ConfigError, match=r"puts its flange 10\.00 mm from where its own numbers put it"):
        steps = (("tz", 0.01),)
        chain = replace(ARM.chain, links=(*ARM.chain.links[:-1], (*ARM.chain.links[-1], *steps)))
        require_chain(fr3.model, replace(SPEC, arm=replace(ARM, chain=chain)))


@needs_model
def test_home_points_the_tool_down_in_front_with_its_x_axis_along_the_base_s(fr3):
    fr3.move_home()
    tool = fr3.data.site(TCP_SITE)
    np.testing.assert_allclose(tool.xmat.reshape(3, 3), np.diag([1.0, -1.0, -1.0]), atol=1e-9)
    np.testing.assert_allclose(tool.xpos, [0.0, 0.3069, 0.4869], atol=1e-4)


def test_joint_speeds_are_libfranka_s():
    low, high = ARM.velocity_at(ARM.home)
    assert (high <= ARM.velocity).all() and (low >= -ARM.velocity).all()
    # joint 2 at home is 1.0064 rad from the envelope's lower end: sqrt(2 * 2.585 * 1.0064) - 0.2 - 0.001
    assert low[1] == pytest.approx(-(np.sqrt(2 * 2.585 * (1.79180 - np.pi / 4)) - 0.2 - 0.001))
    assert high[1] == pytest.approx(2.62 - 0.001)
    for end in (ENVELOPE_LOWER - 0.1, ENVELOPE_UPPER + 0.1):
        low, high = ARM.velocity_at(end)
        outwards = high if (end > ARM.upper).all() else -low
        np.testing.assert_array_equal(outwards, 0.0)


@needs_model
def test_no_motor_swings_at_the_largest_inertia_of_each_joint(fr3):
    model = MujocoRobot(SPEC, 400.0)
    model.connect()
    model.vary(Variation(payload_kg=ARM.payload_kg - HAND.mass_kg))
    data, inertia, largest = model.data, np.zeros((model.model.nv, model.model.nv)), np.zeros(7)
    for q in np.random.default_rng(0).uniform(ARM.lower, ARM.upper, (500, 7)):
        data.qpos[:7] = q
        mujoco.mj_forward(model.model, data)
        mujoco.mj_fullM(model.model, data, inertia)
        largest = np.maximum(largest, np.diag(inertia)[:7])
    assert (4 * largest <= np.array(ARM.servo.stiffness) * MOTOR_DAMPING_S**2).all(), largest
    model.close()


@needs_model
def test_goals_and_patch_are_reached_pointing_down_and_clear_with_a_margin():
    kinematics = Kinematics(SPEC, clearance_m=0.02)
    goals, down = ARM.regions["goals"], kinematics.tcp(ARM.home).rotation
    axes = [np.linspace(low, high, 4) for low, high in zip(goals.low, goals.high, strict=True)]
    for point in np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3):
        q = kinematics.inverse(point, ARM.home, down)
        assert q is not None, point
        assert min((q - ARM.lower).min(), (ARM.upper - q).min()) > 0.15, point
        assert not kinematics.too_close(q), (point, kinematics.closest_pair(q))


@needs_model
@pytest.mark.parametrize("closed", [0.0, 0.5, 0.9])
def test_fingers_go_where_they_are_sent(fr3, closed):
    fr3.move_home()
    np.testing.assert_array_equal(fr3.read().driver_q, [0.04, 0.04])
    for _ in range(20):
        fr3.send(JointCommand(ARM.home, closed))
        fr3.advance()
    assert HAND.closed_fraction(fr3.read().driver_q) == pytest.approx(closed, abs=0.01)


@needs_model
def test_the_tool_centre_point_is_between_the_fingertips(fr3):
    data = mujoco.MjData(fr3.model)
    data.qpos[:7] = ARM.home
    set_gripper(fr3.model, data, HAND, HAND.drivers_at(0.5))
    mujoco.mj_kinematics(fr3.model, data)
    pads = [data.geom(f"{GRIPPER_PREFIX}{side}_pad5").xpos for side in ("right", "left")]
    np.testing.assert_allclose(np.mean(pads, axis=0), data.site(TCP_SITE).xpos, atol=1e-3)
    apart = (pads[1] - pads[0])[0]  # along the tool's x axis, which is the base's at home; 8 mm thick, 1.5 mm back
    assert apart == pytest.approx(HAND.jaw.stroke_m / 2 + 0.011, abs=1e-6)


@needs_model
def test_a_script_lifts_the_cube():
    env = environment("grasp", episode_s=6.0)
    config = env.task.config
    script = scripted_grasp(
        env.task.layout, config, RobotEnvironmentConfig().action, SPEC, GuardConfig().max_tcp_speed_m_s
    )
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            observation, _, _, ended, info = env.step(script.act(observation))
        assert info["success"], seed
    env.close()


@needs_model
def test_random_actions_keep_every_limit(reach):
    rng = np.random.default_rng(0)
    reach.reset(seed=0)
    for _ in range(150):
        *_, ended, info = reach.step(rng.uniform(-1, 1, 3).astype(np.float32))
        low, high = ARM.velocity_at(reach.world.robot.q)
        assert (reach.world.robot.dq <= high).all() and (reach.world.robot.dq >= low).all()
        assert info["tcp_speed_m_s"] <= 0.25
        if ended:
            reach.reset()
