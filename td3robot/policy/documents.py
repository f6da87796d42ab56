"""The JSON documents of a checkpoint, each validated by a model, so that readers get only what they expect.

The models are schemas of pydantic's core, with exact types and finite numbers: importing pydantic itself takes longer
than loading a policy.
"""

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core.core_schema import (
    CoreConfig,
    CoreSchema,
    any_schema,
    bool_schema,
    dict_schema,
    float_schema,
    int_schema,
    list_schema,
    literal_schema,
    no_info_after_validator_function,
    nullable_schema,
    str_schema,
    typed_dict_field,
    typed_dict_schema,
)

from td3robot.errors import CheckpointError
from td3robot.format import is_plain

# The longest integer is a 128-bit state of PCG64.
MOST_DIGITS = 40
COPY = "restore the checkpoint from a copy"

CONFIG = CoreConfig(strict=True, allow_inf_nan=False)
COUNT = int_schema(ge=0, lt=2**53)
POSITIVE_COUNT = int_schema(ge=1, lt=2**53)
FLOAT = float_schema()
SHARE = float_schema(ge=0.0, le=1.0)
MAGNITUDE = float_schema(ge=0.0)
TEXT = str_schema(min_length=1, max_length=1000)


def _names(
    required: Mapping[str, CoreSchema], optional: Mapping[str, CoreSchema] | None = None, more: bool = False
) -> CoreSchema:
    """Return the schema of a mapping with these names; ``more`` allows others."""
    fields = {name: typed_dict_field(schema, required=True) for name, schema in required.items()}
    fields |= {name: typed_dict_field(schema, required=False) for name, schema in (optional or {}).items()}
    return typed_dict_schema(fields, config=CONFIG, extra_behavior="allow" if more else "forbid")


def _pair(schema: CoreSchema) -> CoreSchema:
    return list_schema(schema, min_length=2, max_length=2)


def _in_order(counters: dict[str, Any]) -> dict[str, Any]:
    if counters["evaluated_step"] > counters["step"]:
        raise ValueError(f"evaluated_step {counters['evaluated_step']} is after step {counters['step']}")
    return counters


def _interval_of_the_rate(figures: dict[str, Any]) -> dict[str, Any]:
    rate, interval = figures["success_rate"], figures["success_ci95"]
    if (rate is None) is not (interval is None):
        raise ValueError("success_rate and success_ci95 belong together, and one of them is null")
    if rate is not None and not interval[0] - 1e-9 <= rate <= interval[1] + 1e-9:
        raise ValueError(f"success_rate {rate} is outside of its interval {interval}")
    return figures


def _whole(terms: dict[str, Any]) -> dict[str, Any]:
    for what, fields in (("observation", terms["observation"]), ("action.layout", terms["action"]["layout"])):
        names = [field["name"] for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"{what} names a field twice: {names}")
    if (terms.get("robot") is None) is not (terms.get("guard") is None):
        raise ValueError("robot and guard belong together, and one of them is missing")
    return terms


