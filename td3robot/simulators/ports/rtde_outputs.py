"""The output variables of RTDE: one function for each modelled one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from td3robot.geometry import compose, rotation_vector
from td3robot.robots.ur import JOINTS
from td3robot.simulators.controller import Controller, RobotMode, SafetyMode
from td3robot.simulators.ports.rtde_variables import FORMATS, OUTPUTS
from td3robot.simulators.registers import COUNT
from td3robot.state import Array, Pose

Source = Callable[[], Any]
# RTDE `joint_mode` 253 is running, 239 is power off.
JOINT_RUNNING, JOINT_OFF = 253, 239


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
