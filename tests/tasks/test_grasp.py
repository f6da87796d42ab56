"""The grasp task's rewards: each against numbers worked out by hand, and none of them to be farmed."""

from dataclasses import replace
from itertools import pairwise, product
from math import exp, pi, sqrt, tanh

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from td3robot.tasks.vectorized import Worlds
from td3robot.tasks.vectorized.grasp import VectorizedGrasp

from td3robot import geometry
from td3robot.config import DisturbanceConfig
from td3robot.config.objects import ObjectConfig
from td3robot.state import JointCommand, Pose, RobotState, World
from td3robot.tasks.grasp import FAILED_S, OBJECT, SEEN_WITHIN_S, Grasp, GraspConfig
from td3robot.tasks.interface import Moment

PERIOD = 0.05
LYING = (0.0, 0.5, 0.02)
# A 40 mm cube's grasp point is 26 mm above the table: 6 mm above the cube's centre.
POINT = np.array([0.0, 0.5, 0.026])
# (85 - 40) / 85 of the way closed, the pads meet it.
MEETS = 45 / 85
# ... and further than this, they hold nothing.
EMPTY = MEETS + 0.16
STILL = np.zeros(5, np.float32)


def turned(yaw):
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def world(
    *, tcp=POINT, led=(0.0, 0.0, 0.0), tool_yaw=0.0, lying=LYING, yaw=0.0, closed=0.0, told=0.0, held=None, speed=0.0,
    commanded_speed=None, stalled=0.0, age=0.0, intent=0.0,
):  # fmt: skip
    """A world whose tool points down, with the commanded tool point ``led`` ahead of the measured one."""
    down = turned(tool_yaw) @ np.diag([1.0, -1.0, -1.0])
    tcp = np.asarray(tcp, float)
    return World(
        robot=RobotState(np.zeros(6), np.zeros(6), np.full(2, 0.8 * closed), 0.0),
        tcp=Pose(tcp, down),
        tcp_velocity=np.array([speed, 0.0, 0.0]),
        commanded=JointCommand(np.zeros(6), told),
        commanded_tcp=Pose(tcp + np.asarray(led), down),
        commanded_velocity=np.array([speed if commanded_speed is None else commanded_speed, 0.0, 0.0]),
        objects={OBJECT: Pose(np.asarray(lying, float), turned(yaw))},
        stalled_s=stalled,
        intent=intent,
        ages_s={OBJECT: age},
        held=held,
    )


@pytest.fixture(scope="module")
def make(spec):
    return lambda **config: Grasp(GraspConfig(**config), spec, 0.25)


@pytest.fixture(scope="module")
def task(make):
    return make()


@pytest.fixture(scope="module")
def goal(task):
    drawn = task.sample(np.random.default_rng(0), practice=False)
    return task.settle(drawn, {OBJECT: Pose(np.array(LYING), np.eye(3))})


@pytest.fixture
def judge(task, goal):
    """Score one period; terms are shares of their weights."""

    def judge(before, after, action=STILL, previous=STILL, interventions=()):
        score = task.score(Moment(before, after, action, previous, interventions), goal)
        weights = task.config.rewards.model_dump()
        return {name: value / weights[name] for name, value in score.terms.items() if weights[name]}, score

    return judge


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"tcp": POINT + np.array([0.012, 0.0, 0.012])}, True),
        ({"tcp": POINT + np.array([0.015, 0.0, 0.015])}, False),
        ({"led": (0.0, 0.021, 0.0)}, False),  # the commanded tool is not there
        ({"tcp": POINT - np.array([0.0, 0.03, 0.0]), "led": (0.0, 0.03, 0.0)}, False),  # nor is the measured one
        ({"tool_yaw": 0.29}, True),
        ({"tool_yaw": 0.31}, False),
        ({"tool_yaw": np.pi / 2}, True),  # a cube looks the same
    ],
)
def test_where_fingers_may_begin_to_close(make, changes, may):
    there = world(**changes)
    assert make(close_within_m=0.02).gripper_range(there) == (0.0, float(may))
    assert make().gripper_range(there) == (0.0, 1.0)


# The open fingers of a 2F-85 are 42.5 mm beside the tool point and reach 20 mm below it; the cube's top is at 40 mm.
OVER = {"tcp": (0.03, 0.5, 0.055)}


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        (OVER, 0.75 * 1.0),  # 7.5 mm too far beside it to pass it, and tips at 35 mm
        ({"tcp": (-0.03, 0.5, 0.055)}, 0.75),
        ({"tcp": (0.0, 0.53, 0.055), "tool_yaw": np.pi / 2}, 0.75),
        ({"tcp": (0.03, 0.5, 0.06)}, 0.75 * 0.5),
        ({"tcp": (0.03, 0.5, 0.066)}, 0.0),  # above it
        ({"tcp": (0.02, 0.5, 0.055)}, 0.0),  # it passes
        ({"tcp": (0.08, 0.5, 0.055)}, 1.0),  # against it, from beside
        ({"tcp": (0.083, 0.5, 0.055)}, 0.0),  # beside it
        ({"tcp": (0.0, 0.531, 0.055)}, 0.0),  # across the pads, it passes
        ({"tcp": (0.03, 0.533, 0.055)}, 0.0),
        ({**OVER, "closed": 0.1}, 1.0),
        ({**OVER, "told": 1.0}, 0.0),
        ({**OVER, "held": OBJECT}, 0.0),
        ({**OVER, "lying": (0.0, 0.5, 0.031)}, 0.0),  # lifted
    ],
)
def test_fingers_that_come_down_on_the_object_are_penalized(make, goal, changes, share):
    task, there = make(rewards={"press": 3.0}), world(**changes)
    terms = task.score(Moment(there, there, STILL, STILL, ()), goal).terms
    assert terms["press"] == pytest.approx(-3.0 * share)


AWAY = {"tcp": POINT + np.array([0.0, 0.0, 0.05])}
CLOSING, OPENING = {"told": 1.0}, {"told": 0.0}
SOON, STOPPED = {"told": 1.0, "stalled": FAILED_S - 0.05}, {"told": 1.0, "stalled": FAILED_S}


