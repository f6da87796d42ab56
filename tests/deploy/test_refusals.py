"""What keeps an arm from being moved at all, and in which words."""

import copy
import re

import pytest

from td3robot.config import parse_config
from td3robot.deploy.check import PARTS, check_contract
from td3robot.deploy.deployment import Request, check_cell, deploy
from td3robot.deploy.loaded_policy import open_checkpoint
from td3robot.errors import ConfigError, RobotError
from td3robot.policy.contract import IRRELEVANT, Contract
from td3robot.robots.objects import TaughtPose
from td3robot.robots.physical import Check
from td3robot.robots.ur.connection import connection_refused_message


def numbers(terms, prefix=()):
    """List the paths of every value in nested terms."""
    if isinstance(terms, dict):
        return [path for key, value in terms.items() for path in numbers(value, (*prefix, key))]
    if isinstance(terms, list) and terms:
        return [path for index, value in enumerate(terms) for path in numbers(value, (*prefix, index))]
    return [prefix]


def changed(terms, path):
    """Change one value."""
    other = copy.deepcopy(terms)
    node = other
    for key in path[:-1]:
        node = node[key]
    value = node[path[-1]]
    node[path[-1]] = f"{value}x" if isinstance(value, str) else (value + 1 if isinstance(value, int | float) else "x")
    return other


def dotted(path):
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def test_a_contract_that_differs_in_any_term_is_no_go_and_named(loaded):
    terms = copy.deepcopy(dict(loaded.policy.contract.terms))
    paths = [path for path in numbers(terms) if dotted(path) not in IRRELEVANT]
    assert len(paths) > 80
    for path in paths:
        check = Check()
        check_contract(check, loaded.policy, Contract(changed(terms, path)))
        assert not check.go
        named = re.sub(
            r"((layout|observation)\[\d+\]).*", r"\1", dotted(path)
        )  # a layout is told by its first field that differs
        assert f"contract: {named}: " in check.objection, dotted(path)
        assert "a policy runs only on what it was trained for" in check.objection


@pytest.mark.parametrize("name", IRRELEVANT)
def test_a_term_that_does_not_matter_to_a_policy_is_go_and_shown(loaded, name):
    terms = copy.deepcopy(dict(loaded.policy.contract.terms))
    check = Check()
    check_contract(check, loaded.policy, Contract(changed(terms, name.split("."))))
    (finding,) = (finding for finding in check.findings if finding.name == f"contract: {name}")
    assert (check.go, "any other will do" in finding.expected) == (True, True)


def test_the_same_contract_is_go(loaded):
    check = Check()
    check_contract(check, loaded.policy, loaded.policy.contract)
    assert check.go
    assert [finding.name for finding in check.findings] == [
        f"contract: {PARTS.get(name, name)}" for name in loaded.policy.contract.terms
    ]


def ask(checkpoint, cell, records, mode="run", **values):
    return Request(checkpoint, cell, mode, records=records, override="a test", **values)


def at_rest(standin):
    assert max(map(abs, standin.state()["dq"])) < 0.01
    assert standin.record() == []


PREPARE = {
    "local control": (lambda standin: standin.ask(remote=False), "remote control: off, wanted on"),
    "wrong model": (lambda standin: standin.fault("wrong_model", for_s=60.0), "model: UR10, wanted UR5 or UR5e"),
    "protective stop": (lambda standin: standin.fault("protective_stop"), "safety: PROTECTIVE_STOP.*td3robot recover"),
    "emergency stop": (lambda standin: standin.emergency_stop(), "robot mode: POWER_OFF|safety: ROBOT_EMERGENCY_STOP"),
    "gripper inactive": (lambda standin: standin.fault("gripper_not_activated"), "--activate-gripper"),
    "speed slider": (lambda standin: standin.ask(speed_slider=0.3), "speed slider: 30 %, wanted at least 95 %"),
}


# What the check below shows as well.
SEEN_BELOW = ("local control", "speed slider")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SEEN_BELOW)) for name in PREPARE]
)
@pytest.mark.quick("emergency stop", "gripper inactive")
def test_a_robot_that_is_not_ready_is_not_moved(name, standin, cell, checkpoint, person, tmp_path):
    prepare, said = PREPARE[name]
    prepare(standin)
    standin.ask(state=True)
    with pytest.raises(RobotError, match=f"no-go: .*({said})"):
        deploy(ask(checkpoint, cell, tmp_path), person)
    at_rest(standin)
    standin.ask(clear_faults=True, emergency_stop=False)


