"""Values that YAML or Python would take for something else, and bounds that this machine sets."""

import pytest

from td3robot import processes
from td3robot.config import parse_config
from td3robot.errors import ConfigError
from td3robot.learning import runs
from td3robot.learning.runs import require_room_for_environments, require_room_for_learning

MINIMAL = "name: a\nenvironment: {kind: gymnasium, id: X-v0}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent: {tau: 0.1, tau: 0.2}", "the key 'tau' is given twice"),
        ("seed: 1\nseed: 2", "the key 'seed' is given twice"),
        ("training: {steps: 1:30}", "training.steps is '1:30', but it should be a whole number"),
        ("agent: {tau: 1:30.5}", "agent.tau is '1:30.5', but it should be a number"),
        ("training: {steps: true}", "training.steps: it is True, and should be a number"),
        ("agent: {gamma: false}", "agent.gamma: it is False, and should be a number"),
        ("agent: {hidden: [true, 8]}", r"agent.hidden: it is \[True, 8\], and should be a number"),
        ("agent: {layer_norm: 1}", "agent.layer_norm: it is 1, and should be true or false"),
        ("agent: {updates_per_step: 1.0e+9}", "should be less than or equal to 1000"),
        ("training: {environments: 100000}", "should be less than or equal to 1024"),
        ("seed: 2001-13-45", "a value cannot be read"),
        (f"seed: {'[' * 3000}", "is not valid YAML"),
    ],
)
def test_a_value_in_disguise_is_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_config(MINIMAL + text, "x.yaml")


def test_a_merge_may_be_overridden():
    text = "agent: {<<: {tau: 0.1, gamma: 0.9}, tau: 0.2}\n"
    config = parse_config(MINIMAL + text, "x.yaml")
    assert (config.agent.tau, config.agent.gamma) == (0.2, 0.9)


@pytest.fixture
def a_gigabyte(monkeypatch):
    monkeypatch.setattr(runs, "free_bytes", lambda: 1e9)


def value_in(error):
    """Read the number that would do, the last one of a sentence."""
    return int(str(error.value).rsplit(" would do", 1)[0].split()[-1])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("agent.replay_capacity=100000000", "agent.replay_capacity 100000000 needs 20.8 GB when it is saved, and 1 GB"),
        ("agent.batch_size=1000000", "agent.batch_size 1000000 needs .* GB, and 1 GB are free"),
        (
            "agent.hidden=[100000,100000]",
            r"networks with agent.hidden \[100000, 100000\] need .* GB, and 1 GB are free; widths of",
        ),
    ],
)
def test_what_does_not_fit_into_memory_is_refused_with_what_would(a_gigabyte, setting, words):
    text = MINIMAL + "training: {steps: 1000000000}\n"
    with pytest.raises(ConfigError, match=words) as error:
        require_room_for_learning(parse_config(text, "x.yaml", [setting]), 10, 3)
    name, fits = setting.partition("=")[0], value_in(error)
    overrides = [f"{name}={fits}"]
    if "hidden" in name:
        overrides = [f"agent.hidden=[{fits},{fits}]", "agent.batch_size=1"]
    require_room_for_learning(parse_config(text, "x.yaml", overrides), 10, 3)


def test_environments_that_do_not_fit_into_memory_are_refused_with_the_number_that_does(a_gigabyte):
    text = "name: a\nenvironment: {kind: robot}\n"
    with pytest.raises(ConfigError, match=r"about 6.29 GB, and 1 GB are free; 141 would do"):
        require_room_for_environments(parse_config(text, "x.yaml", ["training.environments=1024"]))
    require_room_for_environments(parse_config(text, "x.yaml", ["training.environments=141"]))


def test_a_control_group_that_has_less_than_the_machine_counts(tmp_path, monkeypatch):
    whole = processes.free_bytes()
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    monkeypatch.setattr(processes, "CGROUP", tmp_path)
    assert processes.free_bytes() == pytest.approx(0.9 * 600_000)
    assert processes.free_bytes() < whole
