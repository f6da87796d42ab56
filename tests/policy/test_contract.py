"""Which terms of a contract may differ from training's, and by how much: on an arm, in Python, for every policy."""

import json
import re
from pathlib import Path

import gymnasium
import pytest

import td3robot
from td3robot import catalog
from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, GuardConfig, load_config
from td3robot.errors import ConfigError, ContractError
from td3robot.policy.checkpoint import Checkpoint
from td3robot.policy.contract import Contract, require_covered
from td3robot.robots.guard import Guard

OFF, REAL = DISTURBANCES["off"], DISTURBANCES["real"]
ROOT = Path(__file__).parents[2]


def terms(**robot):
    return Contract(
        {
            "robot": {"arm": "a", "table_height_m": 0.0, "tcp_offset_m": 0.15} | robot,
            "guard": {"workspace": {"low": [0.0, 0.0, 0.02 + robot.get("table_height_m", 0.0)]}},
        }
    )


def with_object(**values):
    item = {"shape": "box", "size_m": [0.04, 0.04, 0.04], "mass_kg": 0.1, "friction": 0.7} | values
    return Contract({"task": {"object": item}})


def with_fields(*names):
    layout = [{"name": name, "components": ["x", "y"], "unit": "m", "source": "arm"} for name in names]
    return Contract({"observation": layout, "action": {"kind": "tcp_delta", "layout": layout}})


@pytest.mark.parametrize(
    ("mine", "theirs", "index", "found", "wanted"),
    [
        (("q", "goal"), ("q", "dq", "goal"), 1, "'goal' (x, y; m, from arm)", "'dq' (x, y; m, from arm)"),
        (("q",), ("q", "goal"), 1, "nothing", "'goal' (x, y; m, from arm)"),
        (("goal", "q"), ("q", "goal"), 0, "'goal' (x, y; m, from arm)", "'q' (x, y; m, from arm)"),
    ],
)
def test_layouts_that_differ_are_told_by_the_first_field_that_does(mine, theirs, index, found, wanted):
    here, trained = with_fields(*mine), with_fields(*theirs)
    expected = [(f"action.layout[{index}]", found, wanted), (f"observation[{index}]", found, wanted)]
    assert here.differences(trained) == expected
    with pytest.raises(
        ContractError, match=re.escape(f"action.layout[{index}] is {found} for me but {wanted} for you")
    ):
        here.require_same(trained, "me", "you")
    refused = here.compare(trained, OFF)[1]
    assert (refused.name, refused.found, refused.wanted) == (f"observation[{index}]", found, wanted)


@pytest.mark.parametrize(
    ("here", "varied", "fits"),
    [
        (terms(table_height_m=-0.0004), OFF, True),
        (terms(table_height_m=-0.0006), OFF, False),
        (terms(table_height_m=-0.0004), REAL, True),
        (terms(table_height_m=-0.005), REAL, True),
        (terms(table_height_m=0.005), REAL, True),
        (terms(table_height_m=-0.0051), REAL, False),
        (terms(tcp_offset_m=0.151), REAL, True),
        (terms(tcp_offset_m=0.153), REAL, True),
        (terms(tcp_offset_m=0.1531), REAL, False),
        (terms(tcp_offset_m=0.151), OFF, False),
        (terms(arm="b"), REAL, False),
    ],
)
def test_a_cell_may_differ_from_training_by_what_training_varied(here, varied, fits):
    refused = [found.name for found in here.compare(terms(), varied) if not found.covered]
    assert (not refused) is fits


