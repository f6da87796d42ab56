"""What is released is what is shipped: the file of its name in configs/ trains each policy, without an option."""

from pathlib import Path

import pytest

from td3robot import catalog
from td3robot.config import DISTURBANCES, load_config

RELEASED = sorted(catalog.policies())


@pytest.mark.parametrize("name", RELEASED)
def test_a_file_trains_what_is_released(name):
    file, checkpoint = load_config(Path(name)), load_config(catalog.policies()[name] / "config.yaml")
    differing = [
        f"{section}.{key}"
        for section in ("environment", "agent", "training")
        for key, value in getattr(file, section).model_dump(mode="json").items()
        if value != getattr(checkpoint, section).model_dump(mode="json").get(key)
    ]
    # A run keeps the learner that it began with: ``auto`` chose it.
    assert [key for key in differing if key != "training.learner"] == []
    assert file.seed == checkpoint.seed


@pytest.mark.parametrize("name", RELEASED)
def test_inspect_names_the_command_and_the_file_that_make_it_again(td3robot, monkeypatch, name):
    monkeypatch.chdir(catalog.PACKAGE.parent)
    status, out, err = td3robot("inspect", name)
    assert status == 0, err
    (again,) = [line.removeprefix("  again").strip() for line in out.splitlines() if line.startswith("  again")]
    assert again == f"td3robot train {name} (configs/{name}.yaml)"


@pytest.mark.parametrize("name", [name for name in RELEASED if f"{name}_quick" in catalog.configurations()])
def test_the_first_minutes_are_the_same_task_undisturbed(name):
    released, quick = load_config(Path(name)), load_config(Path(f"{name}_quick"))
    assert quick.environment == released.environment.model_copy(update={"disturbance": DISTURBANCES["off"]})
    assert quick.training.steps < released.training.steps
