"""The released environments as another library meets them: made by id, changed, pickled, and run in processes."""

import multiprocessing
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

import td3robot  # noqa: F401  # registers the environments
from td3robot.build import make_robot_env, robot_spec
from td3robot.config import DISTURBANCES, RobotConfig, RobotEnvironmentConfig, load_config
from td3robot.envs.registration import RELEASED, with_overrides
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.policy.checkpoint import opened
from td3robot.robots.toolbox import KinematicRobot
from td3robot.state import Pose

CONFIGS = Path(__file__).parents[2] / "configs"
REACH, GRASP = "td3robot/UR5eReach-v0", "td3robot/UR5eGrasp-v1"
# Quick to make, and without physics.
QUICK = {"robot": {"backend": "kinematic"}, "episode_s": 0.5}


@pytest.mark.parametrize(
    ("released", "name"),
    [
        (REACH, "ur5e_reach"),
        (GRASP, "ur5e_grasp"),
        ("td3robot/UR3eReach-v0", "ur3e_reach"),
        ("td3robot/UR10eReach-v0", "ur10e_reach"),
        ("td3robot/FR3Reach-v0", "fr3_reach"),
        ("td3robot/UR10eGrasp-v1", "ur10e_grasp"),
        ("td3robot/FR3Grasp-v1", "fr3_grasp"),
    ],
)
def test_an_id_is_the_environment_of_its_configuration(released, name):
    run = load_config(CONFIGS / f"{name}_quick.yaml")
    assert RobotEnvironmentConfig.model_validate(RELEASED[released]) == run.environment
    environment = gymnasium.make(released)
    assert list(environment.unwrapped.contract().differences(make_robot_env(run.environment).contract())) == []


@pytest.mark.parametrize("name", ["GraspAny", "Place", "Push", "ReachPose", "Stack"])
def test_an_id_without_a_quick_file_is_its_configuration_undisturbed(name):
    file = {"GraspAny": "grasp_any", "Place": "place", "Push": "push", "ReachPose": "reach_pose", "Stack": "stack"}[
        name
    ]
    environment = load_config(CONFIGS / f"ur5e_{file}.yaml").environment
    undisturbed = environment.model_copy(update={"disturbance": DISTURBANCES["off"]})
    assert RobotEnvironmentConfig.model_validate(RELEASED[f"td3robot/UR5e{name}-v0"]) == undisturbed


@pytest.mark.parametrize(
    "program",
    [
        "import td3robot, gymnasium",
        "import gymnasium, td3robot",
        "import td3robot; from gymnasium.envs.registration import registry; import gymnasium",
        "import td3robot; from importlib.util import find_spec; assert find_spec('gymnasium'); import gymnasium",
        "import td3robot, gymnasium, importlib; importlib.reload(gymnasium)",
    ],
)
def test_the_ids_are_registered_in_whichever_order_both_are_imported(program):
    program += f"; assert {sorted(RELEASED)} == sorted(name for name in gymnasium.registry if 'td3robot' in name)"
    program += "; assert gymnasium.__loader__ is gymnasium.__spec__.loader; gymnasium.__loader__.get_data"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_released_grasp_plays_in_the_environment_that_it_was_trained_in():
    environment = gymnasium.make(GRASP, disturbance="real").unwrapped
    trained = opened(CONFIGS.parent / "checkpoints" / "ur5e_grasp").contract()
    assert not [name for name, *_ in environment.contract().differences(trained)]


def test_overrides_reach_every_part_and_leave_the_rest():
    environment = gymnasium.make(
        REACH, disturbance="real", practice=True, render_mode="rgb_array", task={"tolerance_m": 0.02},
        guard={"max_tcp_speed_m_s": 0.2}, episode_s=3.0,
    ).unwrapped  # fmt: skip
    assert environment.robot.config == DISTURBANCES["real"]
    assert environment.initial.practice and environment.render_mode == "rgb_array"
    expected = RobotEnvironmentConfig.model_validate({"task": {"tolerance_m": 0.02}}).task
    assert environment.task.config == expected
    assert environment.guard.config.max_tcp_speed_m_s == 0.2
    assert environment.contract().terms["episode_steps"] == 60


