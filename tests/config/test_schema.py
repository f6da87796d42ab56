"""JSON schemas of runs and cells: whole, described, named by every file, and true for every file."""

import json
from pathlib import Path

import pytest
import yaml

from td3robot.config.schema import SCHEMAS, attribute_descriptions, cell_schema, run_schema
from td3robot.tasks.reach import ReachConfig

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = dict.fromkeys(CONFIGS.glob("*.yaml"), "run") | dict.fromkeys(CONFIGS.glob("robots/*.yaml"), "cell")


def settings(schema):
    """Give every setting of a schema with what it says of it."""
    return {
        f"{section}.{name}": (setting.get("description"), setting.get("minimum"), setting.get("maximum"))
        for section, definition in schema["$defs"].items()
        for name, setting in definition.get("properties", {}).items()
    }


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_file_in_configs_is_what_the_command_prints(td3robot, kind):
    status, out, err = td3robot("schema", kind)
    assert (status, err) == (0, "")
    kept = json.loads((CONFIGS / "schema" / f"{kind}.json").read_text())
    again = f"run again: td3robot schema {kind} > configs/schema/{kind}.json"
    assert settings(kept) == settings(json.loads(out)), again


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_setting_says_what_it_is(kind):
    assert [name for name, (description, *_) in settings(SCHEMAS[kind]()).items() if not description] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_line_of_every_file_names_its_schema(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    named = (path.parent / first.partition("$schema=")[2]).resolve()
    assert named == CONFIGS / "schema" / f"{FILES[path]}.json"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_valid_by_its_schema(path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = SCHEMAS[FILES[path]]()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(yaml.safe_load(path.read_text()))), schema)


@pytest.mark.parametrize(
    "change",
    [
        {"agent": {"gama": 0.9}},
        {"training": {"steps": -1}},
        {"environment": {"kind": "robot", "task": {"name": "grasp", "tolerance_m": 0.1}}},
        {"environment": {"kind": "robot", "action": {"exponent": 9.0}}},
    ],
)
def test_a_mistake_is_none_by_the_schema_either(change):
    jsonschema = pytest.importorskip("jsonschema")
    values = yaml.safe_load((CONFIGS / "ur5e_reach_quick.yaml").read_text())
    jsonschema.validate(values, run_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | change, run_schema())


def test_names_are_offered_and_others_allowed():
    arm = run_schema()["$defs"]["RobotConfig"]["properties"]["arm"]
    offered, free = arm["anyOf"]
    assert {"ur5e", "ur20", "fr3"} <= set(offered["enum"])
    assert free == {"type": "string"}
    assert {ref["$ref"].rpartition("/")[2] for ref in cell_schema()["anyOf"]} == {"UrCell", "FrankaCell"}


def test_descriptions_come_from_the_docstrings_of_a_section_and_its_bases():
    described = attribute_descriptions(ReachConfig)
    assert described["tolerance_m"] == "Within this distance of the goal counts as there."
    assert described["name"] == "Of the task."
    assert "Box from which goals" in described["goals"]
