"""A measured state is believed only if it can be true, whatever kind of lie it is."""

import re
from dataclasses import replace
from math import cos, inf, nan, pi, sin

import pytest

from td3robot.robots.driver.link import StoppedError, StreamSettings
from td3robot.robots.driver.plausibility import Plausibility
from td3robot.robots.driver.shared_memory import WorkerState

DT = 0.008
NAMES = ("one", "two")
SETTINGS = StreamSettings(
    125, 0.05, True, None, 2.5, 10.0, 0, joint_names=NAMES, lower=(-3.0, -3.0), upper=(3.0, 3.0), velocity=(3.0, 3.0)
)


def truth(time, swing=0.5, rate=1.5, lag=0.1):
    """Give a state of an arm that began at rest, and whose first joint swings behind its target by a lag."""
    behind = max(time - lag, 0.0)
    return WorkerState(
        beat=100.0 + time, stamp=100.0 + time, controller_time=5.0 + time,
        q=(swing * (1.0 - cos(rate * behind)), 0.3), dq=(swing * rate * sin(rate * behind), 0.0),
        target=(swing * (1.0 - cos(rate * time)), 0.3),
    )  # fmt: skip


def judge(change=lambda state, time: state, seconds=8.0, streaming=True, **motion):
    """Judge a motion that is told wrongly from 3 s on; returns when the first lie was noticed, and what was said."""
    plausibility = Plausibility(SETTINGS)
    for tick in range(round(seconds / DT)):
        time = tick * DT
        state = truth(time, **motion)
        try:
            plausibility.check(change(state, time) if time >= 3.0 else state, streaming)
        except StoppedError as stop:
            return time - 3.0, stop.reason
    return None, ""


def set_q(state, value):
    return replace(state, q=(value, *state.q[1:]))


def set_dq(state, value):
    return replace(state, dq=(value, *state.dq[1:]))


@pytest.mark.parametrize(
    "motion",
    [{}, {"swing": 1.3, "rate": 1.5}, {"swing": 0.1, "rate": 12.0, "lag": 0.05}, {"swing": 0.0}, {"lag": 0.25}],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_what_an_arm_really_does_is_believed(motion, streaming):
    assert judge(streaming=streaming, **motion) == (None, "")


def test_noise_jitter_and_lost_packages_are_believed():
    plausibility, time = Plausibility(SETTINGS), 0.0
    for tick in range(2000):
        time += DT * (1 + (tick * 7919 % 11 == 0) * (tick % 5))  # now and then, some packages are lost
        noise = 2e-4 * ((tick * 6151) % 17 / 17 - 0.5)
        state = truth(time)
        late = 0.03 * (tick % 13 == 0)
        plausibility.check(
            replace(set_q(state, state.q[0] + noise), stamp=state.stamp + late, beat=state.beat + late), True
        )


def test_a_busy_standin_whose_clock_waits_is_believed():
    plausibility = Plausibility(SETTINGS)
    for tick in range(1000):
        time = tick * DT
        state = truth(time)
        plausibility.check(replace(state, stamp=100.0 + 1.6 * time, beat=100.0 + 1.6 * time), False)


@pytest.mark.parametrize(
    ("lie", "within_s", "said"),
    [
        (lambda state, time: set_q(state, 1e300), DT, "joint 'one' at 1e.300 rad, outside of its -3 to 3"),
        (lambda state, time: set_q(state, nan), DT, "at nan rad"),
        (lambda state, time: set_q(state, 3.2), DT, "outside of its"),
        (lambda state, time: set_dq(state, 1e300), DT, "at 1e.300 rad/s, and it can do 3"),
        (lambda state, time: set_dq(state, nan), DT, "at nan rad/s"),
        (lambda state, time: set_q(state, state.q[0] + 0.5), DT, r"went \+0\.\d+ rad in 8 ms"),
        (lambda state, time: set_q(state, state.q[0] - 0.5), DT, r"went -0\.\d+ rad in 8 ms"),
        # The joint moves while its angle stands still, and the other way round.
        (lambda state, time: set_q(state, truth(3.0).q[0]), 1.0, "angle and velocity of joint 'one' disagree"),
        (lambda state, time: set_dq(state, state.dq[0] + 0.1), 1.5, "angle and velocity of joint 'one' disagree"),
        (lambda state, time: set_q(state, state.q[0] + 0.05 * (time - 3.0)), 2.0, "disagree by"),
        # All of it stands still but the clock.
        (lambda state, time: replace(truth(3.0), beat=state.beat, stamp=state.stamp, target=state.target,
            controller_time=state.controller_time, dq=(0.0, 0.0)), 1.5, "away from everything it was sent to"),
        (lambda state, time: replace(state, controller_time=nan), DT, "clock went from .* to nan"),
        (lambda state, time: replace(state, controller_time=inf), DT, "clock went from"),
        (lambda state, time: replace(state, controller_time=8.0 - time), 2 * DT, "clock went from"),
        (lambda state, time: replace(state, controller_time=state.controller_time + 5.0), DT, "clock ran"),
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_noticed_in_time_and_named(lie, within_s, said):
    noticed, reason = judge(lie)
    assert noticed is not None, "nothing was noticed"
    assert noticed <= within_s + 1e-9
    assert re.search(said, reason), reason


@pytest.mark.parametrize(("rate", "within_s"), [(1.5, 1.0), (0.05, 2.5)])
def test_a_clock_that_runs_fast_or_slow_is_noticed_at_rest(rate, within_s):
    noticed, reason = judge(lambda state, time: replace(state, controller_time=8.0 + rate * (time - 3.0)), swing=0.0)
    assert noticed is not None and noticed <= within_s
    assert "the controller's clock ran" in reason


def test_an_arm_that_does_not_follow_is_noticed_only_while_it_is_driven():
    stuck = lambda state, time: replace(state, q=truth(3.0).q, dq=(0.0, 0.0))  # noqa: E731
    assert judge(stuck, streaming=False)[0] is None
    assert judge(stuck)[0] is not None


def test_a_state_that_was_judged_is_not_judged_again():
    plausibility = Plausibility(SETTINGS)
    state = truth(0.0, swing=0.0)
    plausibility.check(state, False)
    plausibility.check(set_q(state, 99.0), False)  # the same package: its stamp says so
    with pytest.raises(StoppedError):
        plausibility.check(set_q(replace(state, controller_time=5.1), 99.0), False)


def test_limits_hold_at_both_ends():
    for value in (-3.09, 3.09):
        Plausibility(SETTINGS).check(set_q(truth(0.0), value), False)
    for value in (-3.11, 3.11, -pi * 1.1):
        with pytest.raises(StoppedError, match="outside of its"):
            Plausibility(SETTINGS).check(set_q(truth(0.0), value), False)
