"""The JSON documents of a checkpoint, each validated by a model, so that readers get only what they expect."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from td3robot.config.plain import is_plain
from td3robot.errors import CheckpointError

# The longest integer is a 128-bit state of PCG64.
MOST_DIGITS = 40
COPY = "restore the checkpoint from a copy"

Count = Annotated[int, Field(ge=0, lt=2**53)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Magnitude = Annotated[float, Field(ge=0.0)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class Document(BaseModel):
    """Base of the models: exact types, finite numbers."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="forbid")


class ReplayCounters(Document):
    """Where the replay buffer writes next."""

    next: Count


class Counters(Document):
    """A run's progress; ``replay`` and ``episodes`` are present if it can be resumed. More counters may follow."""

    model_config = ConfigDict(extra="allow")

    step: Count
    updates: Count
    evaluated_step: Count
    warm_start: bool
    replay: ReplayCounters | None = None
    episodes: Annotated[list[Count], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.evaluated_step > self.step:
            raise ValueError(f"evaluated_step {self.evaluated_step} is after step {self.step}")
        return self


class FailureCount(Document):
    """How many episodes failed for one reason, and their median distance from success."""

    episodes: Annotated[int, Field(ge=1, lt=2**53)]
    distance_m: Magnitude | None


class EvaluationFigures(Document):
    """The figures of an ``Evaluation``."""

    success_rate: Share | None
    success_ci95: Annotated[list[Share], Field(min_length=2, max_length=2)] | None
    episodes: Annotated[int, Field(ge=1, lt=2**53)]
    mean_return: float
    mean_steps: Magnitude
    mean_final_distance_m: Magnitude | None
    max_tcp_speed_m_s: Magnitude | None
    max_joint_speed_rad_s: Magnitude | None
    guard_interventions: dict[Text, Share] | None
    mean_return_ci95: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    failures: dict[Text, FailureCount] | None = None

    @model_validator(mode="after")
    def _interval_of_the_rate(self) -> Self:
        rate, interval = self.success_rate, self.success_ci95
        if (rate is None) is not (interval is None):
            raise ValueError("success_rate and success_ci95 belong together, and one of them is null")
        if rate is not None and interval is not None and not interval[0] - 1e-9 <= rate <= interval[1] + 1e-9:
            raise ValueError(f"success_rate {rate} is outside of its interval {interval}")
        return self


class Pcg64(Document):
    """The state of NumPy's PCG64."""

    class Numbers(Document):
        """The generator's two integers."""

        state: Annotated[int, Field(ge=0, lt=2**128)]
        inc: Annotated[int, Field(ge=0, lt=2**128)]

    bit_generator: Literal["PCG64"]
    state: Numbers
    has_uint32: Annotated[int, Field(ge=0, le=1)]
    uinteger: Annotated[int, Field(ge=0, lt=2**32)]


class RandomStates(Document):
    """The states of a run's generators."""

    exploration: Pcg64
    replay: Pcg64


class Change(Document):
    """Settings changed when a run was resumed: each name with its value before and after."""

    step: Count
    settings: Annotated[dict[Text, Annotated[list[Any], Field(min_length=2, max_length=2)]], Field(min_length=1)]
    why: Text


class FieldTerms(Document):
    """A field of a layout."""

    name: Text
    components: Annotated[list[Text], Field(min_length=1)]
    unit: Text
    source: Text


Fields = Annotated[list[FieldTerms], Field(min_length=1)]


class ActionTerms(Document):
    """The meaning of an action; a robot's has more terms, which are compared with its environment's."""

    model_config = ConfigDict(extra="allow")

    layout: Fields
    implied_speeds: dict[Text, Magnitude] = {}


class GuardTerms(Document):
    """The guard's limits that are shown before an environment is made."""

    model_config = ConfigDict(extra="allow")

    max_tcp_speed_m_s: Magnitude
    joint_speed_fraction: Magnitude


class RobotTerms(Document):
    """The robot's limits that are shown before an environment is made."""

    model_config = ConfigDict(extra="allow")

    velocity_rad_s: Annotated[list[Magnitude], Field(min_length=1)]


class ContractTerms(Document):
    """The terms of every contract, and those shown for a robot; the rest is compared with the environment's."""

    model_config = ConfigDict(extra="allow")

    observation: Fields
    action: ActionTerms
    robot: RobotTerms | None = None
    guard: GuardTerms | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for what, fields in (("observation", self.observation), ("action.layout", self.action.layout)):
            names = [field.name for field in fields]
            if len(set(names)) != len(names):
                raise ValueError(f"{what} names a field twice: {names}")
        if (self.robot is None) is not (self.guard is None):
            raise ValueError("robot and guard belong together, and one of them is missing")
        return self


class File(Document):
    """One file of a checkpoint."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Count


class Manifest(Document):
    """The parts of a checkpoint, and what made it."""

    model_config = ConfigDict(extra="allow")

    files: dict[str, File]
    made_with: dict[Text, Text]


MODELS: Mapping[str, TypeAdapter[Any]] = {
    "manifest": TypeAdapter(Manifest),
    "contract": TypeAdapter(ContractTerms),
    "counters": TypeAdapter(Counters),
    "evaluation": TypeAdapter(EvaluationFigures | None),
    "evaluations": TypeAdapter(list[EvaluationFigures]),
    "random": TypeAdapter(RandomStates),
    "changes": TypeAdapter(list[Change]),
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
        MODELS[path.stem].validate_python(values)
    except ValidationError as error:
        raise CheckpointError(f"{path}: {_first(error)}; {COPY}") from None


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
