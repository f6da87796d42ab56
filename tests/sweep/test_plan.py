"""What a sweep varies: parsed, checked before anything starts, and kept."""

import json
from pathlib import Path

import pytest

from td3robot.config import load_config
from td3robot.config.loading import parse_config, to_yaml
from td3robot.errors import ConfigError
from td3robot.sweep.plan import (
    BASE,
    PLAN,
    Interval,
    make_plan,
    override,
    parse_choice,
    parse_interval,
    read_plan,
    write_plan,
)


@pytest.fixture(scope="module")
def base():
    return load_config(Path("gym_pendulum"), ["training.steps=60"])


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("agent.gamma=0.8,0.85", "agent.gamma", ("0.8", "0.85")),
        ("agent.hidden=[64,64],[128,128]", "agent.hidden", ("[64,64]", "[128,128]")),
        (" agent.layer_norm = true, false ", "agent.layer_norm", ("true", "false")),
        ("environment.disturbance=off,real", "environment.disturbance", ("off", "real")),
        ("training.device='a,b',\"[\"", "training.device", ("'a,b'", '"["')),
    ],
)
def test_the_values_of_a_grid_are_those_between_commas(text, name, values):
    choice = parse_choice(text)
    assert (choice.name, choice.values) == (name, values)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent.gamma",
        "agent.gamma=",
        "=0.8",
        "agent.gamma=[0.8",
        "agent.gamma=0.8,,0.9",
        "agent.gamma=0.8]",
        "agent.x='a",
    ],
)
def test_what_is_no_grid_is_refused_with_the_form(text):
    with pytest.raises(ConfigError, match=r"section\.key=value,value|write them as value,value"):
        parse_choice(text)


