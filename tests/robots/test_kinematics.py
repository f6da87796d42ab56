from dataclasses import replace

import mujoco
import numpy as np
import pytest

from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.scene import GRIPPER_PREFIX, TCP_SITE, set_gripper, simulation_spec
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.tasks.reach import ReachConfig


@pytest.fixture(scope="module")
def toolbox(spec):
    return ToolboxKinematics(spec)


@pytest.fixture(scope="module")
def scene(spec):
    model = simulation_spec(spec, physics_rate_hz=400.0).compile()
    return model, mujoco.MjData(model)


def postures(spec, count, seed=0):
    return np.random.default_rng(seed).uniform(spec.arm.lower, spec.arm.upper, (count, len(spec.arm.home)))


def test_guard_model_scene_and_toolbox_agree_on_the_tool(spec, kinematics, toolbox, scene):
    model, data = scene
    site = data.site(TCP_SITE)
    for q in postures(spec, 1000):
        data.qpos[: len(q)] = q
        mujoco.mj_kinematics(model, data)
        for pose in (kinematics.tcp(q), toolbox.tcp(q)):
            np.testing.assert_allclose(pose.position, site.xpos, rtol=0, atol=1e-6)
            np.testing.assert_allclose(pose.rotation, site.xmat.reshape(3, 3), rtol=0, atol=1e-6)


def test_a_longer_coupling_moves_the_tool_along_the_flange(spec, kinematics):
    longer = Kinematics(replace(spec, tcp_offset_m=spec.tcp_offset_m + 0.03))
    for q in postures(spec, 20):
        short, long = kinematics.tcp(q), longer.tcp(q)
        np.testing.assert_allclose(long.position, short.position + 0.03 * short.rotation[:, 2], atol=1e-9)


def test_jacobians_match_finite_differences_and_each_other(spec, kinematics, toolbox):
    h = 1e-6
    for q in postures(spec, 50):
        numeric = np.empty((6, len(q)))
        for joint, step in enumerate(h * np.eye(len(q))):
            ahead, behind = kinematics.tcp(q + step), kinematics.tcp(q - step)
            numeric[:3, joint] = (ahead.position - behind.position) / (2 * h)
            spin = (ahead.rotation - behind.rotation) @ kinematics.tcp(q).rotation.T / (2 * h)
            numeric[3:, joint] = spin[2, 1], spin[0, 2], spin[1, 0]
        jacobian = kinematics.tcp_and_jacobian(q)[1]
        np.testing.assert_allclose(jacobian, numeric, rtol=0, atol=1e-7)
        np.testing.assert_allclose(jacobian, toolbox.tools(q[None]).jacobian[0], rtol=0, atol=1e-6)


def test_a_row_of_tools_is_the_tool_of_its_posture_alone(spec, kinematics):
    q = postures(spec, 7)
    tools = kinematics.tools(q)
    np.testing.assert_array_equal(tools.linear, tools.jacobian[:, :3])
    for row, posture in enumerate(q):
        pose, jacobian = kinematics.tcp_and_jacobian(posture)
        np.testing.assert_array_equal(tools.position[row], pose.position)
        np.testing.assert_array_equal(tools.rotation[row], pose.rotation)
        np.testing.assert_array_equal(tools.jacobian[row], jacobian)
    for one, other in zip(kinematics.tools(q.T.copy().T), tools, strict=True):  # not contiguous
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("keep_rotation", [False, True])
def test_inverse_is_exact_within_limits_and_the_toolboxes(spec, kinematics, toolbox, keep_rotation):
    goals = ReachConfig().goals
    rotation = kinematics.tcp(spec.arm.home).rotation if keep_rotation else None
    solved = 0
    for position in np.random.default_rng(0).uniform(goals.low, goals.high, (100, 3)):
        q = kinematics.inverse(position, spec.arm.home, rotation)
        target = np.eye(4)
        target[:3, 3] = position
        if keep_rotation:
            target[:3, :3] = rotation
        peer = toolbox._ets.ik_LM(
            target,
            q0=spec.arm.home,
            ilimit=60,
            slimit=1,
            tol=1e-10,
            mask=None if keep_rotation else np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        )
        assert (q is None) == (not peer.success)
        if q is None:
            continue
        np.testing.assert_allclose(q, peer.q, rtol=0, atol=1e-8)
        solved += 1
        pose = kinematics.tcp(q)
        assert np.linalg.norm(pose.position - position) <= 2e-5
        assert (q >= spec.arm.lower).all() and (q <= spec.arm.upper).all()
        if keep_rotation:
            np.testing.assert_allclose(pose.rotation, rotation, rtol=0, atol=1e-4)
    assert solved >= 80


