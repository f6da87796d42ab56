"""Port 30004: UR's Real-Time Data Exchange, protocol version 2 (UR, "Real-Time Data Exchange (RTDE) Guide")."""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from td3robot.geometry import compose
from td3robot.robots.ur import JOINTS
from td3robot.simulators.arm import RATE_HZ, six
from td3robot.simulators.controller import COUNT, Controller, RobotMode, SafetyMode
from td3robot.simulators.loop import Connection, Handler, Line

Source = Callable[[], Any]
# RTDE `joint_mode` 253 is running, 239 is power off.
JOINT_RUNNING, JOINT_OFF = 253, 239
# The big-endian format of each type, and its number of values.
FORMATS = {
    "BOOL": ("?", 1),
    "UINT8": ("B", 1),
    "UINT32": ("I", 1),
    "UINT64": ("Q", 1),
    "INT32": ("i", 1),
    "DOUBLE": ("d", 1),
    "VECTOR3D": ("d", 3),
    "VECTOR6D": ("d", 6),
    "VECTOR6INT32": ("i", 6),
    "VECTOR6UINT32": ("I", 6),
}


def _typed(**groups: str) -> dict[str, str]:
    return {name: kind for kind, names in groups.items() for name in names.split()}


OUTPUTS = _typed(
    DOUBLE=(
        "timestamp actual_execution_time speed_scaling target_speed_fraction actual_momentum actual_main_voltage "
        "actual_robot_voltage actual_robot_current standard_analog_input0 standard_analog_input1 "
        "standard_analog_output0 standard_analog_output1 io_current tool_analog_input0 tool_analog_input1 "
        "tool_output_current tool_temperature tcp_force_scalar payload joint_position_deviation_ratio "
        "collision_detection_ratio"
    ),
    VECTOR6D=(
        "target_q target_qd target_qdd target_current target_moment actual_q actual_qd actual_current "
        "actual_current_as_torque actual_current_window joint_control_output actual_TCP_pose actual_TCP_speed "
        "actual_TCP_force target_TCP_pose target_TCP_speed joint_temperatures actual_joint_voltage ft_raw_wrench "
        "payload_inertia tcp_offset"
    ),
    VECTOR3D="actual_tool_accelerometer elbow_position elbow_velocity payload_cog",
    VECTOR6INT32="joint_mode",
    INT32="robot_mode safety_mode safety_status tool_output_voltage time_scale_source",
    UINT32=(
        "runtime_state robot_status_bits safety_status_bits analog_io_types tool_analog_input_types "
        "output_bit_registers0_to_31 output_bit_registers32_to_63 input_bit_registers0_to_31 "
        "input_bit_registers32_to_63 script_control_line tool_mode"
    ),
    UINT8="tool_output_mode tool_digital_output0_mode tool_digital_output1_mode",
    UINT64="actual_digital_input_bits actual_digital_output_bits",
)
for _index in range(COUNT):
    OUTPUTS[f"output_int_register_{_index}"] = OUTPUTS[f"input_int_register_{_index}"] = "INT32"
    OUTPUTS[f"output_double_register_{_index}"] = OUTPUTS[f"input_double_register_{_index}"] = "DOUBLE"

for _index in range(64, 128):
    OUTPUTS[f"output_bit_register_{_index}"] = OUTPUTS[f"input_bit_register_{_index}"] = "BOOL"

INPUTS = _typed(
    UINT32="speed_slider_mask input_bit_registers0_to_31 input_bit_registers32_to_63",
    DOUBLE="speed_slider_fraction standard_analog_output_0 standard_analog_output_1",
    UINT8=(
        "standard_digital_output_mask standard_digital_output configurable_digital_output_mask "
        "configurable_digital_output tool_digital_output_mask tool_digital_output standard_analog_output_mask "
        "standard_analog_output_type"
    ),
    VECTOR6D="external_force_torque",
)
for _index in range(COUNT):
    INPUTS[f"input_int_register_{_index}"] = "INT32"
    INPUTS[f"input_double_register_{_index}"] = "DOUBLE"
for _index in range(64, 128):
    INPUTS[f"input_bit_register_{_index}"] = "BOOL"


def packing(types: list[str]) -> struct.Struct:
    """Return the layout of a data package's payload: the recipe's id, then the values."""
    return struct.Struct(">B" + "".join(f"{FORMATS[kind][1]}{FORMATS[kind][0]}" for kind in types))


def sources(controller: Controller) -> dict[str, Source]:
    """Return a function for each output variable; those not modelled are constant.

    A function returns a number, or a list of numbers for a vector.
    """
    constant = {name: _constant([0] * FORMATS[kind][1], kind) for name, kind in OUTPUTS.items()}
    return {**constant, **_registers(controller), **_electrical(), **_modelled(controller)}


def _constant(values: list[Any], kind: str) -> Source:
    value = values if kind.startswith("VECTOR") else values[0]
    return lambda: value