def test_a_range_is_read_with_its_scale():
    assert parse_interval("agent.gamma=0.8:0.99") == Interval(name="agent.gamma", low=0.8, high=0.99)
    log = parse_interval("agent.learning_rate=1e-4:1e-2:log")
    assert (log.low, log.high, log.scale, log.is_whole) == (1e-4, 1e-2, "log", False)
    assert parse_interval("agent.batch_size=32:256").is_whole


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("agent.gamma=0.8", "is not low:high or low:high:log, two numbers"),
        ("agent.gamma=a:b", "is not low:high or low:high:log, two numbers"),
        ("agent.gamma=0.8:0.9:cubic", "is not low:high or low:high:log, two numbers"),
        ("agent.gamma=0.9:0.8", "the range of agent.gamma is empty: 0.9 is not below 0.8"),
        ("agent.gamma=0:0.8:log", "on a log scale it must be above 0"),
        ("agent.gamma=nan:0.8", "is not low:high or low:high:log, two numbers"),
        ("agent.gamma=0.8:inf", "is not low:high or low:high:log, two numbers"),
        ("gamma", "is not of the form section.key=low:high"),
    ],
)
def test_what_is_no_range_is_refused(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_interval(text)


def test_a_grid_has_every_combination_once_in_order(base):
    plan = make_plan(base, 3, ["agent.gamma=0.8,0.9", "agent.batch_size=16,32"], [], None)
    assert plan.grid() == [
        ("agent.gamma=0.8", "agent.batch_size=16"),
        ("agent.gamma=0.8", "agent.batch_size=32"),
        ("agent.gamma=0.9", "agent.batch_size=16"),
        ("agent.gamma=0.9", "agent.batch_size=32"),
    ]
    assert (plan.settings, plan.seeds, plan.steps, plan.first_seed) == (4, 3, 60, base.seed)


def test_without_a_grid_there_is_the_configuration_as_it_is(base):
    assert make_plan(base, 8, [], [], None).grid() == [()]


@pytest.mark.parametrize(
    ("choices", "intervals", "search", "sentence"),
    [
        (["agent.gamma=0.8", "agent.gamma=0.9"], [], None, "agent.gamma is varied twice"),
        (["agent.gamma=0.8"], ["agent.gamma=0.8:0.9"], 3, "agent.gamma is varied twice"),
        (["seed=1,2"], [], None, "seed cannot be varied; use --seeds"),
        (["training.steps=1,2"], [], None, "training.steps cannot be varied"),
        ([], ["agent.gamma=0.8:0.9"], None, "--range needs --search N"),
        ([], [], 3, "--search needs something to vary"),
        ([f"agent.gamma={','.join(map(str, range(600)))}"], [], None, "1,200 runs, more than 1,000"),
        (["agent.gamma=0.8,0.9,0.8"], [], None, "agent.gamma has the value 0.8 twice"),
        (["training={steps: 100},{steps: 200}"], [], None, "training is no setting; write it as section.key"),
        (["environment.task={name: reach}"], [], None, "is a whole section; vary one setting of it"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(base, choices, intervals, search, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_plan(base, 2, choices, intervals, search)


def test_a_small_learning_rate_reaches_the_configuration(base):
    changed = parse_config(to_yaml(base), "here", [override("agent.learning_rate", 1.23456e-5)])
    assert changed.agent.learning_rate == 1.235e-5


@pytest.mark.parametrize(
    ("choices", "intervals", "search", "sentence"),
    [
        (["agent.gama=0.8,0.9"], [], None, "unknown key 'agent.gama'; did you mean 'gamma'"),
        (["agent.gamma=0.8,1.9"], [], None, "agent.gamma is 1.9, but it should be less than 1"),
        ([], ["agent.gamma=0.8:1.5"], 5, "agent.gamma is 1.5, but it should be less than 1"),
        (["agent.batch_size=16,none"], ["agent.gamma=0.8:0.9"], 5, "agent.batch_size is 'none'"),
        (["agent.replay_capacity=300,100000"], ["agent.batch_size=16:500"], 5, "replay_capacity"),
    ],
)
def test_a_setting_that_cannot_be_trained_is_refused_before_anything_is_written(
    base, tmp_path, choices, intervals, search, sentence
):
    plan = make_plan(base, 2, choices, intervals, search)
    with pytest.raises(ConfigError, match=sentence):
        write_plan(tmp_path / "sweep", plan, base)
    assert list(tmp_path.iterdir()) == []


def test_every_seed_is_checked(tmp_path):
    base = load_config(Path("gym_pendulum"), ["seed=4294967295"])
    with pytest.raises(ConfigError, match="seed is 4294967296"):
        write_plan(tmp_path / "sweep", make_plan(base, 2, [], [], None), base)


def test_a_plan_comes_back_as_it_was_written(base, tmp_path):
    plan = make_plan(base, 2, ["agent.batch_size=16,32"], ["agent.gamma=0.8:0.9:log"], 5)
    write_plan(tmp_path / "sweep", plan, base)
    assert read_plan(tmp_path / "sweep") == plan
    assert load_config(tmp_path / "sweep" / BASE) == base


@pytest.mark.parametrize("occupied", ["a sweep", "something else", "a file"])
def test_a_directory_in_use_is_refused_with_what_helps(base, tmp_path, occupied):
    place, plan = tmp_path / "sweep", make_plan(base, 1, [], [], None)
    if occupied == "a sweep":
        write_plan(place, plan, base)
    elif occupied == "a file":
        place.touch()
    else:
        (place / "something").mkdir(parents=True)
    with pytest.raises(ConfigError, match="exists and is not empty") as refused:
        write_plan(place, plan, base)
    assert ("--resume" in str(refused.value)) == (occupied == "a sweep")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "holds no sweep.yaml; give the directory of a sweep"),
        (b"seeds: [", "is not valid YAML"),
        (b"[1, 2]", "sweep.yaml holds no mapping; it is damaged"),
        (b"", "sweep.yaml holds no mapping; it is damaged"),
        (b"seeds: \xff", "is no UTF-8 text"),
        (json.dumps({"seeds": 0, "steps": 10, "first_seed": 0}).encode(), "seeds is 0"),
        (json.dumps({"seeds": 1, "steps": 10, "first_seed": 0, "sets": 3}).encode(), "unknown key 'sets'"),
    ],
)
def test_a_damaged_plan_is_named(tmp_path, text, sentence):
    (tmp_path / BASE).write_text("name: x")
    if text is not None:
        (tmp_path / PLAN).write_bytes(text)
    with pytest.raises(ConfigError, match=sentence):
        read_plan(tmp_path)


def test_a_sweep_without_its_configuration_is_named(base, tmp_path):
    write_plan(tmp_path / "sweep", make_plan(base, 1, [], [], None), base)
    (tmp_path / "sweep" / BASE).unlink()
    with pytest.raises(ConfigError, match=r"holds no config\.yaml"):
        read_plan(tmp_path / "sweep")