@pytest.mark.parametrize(
    ("gain", "lookahead_s", "varied", "fits"),
    [
        (300.0, 0.1, OFF, True),  # a contract that is older than the terms had the arm's own
        (600.0, 0.1, OFF, False),
        (301.0, 0.1, OFF, False),
        (600.0, 0.1, REAL, True),  # a damping ratio of 1.22, 1.41 times that of training
        (1000.0, 0.1, REAL, False),
        (300.0, 0.13, REAL, True),
        (300.0, 0.06, REAL, False),
        (400.0, 0.08, REAL, True),
    ],
)
def test_a_servo_may_differ_by_the_lag_and_damping_that_training_varied(gain, lookahead_s, varied, fits):
    here = terms(arm="ur5e", servo_gain=gain, servo_lookahead_s=lookahead_s)
    for trained in (terms(arm="ur5e"), terms(arm="ur5e", servo_gain=300.0, servo_lookahead_s=0.1)):
        assert all(each.covered for each in here.compare(trained, varied)) is fits
    if not fits:
        with pytest.raises(ContractError, match=r"contract: robot\.servo_(gain|lookahead_s): .*training"):
            require_covered(here, trained, varied, "train for it")


@pytest.mark.parametrize(
    ("values", "varied", "fits"),
    [
        ({"mass_kg": 0.3}, REAL, True),
        ({"mass_kg": 0.31}, REAL, False),
        ({"mass_kg": 0.11}, OFF, False),
        ({"friction": 0.5}, REAL, True),
        ({"friction": 0.4}, REAL, False),
        ({"size_m": [0.044, 0.044, 0.044]}, REAL, True),
        ({"size_m": [0.045, 0.045, 0.045]}, REAL, False),
        ({"size_m": [0.04, 0.044, 0.04]}, REAL, False),  # no cube any more: it turns by another angle to look alike
        ({"size_m": [0.044, 0.044, 0.044]}, OFF, False),
        ({"shape": "cylinder"}, REAL, False),
    ],
)
def test_an_object_may_differ_by_what_training_drew(values, varied, fits):
    refused = [found for found in with_object(**values).compare(with_object(), varied) if not found.covered]
    assert (not refused) is fits


def test_a_refusal_is_one_sentence_with_both_values_and_what_training_covers():
    with pytest.raises(ContractError) as caught:
        require_covered(terms(table_height_m=-0.02), terms(), REAL, "do this")
    assert str(caught.value) == (
        "contract: robot.table_height_m: -0.02, 0.02 apart, wanted 0 (within 0.005 m, by training's table_offset_m); "
        "a policy runs only on what it was trained for; do this"
    )


def test_the_disturbances_that_a_checkpoint_trained_with_are_its_policys():
    varied = td3robot.load_policy("ur5e_grasp").varied
    assert (varied.table_offset_m, varied.tool_offset_m) == (REAL.table_offset_m, REAL.tool_offset_m)
    assert (varied.object_scale, varied.object_mass_kg) == (REAL.object_scale, REAL.object_mass_kg)


@pytest.mark.parametrize("name", catalog.policies())
def test_a_released_policys_own_environment_is_one_call(name):
    environment = td3robot.make_env(name)
    policy = td3robot.load_policy(name)
    policy.require(environment)
    observation, _ = environment.reset(seed=0)
    environment.step(policy.act(observation))
    environment.close()


def test_an_environment_with_another_object_is_refused_before_anything_acts():
    policy = td3robot.load_policy("ur5e_grasp")
    other = gymnasium.make("td3robot/UR5eGrasp-v1", task={"close_within_m": 0.03})
    with pytest.raises(
        ContractError, match=r"^contract: task\.close_within_m: 0\.03, wanted 0\.02; .*make_env\('ur5e_"
    ):
        policy.require(other)
    with pytest.raises(ContractError, match="has no contract to compare"):
        policy.require(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ContractError, match=r"contract: task\.close_within_m"):
        td3robot.make_env("ur5e_grasp", task={"close_within_m": 0.03})
    with pytest.raises(ConfigError, match="ur5e_grasp: unknown key 'epsiode_s'"):
        td3robot.make_env("ur5e_grasp", epsiode_s=3.0)
    td3robot.make_env("ur5e_grasp", disturbance="off", episode_s=3.0, task={"object": {"mass_kg": 0.2}}).close()


