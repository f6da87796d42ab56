"""What clients write over RTDE: registers, outputs of the control box, and the speed slider."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from td3robot.standin.controller import Controller

# Where each group of digital outputs begins in `actual_digital_output_bits`.
DIGITAL = {"standard_digital_output": 0, "configurable_digital_output": 8, "tool_digital_output": 16}


class Inputs:
    """Applies a client's data package to the controller.

    Attributes:
        clock: Gives controller time [s]; finer than ticks where packages arrive in real time.
        arrived_s: When a package last brought joint angles, on that clock, until the controller has counted them.
    """

    def __init__(self, controller: "Controller") -> None:
        self._controller = controller
        self.clock: Callable[[], float] = lambda: controller.time_s
        self.arrived_s: float | None = None

    def write(self, values: dict[str, Any]) -> None:
        """Take the values of one package, by name."""
        registers = self._controller.registers
        if "input_double_register_0" in values:
            self.arrived_s = self.clock()
        for name, value in values.items():
            if name.startswith("input_int_register_"):
                registers.in_int[int(name.rpartition("_")[2])] = value
            elif name.startswith("input_double_register_"):
                registers.in_double[int(name.rpartition("_")[2])] = value
            self._controller.written(name)
        for name, shift in DIGITAL.items():
            if f"{name}_mask" in values:
                mask, bits = values[f"{name}_mask"] << shift, values[name] << shift
                self._controller.digital_out = self._controller.digital_out & ~mask | bits & mask
        if values.get("speed_slider_mask", 0) & 1:
            self._controller.slider = min(max(float(values["speed_slider_fraction"]), 0.0), 1.0)
        for index in range(2):
            if values.get("standard_analog_output_mask", 0) & 1 << index:
                self._controller.analog_out[index] = float(values[f"standard_analog_output_{index}"])