@pytest.mark.parametrize(
    ("fingers", "command"),
    [
        ({"closed": 0.05, **STOPPED}, 1.0),  # they have not begun to move
        ({"closed": 0.4, **CLOSING}, 1.0),
        ({"closed": 0.5, "held": OBJECT, **STOPPED}, 1.0),
        ({"closed": 0.5, **SOON}, 1.0),
        ({"closed": 0.5, **STOPPED}, 0.0),  # they stopped, and hold nothing
        ({"closed": 0.3, **STOPPED}, 0.0),  # across the cube's corners, say
        ({"closed": 0.65, **CLOSING}, 1.0),
        ({"closed": 0.75, **CLOSING}, 0.0),  # further than the cube allows
        ({"closed": 1.0, "told": 1.0}, 0.0),
        ({"closed": 0.75, "told": 0.75}, 0.0),
        ({"closed": 0.5, **OPENING}, 0.0),  # they finish that
        ({"closed": 0.1, **OPENING}, 0.0),
    ],
)
@pytest.mark.parametrize("where", [{}, AWAY])
def test_fingers_that_close_go_on_until_they_hold_or_fail_and_then_open(make, where, fingers, command):
    seen = world(**where, **fingers)
    assert make(close_within_m=0.02).gripper_range(seen) == (command, command)
    assert make().gripper_range(seen) == (0.0, 1.0)


def test_fingers_that_begin_partly_closed_stay_so_unless_they_are_told_otherwise(make):
    task, partly = make(close_within_m=0.02), {"closed": 0.5, "told": 0.5, "stalled": 2.0}
    assert task.gripper_range(world(**partly, **AWAY)) == (0.0, 0.5)
    assert task.gripper_range(world(**partly)) == (0.0, 1.0)


def test_open_fingers_begin_to_close_at_the_object_only(make):
    task = make(close_within_m=0.02)
    for closed in (0.0, 0.07):
        assert task.gripper_range(world(closed=closed)) == (0.0, 1.0)
        assert task.gripper_range(world(closed=closed, **AWAY)) == (0.0, 0.0)


def test_fingers_begin_to_close_only_around_an_object_that_was_seen_lately(make):
    task, lately, long_ago = make(close_within_m=0.02), SEEN_WITHIN_S - 0.1, SEEN_WITHIN_S + 0.1
    assert task.gripper_range(world(age=lately)) == (0.0, 1.0)
    assert task.gripper_range(world(age=long_ago)) == (0.0, 0.0)
    assert task.gripper_range(world(age=long_ago, closed=0.4, **CLOSING)) == (1.0, 1.0)  # what began goes on
    assert make().gripper_range(world(age=long_ago)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"closed": 1.0, **CLOSING}, "hold nothing, and open again"),
        ({"closed": 0.5, **STOPPED}, "hold nothing, and open again"),
        ({"closed": 0.5, "held": OBJECT, **STOPPED}, ""),
        ({"age": SEEN_WITHIN_S + 0.1, "intent": 1.0}, "was not seen for too long"),
        ({"age": SEEN_WITHIN_S + 0.1, "intent": 0.0}, ""),
        ({"intent": 1.0}, ""),
        ({"intent": 1.0, **AWAY}, ""),
    ],
)
def test_an_operator_is_told_why_the_gripper_does_not_close(make, seen, words):
    said = make(close_within_m=0.02).gripper_words(world(**seen))
    assert (words in said) if words else said == ""
    assert make().gripper_words(world(**seen)) == ""


@pytest.mark.parametrize("within", [0.02, None])
def test_together_fingers_may_do_what_they_may_alone(make, within):
    task = make(close_within_m=within)
    fingers = [{"closed": c, "told": t} for c in (0.0, 0.07, 0.3, 0.5, 0.75, 1.0) for t in (0.0, 0.5, 1.0)]
    held, stalled, ages = (None, OBJECT), (0.0, FAILED_S), (0.0, SEEN_WITHIN_S, SEEN_WITHIN_S + 0.05)
    places = ({}, AWAY, {"led": (0.0, 0.021, 0.0)}, {"tool_yaw": 0.29}, {"tool_yaw": 0.31}, {"yaw": 1.6})
    worlds = [
        world(**place, **fingers_, held=holds, stalled=stalls, age=age)
        for place, fingers_, holds, stalls, age in product(places, fingers, held, stalled, ages)
    ]
    together = Worlds(**dict.fromkeys(Worlds._fields, np.zeros(0)))._replace(
        q=np.array([each.robot.q for each in worlds]),
        closed=np.array([each.robot.driver_q[0] / 0.8 for each in worlds]),
        position=np.array([each.tcp.position for each in worlds]),
        rotation=np.array([each.tcp.rotation for each in worlds]),
        commanded_position=np.array([each.commanded_tcp.position for each in worlds]),
        commanded_rotation=np.array([each.commanded_tcp.rotation for each in worlds]),
        commanded_gripper=np.array([each.commanded.gripper for each in worlds]),
        held=np.array([each.held is not None for each in worlds]),
        stalled_s=np.array([each.stalled_s for each in worlds]),
        item=np.array([each.objects[OBJECT].position for each in worlds]),
        item_rotation=np.array([each.objects[OBJECT].rotation for each in worlds]),
        item_age_s=np.array([each.ages_s[OBJECT] for each in worlds]),
    )
    alone = np.array([task.gripper_range(each) for each in worlds]).T
    np.testing.assert_array_equal(VectorizedGrasp(task, len(worlds)).gripper_range(together), alone)
    assert len(np.unique(alone, axis=1).T) == (1 if within is None else 5)


@pytest.mark.parametrize(("config", "saturates"), [({}, 1.0), ({"close_within_m": 0.02}, SEEN_WITHIN_S)])
def test_the_observed_age_tells_whether_fingers_may_close(make, goal, config, saturates):
    task = make(**config)
    for age in (0.5 * saturates, 2.0 * saturates):
        assert task.observe(world(age=age), goal)["object_age"] == (min(age, saturates),)


