"""JSON schemas of runs and cells, for editors: names, types, bounds, and the meaning of each setting."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from td3robot.config.agent import AgentConfig
from td3robot.config.disturbance import DISTURBANCES
from td3robot.config.robot import SIMULATED
from td3robot.config.run import ENVIRONMENTS, RunConfig
from td3robot.config.section import Section
from td3robot.config.task import TaskConfig, task_section
from td3robot.registry import AGENTS, ARMS, CELLS, GRIPPERS, TASKS, TRACKERS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run_schema() -> dict[str, Any]:
    """Return the schema of a run's file."""
    tasks = [task_section(name) for name in TASKS]
    agents = [AGENTS[kind] for kind in AGENTS]
    definitions = _definitions([RunConfig, *tasks, *agents])
    definitions[TaskConfig.__name__] = _any_of(tasks)
    definitions[AgentConfig.__name__] = _any_of(agents)
    for environment in ENVIRONMENTS.values():
        definitions[environment.__name__].setdefault("required", []).append("kind")
    disturbance = definitions["RobotEnvironmentConfig"]["properties"]["disturbance"]
    disturbance["anyOf"] = [{"enum": [*DISTURBANCES, False]}, {"$ref": disturbance.pop("$ref")}]
    return _whole("A run of td3robot", {"$ref": f"#/$defs/{RunConfig.__name__}"}, definitions)


def cell_schema() -> dict[str, Any]:
    """Return the schema of a cell's file."""
    cells, trackers = [CELLS[name] for name in CELLS], [TRACKERS[name] for name in TRACKERS]
    definitions = _definitions([*cells, *trackers])
    definitions["TrackerConfig"] = _any_of(trackers)
    return _whole("A cell of td3robot", _any_of(cells), definitions)


SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {"run": run_schema, "cell": cell_schema}


def attribute_descriptions(section: type[Section]) -> dict[str, str]:
    """Return the meaning of each setting of a section, by name, from the ``Attributes:`` of its docstrings."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Section) and base.__doc__:
            found |= dict(_attributes(inspect.cleandoc(base.__doc__)))
    return found


def _attributes(docstring: str) -> Iterator[tuple[str, str]]:
    _, _, listed = docstring.partition("\nAttributes:\n")
    block = listed.split("\n\n")[0]
    for entry in re.split(r"\n(?= {4}\S)", block):
        names, colon, text = " ".join(entry.split()).partition(": ")
        if colon:
            for name in names.split(", "):
                yield name, text


def _whole(title: str, content: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "title": title, **content, "$defs": definitions}


def _any_of(sections: Sequence[type[Section]]) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{section.__name__}"} for section in sections]}


def _definitions(sections: Sequence[type[Section]]) -> dict[str, Any]:
    _, schema = models_json_schema([(section, "validation") for section in sections])
    definitions: dict[str, Any] = schema["$defs"]
    known = {section.__name__: section for section in _subclasses(Section)}
    for name, definition in definitions.items():
        if name in known:
            _describe(definition, known[name], known)
    robot = definitions["RobotConfig"]["properties"]
    for key, names in (("arm", ARMS), ("gripper", GRIPPERS), ("backend", [*SIMULATED, *CELLS])):
        robot[key]["anyOf"] = [{"enum": list(names)}, {"type": robot[key].pop("type")}]
    return definitions


def _describe(definition: dict[str, Any], section: type[Section], known: Mapping[str, type[Section]]) -> None:
    """Add the docstrings' descriptions to a definition, and drop defaults that are sections: those have their own."""
    definition["description"] = _first_paragraph(section)
    meanings = attribute_descriptions(section)
    for name, setting in definition.get("properties", {}).items():
        setting.pop("title", None)
        if isinstance(setting.get("default"), dict):
            del setting["default"]
        inner = known.get(str(setting.get("$ref", "")).removeprefix("#/$defs/"))
        if name in meanings:
            setting["description"] = meanings[name]
        elif inner is not None:
            setting["description"] = _first_paragraph(inner)


def _first_paragraph(section: type[Section]) -> str:
    return " ".join(inspect.cleandoc(section.__doc__ or "").split("\n\n")[0].split())


def _subclasses(section: type[Section]) -> Iterator[type[Section]]:
    for inner in section.__subclasses__():
        yield inner
        yield from _subclasses(inner)
