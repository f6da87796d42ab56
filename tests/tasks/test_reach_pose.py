"""The reach pose task: its goals, what counts as there, and that the tool can be turned any way."""

from itertools import pairwise
from math import radians

import numpy as np
import pytest
from playing import successes_of_script
from states import goals_of, state_of

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.tasks.interface import Failure, Goal, Transition
from td3robot.tasks.reach_pose import DOWN, ReachPose, ReachPoseConfig, tilt_and_turn

GOAL = np.array([0.0, 0.5, 0.3])
TILTED = rotation_matrix([radians(30.0), 0.0, 0.0]) @ about_vertical(0.5) @ DOWN
STILL = np.zeros(6, np.float32)
CONFIG = RobotEnvironmentConfig.model_validate({"task": {"name": "reach_pose"}, "episode_s": 6.0})


@pytest.fixture(scope="module")
def task(spec):
    return ReachPose(ReachPoseConfig(), spec, 0.25)


def state(off_m=0.0, turn=(0.0, 0.0, 0.0), speed=0.0):
    """A state of one row so far from the goal, and turned from it by a rotation vector [rad]."""
    position, rotation = GOAL + [off_m, 0.0, 0.0], rotation_matrix(turn) @ TILTED  # noqa: RUF005  # a vector
    return state_of(
        tcp_position=position, commanded_position=position, tcp_rotation=rotation, commanded_rotation=rotation,
        tcp_velocity=[speed, 0.0, 0.0],
    )  # fmt: skip


def scored(task, before, after):
    goals = goals_of(Goal(GOAL, GOAL, TILTED))
    transition = Transition(before, after, goals, STILL[None], STILL[None], np.array([False]))
    return task.score(transition), task.failures(transition, np.array([False]))[0]


@pytest.mark.parametrize(
    ("there", "achieved", "why"),
    [
        (state(), True, "too_short"),
        (state(0.0099, (0.0, 0.0, 0.099)), True, "too_short"),
        (state(0.0101), False, "away"),
        (state(turn=(0.101, 0.0, 0.0)), False, "askew"),
        (state(turn=(0.0, 0.0, -0.101)), False, "askew"),
        (state(speed=0.021), False, "too_fast"),
    ],
)
def test_there_means_near_turned_and_at_rest(task, there, achieved, why):
    scores, failure = scored(task, there, there)
    assert bool(scores.achieved[0]) is achieved
    assert isinstance(failure, Failure) and failure.kind == why


def test_turning_there_and_back_earns_nothing(task):
    angles = [1.0, 0.9, 0.8, 0.7, 0.8, 0.9, 1.0]
    states = [state(turn=(angle, 0.0, 0.0)) for angle in angles]
    turns = [scored(task, a, b)[0].terms["turn"][0] for a, b in pairwise(states)]
    assert turns[0] == pytest.approx(3.0 * 0.1 / 0.16) and sum(turns) == pytest.approx(0.0)


def test_what_is_left_to_turn_is_observed_in_the_base_frame(task):
    seen = task.observe(state(turn=(0.2, -0.1, 0.05)), goals_of(Goal(GOAL, GOAL, TILTED)))
    np.testing.assert_allclose(seen["turn_left"], [[-0.2, 0.1, -0.05]], atol=1e-12)


def test_goals_are_tilted_and_turned_as_far_as_the_configuration_says(task):
    rng = np.random.default_rng(0)
    drawn = np.degrees([tilt_and_turn(task.sample(rng, False).rotation) for _ in range(500)])
    assert 40.0 < drawn[:, 0].max() <= 45.0 + 1e-6
    assert -90.0 - 1e-6 <= drawn[:, 1].min() < -80.0 and 80.0 < drawn[:, 1].max() <= 90.0 + 1e-6


@pytest.fixture(scope="module")
def environment():
    environment = make_robot_env(CONFIG)
    yield environment
    environment.close()


def test_a_goal_is_a_pose_as_a_pendant_shows_it(environment):
    environment.reset(seed=0, options={"goal": (0.1, 0.5, 0.3, np.pi, 0.0, 0.0)})
    np.testing.assert_allclose(environment.goal.rotation, DOWN, atol=1e-12)


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ((0.1, 0.5, 0.3), r"is outside what this task takes, x,y,z,rx,ry,rz"),
        ((0.1, 0.9, 0.3, np.pi, 0.0, 0.0), "is outside .* for which the policy was trained"),
        ((0.1, 0.5, 0.3, 0.0, 0.0, 0.0), "tilts the tool by 180 degrees, and the policy was trained for up to 45"),
        ((0.1, 0.5, 0.3, 2.0, 2.4, 0.0), "turns the tool by 100 degrees, and the policy was trained for up to 90"),
    ],
)
def test_a_goal_that_the_policy_was_not_trained_for_is_refused(environment, goal, said):
    with pytest.raises(ConfigError, match=said):
        environment.reset(seed=0, options={"goal": goal})


def test_a_goal_that_cannot_be_reached_with_its_orientation_is_refused():
    values = {"task": {"name": "reach_pose", "goals": {"low": (-0.3, 0.25, 0.2), "high": (0.3, 0.75, 0.45)}}}
    environment = make_robot_env(RobotEnvironmentConfig.model_validate(values))
    goal = environment.task.sample(np.random.default_rng(0), False)
    with pytest.raises(ConfigError, match=r"cannot be reached with that orientation: "):
        environment.initial.given(goal, np.array([-0.3, 0.75, 0.388, np.pi, 0.0, 0.0]))
    environment.close()


@pytest.mark.parametrize(
    ("disturbance", "episodes"),
    [
        ("off", 3),
        pytest.param("off", 20, marks=pytest.mark.slow),
        pytest.param("real", 10, marks=pytest.mark.thorough),
    ],
)
def test_the_script_reaches(disturbance, episodes):
    config = RobotEnvironmentConfig.model_validate(CONFIG.model_dump() | {"disturbance": disturbance})
    successes = successes_of_script(config, episodes)
    assert successes >= 0.9 * episodes
