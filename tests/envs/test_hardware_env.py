"""The environment of a policy on the arm's driver, against the stand-in: the same task, guard and layout."""

import re
from pathlib import Path

import numpy as np
import pytest

import td3robot
from td3robot.build import make_robot_env
from td3robot.config import GuardConfig, RobotEnvironmentConfig, load_config
from td3robot.registry import GRIPPERS
from td3robot.robots.cells import CellConfig
from td3robot.robots.travel import NEAR_RAD
from td3robot.robots.ur.urcap import RobotiqGripper
from td3robot.simulators.process import start_ur_simulator
from td3robot.state import Pose
from td3robot.tasks.grasp import OBJECT, GraspConfig

ROOT = Path(__file__).parents[2]


def cell_of(standin, **sections):
    patient = {
        "ur": {"host": standin.host, "late_periods": 30, "max_state_age_s": 1.0},
        "gripper": {"max_age_s": 5.0, "answer_timeout_s": 2.0},
    }
    return CellConfig.model_validate(patient | sections)


@pytest.fixture(scope="module")
def tracker_port():
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def standin(hosts, tracker_port):
    pytest.importorskip("rtde_control")
    objects = {OBJECT: GraspConfig().object.model_dump()}
    with start_ur_simulator(hosts[1], objects=objects, tracker=f"127.0.0.1:{tracker_port}") as standin:
        RobotiqGripper(standin.host, cell_of(standin).gripper, GRIPPERS["robotiq_2f85"]).activate()
        yield standin


def play(environment, policy, seed, warm):
    policy.act(warm)
    observation, _ = environment.reset(seed=seed)
    truncated, infos = False, []
    while not truncated:
        observation, _, _, truncated, info = environment.step(policy.act(observation))
        infos.append(info)
    return observation, infos


@pytest.mark.slow
def test_the_released_policy_reaches_its_goals_as_in_simulation(standin, request):
    run = load_config(ROOT / "configs" / "ur5e_reach_quick.yaml", ["environment.guard.max_state_age_s=1.0"])
    policy = td3robot.load_policy(ROOT / "checkpoints" / "ur5e_reach")
    simulated = make_robot_env(run.environment)
    driven = make_robot_env(run.environment, cell=cell_of(standin))
    assert list(driven.contract().differences(simulated.contract())) == []
    request.addfinalizer(driven.close)
    standin.ask(reset_wire=True)
    lost = standin.state()["clock"]["lost_s"]
    observation, _ = simulated.reset(seed=1)
    expected, _ = play(simulated, policy, 1, observation)
    reached, infos = play(driven, policy, 1, observation)
    assert infos[-1]["success"]
    np.testing.assert_array_equal(driven.goal.position, simulated.goal.position)
    names = driven.observation_layout.unpack(reached - expected)
    np.testing.assert_allclose(names["tcp_position"], 0.0, atol=0.004)
    np.testing.assert_allclose(names["driver_q"], 0.0, atol=0.02)
    truth = standin.state()
    wire, guard = truth["wire"]["targets"], run.environment.guard
    if truth["clock"]["lost_s"] == lost:  # a controller whose own time stood still cannot judge speeds
        # Speeds are averaged over a window of the controller's time, which may be late by its worst at either end.
        unsure = 2 * truth["clock"]["late_worst_s"] / truth["wire"]["window_s"]
        assert wire["tcp_speed_m_s"] <= guard.max_tcp_speed_m_s * (1.01 + unsure)
    assert np.abs(np.array(standin.state()["dq"])).max() < 0.01  # between episodes it rests
    driven.close()
    driven.close()


def test_objects_are_taken_where_the_tracker_sees_them(standin, tracker_port, request):
    # Whoever runs this on a loaded machine is late.
    config = RobotEnvironmentConfig(task=GraspConfig(), episode_s=8.0, guard=GuardConfig(max_state_age_s=1.0))
    cell = cell_of(standin, tracker={"port": tracker_port})
    environment = make_robot_env(config, cell=cell)
    request.addfinalizer(environment.close)
    standin.place({OBJECT: Pose(np.array([0.05, 0.5, 0.02]), np.eye(3))})
    environment.reset(seed=0)
    np.testing.assert_allclose(environment.goal.objects[OBJECT].position, [0.05, 0.5, 0.02], rtol=0, atol=2e-3)
    np.testing.assert_allclose(environment.world.objects[OBJECT].position, [0.05, 0.5, 0.02], rtol=0, atol=2e-3)
    down = np.zeros(environment.action_space.shape, np.float32)
    for _ in range(3):
        environment.step(down)
    environment.robot.stop()
    observation = environment.resume()  # an operator's pause
    assert np.isfinite(observation).all()
    np.testing.assert_allclose(environment.guard.commanded.q, environment.world.robot.q, rtol=0, atol=NEAR_RAD)
    environment.step(down)
    standin.fault("tracker_jump", offset_m=(1.0, 0.0, 0.0), for_s=8.0)
    truncated, info = False, {}
    while not truncated:
        *_, truncated, info = environment.step(down)
    assert re.match(r"'object' is seen where it cannot be: x = 1\.\d+ m is outside of", info["fault"])
    assert not info["success"]
    assert np.abs(np.array(standin.state()["dq"])).max() < 0.01
    environment.close()
