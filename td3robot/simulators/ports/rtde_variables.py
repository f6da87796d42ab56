"""Names and types of the RTDE variables, from UR's "Real-Time Data Exchange (RTDE) Guide"."""

import struct

from td3robot.simulators.registers import COUNT

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
