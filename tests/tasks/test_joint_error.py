"""The error in each joint: where it leads, by kinematics, and what it is worth."""

import numpy as np
import pytest
from states import state_of

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.geometry import about_vertical
from td3robot.robots.kinematics import Kinematics
from td3robot.row_math import lengths, turns_down
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.joint_error import JointError
from td3robot.tasks.reach import ReachConfig

ARMS = {"ur5e": "robotiq_2f85", "fr3": "franka_hand"}
DOWN = np.diag([1.0, -1.0, -1.0])


@pytest.fixture(scope="module", params=ARMS)
def arm(request):
    """Give an arm's error in joints, and its states at commanded joint angles (m, n)."""
    spec = robot_spec(RobotConfig(arm=request.param, gripper=ARMS[request.param]))
    kinematics = Kinematics(spec, GuardConfig().clearance_m)

    def at(q):
        tools = kinematics.tools(q)
        return state_of(q.shape[1])._replace(
            commanded_q=q,
            commanded_position=tools.position,
            commanded_rotation=tools.rotation,
            commanded_jacobian=tools.jacobian,
        )

    return JointError(spec), spec, at


def postures(spec, spread, count=30):
    rng = np.random.default_rng(0)
    return spec.arm.home + rng.uniform(-spread, spread, (count, len(spec.arm.home)))


def tilts(state):
    return turns_down(state.commanded_rotation)


def test_a_short_error_of_the_tool_is_gone_by_that_of_the_joints(arm):
    joints, spec, at = arm
    q = postures(spec, 0.02)
    seen, short = at(q), np.random.default_rng(1).uniform(-0.01, 0.01, (len(q), 3))
    moved = at(q + joints.of(seen, np.hstack([short, tilts(seen)[:, :2]])))
    assert lengths(moved.commanded_position - seen.commanded_position - short).max() < 1e-3
    assert lengths(tilts(moved)).max() < 5e-3


def test_step_by_step_the_tool_gets_there_upright_and_every_joint_comes_to_rest(arm):
    joints, spec, at = arm
    q = postures(spec, 0.2, 10)
    goals = at(spec.arm.home[None]).commanded_position + np.random.default_rng(2).uniform(-0.15, 0.15, (len(q), 3))
    for _ in range(300):
        seen = at(q)
        left = joints.of(seen, np.hstack([goals - seen.commanded_position, tilts(seen)[:, :2]]))
        q = q + 0.2 * left
    assert lengths(goals - seen.commanded_position).max() < 1e-3
    assert lengths(tilts(seen)).max() < 1e-2
    assert np.abs(left).max() < 1e-3


def test_with_nowhere_to_go_the_error_leads_home_without_moving_the_tool(arm):
    joints, spec, at = arm
    q = postures(spec, 0.1)
    seen = at(q)
    error = joints.of(seen, np.zeros((len(q), 5)))
    moved = np.einsum("mkn,mn->mk", seen.commanded_jacobian[:, :5], error)
    assert lengths(moved).max() < 1e-3
    assert ((error * (spec.arm.home - q)).sum(axis=1) >= 0.0).all()
    assert np.abs(joints.of(at(spec.arm.home[None]), np.zeros((1, 5)))).max() == 0.0


def test_progress_is_of_all_joints_and_what_is_gained_is_lost_on_the_way_back(arm):
    joints, spec, _ = arm
    n = len(spec.arm.home)
    there, here = np.full(n, 0.1), np.array([-0.085, *np.full(n - 1, 0.1)])
    before, after = np.array([there, here, there]), np.array([here, there, np.full(n, 0.07)])
    share = 0.015 / (n * 0.03)
    np.testing.assert_allclose(joints.progress(before, after), [share, -share, 1.0], rtol=1e-9)


@pytest.mark.parametrize("turn", [0.0, 1.0, -2.5])
@pytest.mark.parametrize("axis", [(1.0, 0.0), (0.6, -0.8)])
def test_a_tilted_tool_turns_down_by_its_tilt_whatever_its_heading(turn, axis):
    tilt = 0.05
    x, y = axis
    cross = np.array([[0.0, 0.0, y], [0.0, 0.0, -x], [-y, x, 0.0]])
    rotation = np.eye(3) + np.sin(tilt) * cross + (1 - np.cos(tilt)) * cross @ cross
    (found,) = turns_down((rotation @ about_vertical(turn) @ DOWN)[None])
    np.testing.assert_allclose(found, [-np.sin(tilt) * x, -np.sin(tilt) * y, 0.0], atol=1e-12)


@pytest.mark.parametrize("config", [ReachConfig(), GraspConfig()], ids=lambda config: config.name)
def test_whoever_follows_the_error_in_joints_succeeds(config):
    task = config.model_copy(update={"joint_way": True})
    action = {"kind": "joint_delta", "speed_fraction": 0.4, "dead_zone": 0.0, "exponent": 2.0}
    environment = make_robot_env(RobotEnvironmentConfig(task=task, action=action, episode_s=8.0))
    layout, speed = environment.observation_layout, environment.action_kind.implied_speeds()["joint_rad_s"]
    try:
        for seed in range(3):
            observation, _ = environment.reset(seed=seed)
            ended = False
            while not ended:
                seen = layout.unpack(observation)
                wanted = 3.0 * seen["joint_way"].astype(float) / speed
                wanted /= max(1.0, np.abs(wanted).max())
                moves = np.sign(wanted) * np.sqrt(np.abs(wanted))
                if task.name == "grasp":
                    there = np.abs(seen["joint_way"]).max() < 0.015
                    close = 1.0 if there or seen["commanded_gripper"][0] > 0.0 else -1.0
                    moves = np.append(moves, close)
                observation, _, _, ended, info = environment.step(moves.astype(np.float32))
            assert info["is_success"], seed
    finally:
        environment.close()


@pytest.mark.parametrize("config", [ReachConfig, GraspConfig])
def test_it_is_neither_observed_nor_paid_for_unless_it_is_asked_for(config):
    plain, asked = (make_robot_env(RobotEnvironmentConfig(task=config(joint_way=on))) for on in (False, True))
    try:
        names = [[field.name for field in environment.task.layout.fields] for environment in (plain, asked)]
        assert names[1] == [*names[0], "commanded_dq", "joint_way", "joint_way_near"]
        still = np.zeros(plain.action_space.shape, np.float32)
        terms = []
        for environment in (plain, asked):
            environment.reset(seed=0)
            terms.append(environment.step(still)[4]["reward_terms"])
        more = {"joint_progress", "joint_rest"} if plain.task.name == "reach" else {"joint_progress"}
        assert terms[1].keys() - terms[0].keys() == more
        assert {name: terms[1][name] for name in terms[0]} == terms[0]
    finally:
        plain.close()
        asked.close()