def _registers(controller: Controller) -> dict[str, Source]:
    found: dict[str, Source] = {}
    banks: dict[str, list[Any]] = {
        "input_int_register": controller.inputs.registers.in_int,
        "input_double_register": controller.inputs.registers.in_double,
        "output_int_register": controller.inputs.registers.out_int,
        "output_double_register": controller.inputs.registers.out_double,
    }
    for name, bank in banks.items():
        for index in range(COUNT):
            found[f"{name}_{index}"] = partial(bank.__getitem__, index)
    return found


def _electrical() -> dict[str, Source]:
    """Return the values of a robot at rest in a warm room."""
    return {
        "actual_main_voltage": lambda: 48.0,
        "actual_robot_voltage": lambda: 48.0,
        "actual_robot_current": lambda: 1.0,
        "actual_joint_voltage": lambda: [48.0] * JOINTS,
        "joint_temperatures": lambda: [30.0] * JOINTS,
        "tool_temperature": lambda: 30.0,
        "actual_execution_time": lambda: 0.5,
        "actual_tool_accelerometer": lambda: [0.0, 0.0, 9.82],
    }


def _modelled(controller: Controller) -> dict[str, Source]:
    arm = controller.arm

    def speed() -> list[float]:
        """Return the tool's velocity [m/s] and angular velocity [rad/s] in the base frame."""
        velocity = arm.tcp_velocity()
        arm_to_tool = controller.tool().position - arm.tcp().position
        return [*(velocity[:3] + np.cross(velocity[3:], arm_to_tool)).tolist(), *velocity[3:].tolist()]

    def torques() -> list[float]:
        """Return the joints' torques [Nm]."""
        return list(arm.torques().tolist())

    return {
        "timestamp": lambda: controller.time_s,
        "target_q": lambda: controller.reference.q.tolist(),
        "target_qd": lambda: controller.reference.v.tolist(),
        "target_moment": torques,
        "actual_q": lambda: arm.q.tolist(),
        "actual_qd": lambda: arm.dq.tolist(),
        "actual_current_as_torque": torques,
        "actual_TCP_pose": lambda: six(controller.tool()),
        "target_TCP_pose": lambda: six(compose(arm.flange_at(controller.reference.q), controller.tcp_offset)),
        "actual_TCP_speed": speed,
        "target_TCP_speed": speed,
        "actual_TCP_force": lambda: arm.tool_force().tolist(),
        "tcp_offset": lambda: six(controller.tcp_offset),
        "robot_mode": lambda: int(controller.robot_mode),
        "joint_mode": lambda: [JOINT_RUNNING if controller.robot_mode is RobotMode.RUNNING else JOINT_OFF] * JOINTS,
        "safety_mode": lambda: int(controller.safety_mode),
        "safety_status": lambda: int(controller.safety_mode),
        "speed_scaling": lambda: controller.limiter.scale,  # of the trajectory limiter; the slider is the next
        "target_speed_fraction": lambda: controller.inputs.slider,
        "runtime_state": lambda: int(controller.runtime_state),
        "robot_status_bits": lambda: _robot_status(controller),
        "safety_status_bits": lambda: _safety_status(controller.safety_mode),
        "actual_digital_output_bits": lambda: controller.inputs.digital_out,
        "standard_analog_output0": lambda: controller.inputs.analog_out[0],
        "standard_analog_output1": lambda: controller.inputs.analog_out[1],
        "payload": lambda: controller.payload,
        "payload_cog": lambda: controller.payload_cog,
    }


def _robot_status(controller: Controller) -> int:
    """Bit 0: powered; bit 1: program running; bit 2: teach button; bit 3: power button."""
    powered = controller.robot_mode in (RobotMode.IDLE, RobotMode.RUNNING)
    return int(powered) | int(controller.program is not None) << 1


def _safety_status(mode: SafetyMode) -> int:
    """Bit 0: normal; 2: protective stop; 6: robot emergency stop; 7: any emergency stop; 10: stopped by safety."""
    return {
        SafetyMode.NORMAL: 1,
        SafetyMode.PROTECTIVE_STOP: 1 << 2 | 1 << 10,
        SafetyMode.ROBOT_EMERGENCY_STOP: 1 << 6 | 1 << 7 | 1 << 10,
    }[mode]


HEADER = struct.Struct(">HB")
PROTOCOL = 2
# Backlog of data packages for a client that does not read; beyond it they are skipped, as by a controller [bytes].
MAX_BACKLOG = 1 << 16


class InputsInUse:
    """The owners of input variables: two clients cannot write the same one."""

    def __init__(self) -> None:
        self._owners: dict[str, object] = {}

    def is_taken(self, name: str, client: object) -> bool:
        """Whether another client has it."""
        return self._owners.get(name, client) is not client

    def take(self, names: list[str], client: object) -> None:
        """Assign variables to a client."""
        self._owners.update(dict.fromkeys(names, client))

    def give_back(self, client: object) -> None:
        """Free all variables of a client that left."""
        self._owners = {name: owner for name, owner in self._owners.items() if owner is not client}