def test_a_check_goes_on_after_a_no_go_and_shows_everything(standin, cell, loaded):
    """Local control, a slider, a gripper that is not active and a wrong tool length: all of them, at once."""
    standin.ask(remote=False, speed_slider=0.3)
    standin.fault("gripper_not_activated", for_s=5.0)
    other = cell.model_copy(update={"robot": cell.robot.model_copy(update={"coupling_thickness_m": 0.02})})
    check = check_cell(loaded, other, 0.3)
    found = {finding.name: finding.verdict for finding in check.findings}
    refused = {"contract: robot.tcp_offset_m", "remote control", "speed slider", "gripper", "TCP"}
    assert refused <= {name for name, verdict in found.items() if verdict == "no-go"}
    assert {"state stream", "payload", "joint limits", "posture", "joints"} <= set(found)
    assert re.search(r"more no-go: remote control, .*--mode check shows all", check.objection)
    standin.ask(clear_faults=True, remote=True, speed_slider=1.0)
    at_rest(standin)


def test_where_nobody_is_what_was_not_looked_at_is_listed(cell, loaded):
    nowhere = cell.model_copy(update={"ur": cell.ur.model_copy(update={"host": "127.255.255.250"})})
    check = check_cell(loaded, nowhere, 0.3)
    found = {finding.name: finding.found for finding in check.findings}
    assert (found["controller"], found["connection"], found["gripper answers"]) == (
        "no dashboard",
        "no valid answer",
        "no valid answer",
    )
    assert {found[name] for name in ("state stream", "settings", "posture", "tool")} == {"not checked"}


def test_a_wrong_address_is_said_in_one_sentence(cell, checkpoint, person, tmp_path):
    nowhere = cell.model_copy(update={"ur": cell.ur.model_copy(update={"host": "127.255.255.250"})})
    with pytest.raises(
        RobotError,
        match=r"127\.255\.255\.250, port 29999 .*td3robot standin ur5e --host 127\.255\.255\.250",
    ):
        deploy(ask(checkpoint, nowhere, tmp_path), person)


def test_nobody_at_an_address_of_a_network_is_about_cable_and_address():
    error = OSError(111, "Connection refused")
    assert connection_refused_message("192.168.0.10", 30004, error).endswith(
        "(Connection refused); check ur.host, the cable and the robot's network settings"
    )
    assert "cable" not in connection_refused_message("127.0.0.2", 30004, error)


def test_a_cell_unlike_that_of_training_is_refused(standin, cell, checkpoint, person, tmp_path):
    other = cell.model_copy(update={"robot": cell.robot.model_copy(update={"coupling_thickness_m": 0.01})})
    with pytest.raises(
        RobotError,
        match=r"no-go: contract: robot\.tcp_offset_m: 0\.1658, 0\.01 apart, wanted 0\.1558 \(within 0\.0005 m: .*"
        r"train for this one, which takes minutes: td3robot train ur5e_reach_quick --robot CELL",
    ):
        deploy(ask(checkpoint, other, tmp_path), person)
    at_rest(standin)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"speed": 1.5}, "--speed 1.5 is outside"), ({"goal": (9.0, 0.0, 0.0)}, "for which the policy was trained")],
)
def test_requests_that_make_no_sense_are_refused(values, said, standin, cell, checkpoint, person, tmp_path):
    with pytest.raises(ConfigError, match=said):
        deploy(ask(checkpoint, cell, tmp_path, **values), person)
    at_rest(standin)


PLACE = """
name: place
environment: {kind: robot, task: {name: place}, episode_s: 2.0, guard: {max_state_age_s: 0.5}}
agent: {normalize_observations: true}
"""


@pytest.mark.thorough
def test_a_goal_on_top_of_the_object_is_no_go(standin, cell, write_checkpoint, person, tmp_path):
    place = write_checkpoint(tmp_path / "place", parse_config(PLACE, "test"))
    lying = {"object": TaughtPose(position_m=(0.0, 0.5, 0.02))}
    request = ask(place, cell, tmp_path, mode="run", unattended=True, goal=(0.02, 0.5), taught=lying)
    with pytest.raises(RobotError, match=r"no-go: goal: not clear.* is on top of the object, which lies 20 mm from it"):
        deploy(request, person)
    at_rest(standin)


def test_a_policy_for_no_robot_is_refused(untrained):
    with pytest.raises(ConfigError, match="was trained on 'gymnasium', and there is no arm for that"):
        open_checkpoint(untrained)


def test_a_check_of_the_standin_is_go_and_measures(standin, cell, loaded):
    check = check_cell(loaded, cell, 0.5)
    assert check.objection is None
    assert set(check.histograms) == {"arm_round_trip_ms", "gripper_round_trip_ms", "arm_state_period_ms"}
    assert check.histograms["arm_state_period_ms"]["p50"] == pytest.approx(8.0, abs=1.0)
    names = {finding.name for finding in check.findings}
    assert {"joints", "TCP", "payload", "clock", "jitter", "gripper calibration", "contract: guard"} <= names
    at_rest(standin)
