"""The stack task: where the goal is, what counts as stacked, what is refused, and that the script does it."""

from dataclasses import replace

import numpy as np
import pytest
from playing import successes_of_script
from states import goals_of, poses, state_of

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical
from td3robot.state import Pose
from td3robot.tasks.grasp import OBJECT
from td3robot.tasks.interface import NOTHING_HELD, Goal, Transition
from td3robot.tasks.stack import SUPPORT, Stack, StackConfig

LAY, SUPPORT_AT = np.array([-0.1, 0.5, 0.02]), np.array([0.1, 0.4, 0.02])
TOP = SUPPORT_AT + np.array([0.0, 0.0, 0.04])
UP = np.array([0.0, 0.0, 0.08])
# (85 - 40) / 85 of the way closed, the pads meet the cube.
MEETS = 45 / 85
STILL = np.zeros(5, np.float32)


@pytest.fixture(scope="module")
def task(spec):
    return Stack(StackConfig(), spec, 0.25)


@pytest.fixture(scope="module")
def goals(task):
    return goals_of(task.rebase(Goal(TOP, LAY + UP), {OBJECT: pose(LAY), SUPPORT: pose(SUPPORT_AT)}))


def pose(position, yaw=0.0):
    return Pose(np.asarray(position, float), about_vertical(yaw))


def state(item, tcp=None, *, support=SUPPORT_AT, support_yaw=0.0, yaw=0.0, held=False):
    """A state of one row with the object at (3,), and the tool 80 mm above it if nothing else is said."""
    tcp, down = item + UP if tcp is None else tcp, np.diag([1.0, -1.0, -1.0])
    return state_of(
        objects={OBJECT: poses(item, about_vertical(yaw)), SUPPORT: poses(support, about_vertical(support_yaw))},
        tcp_position=tcp, tcp_rotation=down, commanded_position=tcp, commanded_rotation=down,
        closed=MEETS if held else 0.0, commanded_gripper=float(held), held=0 if held else NOTHING_HELD,
    )  # fmt: skip


def scored(task, goals, before, after):
    return task.score(Transition(before, after, goals, STILL[None], STILL[None], np.array([False])))


@pytest.mark.parametrize(
    ("off_m", "values", "stacked"),
    [
        ((0.0, 0.0, 0.0), {}, True),
        ((0.007, 0.007, 0.0), {}, True),
        ((0.0072, 0.0072, 0.0), {}, False),  # beside the middle
        ((0.0, 0.0, 0.011), {}, False),
        ((0.0, 0.0, -0.04), {}, False),  # in the table's height
        ((0.0, 0.0, 0.0), {"yaw": 0.08}, True),
        ((0.0, 0.0, 0.0), {"yaw": 0.1}, False),
        ((0.0, 0.0, 0.0), {"yaw": np.pi / 2}, True),
        ((0.0, 0.0, 0.0), {"support_yaw": 0.6, "yaw": 0.6 + np.pi}, True),  # square with the support as it is now
        ((0.0, 0.0, 0.0), {"tcp": TOP + np.array([0.0, 0.0, 0.006])}, False),  # the hand is there
        ((0.0, 0.0, 0.0), {"held": True}, False),
    ],
)
def test_stacked_means_on_the_middle_square_and_left(task, goals, off_m, values, stacked):
    lying = state(TOP + np.array(off_m), **values)
    assert bool(scored(task, goals, lying, lying).achieved[0]) is stacked


@pytest.mark.parametrize(("pushed_m", "stacked"), [(0.059, True), (0.061, False)])
def test_a_support_that_was_pushed_away_is_no_success_and_says_so(task, goals, pushed_m, stacked):
    off = np.array([pushed_m, 0.0, 0.0])
    after = state(TOP + off, support=SUPPORT_AT + off)
    transition = Transition(after, after, goals, STILL[None], STILL[None], np.array([False]))
    assert bool(task.score(transition).achieved[0]) is stacked
    (failure,) = task.failures(transition, np.array([True]))
    assert failure.kind == ("too_short" if stacked else "support_pushed")


def test_the_goal_is_on_the_support_where_it_is_seen_now(task, goals):
    moved = SUPPORT_AT + np.array([0.03, 0.0, 0.0])
    seen = task.observe(state(LAY, support=moved), goals)
    np.testing.assert_allclose(seen["goal_from_object"][0], moved + np.array([0.0, 0.0, 0.04]) - LAY, atol=1e-12)


