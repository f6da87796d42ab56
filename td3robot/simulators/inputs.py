"""Inputs that clients write: registers, outputs of the control box, and the speed slider."""

from collections.abc import Callable
from typing import Any

from td3robot.simulators.registers import Registers, Watchdog

# Where each group of digital outputs begins in `actual_digital_output_bits`.
DIGITAL = {"standard_digital_output": 0, "configurable_digital_output": 8, "tool_digital_output": 16}


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
