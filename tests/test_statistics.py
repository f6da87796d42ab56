"""Intervals and percentiles, against published values and values worked out by hand."""

import pytest

from td3robot.statistics import mean_interval, nearest_percentiles, percentiles, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (0, 10, 0.0, 0.2775),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_wilson_interval_has_its_published_values(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_the_wilson_interval_holds_the_proportion_and_stays_in_the_unit_interval():
    for trials in (1, 2, 7, 200):
        for successes in range(trials + 1):
            low, high = wilson_interval(successes, trials)
            assert 0.0 <= low <= successes / trials + 1e-12
            assert 1.0 >= high >= successes / trials - 1e-12


def test_the_interval_of_a_mean_has_its_published_values():
    more_sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]  # Student 1908; R prints 0.7001142 to 2.4598858
    assert mean_interval(more_sleep) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)
    assert mean_interval([3.0, 3.0]) == (3.0, 3.0)
    assert mean_interval([3.0]) is None


def test_percentiles_are_interpolated():
    assert percentiles([1.0, 2.0, 3.0]) == pytest.approx({"p50": 2.0, "p99": 2.98, "max": 3.0})
    assert percentiles(iter([5.0])) == {"p50": 5.0, "p99": 5.0, "max": 5.0}
    assert percentiles([]) is None


def test_nearest_percentiles_are_among_the_values():
    assert nearest_percentiles(range(100, 0, -1)) == {"p50": 51, "p99": 100, "max": 100}
    assert nearest_percentiles([7.0]) == {"p50": 7.0, "p99": 7.0, "max": 7.0}
    assert nearest_percentiles([]) == {}
