"""Reads a run's YAML file, applies overrides, and explains what is wrong with it."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError

from td3robot import catalog
from td3robot.config.disturbance import level_named
from td3robot.config.durations import in_seconds
from td3robot.config.plain import parse_plain, read_plain
from td3robot.config.removed import removed_settings
from td3robot.config.run import ENVIRONMENTS, RunConfig
from td3robot.config.section import Section
from td3robot.config.task import DEFAULT, TaskConfig, task_section
from td3robot.errors import ConfigError, choose
from td3robot.registry import TASKS

Described = TypeVar("Described", bound=Section)

# Expected values in words, by pydantic's kinds of errors.
WANTED = {"int_": "a whole number", "float_": "a number", "bool_": "true or false", "string_type": "a text",
          "tuple_type": "a list in brackets"}  # fmt: skip


def load_config(path: Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a YAML file, apply ``section.key=value`` overrides, and return the checked configuration.

    Args:
        path: The file, or the name of a configuration that ships with td3robot.
        overrides: As given to ``--set``.

    Raises:
        ConfigError: The file cannot be read, or describes something that cannot be run.
    """
    file = catalog.configuration(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(catalog.missing("configuration", path, catalog.configurations())) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path} cannot be read: {error}") from None
    return parse_config(text, str(path), overrides)


def parse_config(text: str, source: str, overrides: Iterable[str] = ()) -> RunConfig:
    """Return the checked configuration of a YAML text; ``source`` names it in messages.

    Raises:
        ConfigError: It is not a YAML mapping, or describes something that cannot be run.
    """
    try:
        values = parse_plain(text)
    except ValueError as error:
        raise ConfigError(f"{source} {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source} must hold a mapping of sections, not {type(values).__name__}")
    in_seconds(values)
    given = list(overrides)
    for override in given:
        _apply(values, override)
    if given:
        source = f"{source} with --set {' '.join(given)}"
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, RunConfig, values)}") from None


def to_yaml(config: RunConfig) -> str:
    """Return the resolved configuration as YAML, with every default spelled out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _apply(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {override!r} is not of the form section.key=value")
    *sections, key = path.strip().split(".")
    node = values
    for section in sections:
        child = node.setdefault(section, {})
        if child is None:  # an optional section that is left out
            child = node[section] = {}
        if section == "disturbance" and (level := level_named(child)) is not None:  # one of its values is to be another
            child = node[section] = level.model_dump(mode="json")
        if not isinstance(child, dict):
            raise ConfigError(f"--set {path}: {section!r} is a value, not a section")
        node = child
    try:
        node[key] = parse_plain(text)
    except ValueError:
        raise ConfigError(f"--set {path}: {text[:200]!r} is not a YAML value") from None


def read_section(path: Path, kind: str, section: type[Described]) -> Described:
    """Return what a file of some kind describes.

    Raises:
        ConfigError: It cannot be read, or describes something else.
    """
    values: Any = read_plain(path, kind)
    try:
        return section.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, section, values)}") from None


def explain(error: ValidationError, whole: type[Section], values: Any, within: str = "") -> str:
    """Return a sentence about the first error in a configuration, or about all of its settings that are gone.

    Args:
        error: The errors.
        whole: The type of the configuration.
        values: The configuration.
        within: Where in a run's file the configuration belongs (``environment.``), or ``cell.``; the place at which
            :data:`~td3robot.config.removed.REMOVED` has its settings.
    """
    errors = error.errors(include_url=False)
    unknown = [item for item in errors if item["type"] == "extra_forbidden"]
    places = (_locate([str(part) for part in item["loc"]], whole, values)[0] for item in unknown)
    if gone := removed_settings(within + ".".join(place) for place in places):
        return gone
    # A misspelt required key is both missing and unknown; report the second.
    first = unknown[0] if unknown else errors[0]
    location, section = _locate([str(part) for part in first["loc"]], whole, values)
    name = ".".join(location)
    kind, value, context = first["type"], first.get("input"), first.get("ctx", {})
    if kind == "extra_forbidden":
        known = sorted(section.model_fields)
        near = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        return f"unknown key {name!r}" + (
            f"; did you mean {near[0]!r}?" if near else f" (known here: {', '.join(known)})"
        )
    if kind == "missing":
        return f"{name} is missing"
    if kind == "value_error":
        return f"{name}: {context['error']}" if name else str(context["error"])
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        if kind == "union_tag_not_found":
            return f"{name}.kind is missing (choices: {', '.join(sorted(ENVIRONMENTS))})"
        return f"{name}.kind: {choose('kind', str(context['tag']), ENVIRONMENTS)}"
    if kind == "sentence":
        return f"{name}: {first['msg']}"
    if kind == "literal_error":
        literals = [part.strip(" '") for part in context["expected"].replace(" or ", ",").split(",")]
        key = next(part for part in reversed(location) if not part.isdigit())  # not the place in a list
        return f"{name}: {choose(key, str(value), literals)}"
    for beginning, words in WANTED.items():
        if kind.startswith(beginning):
            return f"{name} is {value!r:.200}, but it should be {words}"
    shown = repr(value)[:200] if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return f"{name} is {shown}, but {first['msg'][0].lower()}{first['msg'][1:].replace('nput should', 't should')}"


def _locate(location: list[str], section: type[Section], values: Any) -> tuple[list[str], type[Section]]:
    """Return an error's location without union tags, and the section that holds its last key."""
    path: list[str] = []
    for index, part in enumerate(location):
        if index == 1 and path == ["environment"] and part in ENVIRONMENTS:
            section = ENVIRONMENTS[part]
            continue
        path.append(part)
        values = values.get(part) if isinstance(values, Mapping) else None
        field = section.model_fields.get(part)
        for kind in (field.annotation, *get_args(field.annotation)) if field is not None else ():
            if isinstance(kind, type) and issubclass(kind, Section):
                section = _chosen(kind, values)
                break
    return path, section


def _chosen(section: type[Section], values: Any) -> type[Section]:
    """Return the section class of some values: that of the task or agent that they name, if it brings its own."""
    given = values if isinstance(values, Mapping) else {}
    if section is TaskConfig and (name := given.get("name", DEFAULT)) in TASKS:
        return task_section(name)
    return section.chosen(given)
