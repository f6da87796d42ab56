"""The place task: its stages, when fingers may let go, what counts as placed, and that the script does it."""

from itertools import pairwise
from math import radians

import numpy as np
import pytest
from playing import successes_of_script
from states import goals_of, numbers_in, poses, state_of

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.errors import ConfigError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.state import Pose
from td3robot.tasks.grasp import OBJECT
from td3robot.tasks.interface import NOTHING_HELD, Goal, Transition
from td3robot.tasks.place import Place, PlaceConfig

LAY, GOAL = np.array([0.0, 0.5, 0.02]), np.array([0.1, 0.4, 0.02])
# A 40 mm cube's grasp point is 6 mm above its centre.
RAISED = np.array([0.0, 0.0, 0.006])
# (85 - 40) / 85 of the way closed, the pads meet it.
MEETS = 45 / 85
STILL = np.zeros(5, np.float32)
UP = np.array([0.0, 0.0, 0.08])


def beside(*off_m):
    """Give a place so far from the goal (3,) [m]."""
    return GOAL + np.array(off_m)


@pytest.fixture(scope="module")
def make(spec):
    return lambda **config: Place(PlaceConfig(**config), spec, 0.25)


@pytest.fixture(scope="module")
def task(make):
    return make()


@pytest.fixture(scope="module")
def goals(task):
    goal = Goal(GOAL, LAY + UP)
    return goals_of(task.rebase(goal, {OBJECT: Pose(LAY, np.eye(3))}))


def state(item, tcp=None, *, rotation=None, tool_yaw=0.0, held=False, closed=None, told=None):
    """A state of one row with the object at (3,), and the tool around it if nothing else is said."""
    tcp = item + RAISED if tcp is None else tcp
    down = about_vertical(tool_yaw) @ np.diag([1.0, -1.0, -1.0])
    closed = (MEETS if held else 0.0) if closed is None else closed
    return state_of(
        objects={OBJECT: poses(item, np.eye(3) if rotation is None else rotation)},
        tcp_position=tcp, tcp_rotation=down, commanded_position=tcp, commanded_rotation=down, closed=closed,
        commanded_gripper=float(held) if told is None else told, held=0 if held else NOTHING_HELD,
    )  # fmt: skip


def scored(task, goals, before, after):
    return task.score(Transition(before, after, goals, STILL[None], STILL[None], np.array([False])))


@pytest.mark.parametrize(
    ("seen", "bounds"),
    [
        (state(GOAL, held=True), (0.0, 1.0)),
        (state(beside(0.004, 0.0, 0.003), held=True), (0.0, 1.0)),
        (state(beside(0.006, 0.0, 0.0), held=True), (1.0, 1.0)),  # beside the goal
        (state(beside(0.0, 0.0, 0.006), held=True), (1.0, 1.0)),  # above it
        (state(GOAL, held=True, tool_yaw=radians(3.0)), (1.0, 1.0)),  # turned
        (state(GOAL, held=True, tool_yaw=np.pi / 2), (0.0, 1.0)),  # a cube looks the same
        (state(GOAL), (0.0, 0.0)),  # it lies there, and is not picked up again
        (state(beside(0.015, 0.0, 0.0), rotation=about_vertical(0.15)), (0.0, 0.0)),  # as far as a camera knows
        (state(beside(0.03, 0.0, 0.0)), (0.0, 1.0)),
    ],
)
def test_fingers_let_go_of_an_object_at_its_goal_alone(task, goals, seen, bounds):
    assert tuple(float(bound[0]) for bound in task.gripper_range(seen, goals)) == bounds


def test_a_camera_that_sees_a_held_object_beside_the_pads_does_not_move_its_goal(task, goals):
    seen = state(beside(0.008, 0.0, 0.0), GOAL + RAISED, held=True)
    assert task.gripper_range(seen, goals)[0] == 0.0
    np.testing.assert_allclose(task.observe(seen, goals)["target_from_commanded"], 0.0, atol=1e-12)


AWAY = GOAL + UP


