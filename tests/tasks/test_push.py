"""The push task: where the tool pushes from, what counts as there, its goals, and that the script does it."""

from itertools import pairwise

import numpy as np
import pytest
from playing import successes_of_script
from states import goals_of, poses, state_of

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.envs.retreat import STUCK_S
from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical
from td3robot.state import Pose
from td3robot.tasks.interface import Goal, Transition
from td3robot.tasks.push import FINGERS_M, GAP_M, OBJECT, Push, PushConfig
from td3robot.tasks.scripted import script_of

LYING, GOAL = np.array([0.0, 0.5, 0.025]), np.array([0.1, 0.5, 0.032])
STILL = np.zeros(3, np.float32)


@pytest.fixture(scope="module")
def make(spec):
    return lambda **config: Push(PushConfig(**config), spec, 0.25)


@pytest.fixture(scope="module")
def task(make):
    return make()


GOALS = goals_of(Goal(GOAL, GOAL, objects={OBJECT: Pose(LYING, np.eye(3))}))


def state(item=LYING, tool=(0.0, 0.5, 0.3), yaw=0.0):
    return state_of(
        objects={OBJECT: poses(item, about_vertical(yaw))}, tcp_position=tool, commanded_position=tool,
    )  # fmt: skip


def scored(task, before, after):
    return task.score(Transition(before, after, GOALS, STILL[None], STILL[None], np.array([False])))


@pytest.mark.parametrize(
    ("shape", "yaw", "behind"),
    [
        ({}, 0.0, -0.05),
        ({}, np.pi / 4, -0.05 * np.sqrt(2.0)),  # over its edge
        ({"size_m": (0.1, 0.2, 0.05)}, np.pi / 2, -0.1),
        ({"shape": "cylinder", "size_m": (0.12, 0.12, 0.05)}, 0.3, -0.06),
    ],
)
def test_the_tool_pushes_from_behind_the_object(make, shape, yaw, behind):
    task = make(object=ObjectConfig(**{"size_m": (0.1, 0.1, 0.05)} | shape))
    high, at = state(tool=(0.2, 0.5, 0.3), yaw=yaw), behind - FINGERS_M - GAP_M
    way = task.observe(high, GOALS)["behind_from_commanded"][0]
    assert way[0] == pytest.approx(at - 0.2, abs=1e-6) and way[1] == pytest.approx(0.0)
    assert 0.3 + way[2] - 0.02 > 0.05  # fingertips pass over it
    there = task.observe(state(tool=(at, 0.5, 0.3), yaw=yaw), GOALS)["behind_from_commanded"][0]
    assert 0.3 + there[2] == pytest.approx(0.05 + 0.02 - 0.018)  # fingertips overlap 18 mm of its side


def test_the_tool_pushes_a_low_object_no_lower_than_it_grasps(make):
    task = make(object=ObjectConfig(size_m=(0.1, 0.1, 0.025)))
    at = -0.05 - FINGERS_M - GAP_M
    there = task.observe(state(item=(0.0, 0.5, 0.0125), tool=(at, 0.5, 0.3)), GOALS)["behind_from_commanded"][0]
    assert 0.3 + there[2] == pytest.approx(0.026 + 0.006)


@pytest.mark.parametrize(
    ("off_m", "moved_m", "achieved"),
    [(0.0149, 0.0, True), (0.0151, 0.0, False), (0.0, 0.0009, True), (0.0, 0.0011, False)],
)
def test_there_means_near_the_goal_and_at_rest(task, off_m, moved_m, achieved):
    place = np.array([0.1, 0.5, 0.025])
    before, after = state(place + [0.0, off_m, 0.0]), state(place + [moved_m, off_m, 0.0])  # noqa: RUF005  # vectors
    assert bool(scored(task, before, after).achieved[0]) is achieved


def test_pushing_there_and_back_earns_nothing(task):
    places = [LYING + np.array([x, 0.0, 0.0]) for x in (0.0, 0.01, 0.02, 0.03, 0.02, 0.01, 0.0)]
    earned = [scored(task, state(a), state(b)).terms["push"][0] for a, b in pairwise(places)]
    assert earned[0] == pytest.approx(8.0 * 0.01 / 0.0125) and sum(earned) == pytest.approx(0.0)


def test_goals_lie_on_the_patch_and_away_from_the_object(task):
    rng = np.random.default_rng(0)
    for practice in (False, True):
        for _ in range(300):
            goal = task.sample(rng, practice)
            assert np.linalg.norm(goal.position[:2] - goal.objects[OBJECT].position[:2]) >= 0.05
            assert (goal.position[:2] >= task.config.patch_low).all()
            assert (goal.position[:2] <= task.config.patch_high).all()
            assert goal.gripper == 1.0


