"""A small share of benchmarks/damage.py: checkpoints damaged at random are refused, or do no harm."""

import pytest
from damage import GRAVE, mutate, verdict

SEED = 1


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_refused_with_one_sentence_or_does_no_harm(tmp_path, count):
    found = [(mutation, outcomes) for _, mutation, outcomes in mutate(count, SEED, tmp_path)]
    assert [(mutation, outcomes) for mutation, outcomes in found if verdict(outcomes) in GRAVE] == []
    refused = sum(verdict(outcomes) == "refused" for _, outcomes in found)
    assert refused > count / 2