def test_a_contract_says_where_fingers_close_only_if_that_is_limited(make):
    terms = make(close_within_m=0.02).to_json()
    assert terms.items() >= {"close_within_m": 0.02, "seen_within_s": SEEN_WITHIN_S, "opens_if": "failed"}.items()
    assert not {"close_within_m", "seen_within_s", "opens_if"} & make().to_json().keys()


def above(height, beside=0.0):
    return POINT + np.array([beside, 0.0, height])


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (above(0.08, 0.11), above(0.08, 0.10)),  # outside the funnel, at its height
        (above(0.065), above(0.055)),  # down its middle
        (above(0.2, 0.03), above(0.19, 0.03)),  # down to its wall, wanted 80 mm * 20 / 50 = 32 mm up
        (above(0.032, 0.03), above(0.032 - 0.016, 0.02)),  # along its wall: 10 mm in, and 16 mm down
    ],
)
def test_approach_is_the_way_made_over_the_funnel(judge, start, end):
    terms, _ = judge(world(tcp=start), world(tcp=end))
    # 10 mm, of 12.5 mm in one period at full speed where it is steepest, sideways and down: 1 + 8/5 + 1 = 3.6.
    assert terms["approach"] == pytest.approx(0.010 / (3.6 * 0.0125), rel=1e-5)


def test_approach_counts_the_commanded_point_sideways_and_the_measured_one_in_height(judge):
    far = above(0.08, 0.11)
    full = 3.6 * 0.0125
    sideways, _ = judge(world(tcp=far), world(tcp=far, led=(-0.01, 0.0, 0.0)))
    assert sideways["approach"] == pytest.approx(0.010 / full, rel=1e-5)
    down, _ = judge(world(tcp=far), world(tcp=far, led=(0.0, 0.0, -0.01)))
    assert down["approach"] == 0.0
    sunk, _ = judge(world(tcp=above(0.05)), world(tcp=above(0.04), led=(0.0, 0.0, 0.01)))
    assert sunk["approach"] == pytest.approx(0.010 / full, rel=1e-5)


def test_the_grasp_point_of_a_high_object_is_its_centre(make, goal):
    task = make(object=ObjectConfig(size_m=(0.04, 0.04, 0.1)))
    lying = (0.0, 0.5, 0.05)
    seen = task.observe(world(tcp=(0.0, 0.5, 0.05), lying=lying), task.settle(goal, world(lying=lying).objects))
    np.testing.assert_allclose(seen["target_from_commanded"], 0.0, atol=1e-15)


def test_alignment_is_progress_of_the_turn(task, judge):
    full = task.config.full_turn_rad_s * 0.05
    terms, _ = judge(world(yaw=0.30), world(yaw=0.30, tool_yaw=0.02))
    assert terms["alignment"] == pytest.approx(0.02 / full)
    terms, _ = judge(world(yaw=-0.30), world(yaw=-0.30, tool_yaw=0.02))
    assert terms["alignment"] == pytest.approx(-0.02 / full)


@pytest.mark.parametrize(
    ("closed", "held", "share"),
    [
        (0.0, None, 0.0),
        (MEETS / 2, None, 0.25),  # half way closed: half of a half
        (MEETS, OBJECT, 1.0),
        (MEETS, None, 0.5),
        (0.79 * MEETS, None, 0.5 * 0.79),  # still on their way
        (EMPTY - 0.001, OBJECT, 1.0),  # a smaller object than expected
        (EMPTY + 0.001, None, 0.0),  # nothing between them
    ],
)
def test_grasp_is_read_from_the_drivers(judge, closed, held, share):
    now = world(closed=closed, told=1.0, held=held)
    assert judge(now, now)[0]["grasp"] == pytest.approx(share)


def test_precision_is_where_the_tool_is_told_to_be_until_the_object_is_held(judge):
    trailing = world(tcp=above(0.05), led=(0.0, 0.0, -0.05))
    assert judge(trailing, trailing)[0]["precision"] == pytest.approx(1.0)
    beside = world(led=(0.006, 0.0, 0.008))  # 10 mm away
    assert judge(beside, beside)[0]["precision"] == pytest.approx(exp(-1))
    skewed = world(yaw=0.3)
    assert judge(skewed, skewed)[0]["precision"] == pytest.approx(exp(-1))
    carried = world(led=(0.1, 0.0, 0.1), held=OBJECT)
    assert judge(carried, carried)[0]["precision"] == 1.0


def test_waiting_at_the_object_earns_no_precision_where_the_gripper_decides_when_to_close(make, goal):
    task, opened, closing = make(close_within_m=0.02), world(), world(told=1.0, closed=0.3)
    weight = task.config.rewards.precision
    for there, earns in ((opened, 0.0), (closing, weight), (world(told=1.0, closed=0.5, held=OBJECT), weight)):
        moment = Moment(there, there, STILL, STILL, ())
        assert task.score(moment, goal).terms["precision"] == pytest.approx(earns)
        assert make().score(moment, goal).terms["precision"] == pytest.approx(weight)


@pytest.mark.parametrize(
    ("closed", "share"), [(0.0, 0.0), (MEETS / 2, 0.5), (MEETS, 1.0), (EMPTY - 0.001, 1.0), (EMPTY + 0.001, 0.0)]
)
def test_close_is_the_fingers_progress_to_the_object(judge, closed, share):
    there = above(0.012, 0.016)  # 20 mm away
    assert judge(world(), world(closed=closed))[0]["close"] == pytest.approx(share)
    assert judge(world(closed=closed), world())[0]["close"] == pytest.approx(-share)
    assert judge(world(tcp=there), world(tcp=there, closed=closed))[0]["close"] == pytest.approx(share * exp(-1))
    skewed = judge(world(yaw=0.3), world(yaw=0.3, closed=closed))[0]
    assert skewed["close"] == pytest.approx(share * exp(-1))


def drivers(closed):
    return RobotState(np.zeros(6), np.zeros(6), np.full(2, 0.8 * closed), 0.0)


