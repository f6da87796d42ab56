"""The registers through which clients and the control script communicate, and their watchdog."""

from dataclasses import dataclass, field

# RTDE guide: 48 integer and 48 double registers each way; 0-23 are for fieldbus adapters and RTDE, 24-47 for RTDE.
COUNT = 48


@dataclass(slots=True)
class Registers:
    """General purpose registers."""

    in_int: list[int] = field(default_factory=lambda: [0] * COUNT)
    in_double: list[float] = field(default_factory=lambda: [0.0] * COUNT)
    out_int: list[int] = field(default_factory=lambda: [0] * COUNT)
    out_double: list[float] = field(default_factory=lambda: [0.0] * COUNT)


@dataclass(slots=True)
class Watchdog:
    """End the program if an input is not written often enough (URScript's ``rtde_set_watchdog``).

    Attributes:
        variable: Name of the input.
        period_s: Longest time between two writes.
        fed_s: Controller time of the last write.
    """

    variable: str
    period_s: float
    fed_s: float

    def is_hungry(self, now: float) -> bool:
        """Whether the last write is too long ago."""
        return now - self.fed_s > self.period_s + 1e-9
