"""Building blocks of configurations: strict, frozen sections, and the kinds of numbers in them."""

from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

MANY = 10**12  # more than any run has; beyond it, numbers stop being exact somewhere
Vector3 = tuple[float, float, float]
Widths = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]


def ordered(value: tuple[float, float]) -> tuple[float, float]:
    """Return a range, refused if its first value is above its second; a validator."""
    if value[0] > value[1]:
        raise ValueError(f"{value} is no range: the first must not be above the second")
    return value


def refused(sentence: str, *location: str) -> ValidationError:
    """Return an error about a location below the section whose validator raises it."""
    kind = PydanticCustomError("sentence", "{sentence}", {"sentence": sentence})
    details = InitErrorDetails(type=kind, loc=location, input=None)
    return ValidationError.from_exception_data("configuration", [details])


Range = Annotated[tuple[PositiveFloat, PositiveFloat], AfterValidator(ordered)]
LoadRange = Annotated[tuple[NonNegative, NonNegative], AfterValidator(ordered)]
LengthRange = Annotated[tuple[NonNegative, NonNegative], AfterValidator(ordered)]
DurationRange = Annotated[tuple[NonNegative, NonNegative], AfterValidator(ordered)]


def _beside_the_cell(path: Path, info: ValidationInfo) -> Path:
    """Return a path of a cell's file as that file means it: relative to its folder, and ``~`` is the home directory."""
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path}: {error}") from None
    return path if info.context is None else Path(info.context["folder"]) / path


CellPath = Annotated[Path, AfterValidator(_beside_the_cell)]


class Section(BaseModel):
    """Base of every configuration section: no unknown keys, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> "type[Section]":
        """Return the class that validates some values: a subclass, if they name a kind that has its own."""
        return cls

    @model_validator(mode="before")
    @classmethod
    def _no_numbers_in_disguise(cls, values: Any) -> Any:
        """Refuse ``true`` for a number, and a number for ``true``."""
        for name, value in values.items() if isinstance(values, Mapping) else ():
            kind = cls.model_fields[name].annotation if name in cls.model_fields else None
            if kind is bool and isinstance(value, int | float) and not isinstance(value, bool):
                raise refused(f"it is {value!r}, and should be true or false", str(name))
            if _is_numeric(kind) and _holds_bool(value):
                raise refused(f"it is {value!r}, and should be a number", str(name))
        return values


def _is_numeric(kind: Any) -> bool:
    """Whether a type is a number, or made of numbers alone; a union with something else is neither."""
    if get_origin(kind) in (tuple, list, Annotated, UnionType, Union):
        inner = [each for each in get_args(kind) if each not in (Ellipsis, NoneType)]
        return _is_numeric(inner[0]) if get_origin(kind) is Annotated else all(map(_is_numeric, inner))
    return kind in (int, float)


def _holds_bool(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_bool, value))
    return isinstance(value, bool)


class Box(Section):
    """An axis-aligned box in the arm's base frame [m].

    Attributes:
        low, high: Opposite corners (x, y, z).
    """

    low: Vector3
    high: Vector3

    @model_validator(mode="after")
    def _has_volume(self) -> Self:
        for axis, low, high in zip("xyz", self.low, self.high, strict=True):
            if not low < high:
                raise ValueError(f"the box is empty along {axis}: low {low} m is not below high {high} m")
        return self

    def contains(self, other: "Box") -> bool:
        """Whether another box lies wholly inside this one."""
        return all(a <= b for a, b in zip(self.low, other.low, strict=True)) and all(
            a >= b for a, b in zip(self.high, other.high, strict=True)
        )