@pytest.mark.parametrize(
    ("earlier", "now", "told", "holds"),
    [
        (MEETS, MEETS, 1.0, True),  # at rest on the object while told to close
        (MEETS, MEETS, 0.0, False),  # told to open
        (MEETS - 0.0235, MEETS, 1.0, False),  # passing the object's width at 20 mm/s
        (MEETS - 0.011, MEETS, 1.0, True),  # a reading's noise
        (MEETS + 0.0235, MEETS, 1.0, False),  # opening
        (0.79 * MEETS, 0.79 * MEETS, 1.0, False),  # a pause on the way
        (EMPTY - 0.001, EMPTY - 0.001, 1.0, True),  # a smaller object than expected
        (EMPTY + 0.001, EMPTY + 0.001, 1.0, False),  # nothing between them
        (0.0, 0.0, 1.0, False),  # told to close, and not yet moving
    ],
)
def test_held_is_what_fingers_feel_at_rest_and_not_what_they_are_told(task, earlier, now, told, holds):
    found = task.held(drivers(now), drivers(earlier), JointCommand(np.zeros(6), told))
    assert found == (OBJECT if holds else None)


def test_closing_on_nothing_is_told_from_the_thinnest_object(make, goal):
    """Closed on nothing, the simulated drivers stand at 0.97 and more of their range."""
    task = make(object=ObjectConfig(size_m=(0.015, 0.015, 0.04)))
    for closed, paid in ((70 / 85, 1.0), (0.965, 0.0)):
        held = task.held(drivers(closed), drivers(closed), JointCommand(np.zeros(6), 1.0))
        now = world(closed=closed, told=1.0, held=held)
        share = task.score(Moment(now, now, STILL, STILL, ()), goal).terms["grasp"] / task.config.rewards.grasp
        assert share == pytest.approx(paid)


def test_grasp_and_lift_fade_with_the_distance_of_the_tool_and_the_grip_with_its_turn(judge):
    there = world(tcp=above(0.012, 0.016), closed=MEETS, told=1.0, held=OBJECT)  # 20 mm away
    assert judge(there, there)[0]["grasp"] == pytest.approx(exp(-1))
    skewed = world(yaw=0.3, closed=MEETS, told=1.0, held=OBJECT)
    assert judge(skewed, skewed)[0]["grasp"] == pytest.approx(exp(-1))
    lifted = world(lying=(0.0, 0.5, 0.02 + 0.065), tcp=above(0.065 + 0.012, 0.016))
    assert judge(lifted, lifted)[0]["lift"] == pytest.approx(0.5 * exp(-1))


@pytest.mark.parametrize(("height", "share"), [(0.0, 0.0), (0.065, 0.5), (0.13, 1.0), (0.195, 0.5), (0.3, 0.0)])
def test_lift_is_the_height_and_falls_beyond_it(judge, height, share):
    now = world(tcp=above(height), lying=(0.0, 0.5, 0.02 + height))
    assert judge(now, now)[0]["lift"] == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("height", "way", "share"),
    [
        (0.0, (0.0, 0.0), 0.0),
        (0.0, (0.006, -0.008), -0.8),  # 10 mm, of 12.5 mm at full tool speed
        (0.0, (0.03, 0.0), -1.0),  # faster than a tool pushes it
        (0.0099, (0.01, 0.0), -0.8),
        (0.0101, (0.01, 0.0), 0.0),  # it is off the table
    ],
)
def test_push_is_the_price_of_sliding_it_over_the_table(judge, height, way, share):
    x, y = way
    here, there = ((0.0, 0.5, 0.02 + height), (x, 0.5 + y, 0.02 + height))
    terms, _ = judge(world(lying=here), world(lying=there))
    assert terms["push"] == pytest.approx(share)


def test_lifting_it_straight_up_is_no_push(judge):
    assert judge(world(lying=LYING), world(lying=(0.0, 0.5, 0.029)))[0]["push"] == 0.0


def test_rise_is_progress_to_where_it_is_to_be_held_whoever_moves_it(judge):
    low, high = (world(tcp=above(0.5), lying=(0.0, 0.5, 0.02 + h)) for h in (0.026, 0.052))
    assert judge(low, high)[0]["rise"] == pytest.approx(0.2)
    assert judge(high, low)[0]["rise"] == pytest.approx(-0.2)
    beside, there = (world(tcp=above(0.5), lying=(x, 0.5, 0.15)) for x in (0.032, 0.006))
    assert judge(beside, there)[0]["rise"] == pytest.approx(0.2)


def in_hand(height, moved=0.0, off=0.0, held=OBJECT):
    """Two worlds a period apart, with the object lifted, moving sideways as commanded and off the grasp point."""
    here, there = (
        world(tcp=above(height, x + off), lying=(x, 0.5, 0.02 + height), held=held, speed=moved / PERIOD)
        for x in (0.0, moved)
    )
    return here, there


@pytest.mark.parametrize(
    ("speed", "share"), [(0.0, 1.0), (0.02, 0.3 * 0.92 + 0.7 * exp(-1)), (0.225, 0.03), (0.25, 0.0)]
)
def test_held_pays_rest(judge, speed, share):
    aside = speed * PERIOD
    paid = judge(*in_hand(0.13, moved=aside))[0]["held"]
    assert paid == pytest.approx(share * exp(-((aside / 0.02) ** 2)), rel=1e-3, abs=1e-5)


def test_held_needs_the_height_and_is_worth_more_nearer_to_the_point(judge):
    paid = {height: judge(*in_hand(height))[0]["held"] for height in (0.0999, 0.1001, 0.11, 0.13, 0.15)}
    assert paid[0.0999] == 0.0
    assert paid[0.1001] == pytest.approx(exp(-(1.495**2)))
    assert paid[0.11] == paid[0.15] == pytest.approx(exp(-1))
    assert paid[0.13] == 1.0


