"""Objects that a task places on the table."""

from collections.abc import Callable
from math import hypot
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from td3robot.config.section import Range, Section, Vector3
from td3robot.state import ObjectModel

Shape = Literal["box", "cylinder"]
# This share of the boxes that are drawn is square: most are in practice, and a draw of two sides would give none.
SQUARE_SHARE = 1 / 3
SAME_M = 1e-9


class ObjectConfig(Section):
    """An object on the table for the arm to handle.

    Attributes:
        shape: ``box``, or an upright ``cylinder``.
        size_m: Full extents along the object's own axes; a cylinder's first two are its diameter.
        mass_kg: Mass.
        friction: Sliding friction between the gripper's pads and the object.
    """

    shape: Shape = "box"
    size_m: Vector3 = (0.04, 0.04, 0.04)
    mass_kg: Annotated[float, Field(gt=0.0, le=100.0)] = 0.1
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

    @property
    def words(self) -> str:
        """The object in words: ``a box of 40 x 40 x 60 mm``."""
        return f"a {self.shape} of {' x '.join(f'{1e3 * extent:g}' for extent in self.size_m)} mm"

    def model(self, name: str) -> ObjectModel:
        """Return the object's model under a name."""
        return ObjectModel(name, self.shape, self.size_m, self.mass_kg, self.friction)


class AnyObjectConfig(Section):
    """Objects of which every episode draws one; mass and friction are those of an object that is not described.

    Attributes:
        shapes: Which shapes there are; each is drawn equally often.
        sides_m: Range of the horizontal extents; a cylinder's diameter.
        height_m: Range of the height.
    """

    shapes: Annotated[tuple[Shape, ...], Field(min_length=1)] = ("box", "cylinder")
    sides_m: Range = (0.025, 0.07)
    height_m: Range = (0.025, 0.07)

    @property
    def smallest(self) -> ObjectConfig:
        """The smallest object."""
        return self._of(self.sides_m[0], self.height_m[0])

    @property
    def middle(self) -> ObjectConfig:
        """The object of middling size; a box, if there are any."""
        return self._of(sum(self.sides_m) / 2, sum(self.height_m) / 2)

    @property
    def largest(self) -> ObjectConfig:
        """The largest object; a box, if there are any."""
        return self._of(self.sides_m[1], self.height_m[1])

    def __str__(self) -> str:
        """Return the range in words: ``a box or cylinder with sides of 25 to 70 mm and a height of 25 to 70 mm``."""
        sides, height = (f"{1e3 * low:g} to {1e3 * high:g} mm" for low, high in (self.sides_m, self.height_m))
        return f"a {' or '.join(self.shapes)} with sides of {sides} and a height of {height}"

    def draw(self, rng: np.random.Generator, lowest_m: Callable[[float], float]) -> ObjectConfig:
        """Draw an object whose first extent is not longer than its second.

        Args:
            rng: Draws it.
            lowest_m: Returns the least height [m] of an object that is so wide [m].
        """
        shape = self.shapes[rng.integers(len(self.shapes))]
        x, y = sorted(rng.uniform(*self.sides_m, 2).tolist())
        if shape == "cylinder" or rng.random() < SQUARE_SHARE:
            x = y = rng.uniform(*self.sides_m)
        low, high = self.height_m
        return ObjectConfig(shape=shape, size_m=(x, y, rng.uniform(max(low, lowest_m(x)), high)))

    def covers(self, item: ObjectConfig) -> bool:
        """Whether an object is one of these, whatever its mass and friction."""
        ranges = zip(item.size_m, (self.sides_m, self.sides_m, self.height_m), strict=True)
        return item.shape in self.shapes and all(
            low - SAME_M <= extent <= high + SAME_M for extent, (low, high) in ranges
        )

    def _of(self, side_m: float, height_m: float) -> ObjectConfig:
        shape: Shape = "box" if "box" in self.shapes else "cylinder"
        return ObjectConfig(shape=shape, size_m=(side_m, side_m, height_m))
