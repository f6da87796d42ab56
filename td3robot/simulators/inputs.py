"""What clients write: registers and their watchdog, outputs of the control box, and the speed slider."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Where each group of digital outputs begins in `actual_digital_output_bits`.
DIGITAL = {"standard_digital_output": 0, "configurable_digital_output": 8, "tool_digital_output": 16}
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


class Inputs:
    """Everything in a controller that its RTDE clients can write.

    Args:
        time_s: Returns controller time [s].

    Attributes:
        clock: Returns controller time [s]; finer than ticks if packages arrive in real time.
        arrived_s: When a package last brought joint angles, on that clock, until the controller has counted them.
        watchdog: Set by the program; None without one.
        slider: The speed slider, 0 to 1.
    """

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = self.clock = time_s
        self.registers = Registers()
        self.watchdog: Watchdog | None = None
        self.arrived_s: float | None = None
        self.slider = 1.0
        self.digital_out = 0
        self.analog_out = [0.0, 0.0]

    def write(self, values: dict[str, Any]) -> None:
        """Store the values of one package, by name."""
        if "input_double_register_0" in values:
            self.arrived_s = self.clock()
        for name, value in values.items():
            if name.startswith("input_int_register_"):
                self.registers.in_int[int(name.rpartition("_")[2])] = value
            elif name.startswith("input_double_register_"):
                self.registers.in_double[int(name.rpartition("_")[2])] = value
            if self.watchdog is not None and self.watchdog.variable == name:
                self.watchdog.fed_s = self._time_s()
        self._write_outputs(values)

    def _write_outputs(self, values: dict[str, Any]) -> None:
        for name, shift in DIGITAL.items():
            if f"{name}_mask" in values:
                mask, bits = values[f"{name}_mask"] << shift, values[name] << shift
                self.digital_out = self.digital_out & ~mask | bits & mask
        if values.get("speed_slider_mask", 0) & 1:
            self.slider = min(max(float(values["speed_slider_fraction"]), 0.0), 1.0)
        for index in range(2):
            if values.get("standard_analog_output_mask", 0) & 1 << index:
                self.analog_out[index] = float(values[f"standard_analog_output_{index}"])
