"""Objects that a task places on the table."""

from math import hypot
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from td3robot.config.section import Section, Vector3
from td3robot.state import ObjectModel


class ObjectConfig(Section):
    """An object on the table for the arm to handle.

    Attributes:
        shape: ``box``, or an upright ``cylinder``.
        size_m: Full extents along the object's own axes; a cylinder's first two are its diameter.
        mass_kg: Mass.
        friction: Sliding friction between the gripper's pads and the object.
    """

    shape: Literal["box", "cylinder"] = "box"
    size_m: Vector3 = (0.04, 0.04, 0.04)
    mass_kg: PositiveFloat = 0.1
    friction: Annotated[float, Field(gt=0.0, le=2.0)] = 0.7

    @model_validator(mode="after")
    def _is_solid(self) -> Self:
        x, y, _ = self.size_m
        if min(self.size_m) <= 0:
            raise ValueError(f"size_m {self.size_m} has an extent that is not positive")
        if self.shape == "cylinder" and x != y:
            raise ValueError(f"a cylinder's first two extents are its diameter, but {x} m and {y} m differ")
        return self

    @property
    def grip_width_m(self) -> float:
        """Width between the pads: the shorter horizontal extent."""
        return min(self.size_m[:2])

    @property
    def across_m(self) -> float:
        """Width of its footprint, however it is turned: a box's diagonal, a cylinder's diameter."""
        x, y, _ = self.size_m
        return hypot(x, y) if self.shape == "box" else x

    @property
    def symmetry(self) -> int:
        """Number of turns about the vertical that look alike to the gripper: 4 for a square, 2 for a box, 0 for all."""
        if self.shape == "cylinder":
            return 0
        return 4 if self.size_m[0] == self.size_m[1] else 2

    def model(self, name: str) -> ObjectModel:
        """Return the object's model under a name."""
        return ObjectModel(name, self.shape, self.size_m, self.mass_kg, self.friction)
