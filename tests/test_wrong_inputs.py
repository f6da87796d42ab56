"""A share of the wrong inputs of benchmarks/wrong_inputs.py: none may end in a traceback, or not end."""

import random

from wrong_inputs import WrongInputs, judge


def test_wrong_inputs_are_refused_in_a_sentence_or_run(tmp_path):
    result = WrongInputs(tmp_path, random.Random(1)).try_all(15)
    assert result.worst == []
    assert result.found["refused"] >= 5


def test_outcomes_are_told_apart():
    assert judge(1, "Traceback (most recent call last):\n") == "traceback"
    assert judge(2, "td3robot: agent.gamma is 2, but it should be less than 1\n") == "refused"
    assert judge(2, "") == "refused without a word"
    assert judge(None, "") == "stuck"
    assert judge(0, "") == judge(130, "") == "accepted"
    assert judge(-11, "") == "status -11"
