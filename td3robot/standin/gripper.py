"""The 2F-85 behind Robotiq's URCap: its registers, and how its fingers move.

Register names and meanings are those of the Robotiq 2F-85 instruction manual, "Control". Timings are assumed; the force
is stored and not modelled.
"""

from td3robot.robots.grippers.robotiq_2f85 import ROBOTIQ_2F85
from td3robot.standin.arm import PERIOD_S

# The counts that a real 2F-85 uses of 0 to 255, open to closed.
OPEN_COUNT, CLOSED_COUNT = 3, 230
# In simulation the pads meet here, a little before the last count.
PADS_MEET = 222
# Nearer to the requested position than this counts as there.
SLACK = 3
# 20 to 150 mm/s over 85 mm of stroke (data sheet), as closed fraction a second.
SLOWEST = 20.0 / 85.0
ACTIVATION_S = 1.0
# The fingers are at rest when they were slower than this for so long [rad/s], [s].
STILL_RAD_S, STILL_S = 0.05, 0.1

SETTABLE = ("ACT", "GTO", "ATR", "ADR", "POS", "SPE", "FOR", "ARD", "LBP", "LRP", "MSC", "MOD", "GSR")
READABLE = (*SETTABLE, "STA", "OBJ", "FLT", "PRE", "COU")


class Gripper:
    """The gripper's registers.

    Attributes:
        fraction: Where the motor wants the fingers: 0 open, 1 closed.
        powered: Whether the tool has power; without, every register reads ``?``.
    """

    def __init__(self) -> None:
        self.powered = True
        self.can_activate = True
        self.fraction = 0.0
        self._set = dict.fromkeys(SETTABLE, 0)
        self._set.update(SPE=255, FOR=150)
        self._requested = 0
        self._activating_s: float | None = None
        self._active = False
        self._driver_q, self._still_s, self._object = 0.0, 0.0, 3

    def set_power(self, on: bool) -> None:
        """Give or take the tool's power: the fingers stay, the activation is lost."""
        self.powered = on
        if not on:
            self.deactivate()

    def activate_at_once(self) -> None:
        """Be activated without the way open and closed."""
        self._set["ACT"], self._active, self._activating_s = 1, True, None

    def deactivate(self) -> None:
        """Lose the activation."""
        self._set["ACT"] = self._set["GTO"] = 0
        self._active, self._activating_s = False, None

    def reset(self) -> None:
        """Open at once, and be as activated as before."""
        self.fraction = 0.0
        self._set.update(POS=0, GTO=0)
        self._requested, self._object = 0, 3

    def get(self, name: str) -> int | None:
        """Read a register; None where there is no such."""
        if name in ("POS", "STA", "OBJ", "PRE", "FLT", "COU"):
            return self._measured()[name]
        return self._set.get(name)

    def write(self, values: dict[str, int]) -> bool:
        """Write registers at once; False where one cannot be written or a value is no byte, and nothing is."""
        if not values or any(name not in SETTABLE or not 0 <= value <= 255 for name, value in values.items()):
            return False
        self._set.update(values)
        if values.get("ACT") == 0:
            self.deactivate()
        elif values.get("ACT") == 1 and not self._active and self._activating_s is None and self.can_activate:
            self._activating_s = 0.0
        if self._active and self._set["GTO"] == 1 and ("POS" in values or "GTO" in values):
            self._requested = self._set["POS"]
            self._object, self._still_s = 0, 0.0
        return True

    def tick(self, driver_q: float) -> None:
        """Move on for one period; ``driver_q`` is the measured driver angle [rad]."""
        still = abs(driver_q - self._driver_q) < STILL_RAD_S * PERIOD_S
        self._still_s = self._still_s + PERIOD_S if still else 0.0
        self._driver_q = driver_q
        if not self.powered:
            return
        if self._activating_s is not None:
            self._activating_s += PERIOD_S
            self._approach(0.0, 1.0)
            if self._activating_s >= ACTIVATION_S:
                self._active, self._activating_s = True, None
                self._requested = self._set["POS"]
        elif self._active and self._set["GTO"] == 1:
            rate = SLOWEST + (ROBOTIQ_2F85.closing_rate - SLOWEST) * self._set["SPE"] / 255
            goal = (self._requested - OPEN_COUNT) / (CLOSED_COUNT - OPEN_COUNT)
            self._approach(min(max(goal, 0.0), 1.0), rate)
            self._detect(goal)

    def _approach(self, goal: float, rate: float) -> None:
        step = rate * PERIOD_S
        self.fraction += min(max(goal - self.fraction, -step), step)

    def _detect(self, goal: float) -> None:
        """Tell an object from the end of the way: at rest before the requested position."""
        if self._still_s < STILL_S or abs(min(max(goal, 0.0), 1.0) - self.fraction) > 1e-9:
            return
        position = self._position()
        shut = self._requested > position >= PADS_MEET
        wide_open = self._requested <= OPEN_COUNT and position <= OPEN_COUNT + SLACK
        if shut or wide_open or abs(position - self._requested) <= SLACK:
            self._object = 3
        else:
            self._object = 2 if position < self._requested else 1

    def _position(self) -> int:
        fraction = self._driver_q / ROBOTIQ_2F85.driver_range
        return round(min(max(OPEN_COUNT + fraction * (CLOSED_COUNT - OPEN_COUNT), 0.0), 255.0))

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