# The parts of a checkpoint, and what made it.
MANIFEST = _names(
    {
        "files": dict_schema(str_schema(), _names({"sha256": str_schema(pattern=r"^[0-9a-f]{64}$"), "bytes": COUNT})),
        "made_with": dict_schema(TEXT, TEXT),
    },
    more=True,
)
FIELDS = list_schema(
    _names({"name": TEXT, "components": list_schema(TEXT, min_length=1), "unit": TEXT, "source": TEXT}), min_length=1
)
# The terms of every contract, and those of a robot that are shown before its environment is made; all others are
# compared with the environment's.
CONTRACT = no_info_after_validator_function(
    _whole,
    _names(
        {
            "observation": FIELDS,
            "action": _names({"layout": FIELDS}, {"implied_speeds": dict_schema(TEXT, MAGNITUDE)}, more=True),
        },
        {
            "robot": nullable_schema(_names({"velocity_rad_s": list_schema(MAGNITUDE, min_length=1)}, more=True)),
            "guard": nullable_schema(
                _names({"max_tcp_speed_m_s": MAGNITUDE, "joint_speed_fraction": MAGNITUDE}, more=True)
            ),
        },
        more=True,
    ),
)
# A run's progress; ``replay`` and ``episodes`` are present if it can be resumed. More counters may follow.
COUNTERS = no_info_after_validator_function(
    _in_order,
    _names(
        {"step": COUNT, "updates": COUNT, "evaluated_step": COUNT, "warm_start": bool_schema()},
        {
            "replay": nullable_schema(_names({"next": COUNT})),
            "episodes": nullable_schema(list_schema(COUNT, min_length=1)),
        },
        more=True,
    ),
)
# How many episodes failed for one reason, and their median distance from success.
FAILURE_COUNT = _names({"episodes": POSITIVE_COUNT, "distance_m": nullable_schema(MAGNITUDE)})
# The figures of an ``Evaluation``.
EVALUATION = no_info_after_validator_function(
    _interval_of_the_rate,
    _names(
        {
            "success_rate": nullable_schema(SHARE),
            "success_ci95": nullable_schema(_pair(SHARE)),
            "episodes": POSITIVE_COUNT,
            "mean_return": FLOAT,
            "mean_steps": MAGNITUDE,
            "mean_final_distance_m": nullable_schema(MAGNITUDE),
            "max_tcp_speed_m_s": nullable_schema(MAGNITUDE),
            "max_joint_speed_rad_s": nullable_schema(MAGNITUDE),
            "guard_interventions": nullable_schema(dict_schema(TEXT, SHARE)),
        },
        {
            "mean_return_ci95": nullable_schema(_pair(FLOAT)),
            "failures": nullable_schema(dict_schema(TEXT, FAILURE_COUNT)),
            "handling": nullable_schema(dict_schema(TEXT, MAGNITUDE)),
        },
    ),
)
# The state of NumPy's PCG64.
PCG64 = _names(
    {
        "bit_generator": literal_schema(["PCG64"]),
        "state": _names({"state": int_schema(ge=0, lt=2**128), "inc": int_schema(ge=0, lt=2**128)}),
        "has_uint32": int_schema(ge=0, le=1),
        "uinteger": int_schema(ge=0, lt=2**32),
    }
)
# Settings changed when a run was resumed: each name with its value before and after.
CHANGE = _names({"step": COUNT, "settings": dict_schema(TEXT, _pair(any_schema()), min_length=1), "why": TEXT})
MODELS: Mapping[str, CoreSchema] = {
    "manifest": MANIFEST,
    "contract": CONTRACT,
    "counters": COUNTERS,
    "evaluation": nullable_schema(EVALUATION),
    "evaluations": list_schema(EVALUATION),
    "random": _names({"exploration": PCG64, "replay": PCG64}),
    "changes": list_schema(CHANGE),
}


def read_document(path: Path) -> Any:
    """Read ``<name>.json`` as plain values, validated by the model for its name, if there is one.

    Raises:
        CheckpointError: It cannot be read, is not JSON, or does not match its model.
    """
    values = read_json(path)
    if path.stem in MODELS:
        require_document(path, values)
    return values


def require_document(path: Path, values: Any) -> None:
    """Refuse values that do not match the model for the document's name.

    Raises:
        CheckpointError: Naming the first mismatch.
    """
    try:
        _validator(path.stem).validate_python(values)
    except ValidationError as error:
        raise CheckpointError(f"{path}: {_first(error)}; {COPY}") from None


@cache
def _validator(name: str) -> SchemaValidator:
    return SchemaValidator(MODELS[name], CONFIG)


def read_json(path: Path) -> Any:
    """Read a JSON file strictly: no NaN, no number beyond a double, no duplicate keys, no control characters.

    Raises:
        CheckpointError: It cannot be read, or is something else.
    """
    try:
        values = json.loads(
            path.read_text(encoding="utf-8"),
            parse_constant=_finite, parse_float=_finite, parse_int=_short, object_pairs_hook=_once,
        )  # fmt: skip
        _require_plain(values)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise CheckpointError(f"{path} is not readable JSON of a checkpoint (it nests too deeply); {COPY}") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not readable JSON of a checkpoint ({error}); {COPY}") from None
    return values


def short(value: Any) -> str:
    """Return a value as text for a sentence, shortened and on one line."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"] if not isinstance(part, str) or part.isprintable())
    name = short(name)[1:-1] or "it"
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "extra_forbidden":
        return f"{name} is none of its names"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"{name} is {short(first.get('input'))}, but {message.replace('nput should', 't should')}"


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"it holds the number {text[:20]}, which is no finite double")
    return value


def _short(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"it holds an integer of {len(text)} digits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it holds a key twice")
    return found


def _require_plain(values: Any) -> None:
    if isinstance(values, str) and not is_plain(values):
        raise ValueError("it holds a text with control characters, or with half a character")
    if isinstance(values, dict):
        _require_plain(list(values))
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            _require_plain(value)