@pytest.mark.parametrize(
    ("height", "speed", "off", "achieved"),
    [
        (0.1001, 0.0, 0.0, True),
        (0.0999, 0.0, 0.0, False),  # too low
        (0.1001, 0.0199, 0.0, True),
        (0.1001, 0.0201, 0.0, False),  # not at rest
        (0.1001, 0.0, 0.0399, True),  # off the middle of the pads, but between them
        (0.1001, 0.0, 0.0401, False),  # not in the hand
        (0.25, 0.0, 0.0, True),  # higher than asked for is lifted, too
    ],
)
def test_success_needs_height_rest_and_the_hand(judge, height, speed, off, achieved):
    _, score = judge(*in_hand(height, speed * PERIOD, off))
    assert score.achieved is achieved
    assert score.distance_m == pytest.approx(max(0.0, 0.1 - height))


def test_success_needs_fingers_that_hold_it(judge):
    assert judge(*in_hand(0.11))[1].achieved
    assert not judge(*in_hand(0.11, held=None))[1].achieved


def test_a_tool_that_turns_is_not_at_rest(judge):
    here, _ = in_hand(0.13)
    terms, _ = judge(here, replace(here, commanded_turn_rate=-0.4))
    assert terms["held"] == pytest.approx(0.3 * 0.92 + 0.7 * exp(-1))  # as 20 mm/s
    for turn_rate, achieved in ((0.39, True), (0.41, False), (-0.41, False)):
        turning = world(tcp=above(0.13), tool_yaw=turn_rate * PERIOD, lying=(0.0, 0.5, 0.15), held=OBJECT)
        assert judge(here, turning)[1].achieved is achieved


def test_holding_an_object_pays_less_for_turning_where_the_gripper_decides_when_to_close(make, goal):
    task, (here, _) = make(close_within_m=0.02), in_hand(0.13)
    moment = Moment(here, replace(here, commanded_turn_rate=-0.4), STILL, STILL, ())
    score = task.score(moment, goal)
    assert score.terms["held"] == pytest.approx(task.config.rewards.held * (0.3 * 0.76 + 0.7 * exp(-3)))  # as 60 mm/s
    turning = world(tcp=above(0.13), tool_yaw=0.39 * PERIOD, lying=(0.0, 0.5, 0.15), held=OBJECT)
    assert task.score(replace(moment, world=turning), goal).achieved  # success is what it was


def test_a_camera_s_noise_is_no_motion_of_what_is_held(judge):
    here, there = in_hand(0.11, moved=0.003)
    still = replace(there, tcp_velocity=np.zeros(3))
    assert judge(here, still)[1].achieved
    assert not judge(here, there)[1].achieved


def test_holding_still_is_paid_as_soon_as_it_is_commanded_and_achieved_once_it_is_so(judge):
    moving = world(tcp=above(0.13), lying=(0.0, 0.5, 0.15), held=OBJECT, speed=0.1, commanded_speed=0.0)
    terms, score = judge(moving, moving)
    assert terms["held"] == 1.0 and not score.achieved
    started = world(tcp=above(0.13), lying=(0.0, 0.5, 0.15), held=OBJECT, speed=0.0, commanded_speed=0.1)
    terms, score = judge(started, started)
    assert terms["held"] < 0.2 and score.achieved


def test_smoothness_and_guard_are_prices(judge):
    now = world(tcp=above(0.2))
    up, down = np.ones(5, np.float32), -np.ones(5, np.float32)
    one = np.array([0.0, 0.0, 0.0, 1.0, 0.0], np.float32)
    assert judge(now, now, up, down)[0]["smoothness"] == -1.0
    assert judge(now, now, one, STILL)[0]["smoothness"] == pytest.approx(-1 / 20)
    assert judge(now, now, up, up)[0]["smoothness"] == 0.0
    assert judge(now, now, interventions=("acceleration", "lead"))[0]["guard"] == -1.0
    assert judge(now, now)[0]["guard"] == 0.0


coordinate = st.floats(-0.2, 0.2)
point = st.tuples(coordinate, coordinate, st.floats(-0.05, 0.5)).map(lambda p: np.add(p, (0.0, 0.5, 0.0)))
angle, fraction = st.floats(-7.0, 7.0), st.floats(-0.05, 1.05)
any_world = st.builds(
    world, tcp=point, led=st.tuples(coordinate, coordinate, coordinate), tool_yaw=angle, lying=point, yaw=angle,
    closed=fraction, told=st.floats(0.0, 1.0),
)  # fmt: skip
any_action = st.lists(st.floats(-1, 1, width=32), min_size=5, max_size=5).map(lambda a: np.array(a, np.float32))


@settings(deadline=None)
@given(any_world, any_world, any_action, any_action, st.sampled_from([(), ("lead",)]))
def test_every_term_is_bounded_by_its_weight(task, goal, before, after, action, previous, interventions):
    score = task.score(Moment(before, after, action, previous, interventions), goal)
    weights = task.config.rewards.model_dump()
    for name, value in score.terms.items():
        low, high = (-1, 0) if name in ("push", "smoothness", "guard") else (-1, 1)
        low = 0 if name in ("precision", "grasp", "lift", "held") else low
        assert low * weights[name] - 1e-9 <= value <= high * weights[name] + 1e-9, name
    assert all(np.isfinite(np.asarray(value)).all() for value in task.observe(after, goal).values())


def summed(task, goal, worlds):
    """Sum the terms over a path."""
    totals = dict.fromkeys(task.config.rewards.model_dump(), 0.0)
    for before, after in pairwise(worlds):
        for name, value in task.score(Moment(before, after, STILL, STILL, ()), goal).terms.items():
            totals[name] += value
    return totals


