"""The reach task's score, by numbers worked out by hand."""

from math import exp

import numpy as np
import pytest
from states import goals_of, state_of

from td3robot.tasks.interface import TOO_SHORT, Failure, Goal, Transition
from td3robot.tasks.reach import Reach, ReachConfig

GOAL, ALONG = np.array([0.1, 0.5, 0.3]), np.array([1.0, 0.0, 0.0])


def state(off, commanded_off, speed, commanded_speed):
    return state_of(
        tcp_position=GOAL + off * ALONG,
        tcp_velocity=speed * ALONG,
        commanded_position=GOAL + commanded_off * ALONG,
        commanded_velocity=commanded_speed * ALONG,
    )


@pytest.fixture
def score(spec):
    """Score one period of one row, as numbers."""
    task, action = Reach(ReachConfig(), spec, 0.25), np.zeros((1, 3), np.float32)

    def scored(off=0.0, before=0.0, after=0.0, speed=0.0, commanded_speed=0.0, intervened=False):
        earlier, now = (state(off, ahead, speed, commanded_speed) for ahead in (before, after))
        scores = task.score(
            Transition(earlier, now, goals_of(Goal(GOAL, GOAL)), action, action, np.array([intervened]))
        )
        terms = {name: float(value[0]) for name, value in scores.terms.items()}
        return terms, bool(scores.achieved[0]), float(scores.distance_m[0])

    return scored


def test_at_rest_at_the_goal_every_reward_is_whole_and_no_penalty_is_due(score):
    terms, achieved, distance = score()
    assert terms == {
        "progress": 0.0,
        "precision": 1.0,
        "settled": 1.0,
        "rest": 1.0,
        "smoothness": 0.0,
        "guard": 0.0,
    }
    assert achieved
    assert distance == 0.0


def test_progress_is_the_commanded_tool_s(score):
    assert score(off=0.2, before=0.2, after=0.195)[0]["progress"] == pytest.approx(0.4)  # of 12.5 mm
    assert score(off=0.2, before=0.2, after=0.25)[0]["progress"] == -1.0


def test_precision_falls_with_the_measured_distance(score):
    assert score(off=0.02)[0]["precision"] == pytest.approx(exp(-4.0))


@pytest.mark.parametrize(("off", "speed", "settled"), [(0.0099, 0.0199, 1.0), (0.0101, 0.0, 0.0), (0.0, 0.0201, 0.0)])
def test_settled_is_at_the_goal_and_at_rest_as_measured(score, off, speed, settled):
    terms, achieved, distance = score(off=off, speed=speed)
    assert terms["settled"] == settled
    assert achieved == bool(settled)
    assert distance == pytest.approx(off)


@pytest.mark.parametrize(
    ("off", "speed", "expected"),
    [(0.03, 0.0, Failure("away", pytest.approx(0.03))), (0.009, 0.03, Failure("too_fast")), (0.009, 0.0, TOO_SHORT)],
)
def test_an_episode_s_failure_is_told_by_its_end(spec, off, speed, expected):
    task, action, now = Reach(ReachConfig(), spec, 0.25), np.zeros((1, 3), np.float32), state(off, 0.0, speed, 0.0)
    last = Transition(now, now, goals_of(Goal(GOAL, GOAL)), action, action, np.array([False]))
    assert task.failures(last, np.array([False])) == [expected]


def test_rest_is_what_the_commands_say_near_the_goal(score):
    assert score(off=0.01, commanded_speed=0.04)[0]["rest"] == pytest.approx(exp(-1.0) * exp(-2.0))
    assert score(speed=0.1)[0]["rest"] == 1.0  # the measured tool still moves, and follows
    assert score(off=0.1)[0]["rest"] < 1e-40


def test_a_change_by_the_guard_is_a_penalty(score):
    assert score(intervened=True)[0]["guard"] == -0.05