def test_an_observation_of_another_size_names_the_way_out():
    with pytest.raises(
        ContractError, match=r"observations of \d+ numbers and was given 3; td3robot\.make_env\('ur5e_re"
    ):
        td3robot.load_policy("ur5e_reach").act([0.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def stored():
    """The terms of a released policy's contract, and its environment's."""
    return Checkpoint(ROOT / "checkpoints" / "ur5e_grasp").contract().terms


def without(terms, *place):
    """Return terms as an earlier version would have written them, before it had the one at a place."""
    *sections, name = place
    kept = json.loads(json.dumps(terms))
    inner = kept
    for section in sections:
        inner = inner[section]
    del inner[name]
    return Contract(kept)


@pytest.mark.parametrize(
    "place", [("guard", "clearance_m"), ("guard", "max_lead_rad"), ("action", "dead_zone"), ("task", "close_within_m")]
)
def test_a_setting_that_is_newer_than_a_checkpoint_counts_as_its_default(stored, place):
    section, name = place
    here, older = Contract(stored), without(stored, *place)
    here.require_same(older, "here", "there")
    older.require_same(here, "here", "there")
    require_covered(here, older, OFF, "do this")
    other = Contract(stored | {section: stored[section] | {name: stored[section][name] + 0.01}})
    with pytest.raises(ContractError, match=rf"^{section}\.{name} is "):
        other.require_same(older, "here", "there")


@pytest.mark.parametrize("section", ["guard", "robot", "task", "action"])
def test_an_optional_term_without_a_value_is_no_difference(stored, section):
    newer = Contract(stored | {section: stored[section] | {"optional": None}})
    newer.require_same(Contract(stored), "here", "there")
    set_here = Contract(stored | {section: stored[section] | {"optional": 0.5}})
    with pytest.raises(ContractError, match=rf"^{section}\.optional is 0\.5 for here but absent for there"):
        set_here.require_same(Contract(stored), "here", "there")


@pytest.mark.parametrize("place", [("robot", "tcp_offset_m"), ("robot",), ("guard",), ("task",), ("task", "name")])
def test_a_term_without_a_default_has_to_be_there(stored, place):
    with pytest.raises(ContractError, match=rf"^{re.escape('.'.join(place))} is .* for here but absent for there"):
        Contract(stored).require_same(without(stored, *place), "here", "there")


def test_a_guard_writes_no_limit_that_is_not_set(kinematics, spec):
    class Newer(GuardConfig):
        optional_m_s: float | None = None

    terms = Guard(spec, Newer(), kinematics).to_json()
    assert terms == Guard(spec, GuardConfig(), kinematics).to_json()
    assert "optional_m_s" in Guard(spec, Newer(optional_m_s=0.1), kinematics).to_json()


def in_cell(name, **changes):
    environment = load_config(ROOT / "configs" / f"{name}_quick.yaml").environment
    return environment, environment.in_cell(environment.robot.model_copy(update=changes))


@pytest.mark.parametrize("name", ["ur5e_grasp", "ur5e_reach"])
def test_the_workspace_keeps_its_height_above_the_table_of_a_cell(name):
    before, here = in_cell(name, table_height_m=-0.004)
    assert here.guard.workspace.low[2] == pytest.approx(before.guard.workspace.low[2] - 0.004)
    environment = make_robot_env(here)
    assert environment.robot.spec.table_height_m == environment.guard.kinematics.spec.table_height_m == -0.004
    environment.reset(seed=0)
    environment.close()


def test_a_cell_with_another_arm_brings_its_own_regions():
    before, here = in_cell("ur5e_reach", arm="ur3e")
    own = load_config(ROOT / "configs" / "ur3e_reach_quick.yaml").environment
    assert (here.task.goals, here.guard.workspace) == (own.task.goals, own.guard.workspace)
    assert before.task.goals != here.task.goals
