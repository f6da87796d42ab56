"""The measured speed of the tool slows down what is streamed, before a controller would stop the arm."""

import numpy as np
import pytest

from td3robot.robots.driver.interpolation import BEGINS_AT, SLACK, SLOWEST, TargetStream, speed_scale

PERIOD, LIMIT = 0.05, 0.25


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, BEGINS_AT])
def test_a_tool_well_below_its_limit_is_not_slowed(share):
    assert speed_scale(share * LIMIT, LIMIT) == 1.0


def test_the_nearer_to_the_limit_the_slower_and_never_slower_than_half():
    paces = [speed_scale(share * LIMIT, LIMIT) for share in (0.93, 0.96, 1.0, 1.1, 2.0, 1e300)]
    assert paces == sorted(paces, reverse=True)
    assert paces[0] < 1.0 and paces[2] == pytest.approx(0.6) and paces[-1] == SLOWEST
    assert speed_scale(1e9, np.inf) == 1.0


@pytest.mark.parametrize("tick", [0.002, 0.008])
def test_a_pace_scales_the_speed_of_what_is_played_and_its_time_slips_by_as_much(tick):
    stream = TargetStream([0.0], PERIOD, tick)
    for number in range(1, 5):
        stream.aim([0.1 * number], 10.0 + (number - 1) * PERIOD)
    times = 10.0 + tick * np.arange(round(0.1 / tick))
    played = np.array([stream.at(now, 0.6)[0] for now in times])
    begun = played > 0.0
    np.testing.assert_allclose(np.diff(played[begun]), 0.6 * 0.1 / PERIOD * tick, rtol=1e-6)
    assert stream.slowed_s == pytest.approx(stream.slipped_s)
    assert stream.slowed_s == pytest.approx(0.4 * tick * (begun.sum() - 1), abs=2 * SLACK * PERIOD)


def test_the_last_target_is_reached_whatever_the_pace():
    stream = TargetStream([0.0], PERIOD, 0.008)
    stream.aim([0.1], 10.0)
    assert [stream.at(10.0 + 0.008 * tick, 0.5)[0] for tick in range(30)][-1] == 0.1
    slowed = stream.slowed_s
    stream.at(11.0, 0.5)
    assert stream.slowed_s == slowed, "an arm that rests does not slip"


def test_braking_is_never_slowed():
    free, slowed = (TargetStream([0.0], PERIOD, 0.008) for _ in range(2))
    for stream in (free, slowed):
        stream.aim([0.1], 10.0)
        for tick in range(4):
            stream.at(10.0 + 0.008 * tick)
        stream.brake(10.032, 2.0)
    for tick in range(30):
        assert slowed.at(10.032 + 0.008 * tick, 0.5) == free.at(10.032 + 0.008 * tick, 1.0)


class UnevenArm:
    """Two joints that move a tool along one line with levers of 1 m and -1 m, each with a lag of its own."""

    lever = np.array([1.0, -1.0])

    def __init__(self, lags):
        self.lags, self.q, self.before = np.array(lags), np.zeros(2), np.zeros(2)

    def follow(self, target, seconds):
        self.before, self.q = self.q, target + (self.q - target) * np.exp(-seconds / self.lags)
        return abs(float(self.lever @ (self.q - self.before))) / seconds


def fastest(lags, watched, tick=0.008, latency=1):
    """Return the tool's greatest speed [m/s] where commands move both joints about and the tool at 0.24 m/s."""
    rng, arm, stream = np.random.default_rng(0), UnevenArm(lags), TargetStream([0.0, 0.0], PERIOD, tick)
    q, both, seen, speeds, due = np.zeros(2), 0.0, [0.0] * (latency + 1), [], 10.0
    for now in 10.0 + tick * np.arange(600):
        if now >= due + stream.slipped_s:
            both = np.clip(both + rng.choice([-0.3, 0.3]), -1.0, 1.0)
            q = q + PERIOD * np.array([both + 0.24, both])
            stream.aim(q.tolist(), now)
            due += PERIOD
        target = stream.at(now, speed_scale(seen[-1 - latency], LIMIT) if watched else 1.0)
        seen.append(arm.follow(np.array(target), tick))
        speeds.append(seen[-1])
    return max(speeds)


@pytest.mark.parametrize("tick", [0.002, 0.008])
def test_joints_that_catch_up_unevenly_stay_below_the_limit_once_they_are_watched(tick):
    lags = (0.095, 0.105)
    assert fastest(lags, watched=False, tick=tick) > 1.04 * LIMIT
    assert fastest(lags, watched=True, tick=tick) <= LIMIT