@pytest.mark.parametrize("seed", range(5))
def test_progress_sums_to_nothing_over_a_path_that_comes_back(task, goal, seed):
    """The tool wanders at its full speed and turns; the object is pushed, lifted and turned; all come back."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(60, 3))
    steps *= 0.012 / np.linalg.norm(steps, axis=1)[:, None]
    tool = above(0.05) + np.concatenate([[np.zeros(3)], np.cumsum(steps, axis=0)])
    pushed = np.concatenate([[np.zeros(3)], np.cumsum(rng.normal(0.0, 0.0005, (60, 3)), axis=0)])
    yaws = np.concatenate([[0.0], np.cumsum(rng.uniform(-0.02, 0.02, 60))])
    there = [
        world(tcp=t, lying=np.array(LYING) + p, tool_yaw=2 * y, yaw=y)
        for t, p, y in zip(tool, pushed, yaws, strict=True)
    ]
    totals = summed(task, goal, there + there[::-1])
    for name in ("approach", "alignment", "close", "rise"):
        assert totals[name] == pytest.approx(0.0, abs=1e-9), name
    assert abs(summed(task, goal, there)["approach"]) > 0.1


@pytest.mark.parametrize("fast", [0.025, 0.08, 0.157])
def test_turning_away_fast_and_back_slowly_earns_nothing(task, goal, fast):
    """``joint_delta`` can turn it by two joints at once, each at the guard's 90 degrees a second."""
    yaws = [0.0, fast, *np.linspace(fast, 0.0, 11)[1:]]
    totals = summed(task, goal, [world(tool_yaw=yaw) for yaw in yaws])
    assert totals["alignment"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("item", "yaw", "turn"),
    [
        (ObjectConfig(), 0.3, 0.3),
        (ObjectConfig(), pi / 2 + 0.3, 0.3),
        (ObjectConfig(), pi / 4 + 0.1, 0.1 - pi / 4),
        (ObjectConfig(size_m=(0.03, 0.06, 0.04)), 0.3, 0.3),
        (ObjectConfig(size_m=(0.03, 0.06, 0.04)), pi + 0.3, 0.3),
        (ObjectConfig(size_m=(0.03, 0.06, 0.04)), 1.4, 1.4),  # the pads do not go around its long side
        (ObjectConfig(size_m=(0.06, 0.03, 0.04)), -pi / 2 + 0.3, 0.3),
        (ObjectConfig(size_m=(0.06, 0.03, 0.04)), pi / 2 - 0.3, -0.3),
        (ObjectConfig(shape="cylinder"), 1.0, 0.0),
    ],
)
def test_the_turn_left_is_the_smallest_that_grips_the_shorter_side(make, goal, item, yaw, turn):
    seen = make(object=item).observe(world(yaw=yaw, tool_yaw=0.0), goal)
    assert seen["object_turn"][0] == pytest.approx(turn)
    assert seen["object_turn_near"][0] == pytest.approx(tanh(turn / 0.1))


@settings(deadline=None)
@given(yaw=angle, tool_yaw=angle, quarters=st.integers(-4, 4))
@pytest.mark.parametrize(
    ("item", "step"),
    [(ObjectConfig(), pi / 2), (ObjectConfig(size_m=(0.03, 0.06, 0.04)), pi), (ObjectConfig(shape="cylinder"), 0.7)],
    ids=["cube", "box", "cylinder"],
)
def test_turns_that_look_alike_are_scored_alike(make, goal, item, step, yaw, tool_yaw, quarters):
    task = make(object=item)
    tilt = 2 * pi / (task.config.object.symmetry or 1)
    one, other = (
        task.observe(world(yaw=y, tool_yaw=tool_yaw), goal)["object_turn"][0] for y in (yaw, yaw + quarters * step)
    )
    # At the edge, half a turn to the one side is half a turn to the other.
    assert min(abs(one - other), tilt - abs(one - other)) == pytest.approx(0.0, abs=1e-9)


def test_the_observation_s_fields_and_who_supplies_them(task):
    fields = {field.name: (field.size, field.source) for field in task.layout.fields}
    assert fields == {
        "q": (6, "arm"),
        "driver_q": (2, "gripper"),
        "commanded_position": (3, "guard"),
        "commanded_yaw": (2, "guard"),
        "commanded_velocity": (3, "guard"),
        "commanded_turn_rate": (1, "guard"),
        "target_from_commanded": (3, "tracker"),
        "target_near": (3, "tracker"),
        "object_turn": (1, "tracker"),
        "object_turn_near": (1, "tracker"),
        "lift_left": (1, "tracker"),
        "gripper_intent": (1, "guard"),
        "commanded_gripper": (1, "guard"),
        "closing_rate": (1, "gripper"),
        "held": (1, "gripper"),
        "object_age": (1, "tracker"),
    }