def test_moving_the_support_is_penalized(task, goals):
    after = state(LAY, support=SUPPORT_AT + np.array([0.00625, 0.0, 0.0]))
    assert scored(task, goals, state(LAY), after).terms["disturb"][0] == pytest.approx(-4.0 / 2)


def test_open_fingers_stay_above_a_support_that_is_higher_than_the_object(spec):
    task = Stack(StackConfig.model_validate({"support": {"size_m": (0.06, 0.06, 0.1)}}), spec, 0.25)
    seen = state(LAY, LAY + np.array([0.1, 0.0, 0.2]), support=np.array([0.1, 0.4, 0.05]))
    assert task.lowest(seen)[0] == pytest.approx(0.1 + 0.005 + spec.gripper.jaw.fingertips_m)


def test_objects_begin_far_enough_apart_for_the_fingers_or_stacked_in_practice(task, spec):
    rng, apart_m, stacked = np.random.default_rng(0), task.config.apart_m(spec.gripper.jaw), 0
    for practice in (False, True):
        for _ in range(300):
            goal = task.sample(rng, practice)
            off = goal.objects[OBJECT].position - goal.objects[SUPPORT].position
            if np.linalg.norm(off[:2]) >= apart_m:
                assert off[2] == pytest.approx(0.0)
            else:
                stacked += 1
                assert practice and goal.begins_at_object and off[2] == pytest.approx(0.044)
            assert task.objection(goal, goal.objects) is None
    assert stacked > 10


def test_a_support_too_near_to_the_object_is_refused_in_one_sentence(task):
    objects = {OBJECT: pose(LAY), SUPPORT: pose(LAY + np.array([0.06, 0.0, 0.0]))}
    goal = task.rebase(Goal(TOP, LAY), objects)
    assert task.objection(goal, objects) == (
        "'support' lies 60 mm from 'object', and the open fingers fit between them from 101 mm on; move them apart"
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"support": {"size_m": (0.015, 0.04, 0.04)}}, "the support is 15 mm wide, .* choose a wider support"),
        (
            {"patch_low": (0.0, 0.5), "patch_high": (0.1, 0.6)},
            r"is too small: object and support lie at least 0\.101 m",
        ),
        ({"object": {"size_m": (0.1, 0.1, 0.05)}}, "the jaw takes at most 80 mm"),
    ],
)
def test_what_cannot_be_stacked_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        RobotEnvironmentConfig.model_validate({"task": {"name": "stack"} | values})


def test_two_objects_of_one_name_are_refused(monkeypatch):
    models = StackConfig().objects()
    monkeypatch.setattr(StackConfig, "objects", lambda self: (models[0], models[0]))
    with pytest.raises(ValueError, match="two objects of the task 'stack' are named 'object', and a tracker could not"):
        RobotEnvironmentConfig.model_validate({"task": {"name": "stack"}})


def test_an_object_of_the_name_of_a_part_of_the_robot_is_refused(monkeypatch):
    config = RobotEnvironmentConfig.model_validate({"task": {"name": "stack"}})
    model, other = config.task.objects()
    monkeypatch.setattr(StackConfig, "objects", lambda self: (model, replace(other, name="base")))
    with pytest.raises(ConfigError, match="the object 'base' has the name of a part of the robot"):
        make_robot_env(config).reset(seed=0)


@pytest.mark.parametrize(
    ("values", "disturbance", "episodes"),
    [
        ({}, "off", 2),
        pytest.param({}, "off", 10, marks=pytest.mark.slow),
        pytest.param({}, "real", 4, marks=pytest.mark.thorough),
        pytest.param({"support": {"size_m": (0.08, 0.06, 0.03)}}, "off", 3, marks=pytest.mark.thorough),
        pytest.param(
            {"object": {"shape": "cylinder", "size_m": (0.05, 0.05, 0.06)}}, "off", 3, marks=pytest.mark.thorough
        ),
    ],
)
def test_the_script_stacks(values, disturbance, episodes):
    config = RobotEnvironmentConfig.model_validate(
        {
            "task": {"name": "stack"} | values,
            "disturbance": disturbance,
            "episode_s": 16.0,
            "action": {"exponent": 3.0},
        }
    )
    successes = successes_of_script(config, episodes)
    assert successes >= 0.9 * episodes - 1e-9 if disturbance == "off" else successes >= 0.7 * episodes