def test_overrides_are_laid_over_the_row_key_by_key():
    environment = gymnasium.make(GRASP, task={"object": {"size_m": (0.05, 0.05, 0.05)}}).unwrapped
    assert environment.task.config.object.size_m == (0.05, 0.05, 0.05)
    assert environment.action_kind.config.dead_zone == 0.1
    assert with_overrides({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "d": {"e": 5}}) == {
        "a": {"b": 1, "c": 4}, "d": {"e": 5},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"practise": True}, "unknown override 'practise'; did you mean 'practice'"),
        ({"episode": 3.0}, "unknown override 'episode'; did you mean 'episode_s'"),
        ({"task": {"tolerence_m": 0.02}}, "unknown key 'task.tolerence_m'; did you mean 'tolerance_m'"),
        ({"guard": {"max_speed": 1.0}}, "unknown key 'guard.max_speed'"),
        ({"disturbance": "reel"}, "disturbance: unknown disturbance 'reel'; did you mean 'real'"),
        ({"task": {"tolerance_m": -1.0}}, "task.tolerance_m is -1.0, but it should be greater than 0"),
        ({"task": {"name": "raech"}}, "task.name: unknown name 'raech'; did you mean 'reach'"),
        ({"render_mode": "rgb_aray"}, "unknown render mode 'rgb_aray'; did you mean 'rgb_array'"),
    ],
)
def test_an_override_that_cannot_be_is_refused_in_one_sentence(overrides, named):
    with pytest.raises(ConfigError, match=named) as error:
        gymnasium.make(REACH, **overrides)
    assert "\n" not in str(error.value)


def first_observations(environment):
    observation, _ = environment.reset(seed=3)
    return [observation, *(environment.step(np.full(environment.action_space.shape, 0.3))[0] for _ in range(3))]


@pytest.mark.parametrize("released", [REACH, GRASP])
def test_a_pickled_environment_is_a_fresh_one_of_the_same_configuration(released):
    environment = gymnasium.make(released, disturbance="mild", episode_s=4.0)
    untouched = pickle.dumps(environment)
    expected = first_observations(environment)
    for pickled in (untouched, pickle.dumps(environment)):
        copy = pickle.loads(pickled)
        assert copy.spec.kwargs == environment.spec.kwargs
        assert list(copy.unwrapped.contract().differences(environment.unwrapped.contract())) == []
        with pytest.raises(EnvironmentFaultError, match=r"step\(\) was called before reset\(\)"):
            copy.unwrapped.step(np.zeros(copy.action_space.shape))
        np.testing.assert_array_equal(first_observations(copy), expected)


def test_an_environment_around_an_open_robot_stays_in_its_process():
    spec = robot_spec(RobotConfig())
    environment = make_robot_env(RobotEnvironmentConfig(), robot=KinematicRobot(spec))
    with pytest.raises(ConfigError, match="open in this process, and cannot be sent to another"):
        pickle.dumps(environment)


def observe_elsewhere(environment, connection):
    connection.send(first_observations(environment))


@pytest.mark.parametrize("used", [pytest.param(False, marks=pytest.mark.slow), True])  # see the pickled ones above
def test_an_environment_survives_spawn(used):
    environment = make_robot_env(RobotEnvironmentConfig.model_validate(QUICK))
    expected = first_observations(environment)
    sent = environment if used else make_robot_env(RobotEnvironmentConfig.model_validate(QUICK))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=observe_elsewhere, args=(sent, there))
    process.start()
    assert here.poll(120)
    np.testing.assert_array_equal(here.recv(), expected)
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.slow
def test_gymnasium_steps_environments_in_spawned_processes():
    config = RobotEnvironmentConfig.model_validate(QUICK)
    make = [partial(make_robot_env, config), partial(gymnasium.make, f"td3robot:{REACH}", **QUICK)]
    expected = make[0]().reset(seed=5)[0]
    vector = AsyncVectorEnv(make, context="spawn")
    try:
        observations, _ = vector.reset(seed=[5, 5])
        np.testing.assert_array_equal(observations, [expected, expected])
        observations, *_ = vector.step(np.zeros((2, 3), np.float32))
        np.testing.assert_array_equal(observations[0], observations[1])
    finally:
        vector.close()