@pytest.mark.parametrize(
    ("before", "after", "placed"),
    [
        (state(GOAL, AWAY), state(GOAL, AWAY), True),
        (state(GOAL, AWAY), state(beside(0.0009, 0.0, 0.0), AWAY), True),
        (state(GOAL, AWAY), state(beside(0.0011, 0.0, 0.0), AWAY), False),  # it moves
        (state(GOAL, GOAL + RAISED), state(GOAL, GOAL + RAISED), False),  # the hand is there
        (state(GOAL, AWAY, closed=0.4), state(GOAL, AWAY, closed=0.4), False),  # and half closed
        *(
            (state(beside(*off), AWAY, rotation=turned), state(beside(*off), AWAY, rotation=turned), placed)
            for off, turned, placed in [
                ([0.007, 0.007, 0.0], np.eye(3), True),
                ([0.0072, 0.0072, 0.0], np.eye(3), False),
                ([0.0, 0.0, 0.011], np.eye(3), False),
                ([0.0, 0.0, 0.0], about_vertical(radians(4.9)), True),
                ([0.0, 0.0, 0.0], about_vertical(radians(5.1)), False),
                ([0.0, 0.0, 0.0], about_vertical(np.pi / 2), True),
                ([0.0, 0.0, 0.0], rotation_matrix([radians(11.0), 0.0, 0.0]), False),
                ([0.0, 0.0, 0.0], rotation_matrix([np.pi / 2, 0.0, 0.0]), True),  # on another side
            ]
        ),
    ],
)
def test_placed_means_at_rest_at_the_goal_turned_and_upright_with_the_hand_away(task, goals, before, after, placed):
    assert bool(scored(task, goals, before, after).achieved[0]) is placed


@pytest.mark.parametrize(("off_m", "turned", "kind"), [(0.0, 0.2, "askew"), (0.02, 0.0, "misplaced")])
def test_an_object_that_is_turned_wrongly_failed_for_that(task, goals, off_m, turned, kind):
    lying = state(beside(off_m, 0.0, 0.0), AWAY, rotation=about_vertical(turned))
    transition = Transition(lying, lying, goals, STILL[None], STILL[None], np.array([False]))
    assert [failure.kind for failure in task.failures(transition, np.array([True]))] == [kind]


def test_a_box_may_lie_after_half_a_turn_and_not_after_a_quarter(make):
    task = make(object=ObjectConfig(size_m=(0.03, 0.06, 0.04)))
    goals = goals_of(task.rebase(Goal(GOAL, GOAL), {OBJECT: Pose(LAY, np.eye(3))}))
    for turn, placed in ((np.pi, True), (np.pi / 2, False)):
        lying = state(GOAL, AWAY, rotation=about_vertical(turn))._replace(numbers=numbers_in(task)[None])
        assert bool(scored(task, goals, lying, lying).achieved[0]) is placed


def test_carrying_there_and_back_earns_nothing(task, goals):
    path = [LAY, LAY + UP / 2, LAY + UP, (LAY + GOAL) / 2 + UP, GOAL + UP, GOAL + UP / 2, GOAL]
    path += path[-2::-1]
    steps = [np.linspace(0.0, 1.0, 30)[:, None] * (b - a) + a for a, b in pairwise(path)]
    held = [state(item, held=True) for item in np.concatenate(steps)]
    earned = [scored(task, goals, a, b).terms["carry"][0] for a, b in pairwise(held)]
    assert sum(earned) == pytest.approx(0.0, abs=1e-9)
    assert max(earned) > 0.1


def test_every_stage_is_worth_more_than_the_one_before(task, goals):
    stages = [
        state(LAY), state(LAY, held=True), state(GOAL, held=True), state(GOAL, told=0.0, closed=MEETS),
        state(GOAL, AWAY),
    ]  # fmt: skip
    rewards = [float(scored(task, goals, each, each).reward[0]) for each in stages]
    assert rewards == sorted(rewards) and len(set(rewards)) == len(rewards)


