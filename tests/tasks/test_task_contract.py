"""What every task keeps to: its layout, its goals, and scores that depend on what they are given alone."""

import ast
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from states import together

import td3robot.config
import td3robot.tasks
from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.robots.grippers import GRIPPERS
from td3robot.tasks import TASKS
from td3robot.tasks.interface import take

PERIODS = 60
TASK_FILES = sorted(Path(td3robot.tasks.__file__).parent.glob("*.py"))


def same(a, b):
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(one, other) for one, other in zip(a, b, strict=True))
    return np.array_equal(a, b)


@pytest.fixture(scope="module", params=sorted(TASKS))
def episode(request):
    """An environment of the task, and every transition that it asked the task to score."""
    environment = make_robot_env(RobotEnvironmentConfig(task=TASKS[request.param].Config()))
    score, seen = environment.task.score, []

    def recording(transition):
        seen.append(transition)
        return score(transition)

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


@pytest.fixture
def transitions(episode):
    return episode[1]


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


def test_observe_gives_exactly_the_fields_of_the_layout(task, transitions):
    for transition in transitions:
        state = transition.state
        values = task.observe(state, transition.goals)
        assert set(values) == set(task.layout.slices)
        for field in task.layout.fields:
            assert np.shape(values[field.name]) in ((1, field.size), (1,) if field.size == 1 else None), field.name
            assert np.isfinite(values[field.name]).all(), field.name
        packed = task.layout.pack(values, 1)
        np.testing.assert_array_equal(packed[:, :6], state.q.astype(np.float32))
        np.testing.assert_array_equal(packed[:, 6:8], state.driver_q.astype(np.float32))


def test_observe_changes_nothing_and_repeats_itself(task, transitions):
    for transition in transitions[::10]:
        before = deepcopy(transition)
        first, again = (task.observe(transition.state, transition.goals) for _ in range(2))
        assert same(first, again)
        assert same(transition, before)


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


def test_score_is_pure(task, transitions):
    scores = [task.score(transition) for transition in transitions]
    for transition, expected in reversed([*zip(transitions, scores, strict=True)]):
        before = deepcopy(transition)
        again = task.score(transition)
        assert same(again, expected)
        np.testing.assert_array_equal(again.reward, expected.reward)
        assert same(transition, before)


def test_reward_terms_are_finite_and_within_their_weights(task, transitions):
    weights = task.config.rewards.model_dump()
    observes_joints = getattr(task.config, "joint_way", False)
    scores = task.score(together(transitions))
    assert set(scores.terms) == {name for name in weights if observes_joints or not name.startswith("joint_")}
    for name, values in scores.terms.items():
        assert values.shape == (len(transitions),)
        assert np.isfinite(values).all() and (abs(values) <= weights[name] + 1e-12).all(), name
    np.testing.assert_allclose(scores.reward, sum(scores.terms.values()))
    assert np.isfinite(scores.distance_m).all() and (scores.distance_m >= 0.0).all()
    assert scores.achieved.dtype == bool and scores.achieved.shape == (len(transitions),)


def test_a_row_gets_what_it_would_get_alone_bit_for_bit(task, transitions):
    everyone, rows = together(transitions), deepcopy(transitions)
    state, goals = everyone.state, everyone.goals
    assert same(task.score(everyone), together([task.score(row) for row in rows]))
    assert same(task.observe(state, goals), together([task.observe(row.state, row.goals) for row in rows]))
    assert same(task.held(state), together([task.held(row.state) for row in rows]))
    assert same(
        np.array(task.gripper_range(state, goals)),
        np.hstack([task.gripper_range(row.state, row.goals) for row in rows]),
    )


def test_rows_do_not_depend_on_those_beside_them(task, transitions):
    everyone, some = together(transitions), np.array([3, 4, 17, 40])
    observed = task.observe(everyone.state, everyone.goals)
    part = task.observe(take(everyone.state, some), take(everyone.goals, some))
    assert same(part, {name: values[some] for name, values in observed.items()})


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: path.stem)
def test_tasks_know_no_simulator_and_no_learner(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.split(".")[0])
    assert imported.isdisjoint({"mujoco", "torch", "gymnasium", "roboticstoolbox", "time", "random"})
