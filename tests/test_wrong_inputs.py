"""A share of the wrong inputs of benchmarks/wrong_inputs.py: none may end in a traceback, or not end."""

import random

import pytest
from wrong_inputs import WrongInputs, judge


@pytest.mark.parametrize("count", [5, pytest.param(15, marks=pytest.mark.thorough)])
def test_wrong_inputs_are_refused_in_a_sentence_or_run(tmp_path, count):
    result = WrongInputs(tmp_path, random.Random(1)).try_all(count)
    assert result.worst == []
    assert result.found["refused"] >= count / 3


def test_outcomes_are_told_apart():
    assert judge(1, "Traceback (most recent call last):\n") == "traceback"
    assert judge(2, "td3robot: agent.gamma is 2, but it should be less than 1\n") == "refused"
    assert judge(2, "") == "refused without a word"
    assert judge(None, "") == "stuck"
    assert judge(0, "") == judge(130, "") == "accepted"
    assert judge(-11, "") == "status -11"
