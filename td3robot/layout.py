"""Names for the components of an observation or action vector.

A layout is ordered and complete: nothing outside this file writes ``observation[6:12]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.errors import ContractError, EnvironmentFaultError


@dataclass(frozen=True, slots=True)
class Field:
    """One named slice of a vector.

    Attributes:
        name: Unique in its layout.
        components: A name for each number, for example the joint names.
        unit: ``rad``, ``m``, ``m/s`` or ``1``.
        source: The part of a robot cell that supplies it: ``arm``, ``gripper``, ``kinematics`` (computed from
            the joint angles), ``task`` (the goal), ``tracker`` (an object tracker), ``guard`` (the last
            command), or ``simulator`` (nothing on hardware can).
    """

    name: str
    components: tuple[str, ...]
    unit: str
    source: str

    @property
    def size(self) -> int:
        """Number of components of the field."""
        return len(self.components)

    @property
    def on_hardware(self) -> bool:
        """Whether a physical cell can supply the field."""
        return self.source != "simulator"


class Layout:
    """An ordered list of fields, and the vector they make up."""

    def __init__(self, fields: Sequence[Field]) -> None:
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"a layout names a field twice: {names}")
        self.fields = tuple(fields)
        self._sizes = [(field.name, field.size) for field in self.fields]
        self.slices: dict[str, slice] = {}
        start = 0
        for field in self.fields:
            self.slices[field.name] = slice(start, start + field.size)
            start += field.size
        self.size = start

    def pack(self, values: Mapping[str, NDArray[Any]], count: int) -> NDArray[np.float32]:
        """Return the named values of some rows as vectors (count, size) of float32.

        Args:
            values: For each field (count, field size), or (count,) if it has one component.
            count: How many rows.

        Raises:
            EnvironmentFaultError: A field has no value, a value belongs to no field, or it has another shape.
        """
        if values.keys() != self.slices.keys():
            missing, unknown = self.slices.keys() - values.keys(), values.keys() - self.slices.keys()
            wrong = f"does not write {sorted(missing)}" if missing else f"writes {sorted(unknown)}, which it lacks"
            raise EnvironmentFaultError(
                f"the task {wrong} among the fields {list(self.slices)} of its observation; make observe() and the "
                "layout name the same fields"
            )
        parts = []
        for name, size in self._sizes:
            value = values[name]
            if value.shape != (count, size):
                if value.shape != (count,) or size != 1:
                    raise EnvironmentFaultError(
                        f"the task's field {name!r} has {size} numbers in each of {count} rows, and observe() returned "
                        f"an array of shape {value.shape}"
                    )
                value = value[:, None]
            parts.append(value)
        packed = np.empty((count, self.size), np.float32)
        return np.concatenate(parts, axis=1, out=packed, casting="unsafe")

    def unpack(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Split a vector (..., size) into its named fields (views, no copies)."""
        return {name: vector[..., where] for name, where in self.slices.items()}

    def component(self, index: int) -> str:
        """Return the name of one component of the vector, for messages: ``q.elbow_joint``."""
        for field in self.fields:
            where = self.slices[field.name]
            if where.start <= index < where.stop:
                return f"{field.name}.{field.components[index - where.start]}"
        raise IndexError(f"index {index} is outside a layout of size {self.size}")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the fields as plain values for a contract."""
        return [asdict(field) | {"components": list(field.components)} for field in self.fields]

    @classmethod
    def from_json(cls, fields: Sequence[Mapping[str, Any]]) -> "Layout":
        """Return the layout that :meth:`to_json` returned as plain values."""
        return cls([Field(f["name"], tuple(f["components"]), f["unit"], f["source"]) for f in fields])

    def require_same(self, other: "Layout", what: str) -> None:
        """Refuse another layout unless it equals this one, field by field.

        Raises:
            ContractError: Naming the first field that differs, and both values.
        """
        if (first := self.first_difference(other)) is not None:
            index, mine, theirs = first
            raise ContractError(
                f"{what} field {index} differs: {mine} here, {theirs} there; "
                "use a checkpoint of the same robot, task and action kind"
            )

    def first_difference(self, other: "Layout") -> tuple[int, str, str] | None:
        """Return the index of the first field that differs, and the field in either layout, formatted."""
        for index, (mine, theirs) in enumerate(zip_longest(self.fields, other.fields)):
            if mine != theirs:
                return index, _describe(mine), _describe(theirs)
        return None


def _describe(field: Field | None) -> str:
    if field is None:
        return "nothing"
    return f"{field.name!r} ({', '.join(field.components)}; {field.unit}, from {field.source})"
