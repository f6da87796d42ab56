"""Gripper models: a parallel jaw whose two driver joints determine its opening."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from td3robot.state import Array

if TYPE_CHECKING:
    import mujoco

# A device's highest count.
COUNTS = 255
# How much of an object's height the pads must overlap [m].
OVERLAP_M = 0.01


@dataclass(frozen=True, slots=True)
class Jaw:
    """What fits between the fingers, and how near they come to a table.

    Attributes:
        stroke_m: Width of the open jaw.
        margin_m: Clearance that the jaw needs to go around an object.
        min_width_m: Drivers that stop on something thinner cannot be distinguished from drivers that close on nothing.
        payload_kg: What it holds by friction (data sheet).
        grasp_height_m: Height of the tool centre point above the table at the lowest grasp: how far the fingers reach
            beyond it, plus the guard's clearance.
        min_height_m, max_height_m: Limits of object height: the fingers pass over lower ones, and higher ones meet the
            palm, since objects are gripped at half their height.
        fingertips_m: How far the fingers reach beyond the tool centre point, with some clearance.
        reach_at: How far they reach beyond it [m] when they are a width [m] apart, if open fingers are too short for
            low, wide objects; None if ``min_height_m`` holds for every width.
    """

    stroke_m: float
    margin_m: float
    min_width_m: float
    payload_kg: float
    grasp_height_m: float
    min_height_m: float
    max_height_m: float
    fingertips_m: float
    reach_at: Callable[[float], float] | None = None

    @property
    def widest_m(self) -> float:
        """Width of the widest object that the jaw goes around."""
        return self.stroke_m - self.margin_m

    def lowest_m(self, width_m: float) -> float:
        """Compute the least height [m] at which the pads can grip an object of a width [m] on the table."""
        if self.reach_at is None:
            return self.min_height_m
        return max(self.min_height_m, self.grasp_height_m - self.reach_at(width_m) + OVERLAP_M)


@dataclass(frozen=True, slots=True)
class Counts:
    """The device's own counts, 0 to 255, and what they mean.

    Attributes:
        open, closed: Position counts that it reports when open, and when closed on nothing.
        speed_m_s: Jaw speeds of the lowest and the highest speed count.
        force_n: Grip forces of the lowest and the highest force count.
    """

    open: int
    closed: int
    speed_m_s: tuple[float, float]
    force_n: tuple[float, float]

    def speed_share(self, count: int) -> float:
        """Compute the speed at a count as a share of the fastest, linear in counts."""
        slowest, fastest = self.speed_m_s
        return (slowest + (fastest - slowest) * count / COUNTS) / fastest


@dataclass(frozen=True, slots=True)
class GripperModel:
    """A parallel gripper, and its MuJoCo model.

    Attributes:
        driver_names: Right, then left; joints of the MuJoCo model.
        driver_unit: ``rad`` if the drivers turn, ``m`` if they slide.
        driver_open, driver_closed: Positions of both drivers.
        closing_rate: Largest change of the closed fraction [1/s].
        tcp_offset_m: Distance from the flange to the point between the finger pads, along the flange's z axis.
        mass_kg: Payload to set at an arm's controller, coupling included.
        jaw: What fits between the fingers.
        counts: The device's counts, if it is driven by counts.
        make_spec: Makes the MuJoCo model, for a flange whose z axis points out of the arm. By default, the parts below
            have the names and numbers of the Menagerie's 2F-85, and of every model of a ``GripperBuilder``.
        base: Its root body; a coupling moves it along z.
        palm: Its heaviest body, to which an unknown payload is added.
        actuator: The actuator of the fingers.
        control_open, control_closed: The actuator's control at both ends; linear in between.
        links: For each side, right then left, the joints of its linkage and their share of the driver's motion.
        pads: Substring of the names of the pads' geometries.
        driver_at: Driver position at which the pads are a width [m] apart; None if the jaw closes in proportion to its
            drivers, or is assumed to.
        label: Display name, ``Robotiq 2F-85``; the gripper's name by default.
    """

    name: str
    driver_names: tuple[str, str]
    driver_unit: Literal["rad", "m"]
    driver_open: float
    driver_closed: float
    closing_rate: float
    tcp_offset_m: float
    mass_kg: float
    jaw: Jaw
    counts: Counts | None
    make_spec: Callable[[], "mujoco.MjSpec"]
    links: tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]
    base: str = "base_mount"
    palm: str = "base"
    actuator: str = "fingers_actuator"
    control_open: float = 0.0
    control_closed: float = 255.0
    pads: str = "_pad"
    driver_at: Callable[[float], float] | None = None
    label: str = ""

    @property
    def driver_range(self) -> float:
        """Driver travel from open to closed, in their unit; negative if closing makes positions smaller."""
        return self.driver_closed - self.driver_open

    def closed_fraction(self, driver_q: Array) -> float:
        """Compute the closed fraction, 0 open to 1 closed, from the drivers (2,) in their unit."""
        right, left = driver_q.tolist()
        return float(((right + left) / 2.0 - self.driver_open) / self.driver_range)

    def drivers_at(self, closed: float) -> Array:
        """Compute the drivers (2,), in their unit, at a closed fraction."""
        return np.full(2, self.driver_open + closed * self.driver_range)

    def control_at(self, closed: float) -> float:
        """Compute the actuator's control at a closed fraction."""
        return self.control_open + closed * (self.control_closed - self.control_open)

    def closed_on(self, width_m: float) -> float:
        """Compute the closed fraction at which the pads meet an object of a width [m]."""
        if self.driver_at is None:
            return 1.0 - width_m / self.jaw.stroke_m
        return (self.driver_at(width_m) - self.driver_open) / self.driver_range
