import ast
import math
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

import td3robot.config
import td3robot.tasks
from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.robots.grippers import GRIPPERS
from td3robot.tasks import TASKS

PERIODS = 60
TASK_FILES = sorted(Path(td3robot.tasks.__file__).parent.glob("*.py"))


def same(a, b):
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.array_equal(a, b)


@pytest.fixture(scope="module", params=sorted(TASKS))
def episode(request):
    """An environment of the task, and what it asked the task to score: (moment, goal, score, world)."""
    environment = make_robot_env(RobotEnvironmentConfig(task=TASKS[request.param].Config()))
    score, seen = environment.task.score, []

    def recording(moment, goal):
        result = score(moment, goal)
        seen.append((moment, goal, result, environment.world))
        return result

    environment.task.score = recording
    rng = np.random.default_rng(0)
    environment.reset(seed=0)
    for _ in range(PERIODS):
        environment.step(rng.uniform(-1, 1, environment.action_space.shape).astype(np.float32))
    environment.task.score = score
    yield environment, seen
    environment.close()


@pytest.fixture
def task(episode):
    return episode[0].task


def test_a_task_is_listed_under_its_own_name(task):
    assert TASKS[task.name]
    assert task.to_json()["name"] == task.name
    assert task.hold_steps >= 1


def test_the_observation_begins_with_arm_and_gripper_joints(task, spec):
    q, drivers = task.layout.fields[:2]
    assert (q.name, q.components, q.unit) == ("q", spec.arm.joint_names, "rad")
    assert (drivers.name, drivers.components) == ("driver_q", ("right_driver_joint", "left_driver_joint"))
    assert task.layout.slices["q"] == slice(0, 6)
    assert task.layout.slices["driver_q"] == slice(6, 8)


def test_hardware_can_supply_every_field(task):
    assert [field.name for field in task.layout.fields if not field.on_hardware] == []
    known = {"arm", "gripper", "kinematics", "task", "tracker", "guard"}
    assert {field.source for field in task.layout.fields} <= known


def test_observe_gives_exactly_the_fields_of_the_layout(task, episode):
    for _, goal, _, world in episode[1]:
        values = task.observe(world, goal)
        assert set(values) == set(task.layout.slices)
        for field in task.layout.fields:
            value = np.asarray(values[field.name])
            assert value.shape == (field.size,), field.name
            assert np.isfinite(value).all(), field.name
        np.testing.assert_array_equal(task.layout.pack(values)[:6], world.robot.q.astype(np.float32))
        np.testing.assert_array_equal(task.layout.pack(values)[6:8], world.robot.driver_q.astype(np.float32))


def test_observe_changes_nothing_and_repeats_itself(task, episode):
    for _, goal, _, world in episode[1][::10]:
        world_before, goal_before = deepcopy(world), deepcopy(goal)
        first = task.layout.pack(task.observe(world, goal))
        np.testing.assert_array_equal(task.layout.pack(task.observe(world, goal)), first)
        assert same(world, world_before)
        assert same(goal, goal_before)


def test_sample_depends_on_the_generator_alone(task):
    goals = [[task.sample(rng, practice=False) for _ in range(5)] for rng in map(np.random.default_rng, (1, 2, 1))]
    assert all(same(a, b) for a, b in zip(goals[0], goals[2], strict=True))
    assert not any(same(a, b) for a, b in zip(goals[0], goals[1], strict=True))
    assert not same(goals[0][0], goals[0][1])


def test_goals_lie_where_the_configuration_says(task):
    rng = np.random.default_rng(0)
    box = task.config.space(0.0, GRIPPERS["robotiq_2f85"])
    for _ in range(100):
        goal = task.sample(rng, practice=False)
        assert (goal.position >= box.low).all() and (goal.position <= box.high).all()


def test_score_is_pure(task, episode):
    for moment, goal, result, _ in reversed(episode[1]):
        moment_before, goal_before = deepcopy(moment), deepcopy(goal)
        again = task.score(moment, goal)
        assert again.terms == result.terms
        assert (again.achieved, again.distance_m, again.reward) == (result.achieved, result.distance_m, result.reward)
        assert same(moment, moment_before)
        assert same(goal, goal_before)


def test_reward_terms_are_finite_and_within_their_weights(task, episode):
    weights = task.config.rewards.model_dump()
    for _, _, result, _ in episode[1]:
        assert set(result.terms) == {name for name in weights if task.config.joint_way or not name.startswith("joint_")}
        for name, value in result.terms.items():
            assert math.isfinite(value) and abs(value) <= weights[name] + 1e-12, name
        assert result.reward == sum(result.terms.values())
        assert math.isfinite(result.distance_m) and result.distance_m >= 0.0
        assert isinstance(result.achieved, bool)


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: path.stem)
def test_tasks_know_no_simulator_and_no_learner(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.split(".")[0])
    assert imported.isdisjoint({"mujoco", "torch", "gymnasium", "roboticstoolbox", "time", "random"})
