"""The grasp task's rewards: each against numbers worked out by hand, and none of them to be farmed."""

from dataclasses import replace
from itertools import pairwise
from math import exp, pi, sqrt, tanh

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import goals_of, numbers_in, poses, state_of

from td3robot import geometry
from td3robot.config import DisturbanceConfig
from td3robot.config.objects import ObjectConfig
from td3robot.geometry import about_vertical
from td3robot.state import Pose
from td3robot.tasks import grasp
from td3robot.tasks.grasp import OBJECT, Grasp, GraspConfig
from td3robot.tasks.grasp_formulas import FAILED_S, FULL_TURN_RAD_S, SEEN_WITHIN_S
from td3robot.tasks.interface import NOTHING_HELD, Failure, Transition

PERIOD = 0.05
LYING = (0.0, 0.5, 0.02)
# A 40 mm cube's grasp point is 26 mm above the table: 6 mm above the cube's centre.
POINT = np.array([0.0, 0.5, 0.026])
# (85 - 40) / 85 of the way closed, the pads meet it.
MEETS = 45 / 85
# ... and further than this, they hold nothing.
EMPTY = 0.9
STILL = np.zeros(5, np.float32)


def state(
    *, tcp=POINT, led=(0.0, 0.0, 0.0), tool_yaw=0.0, lying=LYING, yaw=0.0, closed=0.0, told=0.0, held=False, speed=0.0,
    commanded_speed=None, age=0.0, **more,
):  # fmt: skip
    """A state of one row whose tool points down, with the commanded tool point ``led`` ahead of the measured one."""
    down = about_vertical(tool_yaw) @ np.diag([1.0, -1.0, -1.0])
    tcp = np.asarray(tcp, float)
    values = {
        "driver_q": np.full(2, 0.8 * closed),
        "closed": closed,
        "earlier_closed": closed,
        "tcp_position": tcp,
        "tcp_rotation": down,
        "tcp_velocity": [speed, 0.0, 0.0],
        "commanded_gripper": told,
        "commanded_position": tcp + np.asarray(led),
        "commanded_rotation": down,
        "commanded_velocity": [speed if commanded_speed is None else commanded_speed, 0.0, 0.0],
        "held": 0 if held else NOTHING_HELD,
    }
    return state_of(objects={OBJECT: poses(lying, about_vertical(yaw), age)}, **values | more)


def transition(before, after, goals, action=STILL, previous=STILL, intervened=False):
    """One control period of one row."""
    return Transition(before, after, goals, action[None], previous[None], np.array([intervened]))


@pytest.fixture(scope="module")
def make(spec):
    return lambda **config: Grasp(GraspConfig(**config), spec, 0.25)


@pytest.fixture(scope="module")
def task(make):
    return make()


@pytest.fixture(scope="module")
def goals(task):
    drawn = task.sample(np.random.default_rng(0), practice=False)
    return goals_of(task.rebase(drawn, {OBJECT: Pose(np.array(LYING), np.eye(3))}))


@pytest.fixture
def judge(task, goals):
    """Score one period; terms are shares of their weights."""

    def judge(before, after, *more):
        score = task.score(transition(before, after, goals, *more))
        weights = task.config.rewards.model_dump()
        return {name: float(value[0]) / weights[name] for name, value in score.terms.items() if weights[name]}, score

    return judge


def bounds(task, seen):
    """Between which closed fractions the gripper of a row may be commanded."""
    return tuple(float(bound[0]) for bound in task.gripper_range(seen, None))


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
def test_where_fingers_may_begin_to_close(task, changes, may):
    assert bounds(task, state(**changes)) == (0.0, float(may))


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
        ({**OVER, "held": True}, 0.0),
        ({**OVER, "lying": (0.0, 0.5, 0.031)}, 0.0),  # lifted
    ],
)
def test_fingers_that_come_down_on_the_object_are_penalized(make, goals, changes, share):
    task, there = make(rewards={"press": 3.0}), state(**changes)
    terms = task.score(transition(there, there, goals)).terms
    assert terms["press"] == pytest.approx(-3.0 * share)


