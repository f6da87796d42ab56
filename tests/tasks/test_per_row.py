"""A task that is written for one row, by ``per_row``, is the same task as one that is written for arrays."""

import numpy as np
import pytest
from states import goals_of, state_of, together

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.errors import EnvironmentFaultError
from td3robot.layout import Field, Layout
from td3robot.row_math import lengths
from td3robot.tasks import TASKS
from td3robot.tasks.interface import NOTHING_HELD, Goal, Scores, Transition, per_row
from td3robot.tasks.reach import Reach

XYZ = ("x", "y", "z")


class OverRows(Reach):
    """A small reach, over arrays."""

    def __init__(self, config, spec, max_tcp_speed_m_s):
        super().__init__(config, spec, max_tcp_speed_m_s)
        self.layout = Layout([Field("way", XYZ, "m", "task"), Field("distance", ("d",), "m", "task")])

    def observe(self, state, goals):
        way = goals.position - state.tcp_position
        return {"way": way, "distance": lengths(way)}

    def score(self, transition):
        distance = lengths(transition.goals.position - transition.state.tcp_position)
        terms = {"near": -distance, "guard": -0.1 * transition.intervened}
        return Scores(terms, distance < 0.1, distance)

    def held(self, state):
        return np.where(state.closed > 0.5, 0, NOTHING_HELD)

    def gripper_range(self, state, goals):
        return np.zeros(len(state.q)), np.where(state.intent > 0.5, 1.0, 0.5)


class PerRow(OverRows):
    """The same, for one row at a time."""

    @per_row
    def observe(self, state, goals):
        way = goals.position - state.tcp_position
        return {"way": way, "distance": length(way)}

    @per_row
    def score(self, transition):
        distance = length(transition.goals.position - transition.state.tcp_position)
        terms = {"near": -distance, "guard": -0.1 * transition.intervened}
        return Scores(terms, distance < 0.1, distance)

    @per_row
    def held(self, state):
        return 0 if state.closed > 0.5 else NOTHING_HELD

    @per_row
    def gripper_range(self, state, goals):
        return 0.0, 1.0 if state.intent > 0.5 else 0.5


def length(vector):
    x, y, z = vector
    return np.sqrt(x * x + y * y + z * z)


@pytest.fixture
def tasks(spec):
    config = RobotEnvironmentConfig().task
    return [kind(config, spec, 0.25) for kind in (OverRows, PerRow)]


def test_a_task_for_one_row_gives_the_same_as_one_over_arrays(tasks):
    rng = np.random.default_rng(0)
    row = [
        state_of(tcp_position=rng.uniform(-0.1, 0.1, 3), closed=rng.uniform(), intent=rng.uniform()) for _ in range(20)
    ]
    state, goals = together(row), together([goals_of(Goal(rng.uniform(-0.1, 0.1, 3), np.zeros(3))) for _ in row])
    action = rng.uniform(-1, 1, (20, 3)).astype(np.float32)
    transition = Transition(state, state, goals, action, action, rng.random(20) < 0.5)
    observed, scores, held, ranges = zip(
        *((task.observe(state, goals), task.score(transition), task.held(state), task.gripper_range(state, goals))
          for task in tasks),
        strict=True,
    )  # fmt: skip
    for one, other in (observed, [each.terms for each in scores]):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    for one, other in (held, *zip(*ranges, strict=True), *zip(*(each[1:] for each in scores), strict=True)):
        np.testing.assert_array_equal(one, other)
    assert len(np.unique(held[0])) == len(np.unique(scores[0].achieved)) == 2


def made(monkeypatch, kind):
    monkeypatch.setitem(TASKS._things, "reach", kind)
    return make_robot_env(RobotEnvironmentConfig.model_validate({"robot": {"backend": "kinematic"}}))


def test_it_runs_in_an_environment_as_the_other_does(monkeypatch):
    played = []
    for kind in (OverRows, PerRow):
        environment = made(monkeypatch, kind)
        observations = [environment.reset(seed=1)[0]]
        rewards = []
        for _ in range(10):
            observation, reward, *_ = environment.step(np.array([0.3, -0.2, 0.5], np.float32))
            observations.append(observation)
            rewards.append(reward)
        played.append((np.array(observations), rewards))
        environment.close()
    np.testing.assert_array_equal(played[0][0], played[1][0])
    assert played[0][1] == played[1][1]


def without(values, name):
    return {key: value for key, value in values.items() if key != name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: without(values, "distance"), r"does not write \['distance'\] among the fields \['way', 'dist"),
        (lambda values: values | {"speed": np.zeros(1)}, r"writes \['speed'\], which it lacks"),
        (lambda values: values | {"way": np.zeros((1, 2))}, r"'way' has 3 numbers in each of 1 rows.*shape \(1, 2\)"),
        (lambda values: values | {"way": np.zeros(3)}, r"'way' has 3 numbers .* shape \(3,\)"),
        (lambda values: values | {"distance": np.zeros(2)}, r"'distance' has 1 numbers .* shape \(2,\)"),
    ],
    ids=["not written", "unknown", "too short", "without rows", "too many rows"],
)
def test_a_task_that_does_not_keep_to_its_layout_starts_no_run(monkeypatch, change, words):
    class Wrong(OverRows):
        def observe(self, state, goals):
            return change(super().observe(state, goals))

    environment = made(monkeypatch, Wrong)
    with pytest.raises(EnvironmentFaultError, match=words):
        environment.reset(seed=0)
    environment.close()
