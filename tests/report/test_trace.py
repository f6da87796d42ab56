"""Curves keep their extremes and their memory, whatever their length."""

import base64
import json

import numpy as np
import pytest

from td3robot.report.plots import LongCurves, packed
from td3robot.statistics import Sample, percentiles


def test_a_short_curve_is_kept_as_it_is():
    trace = LongCurves(2)
    for step in range(100):
        trace.add(step, (step, -step))
    times, values = trace.curve(1)
    assert trace.rows_per_point == 1
    np.testing.assert_array_equal(times, np.arange(100))
    np.testing.assert_array_equal(values, -np.arange(100.0))


@pytest.mark.parametrize("rows", [2049, 5000, 40_000])
def test_a_long_curve_keeps_every_extreme_in_bounded_memory(rows):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, 3))
    trace = LongCurves(3, most=512)
    for step, row in enumerate(values):
        trace.add(float(step), row)
    times, low, high = trace.points()
    width = trace.rows_per_point
    assert 256 < len(times) <= 512
    assert width > 1
    for point, begin in enumerate(range(0, rows, width)):
        np.testing.assert_array_equal(low[point], values[begin : begin + width].min(axis=0))
        np.testing.assert_array_equal(high[point], values[begin : begin + width].max(axis=0))
        assert times[point] == begin


def test_both_extremes_of_a_point_are_drawn():
    trace = LongCurves(1, most=2)
    for step, value in enumerate([1.0, 5.0, -3.0, 2.0]):
        trace.add(step, (value,))
    times, values = trace.curve(0)
    assert (times.tolist(), values.tolist()) == ([0, 0, 2, 2], [1, 5, -3, 2])


def test_a_gap_interrupts_a_curve_and_hides_no_value():
    trace = LongCurves(1)
    trace.add(0.0, (1.0,))
    trace.gap(1.0)
    trace.add(2.0, (3.0,))
    np.testing.assert_array_equal(trace.curve(0)[1], [1.0, np.nan, 3.0])
    merged = LongCurves(1, most=2)
    for step, value in enumerate([1.0, np.nan, np.nan, 4.0]):
        merged.add(step, (value,))
    assert merged.curve(0)[1].tolist() == [1.0, 1.0, 4.0, 4.0]


def test_packed_numbers_are_what_plotly_reads():
    found = packed(np.array([1.5, np.inf, -2.0]))
    values = np.frombuffer(base64.b64decode(found["bdata"]), "<f4")
    assert found["dtype"] == "f4"
    np.testing.assert_array_equal(values, np.array([1.5, np.nan, -2.0], np.float32))
    json.dumps(found, allow_nan=False)


def test_a_sample_keeps_all_values_until_there_are_too_many():
    rng = np.random.default_rng(0)
    values = rng.exponential(size=10_000)
    every, some = Sample(most=20_000), Sample(most=1000)
    for begin in range(0, len(values), 137):
        every.add(values[begin : begin + 137])
        some.add(values[begin : begin + 137])
    assert every.percentiles() == percentiles(values)
    assert len(some.values()) <= 1000
    np.testing.assert_array_equal(some.values(), values[:: some.every])
    found = some.percentiles()
    assert found["max"] == values.max()
    assert found["p50"] == pytest.approx(np.median(values), rel=0.2)
    assert some.square == pytest.approx(float(values @ values))
    assert some.count == 10_000


def test_an_empty_sample_has_no_percentiles():
    sample = Sample()
    sample.add([])
    assert sample.percentiles() is None
