"""Every value of a cell is bounded, by physics and by the guard of the run, and what differs from a default is told."""

import pytest
from pydantic import ValidationError

from td3robot.build import make_robot_env
from td3robot.config import GuardConfig, RobotEnvironmentConfig
from td3robot.deploy.check import check_values
from td3robot.errors import ConfigError
from td3robot.registry import CELLS
from td3robot.robots.cells import CellConfig
from td3robot.robots.physical import Check

HUGE, TINY = 1e9, 1e-9


def cell(**sections):
    return CellConfig.model_validate({"ur": {"host": "robot", **sections.pop("ur", {})}, **sections})


def numbers(kind, prefix=()):
    """Yield the path of every number of a cell."""
    for name, field in kind.model_fields.items():
        inner = [each for each in (field.annotation, *getattr(field.annotation, "__args__", ())) if each]
        sections = [each for each in inner if hasattr(each, "model_fields")]
        if sections:
            yield from numbers(sections[0], (*prefix, name))
        elif float in inner or int in inner:
            yield *prefix, name


def with_value(backend, path, value):
    values = {"robot": {"backend": "ur"}, "ur": {"host": "robot"}}
    if backend == "franka":
        values = {"robot": {"backend": "franka", "arm": "fr3", "gripper": "franka_hand"}, "franka": {"host": "robot"}}
    section = values
    for key in path[:-1]:
        section = section.setdefault(key, {})
    section[path[-1]] = value
    return values


NUMBERS = [(backend, path) for backend in CELLS for path in numbers(CELLS[backend])]


@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["huge", "negative"])
@pytest.mark.parametrize(("backend", "path"), NUMBERS, ids=lambda value: ".".join(value) if value else "")
def test_no_number_of_a_cell_is_without_bounds(backend, path, value):
    with pytest.raises(ValidationError) as refusal:
        CellConfig.model_validate(with_value(backend, path, value))
    assert path[-1] in str(refusal.value)


def test_the_bounds_are_asked_of_every_number():
    named = {".".join(path) for _, path in NUMBERS}
    assert {"ur.max_state_age_s", "gripper.force", "tracker.max_age_s", "robot.control_rate_hz"} <= named
    assert len(NUMBERS) > 30


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"ur": {"servo_stop_deceleration_m_s2": TINY}}, "servo_stop_deceleration_m_s2"),
        ({"ur": {"max_state_age_s": 0.01}}, r"less than 2\.5 states of rtde_rate_hz 125.*at least 0\.02"),
        ({"ur": {"min_speed_scaling": 0.1}}, "min_speed_scaling"),
        ({"robot": {"backend": "ur", "control_rate_hz": 80.0}}, r"_hz 80 .* ur\.rtde_rate_hz .* at most 62\.5"),
        ({"tracker": {"max_age_s": 1e-6}}, "max_age_s"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_work_is_refused_with_its_bound(sections, named):
    with pytest.raises(ValidationError, match=named):
        cell(**sections)


@pytest.mark.parametrize(
    ("sections", "guard", "sentence"),
    [
        (
            {"ur": {"stop_deceleration_rad_s2": 4.0}}, {},
            r"ur\.stop_deceleration_rad_s2 is 4, .* brake with 8 rad/s\^2 .*set at least 8",
        ),
        ({}, {"max_joint_acceleration_rad_s2": 20.0}, r"set at least 20"),
        ({"tracker": {"max_age_s": 1.0}}, {}, r"tracker\.max_age_s is 1, .* 250 mm unseen .* set at most 0\.6"),
        ({"tracker": {"max_age_s": 0.2}}, {"max_tcp_speed_m_s": 1.5}, r"set at most 0\.1"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_go_with_the_run_is_refused_with_what_would_do(sections, guard, sentence):
    config = RobotEnvironmentConfig.model_validate({"guard": guard})
    with pytest.raises(ConfigError, match=sentence):
        make_robot_env(config, cell=cell(**sections))
    cell().require_within(GuardConfig())


def test_what_differs_from_a_default_is_listed_by_key_default_and_value():
    changed = cell(ur={"late_periods": 30}, tracker={"max_age_s": 0.3})
    assert changed.changes() == [
        ("tracker", "none", "given"), ("tracker.max_age_s", "0.5", "0.3"), ("ur.late_periods", "2.5", "30.0"),
    ]  # fmt: skip
    assert cell().changes() == []


def test_a_check_shows_what_differs_from_a_default():
    check = Check()
    check_values(check, cell(gripper={"force": 200}))
    (found,) = check.findings
    assert (found.name, found.expected, found.found) == ("cell: gripper.force", "50, by default", "200")
    assert check.go
