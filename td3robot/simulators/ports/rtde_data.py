"""Variables of RTDE (UR, "Real-Time Data Exchange (RTDE) Guide"): names, types, and the sources of the outputs."""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from td3robot.geometry import compose, rotation_vector
from td3robot.robots.ur import JOINTS
from td3robot.simulators.controller import Controller, RobotMode, SafetyMode
from td3robot.simulators.inputs import COUNT
from td3robot.state import Array, Pose

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

    def pose(flange: Pose) -> list[float]:
        """Return the tool's position [m] and rotation vector [rad] in the base frame."""
        tool = compose(flange, controller.tcp_offset)
        return [*tool.position.tolist(), *rotation_vector(tool.rotation).tolist()]

    def speed() -> list[float]:
        """Return the tool's velocity [m/s] and angular velocity [rad/s] in the base frame."""
        velocity = arm.tcp_velocity()
        arm_to_tool = compose(arm.flange(), controller.tcp_offset).position - arm.tcp().position
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
        "actual_TCP_pose": lambda: pose(arm.flange()),
        "target_TCP_pose": lambda: pose(arm.flange_at(controller.reference.q)),
        "actual_TCP_speed": speed,
        "target_TCP_speed": speed,
        "tcp_offset": lambda: _vector(controller.tcp_offset),
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


def _vector(pose: Pose) -> list[float]:
    values: Array = np.concatenate([pose.position, rotation_vector(pose.rotation)])
    return list(values.tolist())


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