class RtdePort(Handler):
    """One RTDE client."""

    def __init__(
        self,
        connection: Connection,
        controller: Controller,
        sources: dict[str, Source],
        in_use: InputsInUse,
        line: Line,
    ) -> None:
        self._connection, self._controller = connection, controller
        self._sources, self._in_use, self._line = sources, in_use, line
        self._buffer = bytearray()
        self._inputs: list[tuple[list[str], list[str], struct.Struct]] = []
        self._outputs: list[Source] = []
        self._packing = packing([])
        self._every = 1
        self._has_recipe, self._started = False, False

    def received(self, data: bytes) -> None:
        """Process complete packages."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            size, kind = HEADER.unpack_from(self._buffer)
            if size < HEADER.size:
                self._controller.note(f"RTDE client {self._connection.peer} sent a package of {size} bytes; closed")
                self._connection.close()
                return
            if len(self._buffer) < size:
                return
            payload = bytes(self._buffer[HEADER.size : size])
            del self._buffer[:size]
            self._take(chr(kind), payload)

    def closed(self) -> None:
        """Free the inputs."""
        self._in_use.give_back(self)

    def tick(self) -> None:
        """Send a data package if one is due."""
        if not self._started or self._controller.ticks % self._every:
            return
        values: list[Any] = [1]
        for source in self._outputs:
            value = source()
            if isinstance(value, list):
                values += value
            else:
                values.append(value)
        if self._connection.pending > MAX_BACKLOG:
            return
        self._line.send(self._connection, self._package("U", self._packing.pack(*values)))

    def _package(self, kind: str, payload: bytes) -> bytes:
        return HEADER.pack(HEADER.size + len(payload), ord(kind)) + payload

    def _reply(self, kind: str, payload: bytes) -> None:
        self._connection.send(self._package(kind, payload))

    def _take(self, kind: str, payload: bytes) -> None:
        if kind == "U":
            self._line.receive(lambda: self._apply(payload))
        elif kind == "V":
            self._reply("V", bytes([int(payload == struct.pack(">H", PROTOCOL))]))
        elif kind == "v":
            self._reply("v", struct.pack(">4I", *self._controller.config.version))
        elif kind == "O":
            self._set_up_outputs(payload)
        elif kind == "I":
            self._set_up_inputs(payload)
        elif kind == "S":
            self._started = self._has_recipe
            self._reply("S", bytes([int(self._started)]))
        elif kind == "P":
            self._started = False
            self._reply("P", b"\x01")
        elif kind != "M":
            self._controller.note(f"RTDE client {self._connection.peer} sent a package of unknown type {kind!r}")

    def _set_up_outputs(self, payload: bytes) -> None:
        frequency = struct.unpack_from(">d", payload)[0]
        names = _names(payload[8:])
        types = [OUTPUTS.get(name, "NOT_FOUND") for name in names]
        self._has_recipe = bool(names) and "NOT_FOUND" not in types
        if self._has_recipe:
            self._packing = packing(types)
            self._outputs = [self._sources[name] for name in names]
            self._every = max(1, round(RATE_HZ / min(max(frequency, 1.0), RATE_HZ)))
        self._reply("O", bytes([int(self._has_recipe)]) + ",".join(types).encode())

    def _set_up_inputs(self, payload: bytes) -> None:
        names = _names(payload)
        types = ["IN_USE" if self._in_use.is_taken(name, self) else INPUTS.get(name, "NOT_FOUND") for name in names]
        number = 0
        if names and all(kind in FORMATS for kind in types):
            self._in_use.take(names, self)
            self._inputs.append((names, types, packing(types)))
            number = len(self._inputs)
        self._reply("I", bytes([number]) + ",".join(types).encode())

    def _apply(self, payload: bytes) -> None:
        """Write the inputs of a data package."""
        number = payload[0] if payload else 0
        if not 1 <= number <= len(self._inputs):
            self._controller.note(
                f"RTDE client {self._connection.peer} used input recipe {number}, which it never set up"
            )
            return
        names, types, layout = self._inputs[number - 1]
        if len(payload) != layout.size:
            self._controller.note(
                f"RTDE client {self._connection.peer} sent {len(payload)} bytes for input recipe {number}, which has "
                f"{layout.size}; nothing was written"
            )
            return
        values = list(layout.unpack(payload)[1:])
        written: dict[str, Any] = {}
        for name, kind in zip(names, types, strict=True):
            count = FORMATS[kind][1]
            written[name] = values[0] if count == 1 else values[:count]
            del values[:count]
        self._controller.inputs.write(written)


def _names(payload: bytes) -> list[str]:
    return [name for name in payload.decode("ascii", "replace").split(",") if name]