@pytest.mark.parametrize("call", ["step", "render", "resume"])
def test_nothing_is_asked_of_an_environment_before_its_reset(call):
    environment = make_robot_env(RobotEnvironmentConfig.model_validate(QUICK), render_mode="rgb_array")
    arguments = (np.zeros(3, np.float32),) if call == "step" else ()
    for _ in range(2):
        with pytest.raises(EnvironmentFaultError, match=rf"{call}\(\) was called before reset\(\)"):
            getattr(environment, call)(*arguments)
        environment.reset(seed=0)
        environment.step(np.zeros(3, np.float32))
        environment.close()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"gaol": (0, 0, 0)}, "unknown reset option 'gaol'; did you mean 'goal'"),
        ({"goal": (0.0, 0.5, 0.3), "stai": True}, "unknown reset option 'stai'; did you mean 'stay'"),
        ({"seed": 3}, r"unknown reset option 'seed' \(choices: goal, stay\)"),
    ],
)
def test_reset_refuses_an_option_that_it_does_not_know(options, named):
    environment = make_robot_env(RobotEnvironmentConfig.model_validate(QUICK))
    with pytest.raises(ConfigError, match=named):
        environment.reset(seed=0, options=options)


@pytest.mark.parametrize("task", ["reach", "grasp"])
def test_the_last_step_says_whether_the_episode_was_a_success(task):
    environment = make_robot_env(RobotEnvironmentConfig.model_validate({"task": {"name": task}, "episode_s": 0.5}))
    environment.reset(seed=0)
    for _ in range(9):
        *_, truncated, info = environment.step(np.zeros(environment.action_space.shape))
        assert not truncated and "is_success" not in info
    environment.batch._held[0] = 100  # as if the goal had been held all the time; an episode this short reaches none
    *_, truncated, info = environment.step(np.zeros(environment.action_space.shape))
    assert truncated and info["is_success"] is info["success"]
    environment.reset(seed=0)
    assert "is_success" not in environment.step(np.zeros(environment.action_space.shape))[-1]


def able_to_draw(environment):
    """Reset an environment and draw it once; skip the test where nothing can be drawn."""
    environment.reset(seed=0)
    try:
        assert environment.render().shape == (480, 640, 3)
    except ConfigError as error:
        pytest.skip(str(error))
    return environment


def test_a_dark_disc_on_the_table_shows_what_an_object_is_above():
    config = RobotEnvironmentConfig.model_validate({"task": {"name": "grasp"}})
    environment = able_to_draw(make_robot_env(config, render_mode="rgb_array"))

    def drawn(*position):
        pose = Pose(np.array(position), np.eye(3))
        world = replace(environment.world, objects={"object": pose})
        return environment._renderer.draw(world, np.array([0.0, 0.0, -1.0])).astype(int)

    low, high, elsewhere = drawn(0.1, 0.6, 0.25), drawn(0.1, 0.6, 0.45), drawn(5.0, 0.6, 0.25)
    disc = (low == high).all(axis=2) & (low != elsewhere).any(axis=2)
    assert 20 < disc.sum() < 500
    assert (low[disc] < elsewhere[disc]).all()
    environment.close()


def test_the_drawing_library_may_be_named_after_mujoco_was_imported(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    able_to_draw(gymnasium.make(REACH, render_mode="rgb_array", **QUICK)).close()


def test_a_second_thread_is_told_that_it_cannot_draw():
    environment = able_to_draw(gymnasium.make(REACH, render_mode="rgb_array", **QUICK))
    errors = []

    def draw():
        try:
            environment.render()
        except ConfigError as error:
            errors.append(str(error))

    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "an OpenGL context belongs to one thread" in errors[0]
    assert environment.render().shape == (480, 640, 3)
    environment.close()