def test_goals_are_drawn_on_the_patch_and_never_on_the_object(task):
    rng = np.random.default_rng(0)
    for practice in (False, True):
        for _ in range(300):
            goal = task.sample(rng, practice)
            place, config = goal.position[:2], task.config
            assert (place >= config.patch_low).all() and (place <= config.patch_high).all()
            if not goal.begins_at_object:
                apart = np.linalg.norm(place - goal.objects[OBJECT].position[:2])
                assert apart >= np.hypot(0.04, 0.04)


@pytest.fixture(scope="module")
def environment():
    environment = make_robot_env(
        RobotEnvironmentConfig.model_validate(
            {"task": {"name": "place"}, "action": {"exponent": 3.0}, "episode_s": 12.0}
        )
    )
    yield environment
    environment.close()


def test_a_goal_is_a_place_on_the_table_and_a_heading(environment):
    environment.reset(seed=0, options={"goal": (0.1, 0.5, 0.3)})
    np.testing.assert_allclose(environment.goal.position, [0.1, 0.5, 0.026], atol=1e-4)
    np.testing.assert_allclose(environment.goal.rotation, about_vertical(0.3))
    environment.reset(seed=0, options={"goal": (0.1, 0.5)})
    np.testing.assert_allclose(environment.goal.rotation, np.eye(3))


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ((0.5, 0.5), r"the goal \[0\.5, 0\.5\] m is outside .* for which the policy was trained"),
        ((0.1,), r"the goal \[0\.1\] m is outside what this task takes, x,y\[,yaw\]"),
        ((0.1, 0.5, 0.0, 0.0), "is outside what this task takes"),
    ],
)
def test_a_goal_off_the_patch_or_of_another_form_is_refused(environment, goal, said):
    with pytest.raises(ConfigError, match=said):
        environment.reset(seed=0, options={"goal": goal})


def test_a_goal_on_top_of_the_object_is_refused_before_anything_moves(environment):
    environment.reset(seed=0)
    lying, q = environment.world.objects, environment.robot.read().q
    initial, rng = environment.initial, np.random.default_rng(0)
    goal = initial.given(environment.goal, lying[OBJECT].position[:2] + np.array([0.03, 0.0]))
    with pytest.raises(ConfigError, match=r"on top of the object, which lies 30 mm from it .* at least 57 mm away"):
        initial.among(goal, lying, rng, np.zeros(2))
    np.testing.assert_array_equal(environment.robot.read().q, q)
    other = initial.among(goal, lying, rng, None)  # where an arm's own draw falls on what a tracker sees
    assert np.linalg.norm(other.position[:2] - lying[OBJECT].position[:2]) >= np.hypot(0.04, 0.04)


def test_a_given_goal_on_top_of_the_object_is_told_before_an_episode_begins(environment):
    objects = {OBJECT: Pose(LAY, np.eye(3))}
    assert "is on top of the object, which lies 20 mm" in environment.initial.objection(objects, np.array([0.02, 0.5]))
    assert environment.initial.objection(objects, np.array([0.1, 0.5])) is None
    assert environment.initial.objection(objects, None) is None  # another goal is drawn where one is in the way


@pytest.mark.parametrize(
    ("item", "disturbance", "episodes"),
    [
        ({}, "off", 3),
        pytest.param({}, "off", 10, marks=pytest.mark.slow),
        pytest.param({}, "real", 5, marks=pytest.mark.thorough),
        pytest.param({"size_m": (0.03, 0.06, 0.05)}, "off", 5, marks=pytest.mark.thorough),
        pytest.param({"shape": "cylinder", "size_m": (0.05, 0.05, 0.06)}, "off", 5, marks=pytest.mark.thorough),
    ],
)
def test_the_script_places(item, disturbance, episodes):
    values = {"task": {"name": "place", "object": item}, "disturbance": disturbance, "episode_s": 16.0}
    config = RobotEnvironmentConfig.model_validate(values | {"action": {"exponent": 3.0}})
    assert successes_of_script(config, episodes) >= 0.9 * episodes