AWAY = {"tcp": POINT + np.array([0.0, 0.0, 0.05])}
CLOSING, OPENING = {"told": 1.0}, {"told": 0.0}
SOON, STOPPED = {"told": 1.0, "stalled_s": FAILED_S - 0.05}, {"told": 1.0, "stalled_s": FAILED_S}


@pytest.mark.parametrize(
    ("fingers", "command"),
    [
        ({"closed": 0.05, **STOPPED}, 1.0),  # they have not begun to move
        ({"closed": 0.4, **CLOSING}, 1.0),
        ({"closed": 0.5, "held": True, **STOPPED}, 1.0),
        ({"closed": 0.5, **SOON}, 1.0),
        ({"closed": 0.5, **STOPPED}, 0.0),  # they stopped, and hold nothing
        ({"closed": 0.89, **CLOSING}, 1.0),  # a soft object gives way
        ({"closed": 0.91, **CLOSING}, 0.0),
        ({"closed": 1.0, "told": 1.0}, 0.0),
        ({"closed": 0.95, "told": 0.95}, 0.0),
        ({"closed": 0.5, **OPENING}, 0.0),  # they finish that
        ({"closed": 0.1, **OPENING}, 0.0),
    ],
)
@pytest.mark.parametrize("where", [{}, AWAY])
def test_fingers_that_close_go_on_until_they_hold_or_fail_and_then_open(task, where, fingers, command):
    assert bounds(task, state(**where, **fingers)) == (command, command)


def test_fingers_that_begin_partly_closed_stay_so_unless_they_are_told_otherwise(task):
    partly = {"closed": 0.5, "told": 0.5, "stalled_s": 2.0}
    assert bounds(task, state(**partly, **AWAY)) == (0.0, 0.5)
    assert bounds(task, state(**partly)) == (0.0, 1.0)


# The fingertips' end, 20 mm below the tool point, is 5 mm above the cube's top.
CLEAR = 0.04 + 0.005 + 0.02


@pytest.mark.parametrize(
    ("changes", "lowest"),
    [
        ({}, -np.inf),
        ({"tcp": POINT + np.array([0.011, 0.0, 0.1])}, -np.inf),  # half of the 22.5 mm beside the cube
        ({"tcp": POINT + np.array([0.012, 0.0, 0.1])}, CLEAR),
        ({"tcp": POINT + np.array([0.0, 0.011, 0.0])}, -np.inf),
        ({"tcp": POINT + np.array([0.0, 0.013, 0.0])}, CLEAR),
        ({"tcp": POINT + np.array([0.3, 0.0, 0.0])}, CLEAR),  # far away, it would slide in from beside
        ({"tool_yaw": 0.29}, -np.inf),
        ({"tool_yaw": 0.31}, CLEAR),
        ({"led": (0.012, 0.0, 0.0)}, CLEAR),  # where it is told to be
        ({"tcp": POINT + np.array([0.1, 0.0, 0.0]), **CLOSING}, -np.inf),
        ({"tcp": POINT + np.array([0.1, 0.0, 0.0]), "held": True}, -np.inf),
    ],
)
def test_open_fingers_come_down_around_the_object_only(task, changes, lowest):
    assert task.lowest(state(**changes)) == pytest.approx(lowest)


def test_open_fingers_begin_to_close_at_the_object_only(task):
    for closed in (0.0, 0.07):
        assert bounds(task, state(closed=closed)) == (0.0, 1.0)
        assert bounds(task, state(closed=closed, **AWAY)) == (0.0, 0.0)


def test_fingers_begin_to_close_only_around_an_object_that_was_seen_lately(task):
    lately, long_ago = SEEN_WITHIN_S - 0.1, SEEN_WITHIN_S + 0.1
    assert bounds(task, state(age=lately)) == (0.0, 1.0)
    assert bounds(task, state(age=long_ago)) == (0.0, 0.0)
    assert bounds(task, state(age=long_ago, closed=0.4, **CLOSING)) == (1.0, 1.0)  # what began goes on


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"closed": 1.0, **CLOSING}, "hold nothing, and open again"),
        ({"closed": 0.5, **STOPPED}, "hold nothing, and open again"),
        ({"closed": 0.5, "held": True, **STOPPED}, ""),
        ({"age": SEEN_WITHIN_S + 0.1, "intent": 1.0}, "was not seen for too long"),
        ({"age": SEEN_WITHIN_S + 0.1, "intent": 0.0}, ""),
        ({"intent": 1.0}, ""),
        ({"intent": 1.0, **AWAY}, ""),
    ],
)
def test_an_operator_is_told_why_the_gripper_does_not_close(task, seen, words):
    said = task.gripper_message(state(**seen), None)
    assert (words in said) if words else said == ""


