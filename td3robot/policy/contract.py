"""The contract of a policy: what it was trained for, term by term, so that it never silently runs on anything else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any

from td3robot.errors import ContractError
from td3robot.layout import Layout


@dataclass(frozen=True, slots=True)
class Contract:
    """Nested plain values: robot, limits, tool, gripper, control rate, observation, action, guard.

    Two environments are interchangeable for a policy if and only if their contracts are equal.
    """

    terms: Mapping[str, Any]

    @property
    def observation(self) -> Layout:
        """The layout of observations."""
        return Layout.from_json(self.terms["observation"])

    @property
    def action(self) -> Layout:
        """The layout of actions."""
        return Layout.from_json(self.terms["action"]["layout"])

    def differences(self, other: "Contract") -> list[tuple[str, Any, Any]]:
        """List every term that differs, as ``(dotted name, value here, value there)``.

        The robot's come first, because others are computed from them: the action's response from the control rate.
        """
        found = _differences("", self.terms, other.terms)
        return sorted(found, key=lambda term: not term[0].startswith("robot."))

    def require_same(self, other: "Contract", here: str, there: str) -> None:
        """Refuse another contract unless it equals this one.

        Raises:
            ContractError: Naming the first term that differs, and both values.
        """
        for name, mine, theirs in self.differences(other):
            raise ContractError(
                f"{_shown(name)} is {_shown(mine)} for {here} but {_shown(theirs)} for {there}; a policy runs only on "
                "what it was trained for"
            )


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _differences(prefix: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            name = f"{prefix}.{key}" if prefix else key
            yield from _differences(name, a.get(key, "absent"), b.get(key, "absent"))
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(f"{prefix}[{index}]", x, y)
    elif isinstance(a, float) and isinstance(b, float):
        if not isclose(a, b, rel_tol=1e-9):  # other linear algebra kernels round differently
            yield prefix, a, b
    elif a != b:
        yield prefix, a, b
