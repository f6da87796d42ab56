"""The way that is left, in joints: where it leads, by kinematics, and what it is worth."""

import numpy as np
import pytest
from td3robot.tasks.joint_way import JointWay

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.geometry import about_vertical, length, turn_down
from td3robot.robots.kinematics import Kinematics
from td3robot.state import JointCommand, RobotState, World
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.reach import ReachConfig

ARMS = {"ur5e": "robotiq_2f85", "fr3": "franka_hand"}
DOWN = np.diag([1.0, -1.0, -1.0])


@pytest.fixture(scope="module", params=ARMS)
def arm(request):
    """Give an arm's way, its kinematics, and its worlds at commanded joint angles."""
    spec = robot_spec(RobotConfig(arm=request.param, gripper=ARMS[request.param]))
    kinematics = Kinematics(spec, GuardConfig().clearance_m)

    def world(q):
        tcp, jacobian = kinematics.tcp_and_full_jacobian(q)
        return World(
            robot=RobotState(q, np.zeros_like(q), np.zeros(2), 0.0),
            tcp=tcp,
            tcp_velocity=np.zeros(3),
            commanded=JointCommand(q, 0.0),
            commanded_tcp=tcp,
            commanded_dq=np.zeros_like(q),
            commanded_jacobian=jacobian,
        )

    return JointWay(spec), spec, world


def postures(spec, spread, count=30):
    rng = np.random.default_rng(0)
    return spec.arm.home + rng.uniform(-spread, spread, (count, len(spec.arm.home)))


def test_a_short_way_of_the_tool_is_gone_by_the_way_of_the_joints(arm):
    joints, spec, world = arm
    rng = np.random.default_rng(1)
    for q in postures(spec, 0.02):
        seen = world(q)
        way = np.array([*rng.uniform(-0.01, 0.01, 3), *turn_down(seen.commanded_tcp.rotation)[:2]])
        moved = world(q + joints.of(seen, way))
        gone = moved.commanded_tcp.position - seen.commanded_tcp.position
        assert length(gone - way[:3]) < 1e-3
        assert length(turn_down(moved.commanded_tcp.rotation)) < 5e-3


def test_step_by_step_the_tool_gets_there_upright_and_every_joint_comes_to_rest(arm):
    joints, spec, world = arm
    rng = np.random.default_rng(2)
    home = world(spec.arm.home).commanded_tcp.position
    for q in postures(spec, 0.2, 10):
        goal = home + rng.uniform(-0.15, 0.15, 3)
        for _ in range(300):
            seen = world(q)
            way = np.array([*goal - seen.commanded_tcp.position, *turn_down(seen.commanded_tcp.rotation)[:2]])
            left = joints.of(seen, way)
            q = q + 0.2 * left
        assert length(goal - seen.commanded_tcp.position) < 1e-3
        assert length(turn_down(seen.commanded_tcp.rotation)) < 1e-2
        assert np.abs(left).max() < 1e-3


def test_with_nowhere_to_go_the_way_leads_home_without_moving_the_tool(arm):
    joints, spec, world = arm
    for q in postures(spec, 0.1):
        seen = world(q)
        way = joints.of(seen, np.zeros(5))
        assert length(seen.commanded_jacobian[:5] @ way) < 1e-3
        assert way @ (spec.arm.home - q) >= 0.0
    assert np.abs(joints.of(world(spec.arm.home), np.zeros(5))).max() == 0.0


def test_progress_is_of_all_joints_and_what_is_gained_is_lost_on_the_way_back(arm):
    joints, spec, _ = arm
    n = len(spec.arm.home)
    there, here = np.full(n, 0.1), np.array([-0.085, *np.full(n - 1, 0.1)])
    assert joints.progress(there, here) == pytest.approx(0.015 / (n * 0.03))
    assert joints.progress(here, there) == -joints.progress(there, here)
    assert joints.progress(np.full(n, 0.1), np.full(n, 0.07)) == pytest.approx(1.0)


@pytest.mark.parametrize("turn", [0.0, 1.0, -2.5])
@pytest.mark.parametrize("axis", [(1.0, 0.0), (0.6, -0.8)])
def test_a_tilted_tool_turns_down_by_its_tilt_whatever_its_heading(turn, axis):
    tilt = 0.05
    x, y = axis
    cross = np.array([[0.0, 0.0, y], [0.0, 0.0, -x], [-y, x, 0.0]])
    rotation = np.eye(3) + np.sin(tilt) * cross + (1 - np.cos(tilt)) * cross @ cross
    found = turn_down(rotation @ about_vertical(turn) @ DOWN)
    np.testing.assert_allclose(found, [-np.sin(tilt) * x, -np.sin(tilt) * y, 0.0], atol=1e-12)


@pytest.mark.parametrize("config", [ReachConfig(), GraspConfig()], ids=lambda config: config.name)
def test_whoever_follows_the_way_in_joints_succeeds(config):
    task = config.model_copy(update={"joint_way": True})
    action = {"kind": "joint_delta", "speed_fraction": 0.4, "exponent": 2.0}
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