def test_the_observed_age_tells_whether_fingers_may_close(task, goals):
    for age in (0.0, 0.12, 0.5 * SEEN_WITHIN_S, 2.0 * SEEN_WITHIN_S):
        assert task.observe(state(age=age), goals)["object_age"] == min(age, SEEN_WITHIN_S)


def test_a_contract_says_where_fingers_close(make):
    terms = make(close_within_m=0.03).to_json()
    assert terms.items() >= {"close_within_m": 0.03, "seen_within_s": SEEN_WITHIN_S, "opens_if": "failed"}.items()


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
    terms, _ = judge(state(tcp=start), state(tcp=end))
    # 10 mm, of 12.5 mm in one period at full speed where it is steepest, sideways and down: 1 + 8/5 + 1 = 3.6.
    assert terms["approach"] == pytest.approx(0.010 / (3.6 * 0.0125), rel=1e-5)


def test_approach_counts_the_commanded_point_sideways_and_the_measured_one_in_height(judge):
    far = above(0.08, 0.11)
    full = 3.6 * 0.0125
    sideways, _ = judge(state(tcp=far), state(tcp=far, led=(-0.01, 0.0, 0.0)))
    assert sideways["approach"] == pytest.approx(0.010 / full, rel=1e-5)
    down, _ = judge(state(tcp=far), state(tcp=far, led=(0.0, 0.0, -0.01)))
    assert down["approach"] == 0.0
    sunk, _ = judge(state(tcp=above(0.05)), state(tcp=above(0.04), led=(0.0, 0.0, 0.01)))
    assert sunk["approach"] == pytest.approx(0.010 / full, rel=1e-5)


def test_the_grasp_point_of_a_high_object_is_its_centre(make, goals):
    task = make(object=ObjectConfig(size_m=(0.04, 0.04, 0.1)))
    seen = task.observe(state(tcp=(0.0, 0.5, 0.05), lying=(0.0, 0.5, 0.05), numbers=numbers_in(task)), goals)
    np.testing.assert_allclose(seen["target_from_commanded"], 0.0, atol=1e-15)


def test_alignment_is_progress_of_the_turn(judge):
    full = FULL_TURN_RAD_S * PERIOD
    terms, _ = judge(state(yaw=0.30), state(yaw=0.30, tool_yaw=0.02))
    assert terms["alignment"] == pytest.approx(0.02 / full)
    terms, _ = judge(state(yaw=-0.30), state(yaw=-0.30, tool_yaw=0.02))
    assert terms["alignment"] == pytest.approx(-0.02 / full)


@pytest.mark.parametrize(
    ("closed", "held", "share"),
    [
        (0.0, False, 0.0),
        (MEETS / 2, False, 0.25),  # half way closed: half of a half
        (MEETS, True, 1.0),
        (MEETS, False, 0.5),
        (0.79 * MEETS, False, 0.5 * 0.79),  # still on their way
        (EMPTY - 0.001, True, 1.0),  # a smaller object than expected
        (EMPTY + 0.001, False, 0.0),  # nothing between them
    ],
)
def test_grasp_is_read_from_the_drivers(judge, closed, held, share):
    now = state(closed=closed, told=1.0, held=held)
    assert judge(now, now)[0]["grasp"] == pytest.approx(share)


def test_precision_is_where_the_closing_tool_is_told_to_be_until_the_object_is_held(judge):
    trailing = state(tcp=above(0.05), led=(0.0, 0.0, -0.05), **CLOSING)
    assert judge(trailing, trailing)[0]["precision"] == pytest.approx(1.0)
    beside = state(led=(0.006, 0.0, 0.008), **CLOSING)  # 10 mm away
    assert judge(beside, beside)[0]["precision"] == pytest.approx(exp(-1))
    skewed = state(yaw=0.3, **CLOSING)
    assert judge(skewed, skewed)[0]["precision"] == pytest.approx(exp(-1))
    carried = state(led=(0.1, 0.0, 0.1), held=True)
    assert judge(carried, carried)[0]["precision"] == 1.0