def test_an_observation_worked_out_by_hand(task, goal):
    now = world(
        tcp=above(0.03, -0.06), led=(0.01, 0.0, -0.03), lying=(0.0, 0.5, 0.02), yaw=0.2, tool_yaw=0.1, told=0.4,
        speed=0.2,
    )  # fmt: skip
    seen = task.observe(replace(now, commanded_turn_rate=0.3, intent=0.6, closing_rate=-0.5), goal)
    np.testing.assert_allclose(seen["commanded_position"], [-0.05, 0.5, 0.026])
    np.testing.assert_allclose(seen["commanded_yaw"], [np.cos(0.1), np.sin(0.1)])
    np.testing.assert_allclose(seen["commanded_velocity"], [0.2, 0.0, 0.0])
    np.testing.assert_allclose(seen["target_from_commanded"], [0.05, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(seen["target_near"], [tanh(0.05 / 0.03), 0.0, 0.0], atol=1e-12)
    assert seen["object_turn"][0] == pytest.approx(0.1)
    assert seen["lift_left"][0] == pytest.approx(tanh(1.0))  # 130 mm of 130 mm
    told = [seen[name] for name in ("commanded_turn_rate", "gripper_intent", "commanded_gripper", "closing_rate")]
    assert told == [(0.3,), (0.6,), (0.4,), (-0.5,)]


def test_what_is_held_is_wanted_above_where_it_lay(task, goal):
    """The object is gripped 6 mm below the tool point and 5 mm beside it; the commanded tool leads by 10 mm."""
    now = world(tcp=(0.105, 0.5, 0.056), led=(0.01, 0.0, 0.0), lying=(0.1, 0.5, 0.05), held=OBJECT)
    seen = task.observe(now, goal)
    np.testing.assert_allclose(seen["target_from_commanded"], [-0.11, 0.0, 0.10], atol=1e-12)
    np.testing.assert_allclose(seen["target_near"], np.tanh(np.array([-0.11, 0.0, 0.10]) / 0.03), atol=1e-12)


def test_the_way_of_what_is_held_does_not_depend_on_how_late_the_tool_s_motion_is_read(task, goal):
    """The commanded tool is at one height; the measured one trails, and what it holds with it."""
    one, other = (
        task.observe(world(tcp=above(0.05 - lag), led=(0, 0, lag), lying=(0, 0.5, 0.07 - lag), held=OBJECT), goal)
        for lag in (0.0, 0.02)
    )
    np.testing.assert_allclose(one["target_from_commanded"], other["target_from_commanded"], atol=1e-12)
    assert one["lift_left"][0] < other["lift_left"][0]  # a sagging arm can be seen


def test_practice_has_more_objects_on_the_patch_s_edges(make):
    task = make()
    low, high = np.array(task.config.patch_low), np.array(task.config.patch_high)
    for practice, share in ((True, 1 / 6), (False, 0.0)):
        rng = np.random.default_rng(0)
        lying = np.array([task.sample(rng, practice).objects[OBJECT].position[:2] for _ in range(2000)])
        assert (lying >= low).all()
        assert (lying <= high).all()
        on_edge = ((lying == low) | (lying == high)).mean(axis=0)
        assert on_edge == pytest.approx([share, share], abs=0.03)  # 0.2 of 1.2 patches


def test_practice_begins_as_far_beside_the_object_and_turned_as_the_task_says(make):
    rng = np.random.default_rng(0)
    task = make(practice_share=1.0, practice_turn_rad=0.8, practice_offset_m=(0.01, 0.03))
    goals = [task.sample(rng, practice=True) for _ in range(500)]
    off = np.abs([goal.start - goal.objects[OBJECT].position for goal in goals])
    assert 0.0095 < off[:, 0].max() <= 0.01
    assert 0.028 < off[:, 1].max() <= 0.03
    assert 0.75 < max(abs(geometry.yaw(goal.objects[OBJECT].rotation)) for goal in goals) <= 0.8


def test_a_share_of_the_training_episodes_goes_on_to_its_end(make):
    task, rng = make(practice_whole_share=0.25), np.random.default_rng(0)
    whole = sum(task.sample(rng, practice=True).whole for _ in range(2000))
    assert abs(whole - 500) < 4 * sqrt(2000 * 0.25 * 0.75)
    assert not any(task.sample(rng, practice=False).whole for _ in range(100))
    assert not any(make().sample(rng, practice=True).whole for _ in range(100))


def test_a_practice_episode_begins_around_the_object_and_an_evaluation_never_does(make):
    rng, task = np.random.default_rng(0), make(practice_share=1.0)
    for _ in range(50):
        goal = task.sample(rng, practice=True)
        off = goal.start - goal.objects[OBJECT].position - (0.0, 0.0, 0.006)
        assert np.abs(off[:2]).max() <= 0.01 and 0.004 <= off[2] <= 0.034
        assert task.sample(rng, practice=False).start[2] >= 0.15
        assert goal.lift_m == 0.0
    lifted = make(practice_share=1.0, practice_lifted_share=0.25, practice_turn_rad=0.8)
    goals = [lifted.sample(rng, practice=True) for _ in range(2000)]
    ways = np.array([goal.lift_m for goal in goals if goal.lift_m > 0.0])
    assert abs(len(ways) - 500) < 4 * sqrt(2000 * 0.25 * 0.75)
    assert 0.013 <= ways.min() < 0.02 and 0.11 < ways.max() <= 0.117  # of 0.13 m up to the hold point
    turns = [abs(geometry.yaw(goal.objects[OBJECT].rotation)) for goal in goals if goal.lift_m > 0.0]
    assert 0.18 < max(turns) <= 0.2  # fingers hold what is turned no further
    assert all(lifted.sample(rng, practice=False).lift_m == 0.0 for _ in range(50))
    wide, rng = make(practice_share=1.0, object=ObjectConfig(size_m=(0.08, 0.08, 0.1))), np.random.default_rng(0)
    goal = wide.sample(rng, practice=True)
    np.testing.assert_allclose(goal.start[:2], goal.objects[OBJECT].position[:2])  # the jaw has no play left
    assert 0.05 + 0.004 <= goal.start[2] <= 0.05 + 0.034  # around its middle
    rng, task = np.random.default_rng(0), make(practice_share=0.25)
    near = sum(task.sample(rng, practice=True).start[2] < 0.1 for _ in range(2000))
    assert abs(near - 500) < 4 * sqrt(2000 * 0.25 * 0.75)


# Whole episodes of those who try to earn without lifting, in the simulation.


def episode(grasping, act, seed):
    """Play with ``act(seen, script's action, step)``; return the reward, the terms' sums, and the last info."""
    environment, script = grasping()
    observation, _ = environment.reset(seed=seed)
    totals = dict.fromkeys(environment.task.config.rewards.model_dump(), 0.0)
    ended, step = False, 0
    while not ended:
        seen = environment.task.layout.unpack(observation.astype(float))
        observation, _, _, ended, info = environment.step(act(seen, script.act(observation), step))
        for name, value in info["reward_terms"].items():
            totals[name] += value
        step += 1
    return sum(totals.values()), totals, info


def to(way, turn=0.0, gripper=-1.0):
    """Move the commanded tool point by ``way`` [m] as fast as it goes."""
    step = np.asarray(way) / 0.01125
    return np.array([*(step / max(1.0, np.linalg.norm(step))), np.clip(turn / 0.025, -1, 1), gripper], np.float32)


def way_of(seen, over=(0.0, 0.0, 0.0)):
    return seen["target_from_commanded"] + np.array(over)


def lift(seen, scripted, step):
    return scripted


def stand_still(seen, scripted, step):
    return STILL


def hover(seen, scripted, step):
    return to(way_of(seen, (0, 0, 0.08)), seen["object_turn"][0])


def hover_around_it_open(seen, scripted, step):
    over = np.linalg.norm(way_of(seen)[:2]) > 0.005 or abs(seen["object_turn"][0]) > 0.05
    return to(way_of(seen, (0, 0, 0.08 * over)), seen["object_turn"][0])


def dive_and_rise(seen, scripted, step):
    return to(way_of(seen, (0, 0, 0.1 * (step % 20 < 10))))


def knock_it_about(seen, scripted, step):
    side = 0.08 if step // 12 % 2 else -0.08
    return to(way_of(seen, (side, 0.02, 0.0)), gripper=1.0)


def turn_to_and_fro(seen, scripted, step):
    return np.array([*to(way_of(seen))[:3], 1.0 if step // 10 % 2 else -1.0, -1.0], np.float32)


def squeeze_the_air(seen, scripted, step):
    return to(np.zeros(3), gripper=1.0)


def squeeze_the_table(seen, scripted, step):
    return to(way_of(seen, (0.06, 0.0, 0.0)), gripper=1.0 if step > 50 else -1.0)


def press_on_it_from_above(seen, scripted, step):
    return to(way_of(seen), gripper=1.0)


def squeeze_it_where_it_lies(seen, scripted, step):
    return np.array([*([0.0] * 4), 1.0], np.float32) if seen["commanded_gripper"][0] > 0.5 else scripted


def open_and_close_around_it(seen, scripted, step):
    return np.array([*hover_around_it_open(seen, scripted, step)[:4], 1.0 if step % 12 < 6 else -1.0], np.float32)


def lift_and_drop(seen, scripted, step):
    return np.array([*scripted[:4], -1.0], np.float32) if seen["lift_left"][0] < tanh(0.2) else scripted


def carry_it_far_beyond(seen, scripted, step):
    return np.array([0, 0, 1, 0, 1], np.float32) if seen["commanded_gripper"][0] > 0.99 else scripted


def shake_it_aloft(seen, scripted, step):
    if seen["commanded_gripper"][0] < 0.99 or seen["lift_left"][0] > tanh(0.1):
        return scripted
    return np.array([1.0 if step % 8 < 4 else -1.0, 0, 0, 0, 1], np.float32)


FARMERS = [
    stand_still, hover, hover_around_it_open, dive_and_rise, knock_it_about, turn_to_and_fro, squeeze_the_air,
    squeeze_the_table, press_on_it_from_above, squeeze_it_where_it_lies, open_and_close_around_it, lift_and_drop,
    carry_it_far_beyond,
]  # fmt: skip
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def lifted(grasping):
    return {seed: episode(grasping, lift, seed) for seed in SEEDS}


@pytest.mark.parametrize("farmer", FARMERS, ids=lambda act: act.__name__)
@pytest.mark.quick("carry_it_far_beyond", "dive_and_rise", "lift_and_drop", "squeeze_the_air")
def test_nobody_earns_without_lifting(grasping, lifted, farmer):
    for seed in SEEDS:
        honest, _, done = lifted[seed]
        assert done["success"]
        reward, totals, info = episode(grasping, farmer, seed)
        assert reward < 0.5 * honest, {name: round(value, 1) for name, value in totals.items()}
        assert totals["held"] < 0.2 * lifted[seed][1]["held"]
        assert not info["success"]


def test_shaking_it_aloft_earns_less_than_holding_it_still(grasping, lifted):
    for seed in SEEDS:
        honest, parts, _ = lifted[seed]
        reward, totals, info = episode(grasping, shake_it_aloft, seed)
        assert reward < honest - 50
        assert totals["held"] < 0.75 * parts["held"]
        assert not info["success"]


def test_success_comes_after_hold_steps_and_goes_with_the_object(grasping):
    environment, script = grasping()
    observation, _ = environment.reset(seed=0)
    in_a_row, ended, paid = 0, False, environment.task.config.rewards.held / 4
    while not ended:
        observation, _, _, ended, info = environment.step(script.act(observation))
        moment = environment.world.objects[OBJECT].position[2] - environment.goal.objects[OBJECT].position[2]
        in_a_row = in_a_row + 1 if info["reward_terms"]["held"] > paid and moment >= 0.1 else 0
        if info["success"]:
            assert in_a_row >= environment.task.hold_steps
    assert info["success"]
    for _ in range(6):
        _, _, _, _, info = environment.step(np.array([0, 0, 0, 0, -1], np.float32))
    assert not info["success"]


def test_what_is_left_to_lift_does_not_depend_on_a_tracker_s_offset(grasping):
    """How high the object is, is measured from where the tracker saw it lie."""
    straight, script = grasping()
    biased, _ = grasping("cube", DisturbanceConfig(object_offset_m=0.005))
    one, other = straight.reset(seed=4)[0], biased.reset(seed=4)[0]
    for _ in range(120):
        a, b = (straight.task.layout.unpack(seen) for seen in (one, other))
        np.testing.assert_allclose(a["lift_left"], b["lift_left"], atol=1e-3)
        off = b["target_from_commanded"] - a["target_from_commanded"]
        np.testing.assert_allclose(off, 0.0 if a["held"][0] else biased._objects._offset, atol=1e-3)
        action = script.act(one)
        (one, reward, *_, info), (other, biased_reward, *_) = straight.step(action), biased.step(action)
        assert reward == biased_reward
    assert info["success"]
    assert np.abs(biased._objects._offset).max() > 0.001


@pytest.mark.parametrize("held", [OBJECT, None])
def test_what_is_in_the_hand_is_not_to_be_lined_up_with(task, goal, held):
    now = world(tcp=above(0.0, 0.006), led=(0.01, 0.0, 0.0), yaw=0.2, closed=0.53, told=1.0, held=held)
    seen = task.observe(now, goal)
    zero = [not np.any(seen[name]) for name in ("object_turn", "object_turn_near")]
    assert zero == [held is not None] * 2
    assert seen["held"] == (float(held is not None),)


@pytest.mark.parametrize(("age", "told"), [(0.0, 0.0), (0.12, 0.12), (7.0, 1.0)])
def test_how_old_the_pose_is_can_be_seen(task, goal, age, told):
    assert task.observe(replace(world(), ages_s={OBJECT: age}), goal)["object_age"] == (told,)
