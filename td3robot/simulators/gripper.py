"""A Robotiq gripper behind its URCap: its registers, and how its fingers move.

Register names and meanings are those of the Robotiq 2F-85 instruction manual, "Control"; the 2F-140 and the Hand-E have
the same. Timings are assumed; the force is stored but not modelled.
"""

from collections import deque

from td3robot.errors import ConfigError
from td3robot.robots.grippers.model import Counts, GripperModel
from td3robot.simulators.arm import PERIOD_S
from td3robot.simulators.presets import NOMINAL_CELL, GripperTiming

# Pads that meet stop the fingers up to this many counts before the last one.
PADS_GIVE = 8
# Fingers this near to the requested position have arrived.
SLACK = 3
ACTIVATION_S = 1.0
# The fingers are at rest if their closed fraction has changed more slowly than this for this long [1/s], [s].
STILL_RATE, STILL_S = 0.0625, 0.1

SETTABLE = ("ACT", "GTO", "ATR", "ADR", "POS", "SPE", "FOR", "ARD", "LBP", "LRP", "MSC", "MOD", "GSR")
READABLE = (*SETTABLE, "STA", "OBJ", "FLT", "PRE", "COU")


class Gripper:
    """The gripper's registers.

    Args:
        model: The gripper model.
        timing: How it responds to its registers.

    Attributes:
        fraction: The motor's target for the fingers: 0 open, 1 closed.
        powered: Whether the tool has power; without, every register reads ``?``.
    """

    def __init__(self, model: GripperModel, timing: GripperTiming = NOMINAL_CELL.gripper) -> None:
        self._counts, self._timing = _counts(model), timing
        slowest, fastest = (speed / model.jaw.stroke_m for speed in self._counts.speed_m_s)
        self._rates = slowest, max(slowest, timing.fastest * fastest)
        self.powered = True
        self.can_activate = True
        self.fraction = 0.0
        self._set = dict.fromkeys(SETTABLE, 0)
        self._set.update(SPE=255, FOR=150)
        self._requested = 0
        self._now_s, self._paused_until_s = 0.0, 0.0
        self._coming: deque[tuple[float, int]] = deque()
        self._goal = 0.0
        self._activating_s: float | None = None
        self._active = False
        self._closed, self._still_s, self._object = 0.0, 0.0, 3

    def set_power(self, on: bool) -> None:
        """Switch the tool's power: the fingers stay, the activation is lost."""
        self.powered = on
        if not on:
            self.deactivate()

    def activate_at_once(self) -> None:
        """Activate without closing and opening."""
        self._set["ACT"], self._active, self._activating_s = 1, True, None

    def deactivate(self) -> None:
        """Lose the activation."""
        self._set["ACT"] = self._set["GTO"] = 0
        self._active, self._activating_s = False, None

    def reset(self) -> None:
        """Open at once, keeping the activation."""
        self.fraction = self._goal = 0.0
        self._set.update(POS=0, GTO=0)
        self._requested, self._object = 0, 3
        self._coming.clear()

    def get(self, name: str) -> int | None:
        """Return a register's value, or None if there is no such register."""
        if name in ("POS", "STA", "OBJ", "PRE", "FLT", "COU"):
            return self._measured()[name]
        return self._set.get(name)

    def write(self, values: dict[str, int]) -> bool:
        """Write registers at once; if one cannot be written or a value is not a byte, write none and return False."""
        if not values or any(name not in SETTABLE or not 0 <= value <= 255 for name, value in values.items()):
            return False
        self._set.update(values)
        if values.get("ACT") == 0:
            self.deactivate()
        elif values.get("ACT") == 1 and not self._active and self._activating_s is None and self.can_activate:
            self._activating_s = 0.0
        if self._active and self._set["GTO"] == 1 and ("POS" in values or "GTO" in values):
            self._request(self._set["POS"])
            self._object, self._still_s = 0, 0.0
        return True

    def tick(self, closed: float) -> None:
        """Move for one period; ``closed`` is the measured closed fraction."""
        still = abs(closed - self._closed) < STILL_RATE * PERIOD_S
        self._still_s = self._still_s + PERIOD_S if still else 0.0
        self._closed = closed
        self._now_s += PERIOD_S
        if not self.powered:
            return
        if self._activating_s is not None:
            self._activating_s += PERIOD_S
            self._approach(0.0, 1.0)
            if self._activating_s >= ACTIVATION_S:
                self._active, self._activating_s = True, None
                self._request(self._set["POS"])
        elif self._active and self._set["GTO"] == 1:
            self._go()

    def _request(self, position: int) -> None:
        """Request a position, which takes effect after the latency."""
        self._requested = position
        self._coming.append((self._now_s + self._timing.latency_s, position))

    def _go(self) -> None:
        """Move towards the newest position in effect."""
        while self._coming and self._coming[0][0] < self._now_s - 1e-9:  # written before this period
            position = self._coming.popleft()[1]
            goal = min(max((position - self._counts.open) / (self._counts.closed - self._counts.open), 0.0), 1.0)
            if goal != self._goal and abs(self.fraction - self._goal) > 1e-9:
                self._paused_until_s = self._now_s + self._timing.pause_s
            self._goal = goal
            if (goal - self._closed) * (self.fraction - self._closed) < 0.0:
                self.fraction = self._closed  # go back from where the fingers are, not from the target that squeezes
        if self._now_s < self._paused_until_s:
            return
        slowest, fastest = self._rates
        self._approach(self._goal, slowest + (fastest - slowest) * self._set["SPE"] / 255)
        self._detect()

    def _approach(self, goal: float, rate: float) -> None:
        step = rate * PERIOD_S
        self.fraction += min(max(goal - self.fraction, -step), step)

    def _detect(self) -> None:
        """Detect an object: fingers at rest before the requested position."""
        if self._coming or self._still_s < STILL_S or abs(self._goal - self.fraction) > 1e-9:
            return
        position = self._position()
        shut = self._requested > position >= self._counts.closed - PADS_GIVE
        wide_open = max(self._requested, position - SLACK) <= self._counts.open
        if shut or wide_open or abs(position - self._requested) <= SLACK:
            self._object = 3
        else:
            self._object = 2 if position < self._requested else 1

    def _position(self) -> int:
        position = self._counts.open + self._closed * (self._counts.closed - self._counts.open)
        return round(min(max(position, 0.0), 255.0))

    def _measured(self) -> dict[str, int]:
        status = 3 if self._active else 1 if self._activating_s is not None else 0
        # 5: "action delayed, the activation must be completed prior to perform the action".
        fault = 5 if not self._active and self._set["GTO"] == 1 else 0
        moving = self._active and self._set["GTO"] == 1
        return {
            "POS": self._position(),
            "PRE": self._requested,
            "STA": status,
            "OBJ": self._object if moving else 0,
            "FLT": fault,
            "COU": 0,
        }


def _counts(model: GripperModel) -> Counts:
    if model.counts is None:
        raise ConfigError(f"a {model.name} has no position counts: no URCap of Robotiq's drives it")
    return model.counts