def test_waiting_at_the_object_earns_no_precision(judge):
    for there, earns in ((state(), 0.0), (state(told=1.0, closed=0.3), 1.0), (state(closed=0.5, held=True), 1.0)):
        assert judge(there, there)[0]["precision"] == pytest.approx(earns)


@pytest.mark.parametrize(
    ("closed", "share"), [(0.0, 0.0), (MEETS / 2, 0.5), (MEETS, 1.0), (EMPTY - 0.001, 1.0), (EMPTY + 0.001, 0.0)]
)
def test_close_is_the_fingers_progress_to_the_object(judge, closed, share):
    there = above(0.012, 0.016)  # 20 mm away
    assert judge(state(), state(closed=closed))[0]["close"] == pytest.approx(share)
    assert judge(state(closed=closed), state())[0]["close"] == pytest.approx(-share)
    assert judge(state(tcp=there), state(tcp=there, closed=closed))[0]["close"] == pytest.approx(share * exp(-1))
    skewed = judge(state(yaw=0.3), state(yaw=0.3, closed=closed))[0]
    assert skewed["close"] == pytest.approx(share * exp(-1))


@pytest.mark.parametrize(
    ("earlier", "now", "told", "holds"),
    [
        (MEETS, MEETS, 1.0, True),  # at rest on the object while told to close
        (MEETS, MEETS, 0.0, False),  # told to open
        (MEETS - 0.0235, MEETS, 1.0, False),  # passing the object's width at 20 mm/s
        (MEETS - 0.011, MEETS, 1.0, True),  # a reading's noise
        (MEETS + 0.0235, MEETS, 1.0, False),  # opening
        (0.15, 0.15, 1.0, True),  # a larger object than expected
        (0.09, 0.09, 1.0, False),  # hardly moving yet
        (EMPTY - 0.001, EMPTY - 0.001, 1.0, True),  # a smaller object than expected
        (EMPTY + 0.001, EMPTY + 0.001, 1.0, False),  # nothing between them
        (0.0, 0.0, 1.0, False),  # told to close, and not yet moving
    ],
)
def test_held_is_what_fingers_feel_at_rest_and_not_what_they_are_told(task, earlier, now, told, holds):
    found = task.held(state(closed=now, earlier_closed=earlier, told=told))
    assert found == (0 if holds else NOTHING_HELD)


def test_closing_on_nothing_is_told_from_the_thinnest_object(make, goals):
    """Closed on nothing, the simulated drivers stand at 0.97 and more of their range."""
    task = make(object=ObjectConfig(size_m=(0.015, 0.015, 0.04)))
    for closed, paid in ((70 / 85, 1.0), (0.965, 0.0)):
        now = state(closed=closed, told=1.0, numbers=numbers_in(task))
        now = now._replace(held=task.held(now))
        share = task.score(transition(now, now, goals)).terms["grasp"] / task.config.rewards.grasp
        assert share == pytest.approx(paid)


def test_grasp_and_lift_fade_with_the_distance_of_the_tool_and_the_grip_with_its_turn(judge):
    there = state(tcp=above(0.012, 0.016), closed=MEETS, told=1.0, held=True)  # 20 mm away
    assert judge(there, there)[0]["grasp"] == pytest.approx(exp(-1))
    skewed = state(yaw=0.3, closed=MEETS, told=1.0, held=True)
    assert judge(skewed, skewed)[0]["grasp"] == pytest.approx(exp(-1))
    lifted = state(lying=(0.0, 0.5, 0.02 + 0.065), tcp=above(0.065 + 0.012, 0.016))
    assert judge(lifted, lifted)[0]["lift"] == pytest.approx(0.5 * exp(-1))