def test_inverse_repeats_itself(spec, kinematics):
    first, second = (kinematics.inverse(np.array([0.2, 0.5, 0.2]), spec.arm.home) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("point", [(0.0, 2.0, 0.2), (0.0, 0.0, 1.6), (-1.2, 0.0, 0.3)])
def test_inverse_finds_nothing_out_of_reach(spec, kinematics, point):
    assert kinematics.inverse(np.array(point), spec.arm.home) is None


def test_results_are_copies(spec, kinematics, toolbox):
    first, second = postures(spec, 2)
    for model in (kinematics, toolbox):
        pose = model.tcp(first)
        position, rotation = pose.position.copy(), pose.rotation.copy()
        model.tcp(second)
        np.testing.assert_array_equal(pose.position, position)
        np.testing.assert_array_equal(pose.rotation, rotation)
        pose.position[:] = pose.rotation[:] = 7.0
        np.testing.assert_array_equal(model.tcp(first).position, position)
        jacobian = model.tools(first[None]).jacobian
        before = jacobian.copy()
        model.tools(second[None])
        np.testing.assert_array_equal(jacobian, before)


def test_home_is_clear_and_a_posture_in_the_table_is_not(spec, kinematics):
    assert not kinematics.too_close(spec.arm.home)
    pressed = spec.arm.home.copy()
    pressed[1] += 0.9
    assert kinematics.too_close(pressed)
    first, second, distance = kinematics.closest_pair(pressed)
    assert "world" in (first, second) and distance < 0.0


def test_answers_depend_on_the_posture_and_not_on_what_was_asked_before(spec, kinematics):
    clear, pressed = spec.arm.home, spec.arm.home.copy()
    pressed[1] += 0.9
    tool = kinematics.tcp(clear)
    pair = kinematics.closest_pair(pressed)
    askings = (
        lambda: kinematics.tcp(clear),
        lambda: kinematics.tcp_and_jacobian(pressed),
        lambda: kinematics.too_close(pressed),
        lambda: kinematics.closest_pair(clear),
        lambda: kinematics.tools(np.stack([pressed + 0.1, pressed])),
    )
    for asking in askings:
        asking()
        assert not kinematics.too_close(clear)
        asking()
        assert kinematics.too_close(pressed)
        asking()
        assert kinematics.closest_pair(pressed) == pair
        asking()
        assert kinematics.closest_pair(clear) is None
        np.testing.assert_array_equal(kinematics.tcp(clear).position, tool.position)


def test_guard_model_sees_every_collision_of_the_scene(spec, scene):
    model, data = scene
    exact = Kinematics(spec)
    gripper = np.array([model.body(body).name.startswith(GRIPPER_PREFIX) for body in range(model.nbody)])
    rng = np.random.default_rng(1)
    collisions = 0
    for q in postures(spec, 600, seed=1):
        data.qpos[:] = model.qpos0
        data.qpos[: len(q)] = q
        set_gripper(model, data, spec.gripper, np.full(2, rng.uniform(0.0, spec.gripper.driver_closed)))
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        bodies = model.geom_bodyid[data.contact.geom]
        inside_gripper = gripper[bodies].all(axis=1)
        if (data.contact.dist[~inside_gripper] < 0.0).any():
            collisions += 1
            assert exact.too_close(q), [model.body(body).name for body in bodies.ravel()]
    assert collisions > 100


def test_kinematics_of_one_robot_share_a_model_and_differ_where_the_robots_do(spec):
    one, other = Kinematics(spec, 0.005), Kinematics(spec, 0.005)
    assert one._model is other._model
    assert one._data is not other._data
    for different in (Kinematics(spec, 0.02), Kinematics(replace(spec, tcp_offset_m=spec.tcp_offset_m + 0.1), 0.005)):
        assert different._model is not one._model
    apart = Kinematics(replace(spec, table_height_m=-0.1), 0.005)
    assert apart.closest_pair(spec.arm.home) is None
    assert apart._model is not one._model
