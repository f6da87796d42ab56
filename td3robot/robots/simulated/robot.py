"""What simulated robots have in common: the interface, variations of the cell, and the fingers' motor."""

from abc import abstractmethod
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from td3robot.robots.interface import Robot
from td3robot.robots.objects import Objects
from td3robot.state import Array

if TYPE_CHECKING:
    from td3robot.robots.toolbox import ToolboxKinematics


@dataclass(frozen=True, slots=True)
class Variation:
    """Physical differences from the nominal cell.

    Attributes:
        servo_stiffness: Factor on the stiffness of the arm's motors.
        servo_lag, servo_damping: Factors on the lag and on the damping ratio of the arm's servo law.
        joint_friction_rad: (n,) dry friction of each joint over its motor's stiffness; empty for none.
        payload_kg: Mass at the gripper that the controller does not know of.
        table_offset_m: How much higher the table top is than configured.
        object_mass_kg: The object's mass, if it differs.
        object_friction: Sliding friction of pads and object, if it differs.
        object_scale: Factor on every extent of the object.
        tool_offset_m: (3,) from the assumed to the true position of the tool, along the axes of its parent body.
        gripper_speed: Share of the fingers' fastest speed.
        gripper_delay_s: From a new position to their first motion.
    """

    servo_stiffness: float = 1.0
    servo_lag: float = 1.0
    servo_damping: float = 1.0
    joint_friction_rad: tuple[float, ...] = ()
    payload_kg: float = 0.0
    table_offset_m: float = 0.0
    object_mass_kg: float | None = None
    object_friction: float | None = None
    object_scale: float = 1.0
    tool_offset_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gripper_speed: float = 1.0
    gripper_delay_s: float = 0.0

    def friction_of(self, joints: int) -> Array:
        """Return the joints' friction (n,) [rad]."""
        return np.array(self.joint_friction_rad or np.zeros(joints))

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by name, without those that don't differ: the tool's offset by axis, the joints' mean."""
        values = asdict(self) | {"joint_friction_rad": float(np.mean(self.joint_friction_rad or 0.0))}
        offset = values.pop("tool_offset_m")
        values |= {f"tool_offset_{axis}_m": value for axis, value in zip("xyz", offset, strict=True)}
        return {name: float(value) for name, value in values.items() if value is not None}


class SimulatedRobot(Robot):
    """An arm in a simulation.

    Attributes:
        kinematics: The robot's own kinematics for its tool pose; None leaves that to the guard's kinematics.
        variation: How its cell differs now.
        period_share: Duration of the next control periods, as a share of the nominal one.
        late_share: Share of a control period that passes before a command takes effect.
    """

    kinematics: "ToolboxKinematics | None" = None
    variation: Variation = Variation()
    period_share: float = 1.0
    late_share: float = 0.0

    @abstractmethod
    def vary(self, variation: Variation) -> None:
        """Change the cell's physics until the next change."""

    @abstractmethod
    def tool_position(self) -> Array:
        """Return the tool centre point's position (3,) [m]."""

    def objects(self) -> Objects | None:
        """Return the objects of the scene, or None if the simulation has no contacts."""
        return None


class Fingers:
    """The motor's target for the fingers, as a closed fraction.

    Args:
        rate: Largest change of the closed fraction [1/s].

    Attributes:
        share: Share of that rate to use.
        delay_s: From a new position to the first motion.
        fraction: 0 open to 1 closed; it runs ahead of fingers that an object stops, which is what squeezes the object.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.share, self.delay_s = 1.0, 0.0
        self.place(0.0)

    def place(self, closed: float) -> None:
        """Place the fingers at a closed fraction, at rest."""
        self.fraction = self._goal = self._asked = closed
        self._coming: deque[tuple[float, float]] = deque()
        self._now_s = 0.0

    def go_to(self, closed: float, late_s: float = 0.0) -> None:
        """Request a closed fraction, which takes effect after the delay, and as much later [s]."""
        if closed != self._asked:
            self._asked = closed
            self._coming.append((self._now_s + self.delay_s + late_s, closed))

    def advance(self, seconds: float, measured: float) -> float:
        """Advance time with the fingers at ``measured``, and return :attr:`fraction`."""
        end = self._now_s + seconds
        while self._coming and self._coming[0][0] < end - 1e-9:
            at, goal = self._coming.popleft()
            self._approach(max(at - self._now_s, 0.0))
            self._now_s = max(at, self._now_s)
            self._goal = goal
            if (goal - measured) * (self.fraction - measured) < 0.0:
                self.fraction = measured  # go back from where the fingers are, not from the target that squeezes
        self._approach(end - self._now_s)
        self._now_s = end
        return self.fraction

    def _approach(self, seconds: float) -> None:
        reach = self.share * self._rate * seconds
        self.fraction += min(max(self._goal - self.fraction, -reach), reach)
