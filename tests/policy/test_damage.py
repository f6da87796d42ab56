"""A small share of benchmarks/damage.py: checkpoints damaged at random are refused, or do no harm."""

from damage import GRAVE, mutate, verdict

COUNT, SEED = 60, 1


def test_a_damaged_checkpoint_is_refused_with_one_sentence_or_does_no_harm(tmp_path):
    found = [(mutation, outcomes) for _, mutation, outcomes in mutate(COUNT, SEED, tmp_path)]
    assert [(mutation, outcomes) for mutation, outcomes in found if verdict(outcomes) in GRAVE] == []
    refused = sum(verdict(outcomes) == "refused" for _, outcomes in found)
    assert refused > COUNT / 2
