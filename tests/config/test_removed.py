"""A setting of an earlier version is refused with what replaces it, wherever it is set."""

import gymnasium
import pytest

from td3robot.config import parse_config, removed, to_yaml
from td3robot.config.plain import parse_plain
from td3robot.errors import ConfigError
from td3robot.registry import TASKS
from td3robot.robots.cells import load_cell

MINIMAL = "name: x\nenvironment: {kind: robot}\n"


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(MINIMAL, "x.yaml", overrides)
    return str(caught.value).partition(": ")[2]


@pytest.fixture
def gone(monkeypatch):
    table = {
        "agent.slow_rate": "one agent.tau serves both",
        "agent.quick_rate": "one agent.tau serves both",
        "environment.task.fog": "nothing replaces it",
        "cell.robot.fog": "nothing replaces it",
    }
    monkeypatch.setattr(removed, "REMOVED", table)


@pytest.mark.usefixtures("gone")
def test_every_setting_that_is_gone_is_named_in_one_sentence():
    assert refusal("agent.slow_rate=1") == "agent.slow_rate is gone: one agent.tau serves both"
    assert refusal("agent.quick_rate=1", "environment.task.fog=2", "agent.slow_rate=1", "agent.gama=1") == (
        "environment.task.fog is gone: nothing replaces it; "
        "agent.quick_rate and agent.slow_rate are gone: one agent.tau serves both"
    )
    assert refusal("agent.fog=1").startswith("unknown key 'agent.fog'")


@pytest.mark.usefixtures("gone")
def test_an_environment_and_a_cell_name_it_too(tmp_path):
    with pytest.raises(ConfigError, match=r"environment\.task\.fog is gone: nothing replaces it$"):
        gymnasium.make("td3robot/UR5eReach-v0", task={"fog": 1})
    cell = tmp_path / "cell.yaml"
    cell.write_text("robot: {backend: ur, fog: 1}\nur: {host: 127.0.0.9}\n")
    with pytest.raises(ConfigError, match=r"cell\.yaml: cell\.robot\.fog is gone: nothing replaces it$"):
        load_cell(cell)


def names(values: dict, prefix: str = ""):
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{name}.")


@pytest.mark.parametrize("task", TASKS)
def test_nothing_that_exists_is_said_to_be_gone(task):
    settings = parse_plain(to_yaml(parse_config(MINIMAL, "x.yaml", [f"environment.task.name={task}"])))
    assert not set(names(settings)) & set(removed.REMOVED)
