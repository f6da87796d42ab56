import numpy as np
import pytest

from td3robot.robots.driver.interpolation import SLACK, TargetStream

PERIOD = 0.05


def play(tick, arrivals, seconds, stream=None):
    """Return times and targets (ticks, 6) of a stream whose k-th target, k times 0.05 rad, is sent at arrivals[k]."""
    stream = stream or TargetStream([0.0] * 6, PERIOD, tick)
    times, targets, waiting = [], [], list(enumerate(arrivals, 1))
    for now in 100.0 + np.arange(round(seconds / tick)) * tick:
        while waiting and 100.0 + waiting[0][1] <= now:
            number, sent_at = waiting.pop(0)
            stream.aim([0.05 * number] * 6, 100.0 + sent_at)
        times.append(now)
        targets.append(stream.at(now))
    return np.array(times), np.array(targets)


@pytest.mark.parametrize("tick", [0.002, 0.008])
def test_targets_on_time_are_played_at_constant_speed(tick):
    times, targets = play(tick, np.arange(20) * PERIOD, 1.2)
    moving = (targets[:, 0] > 0.06) & (targets[:, 0] < 0.9)
    np.testing.assert_allclose(np.diff(targets[moving, 0]), tick, rtol=0, atol=1e-9)
    np.testing.assert_allclose(targets[-1], 1.0, rtol=0, atol=1e-12)
    late = SLACK * PERIOD
    inside = (times > 100.1) & (times < 100.9)
    np.testing.assert_allclose(targets[inside, 0], times[inside] - 100.0 - late, rtol=0, atol=1e-9)


@pytest.mark.parametrize("tick", [0.002, 0.008])
def test_jitter_never_makes_the_arm_faster_than_planned(tick):
    rng = np.random.default_rng(3)
    arrivals = np.arange(60) * PERIOD + rng.uniform(0.0, 0.02, 60)
    times, targets = play(tick, arrivals, 3.5)
    for window in (1, 4, 10):
        way = targets[window:, 0] - targets[:-window, 0]
        assert way.max() <= (times[window] - times[0]) * 1.0 + tick + 1e-9
        assert way.min() >= 0.0
    np.testing.assert_allclose(targets[-1], 3.0, rtol=0, atol=1e-12)


def test_after_the_worst_delay_the_target_no_longer_stands_still():
    rng = np.random.default_rng(3)
    arrivals = np.arange(100) * PERIOD + rng.uniform(0.0, 0.02, 100)
    arrivals[3] = 3 * PERIOD + 0.02
    _, targets = play(0.002, arrivals, 4.5)
    later = (targets[:, 0] > 0.3) & (targets[:, 0] < 4.8)
    assert np.diff(targets[later, 0]).min() > 0.0


def test_missed_ticks_are_waited_for_and_not_made_up():
    stream = TargetStream([0.0] * 6, PERIOD, 0.008)
    stream.aim([1.0] * 6, 10.0)
    before = [stream.at(10.0 + 0.008 * k)[0] for k in range(4)]
    after = stream.at(10.024 + 0.5)[0]
    assert after - before[-1] == pytest.approx(0.008 / PERIOD)


@pytest.mark.parametrize("tick", [0.002, 0.008])
def test_stalls_of_any_length_and_place_never_raise_the_speed_at_the_other_end(tick):
    """Ticks start late, and sending takes long; what counts is when a target is on its way."""
    rng = np.random.default_rng(7)
    stream, sent, arrivals, targets, now, due = TargetStream([0.0] * 6, PERIOD, tick), 0, [], [], 10.0, 10.0
    for _ in range(round(4.0 / tick)):
        while 10.0 + sent * PERIOD <= now:
            sent += 1
            stream.aim([0.05 * sent] * 6, 10.0 + (sent - 1) * PERIOD)
        target = stream.at(now)[0]
        stall = rng.choice([0.0002, 0.0008, 0.005, 0.03], p=[0.9, 0.06, 0.03, 0.01])
        arrival = now + stall
        stream.sent(arrival)
        arrivals.append(arrival)
        targets.append(target)
        due = max(due + tick, now)
        oversleep = rng.choice([0.0001, 0.0009, 0.02], p=[0.93, 0.06, 0.01])
        now = max(due, arrival) + oversleep
    held = np.arange(arrivals[0], arrivals[-1], 0.001)
    seen = np.array(targets)[np.searchsorted(arrivals, held, side="right") - 1]
    window = 100
    assert (seen[window:] - seen[:-window]).max() <= 0.1 + tick + 2 * 0.001
    assert seen[-1] > 1.5
    assert stream.behind_s(now) > 0.1
    assert np.diff(targets).min() >= 0.0


