"""YAML as plain values: texts, numbers, lists and mappings, and no more of them than a person would write."""

from pathlib import Path
from typing import Any

import yaml

from td3robot.config.strict_yaml import read_yaml
from td3robot.errors import ConfigError
from td3robot.format import is_plain

# More values than any configuration has, counting each repetition by an alias; and deeper than any.
MOST_VALUES, DEEPEST = 100_000, 50


def read_plain(path: Path, what: str) -> Any:
    """Return the plain values of a YAML file.

    Raises:
        ConfigError: It cannot be read, or is not YAML; says what it should have been.
    """
    try:
        return parse_plain(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {path} cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} {error}") from None


def parse_plain(text: str) -> Any:
    """Return the plain values of a YAML text.

    Raises:
        ValueError: It is not YAML, or contains something other than plain values; says why in one line.
    """
    try:
        values = read_yaml(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        raise ValueError(f"is not valid YAML: {' '.join(str(error).split())[:500]}") from None
    left = MOST_VALUES
    rest = [(values, 0)]
    while rest:
        value, depth = rest.pop()
        _require_plain(value)
        left -= 1
        if depth > DEEPEST or left < 0:
            raise ValueError(f"is nested deeper than {DEEPEST}, or repeats aliases to more than {MOST_VALUES:,} values")
        inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
        rest += [(each, depth + 1) for each in inside]
    return values


def _require_plain(value: Any) -> None:
    if isinstance(value, str):
        if not is_plain(value, allowed="\n\r\t"):
            raise ValueError("holds a text with control characters, or with half a character")
    elif isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"holds the key {str(key)[:50]!r} of type {type(key).__name__}; keys are texts")
    elif isinstance(value, int):
        if value.bit_length() > 256:
            raise ValueError(f"holds an integer of {value.bit_length()} bits")
    elif not isinstance(value, list | float | None):
        raise ValueError(f"holds a {type(value).__name__}, which no setting is; quote it if it is a text")
