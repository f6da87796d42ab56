"""The list of cells that policies were not trained for: each goes beyond `real`, and has a reason."""

import cells
import pytest

from td3robot.config import DISTURBANCES, DisturbanceConfig, RobotEnvironmentConfig

REAL = DISTURBANCES["real"]


def beyond(name, value):
    """Whether a number of a cell lies outside of what `real` draws."""
    limit = getattr(REAL, name)
    if isinstance(limit, tuple):
        low, high = limit
        return value[0] < low or value[1] > high
    return value > limit


def test_there_are_twenty_at_least_and_no_name_twice():
    names = [each.name for each in cells.VARIATIONS]
    assert len(names) == len(set(names)) >= 20


@pytest.mark.parametrize("variation", cells.VARIATIONS, ids=lambda each: each.name)
def test_a_variation_goes_beyond_real_and_says_who_has_it(variation):
    config = DisturbanceConfig(**variation.differs)
    assert any(beyond(name, getattr(config, name)) for name in variation.differs)
    assert len(variation.reason.split()) >= 4
    assert set(variation.tasks) <= {"reach", "grasp"}


@pytest.mark.parametrize("variation", cells.VARIATIONS, ids=lambda each: each.name)
def test_a_variation_can_be_played(variation):
    for task in variation.tasks:
        RobotEnvironmentConfig.model_validate({"task": {"name": task}, "disturbance": variation.differs})