@pytest.mark.parametrize("tick", [0.002, 0.008])
def test_the_arm_s_time_slips_by_stalls_and_by_nothing_else(tick):
    """A sender whose clock waits for what slipped is never far ahead; one that is late itself makes nothing slip."""
    rng = np.random.default_rng(11)
    play(
        tick, np.arange(60) * PERIOD + rng.uniform(0.0, 0.04, 60), 3.5, stream := TargetStream([0.0] * 6, PERIOD, tick)
    )
    assert stream.slipped_s == 0.0
    sent, now, due, stalled, most = 0, 200.0, 200.0, 0.0, 0.0
    stream.anchor([0.0] * 6)
    for number in range(200 * round(2 * PERIOD / tick)):
        if now >= due + stream.slipped_s:
            sent, due = sent + 1, due + PERIOD
            stream.aim([0.05 * sent] * 6, now)
        stream.at(now)
        stream.sent(now)
        most = max(most, stream.behind_s(now))
        stall = (number % round(2 * PERIOD / tick) == 0) * rng.uniform(0.01, 0.03)
        stalled += stall
        now += tick + stall
    assert stalled > 3.5
    assert stream.slipped_s == pytest.approx(stalled, rel=0.05)
    assert most < 0.06


def test_a_stream_that_is_on_time_is_not_behind():
    stream = TargetStream([0.0] * 6, PERIOD, 0.005)
    for k in range(100):
        if k % 10 == 0:
            stream.aim([0.01 * k] * 6, 0.005 * k)
        stream.at(0.005 * k)
        stream.sent(0.005 * k + 0.0005)
        assert stream.behind_s(0.005 * k) <= 1e-9


def test_targets_that_wait_are_all_played_and_none_faster_than_planned():
    """The program that decides was late by almost a period, and is on time again: one more target waits than usual."""
    arrivals = [0.0, 0.05, 0.148, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4]
    for tick in (0.002, 0.008):
        _, targets = play(tick, arrivals, 1.0)
        window = round(0.1 / tick)
        assert (targets[window:, 0] - targets[:-window, 0]).max() <= window * tick + tick + 1e-9
        np.testing.assert_allclose(targets[-1], 0.05 * len(arrivals), rtol=0, atol=1e-12)


def test_a_target_that_stands_for_two_takes_two_periods():
    stream = TargetStream([0.0] * 6, PERIOD, 0.002)
    stream.aim([0.1] * 6, 0.0, periods=2)
    reached = [stream.at(0.002 * k)[0] for k in range(100)]
    assert max(np.diff(reached)) == pytest.approx(0.1 * 0.002 / (2 * PERIOD))
    assert reached[-1] == pytest.approx(0.1)


def test_idle_time_counts_from_the_end_of_the_last_segment():
    stream = TargetStream([0.0] * 6, PERIOD, 0.002)
    stream.aim([1.0] * 6, 0.0)
    for k in range(100):
        stream.at(0.002 * k)
    assert stream.idle_s(0.2) == pytest.approx(0.2 - (1 + SLACK) * PERIOD)
    stream.aim([1.0] * 6, 0.2)
    assert stream.idle_s(0.2) == 0.0


@pytest.mark.parametrize("speed", [0.1, 1.0])
def test_braking_keeps_direction_and_deceleration(speed):
    stream = TargetStream([0.0] * 6, PERIOD, 0.002)
    end = [speed * PERIOD * share for share in (1.0, -0.5, 0.25, 0.0, 0.1, -1.0)]
    stream.aim(end, 0.0)
    for k in range(16):
        stream.at(0.002 * k)
    stream.brake(0.03, 10.0)
    path = np.array([stream.at(0.03 + 0.002 * k) for k in range(200)])
    np.testing.assert_allclose(path[-1], path[-100], rtol=0, atol=0)
    step = np.diff(path, axis=0) / 0.002
    assert np.abs(step).max() <= speed + 1e-9
    assert np.abs(np.diff(step, axis=0)).max() / 0.002 <= 10.0 * 1.01
    # Half the way that the speed would have gone in the time that braking takes.
    assert abs(path[-1, 0] - path[0, 0]) == pytest.approx(speed**2 / 20.0, rel=1e-6)
    moved = path[-1] - path[0]
    np.testing.assert_allclose(moved, moved[0] * np.array([1.0, -0.5, 0.25, 0.0, 0.1, -1.0]), atol=1e-12)


def test_braking_at_rest_stays_and_new_targets_are_not_played():
    stream = TargetStream([0.3] * 6, PERIOD, 0.002)
    stream.brake(5.0, 10.0)
    stream.aim([1.0] * 6, 5.0)
    assert stream.at(6.0) == [0.3] * 6
    stream.anchor([0.3] * 6)
    stream.aim([0.31] * 6, 7.0)
    for k in range(100):
        reached = stream.at(7.0 + 0.002 * k)
    assert reached == [0.31] * 6
