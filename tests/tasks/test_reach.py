"""The reach task's score, by numbers worked out by hand."""

from math import exp

import numpy as np
import pytest

from td3robot.state import JointCommand, Pose, RobotState, World
from td3robot.tasks.interface import Goal, Moment
from td3robot.tasks.reach import Reach, ReachConfig

GOAL = np.array([0.1, 0.5, 0.3])


@pytest.fixture
def score(spec):
    task = Reach(ReachConfig(), spec, 0.25)

    def world(off, commanded_off, speed, commanded_speed):
        along = np.array([1.0, 0.0, 0.0])
        return World(
            robot=RobotState(np.zeros(6), np.zeros(6), np.zeros(2), 0.0),
            tcp=Pose(GOAL + off * along, np.eye(3)),
            tcp_velocity=speed * along,
            commanded=JointCommand(np.zeros(6), 0.0),
            commanded_tcp=Pose(GOAL + commanded_off * along, np.eye(3)),
            commanded_velocity=commanded_speed * along,
        )

    def scored(off=0.0, before=0.0, after=0.0, speed=0.0, commanded_speed=0.0, interventions=()):
        action = np.zeros(3, np.float32)
        moment = Moment(
            world(off, before, speed, commanded_speed), world(off, after, speed, commanded_speed), action, action,
            interventions,
        )  # fmt: skip
        return task.score(moment, Goal(GOAL, GOAL))

    return scored


def test_at_rest_at_the_goal_every_reward_is_whole_and_no_penalty_is_due(score):
    result = score()
    assert result.terms == {
        "progress": 0.0,
        "precision": 1.0,
        "settled": 1.0,
        "rest": 1.0,
        "smoothness": 0.0,
        "guard": 0.0,
    }
    assert result.achieved
    assert result.distance_m == 0.0


def test_progress_is_the_commanded_tool_s(score):
    assert score(off=0.2, before=0.2, after=0.195).terms["progress"] == pytest.approx(0.4)  # of 12.5 mm
    assert score(off=0.2, before=0.2, after=0.25).terms["progress"] == -1.0


def test_precision_falls_with_the_measured_distance(score):
    assert score(off=0.02).terms["precision"] == pytest.approx(exp(-4.0))


@pytest.mark.parametrize(("off", "speed", "settled"), [(0.0099, 0.0199, 1.0), (0.0101, 0.0, 0.0), (0.0, 0.0201, 0.0)])
def test_settled_is_at_the_goal_and_at_rest_as_measured(score, off, speed, settled):
    result = score(off=off, speed=speed)
    assert result.terms["settled"] == settled
    assert result.achieved == bool(settled)


def test_rest_is_what_the_commands_say_near_the_goal(score):
    assert score(off=0.01, commanded_speed=0.04).terms["rest"] == pytest.approx(exp(-1.0) * exp(-2.0))
    assert score(speed=0.1).terms["rest"] == 1.0  # the measured tool still moves, and follows
    assert score(off=0.1).terms["rest"] < 1e-40


def test_a_change_by_the_guard_is_a_penalty(score):
    assert score(interventions=("workspace",)).terms["guard"] == -0.05
