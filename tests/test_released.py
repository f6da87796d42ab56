"""What is released is what is shipped: one file of configs/ trains each released policy, without an option."""

from pathlib import Path

import pytest

from td3robot import catalog
from td3robot.config import load_config

RELEASED = sorted(catalog.policies())


@pytest.mark.parametrize("name", RELEASED)
def test_a_file_trains_what_is_released(name):
    file, checkpoint = load_config(Path(f"{name}_real")), load_config(catalog.policies()[name] / "config.yaml")
    differing = [
        f"{section}.{key}"
        for section in ("environment", "agent", "training")
        for key, value in getattr(file, section).model_dump(mode="json").items()
        if value != getattr(checkpoint, section).model_dump(mode="json").get(key)
    ]
    # A run keeps the learner that it began with: ``auto`` chose it.
    assert [key for key in differing if key != "training.learner"] == []
    assert file.seed == checkpoint.seed