CONFIG = RobotEnvironmentConfig.model_validate({"task": {"name": "push"}, "episode_s": 12.0})


@pytest.fixture(scope="module")
def environment():
    environment = make_robot_env(CONFIG)
    yield environment
    environment.close()


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        (
            (0.2, 0.5),
            r"the goal \[0\.2, 0\.5\] m is outside \(-0\.15, 0\.4\)\.\.\(0\.15, 0\.6\) m, for which",
        ),
        ((0.1, 0.5, 0.1), "is outside what this task takes, x,y"),
    ],
)
def test_a_goal_off_the_patch_or_of_another_form_is_refused(environment, goal, said):
    with pytest.raises(ConfigError, match=said):
        environment.reset(seed=0, options={"goal": goal})


def test_a_given_goal_on_top_of_the_object_is_told_before_an_episode_begins(environment):
    objects = {OBJECT: Pose(LYING, np.eye(3))}
    assert "is on top of the object, which lies 20 mm" in environment.initial.objection(objects, np.array([0.02, 0.5]))
    assert environment.initial.objection(objects, np.array([0.1, 0.5])) is None


def test_the_gripper_is_closed_even_where_an_arm_stands_with_it_open(environment):
    environment.reset(seed=0)
    environment.reset(seed=1, options={"goal": (0.1, 0.5), "stay": True})
    assert environment.goal.gripper == 1.0


def test_an_object_too_flat_for_the_fingers_is_refused():
    with pytest.raises(ValueError, match="the fingers push nothing lower than 20 mm"):
        RobotEnvironmentConfig.model_validate({"task": {"name": "push", "object": {"size_m": (0.1, 0.1, 0.01)}}})


@pytest.mark.parametrize("task", ["grasp", "place"])
def test_an_object_too_wide_for_the_jaw_is_to_be_pushed(task):
    with pytest.raises(ValueError, match="the jaw takes at most 80 mm; choose a smaller object, or the task push"):
        RobotEnvironmentConfig.model_validate({"task": {"name": task, "object": {"size_m": (0.1, 0.1, 0.05)}}})


@pytest.mark.parametrize(("above_m", "pushes"), [(0.0, True), (0.008, False)])
def test_the_script_comes_down_before_it_pushes(environment, above_m, pushes):
    layout = environment.task.layout
    observation = np.zeros(layout.size, np.float32)
    seen = layout.unpack(observation)
    seen["goal_from_object"][:] = (0.1, 0.0)
    seen["behind_from_commanded"][:] = (-0.01, 0.0, -above_m)
    seen["commanded_position"][:] = (0.0, 0.5, 0.052 + above_m)
    action = script_of(CONFIG, layout, environment.robot.spec).act(observation)
    assert bool(action[0] > 0.0) is pushes


@pytest.mark.parametrize(("ahead_m", "towards"), [(0.02, 1.0), (0.05, -1.0), (0.12, -1.0)])
def test_the_script_leads_the_object_by_little_and_never_pushes_from_in_front(environment, ahead_m, towards):
    layout = environment.task.layout
    observation = np.zeros(layout.size, np.float32)
    seen = layout.unpack(observation)
    seen["goal_from_object"][:] = (0.1, 0.0)
    seen["behind_from_commanded"][:] = (-ahead_m, 0.0, 0.0)
    seen["commanded_position"][:] = (0.0, 0.5, 0.052)
    action = script_of(CONFIG, layout, environment.robot.spec).act(observation)
    assert np.sign(action[0]) == towards


@pytest.mark.parametrize(
    ("item", "disturbance", "episodes"),
    [
        ({}, "off", 3),
        pytest.param({}, "off", 15, marks=pytest.mark.slow),
        pytest.param({"shape": "cylinder", "size_m": (0.12, 0.12, 0.06)}, "off", 5, marks=pytest.mark.thorough),
    ],
)
def test_the_script_pushes(item, disturbance, episodes):
    task = CONFIG.task.model_copy(update={"object": CONFIG.task.object.model_copy(update=item)})
    values = CONFIG.model_dump() | {"task": task.model_dump(), "disturbance": disturbance}
    config = RobotEnvironmentConfig.model_validate(values)
    successes = successes_of_script(config, episodes)
    assert successes >= 0.6 * episodes


def test_a_tool_that_stands_still_rises_with_closed_fingers(environment):
    environment.reset(seed=0)
    before = environment.world.tcp.position[2]
    messages = set()
    for _ in range(round((STUCK_S + 1.0) / environment.robot.spec.period_s)):
        environment.step(STILL)
        messages.add(environment.gripper_message)
    assert environment.world.tcp.position[2] - before > 0.05
    assert environment.guard.commanded.gripper == 1.0
    assert "nothing goes on here: the tool rises, to look again" in messages