@pytest.mark.parametrize(("height", "share"), [(0.0, 0.0), (0.065, 0.5), (0.13, 1.0), (0.195, 0.5), (0.3, 0.0)])
def test_lift_is_the_height_and_falls_beyond_it(judge, height, share):
    now = state(tcp=above(height), lying=(0.0, 0.5, 0.02 + height))
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
    terms, _ = judge(state(lying=here), state(lying=there))
    assert terms["push"] == pytest.approx(share)


def test_lifting_it_straight_up_is_no_push(judge):
    assert judge(state(lying=LYING), state(lying=(0.0, 0.5, 0.029)))[0]["push"] == 0.0


def test_rise_is_progress_to_where_it_is_to_be_held_whoever_moves_it(judge):
    low, high = (state(tcp=above(0.5), lying=(0.0, 0.5, 0.02 + h)) for h in (0.026, 0.052))
    assert judge(low, high)[0]["rise"] == pytest.approx(0.2)
    assert judge(high, low)[0]["rise"] == pytest.approx(-0.2)
    beside, there = (state(tcp=above(0.5), lying=(x, 0.5, 0.15)) for x in (0.032, 0.006))
    assert judge(beside, there)[0]["rise"] == pytest.approx(0.2)


def in_hand(height, moved=0.0, off=0.0, held=True):
    """Two states a period apart, with the object lifted, moving sideways as commanded and off the grasp point."""
    here, there = (
        state(tcp=above(height, x + off), lying=(x, 0.5, 0.02 + height), held=held, speed=moved / PERIOD)
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
    assert score.achieved[0] == achieved
    assert score.distance_m == pytest.approx(max(0.0, 0.1 - height))


def test_success_needs_fingers_that_hold_it(judge):
    assert judge(*in_hand(0.11))[1].achieved
    assert not judge(*in_hand(0.11, held=False))[1].achieved


@pytest.mark.parametrize(
    ("how", "gripped", "kind", "distance_m"),
    [
        ({"height": 0.0, "held": False, "off": 0.03}, False, "never_gripped", np.hypot(0.03, 0.006)),
        ({"height": 0.0, "held": False}, True, "lost", None),
        ({"height": 0.11, "off": 0.05}, True, "lost", None),  # fingers that rest as on the object, which is elsewhere
        ({"height": 0.06}, True, "not_lifted", 0.04),
        ({"height": 0.11, "moved": 0.0201 * PERIOD}, True, "too_fast", None),
        ({"height": 0.11}, True, "too_short", None),
    ],
)
def test_an_episode_s_failure_is_told_by_its_end(task, goals, how, gripped, kind, distance_m):
    (failure,) = task.failures(transition(*in_hand(**how), goals), np.array([gripped]))
    assert failure == Failure(kind, pytest.approx(distance_m) if distance_m is not None else None)


def test_a_tool_that_turns_is_not_at_rest(judge):
    here, _ = in_hand(0.13)
    terms, _ = judge(here, here._replace(commanded_turn_rate=np.array([-0.4])))
    assert terms["held"] == pytest.approx(0.3 * 0.76 + 0.7 * exp(-3))  # as 60 mm/s
    for turn_rate, achieved in ((0.39, True), (0.41, False), (-0.41, False)):
        turning = state(tcp=above(0.13), tool_yaw=turn_rate * PERIOD, lying=(0.0, 0.5, 0.15), held=True)
        assert judge(here, turning)[1].achieved[0] == achieved


def test_a_camera_s_noise_is_no_motion_of_what_is_held(judge):
    here, there = in_hand(0.11, moved=0.003)
    still = there._replace(tcp_velocity=np.zeros((1, 3)))
    assert judge(here, still)[1].achieved
    assert not judge(here, there)[1].achieved


def test_holding_still_is_paid_as_soon_as_it_is_commanded_and_achieved_once_it_is_so(judge):
    moving = state(tcp=above(0.13), lying=(0.0, 0.5, 0.15), held=True, speed=0.1, commanded_speed=0.0)
    terms, score = judge(moving, moving)
    assert terms["held"] == 1.0 and not score.achieved
    started = state(tcp=above(0.13), lying=(0.0, 0.5, 0.15), held=True, speed=0.0, commanded_speed=0.1)
    terms, score = judge(started, started)
    assert terms["held"] < 0.2 and score.achieved


def test_smoothness_and_guard_are_prices(judge):
    now = state(tcp=above(0.2))
    up, down = np.ones(5, np.float32), -np.ones(5, np.float32)
    one = np.array([0.0, 0.0, 0.0, 1.0, 0.0], np.float32)
    assert judge(now, now, up, down)[0]["smoothness"] == -1.0
    assert judge(now, now, one, STILL)[0]["smoothness"] == pytest.approx(-1 / 20)
    assert judge(now, now, up, up)[0]["smoothness"] == 0.0
    assert judge(now, now, STILL, STILL, True)[0]["guard"] == -1.0
    assert judge(now, now)[0]["guard"] == 0.0


coordinate = st.floats(-0.2, 0.2)
point = st.tuples(coordinate, coordinate, st.floats(-0.05, 0.5)).map(lambda p: np.add(p, (0.0, 0.5, 0.0)))
angle, fraction = st.floats(-7.0, 7.0), st.floats(-0.05, 1.05)
any_state = st.builds(
    state, tcp=point, led=st.tuples(coordinate, coordinate, coordinate), tool_yaw=angle, lying=point, yaw=angle,
    closed=fraction, told=st.floats(0.0, 1.0),
)  # fmt: skip
any_action = st.lists(st.floats(-1, 1, width=32), min_size=5, max_size=5).map(lambda a: np.array(a, np.float32))


@settings(deadline=None)
@given(any_state, any_state, any_action, any_action, st.booleans())
def test_every_term_is_bounded_by_its_weight(task, goals, before, after, action, previous, intervened):
    score = task.score(transition(before, after, goals, action, previous, intervened))
    weights = task.config.rewards.model_dump()
    for name, value in score.terms.items():
        low, high = (-1, 0) if name in ("push", "smoothness", "guard") else (-1, 1)
        low = 0 if name in ("precision", "grasp", "lift", "held") else low
        assert low * weights[name] - 1e-9 <= value <= high * weights[name] + 1e-9, name
    assert all(np.isfinite(np.asarray(value)).all() for value in task.observe(after, goals).values())


def summed(task, goals, states):
    """Sum the terms over a path."""
    totals = dict.fromkeys(task.config.rewards.model_dump(), 0.0)
    for before, after in pairwise(states):
        for name, value in task.score(transition(before, after, goals)).terms.items():
            totals[name] += float(value[0])
    return totals


@pytest.mark.parametrize("seed", range(5))
def test_progress_sums_to_nothing_over_a_path_that_comes_back(task, goals, seed):
    """The tool wanders at its full speed and turns; the object is pushed, lifted and turned; all come back."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(60, 3))
    steps *= 0.012 / np.linalg.norm(steps, axis=1)[:, None]
    tool = above(0.05) + np.concatenate([[np.zeros(3)], np.cumsum(steps, axis=0)])
    pushed = np.concatenate([[np.zeros(3)], np.cumsum(rng.normal(0.0, 0.0005, (60, 3)), axis=0)])
    yaws = np.concatenate([[0.0], np.cumsum(rng.uniform(-0.02, 0.02, 60))])
    there = [
        state(tcp=t, lying=np.array(LYING) + p, tool_yaw=2 * y, yaw=y)
        for t, p, y in zip(tool, pushed, yaws, strict=True)
    ]
    totals = summed(task, goals, there + there[::-1])
    for name in ("approach", "alignment", "close", "rise"):
        assert totals[name] == pytest.approx(0.0, abs=1e-9), name
    assert abs(summed(task, goals, there)["approach"]) > 0.1


@pytest.mark.parametrize("fast", [0.025, 0.08, 0.157])
def test_turning_away_fast_and_back_slowly_earns_nothing(task, goals, fast):
    """``joint_delta`` can turn it by two joints at once, each at the guard's 90 degrees a second."""
    yaws = [0.0, fast, *np.linspace(fast, 0.0, 11)[1:]]
    totals = summed(task, goals, [state(tool_yaw=yaw) for yaw in yaws])
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
def test_the_turn_left_is_the_smallest_that_grips_the_shorter_side(make, goals, item, yaw, turn):
    task = make(object=item)
    seen = task.observe(state(yaw=yaw, tool_yaw=0.0, numbers=numbers_in(task)), goals)
    assert seen["object_turn"][0] == pytest.approx(turn)
    assert seen["object_turn_near"][0] == pytest.approx(tanh(turn / 0.1))


@settings(deadline=None)
@given(yaw=angle, tool_yaw=angle, quarters=st.integers(-4, 4))
@pytest.mark.parametrize(
    ("item", "step"),
    [(ObjectConfig(), pi / 2), (ObjectConfig(size_m=(0.03, 0.06, 0.04)), pi), (ObjectConfig(shape="cylinder"), 0.7)],
    ids=["cube", "box", "cylinder"],
)
def test_turns_that_look_alike_are_scored_alike(make, goals, item, step, yaw, tool_yaw, quarters):
    task = make(object=item)
    tilt = 2 * pi / (task.config.object.symmetry or 1)
    one, other = (
        task.observe(state(yaw=y, tool_yaw=tool_yaw, numbers=numbers_in(task)), goals)["object_turn"][0]
        for y in (yaw, yaw + quarters * step)
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


def test_an_observation_worked_out_by_hand(task, goals):
    now = state(
        tcp=above(0.03, -0.06), led=(0.01, 0.0, -0.03), lying=(0.0, 0.5, 0.02), yaw=0.2, tool_yaw=0.1, told=0.4,
        speed=0.2, commanded_turn_rate=0.3, intent=0.6, closing_rate=-0.5,
    )  # fmt: skip
    seen = {name: value[0] for name, value in task.observe(now, goals).items()}
    np.testing.assert_allclose(seen["commanded_position"], [-0.05, 0.5, 0.026])
    np.testing.assert_allclose(seen["commanded_yaw"], [np.cos(0.1), np.sin(0.1)])
    np.testing.assert_allclose(seen["commanded_velocity"], [0.2, 0.0, 0.0])
    np.testing.assert_allclose(seen["target_from_commanded"], [0.05, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(seen["target_near"], [tanh(0.05 / 0.03), 0.0, 0.0], atol=1e-12)
    assert seen["object_turn"] == pytest.approx(0.1)
    assert seen["lift_left"] == pytest.approx(tanh(1.0))  # 130 mm of 130 mm
    told = [seen[name] for name in ("commanded_turn_rate", "gripper_intent", "commanded_gripper", "closing_rate")]
    assert told == [0.3, 0.6, 0.4, -0.5]


def test_what_is_held_is_wanted_above_where_it_lay(task, goals):
    """The object is gripped 6 mm below the tool point and 5 mm beside it; the commanded tool leads by 10 mm."""
    now = state(tcp=(0.105, 0.5, 0.056), led=(0.01, 0.0, 0.0), lying=(0.1, 0.5, 0.05), held=True)
    seen = task.observe(now, goals)
    np.testing.assert_allclose(seen["target_from_commanded"], [[-0.11, 0.0, 0.10]], atol=1e-12)
    np.testing.assert_allclose(seen["target_near"], np.tanh(np.array([[-0.11, 0.0, 0.10]]) / 0.03), atol=1e-12)


def test_the_way_of_what_is_held_does_not_depend_on_how_late_the_tool_s_motion_is_read(task, goals):
    """The commanded tool is at one height; the measured one trails, and what it holds with it."""
    one, other = (
        task.observe(state(tcp=above(0.05 - lag), led=(0, 0, lag), lying=(0, 0.5, 0.07 - lag), held=True), goals)
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
    rng, task = np.random.default_rng(0), make(practice_share=1.0)
    goals = [task.sample(rng, practice=True) for _ in range(1000)]
    off = np.abs([goal.start - goal.objects[OBJECT].position for goal in goals])
    assert 0.0115 < off[:, 0].max() <= 0.012
    assert 0.019 < off[:, 1].max() <= 0.02
    assert 0.75 < max(abs(geometry.yaw(goal.objects[OBJECT].rotation)) for goal in goals) <= 0.785


def about(count, share, of=2000):
    """Whether a share was drawn, but for chance."""
    return abs(count - share * of) < 4 * sqrt(of * share * (1.0 - share))


def test_a_share_of_the_training_episodes_goes_on_to_its_end(task):
    rng = np.random.default_rng(0)
    assert about(sum(task.sample(rng, practice=True).whole for _ in range(2000)), 0.25)
    assert not any(task.sample(rng, practice=False).whole for _ in range(100))


def test_a_practice_episode_begins_around_the_object_and_an_evaluation_never_does(make, monkeypatch):
    monkeypatch.setattr(grasp, "PRACTICE_LIFTED_SHARE", 0.0)
    rng, task = np.random.default_rng(0), make(practice_share=1.0)
    for _ in range(50):
        goal = task.sample(rng, practice=True)
        off = goal.start - goal.objects[OBJECT].position - (0.0, 0.0, 0.006)
        assert np.abs(off[0]) <= 0.012 and np.abs(off[1]) <= 0.02 and 0.004 <= off[2] <= 0.034
        assert task.sample(rng, practice=False).start[2] >= 0.15
        assert goal.lift_m == 0.0
    wide, rng = make(practice_share=1.0, object=ObjectConfig(size_m=(0.08, 0.08, 0.1))), np.random.default_rng(0)
    goal = wide.sample(rng, practice=True)
    np.testing.assert_allclose(goal.start[:2], goal.objects[OBJECT].position[:2])  # the jaw has no play left
    assert 0.05 + 0.004 <= goal.start[2] <= 0.05 + 0.034  # around its middle
    rng, task = np.random.default_rng(0), make(practice_share=0.25)
    assert about(sum(task.sample(rng, practice=True).start[2] < 0.1 for _ in range(2000)), 0.25)


def test_a_share_of_the_practice_begins_with_the_object_lifted(make):
    rng, task = np.random.default_rng(0), make(practice_share=1.0)
    lifted = [goal for goal in (task.sample(rng, practice=True) for _ in range(2000)) if goal.lift_m > 0.0]
    assert about(len(lifted), 0.2)
    ways = [goal.lift_m for goal in lifted]
    assert 0.013 <= min(ways) < 0.02 and 0.11 < max(ways) <= 0.117  # of 0.13 m up to the hold point
    turns = [abs(geometry.yaw(goal.objects[OBJECT].rotation)) for goal in lifted]
    assert 0.18 < max(turns) <= 0.2  # fingers hold what is turned no further
    assert all(task.sample(rng, practice=False).lift_m == 0.0 for _ in range(50))


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


def carry_it_far_beyond(seen, scripted, step):
    return np.array([0, 0, 1, 0, 1], np.float32) if seen["commanded_gripper"][0] > 0.99 else scripted


def shake_it_aloft(seen, scripted, step):
    if seen["commanded_gripper"][0] < 0.99 or seen["lift_left"][0] > tanh(0.1):
        return scripted
    return np.array([1.0 if step % 8 < 4 else -1.0, 0, 0, 0, 1], np.float32)


FARMERS = [
    stand_still, hover, hover_around_it_open, dive_and_rise, knock_it_about, turn_to_and_fro, squeeze_the_air,
    squeeze_the_table, press_on_it_from_above, squeeze_it_where_it_lies, carry_it_far_beyond,
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
    for _ in range(6):  # a person opens the fingers: a policy cannot let go of what they hold
        environment.drive(replace(environment.guard.commanded, gripper=0.0))
    assert not environment.step(STILL)[-1]["success"]


def test_what_is_left_to_lift_does_not_depend_on_a_tracker_s_offset(grasping):
    """How high the object is, is measured from where the tracker saw it lie."""
    straight, script = grasping()
    biased, _ = grasping("cube", DisturbanceConfig(object_offset_m=0.005))
    one, other = straight.reset(seed=5)[0], biased.reset(seed=5)[0]
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


@pytest.mark.parametrize("held", [True, False])
def test_what_is_in_the_hand_is_not_to_be_lined_up_with(task, goals, held):
    now = state(tcp=above(0.0, 0.006), led=(0.01, 0.0, 0.0), yaw=0.2, closed=0.53, told=1.0, held=held)
    seen = task.observe(now, goals)
    assert [not np.any(seen[name]) for name in ("object_turn", "object_turn_near")] == [held] * 2
    assert seen["held"] == held
