"""Domain randomization: the disturbances that reality adds to a simulation."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from td3robot.config.section import DurationRange, LengthRange, LoadRange, NonNegative, Range, Section
from td3robot.errors import choose

# What a camera's tracker gets wrong about an object.
CALIBRATION_AND_NOISE = ("object_offset_m", "object_turn_rad", "object_noise_m", "object_turn_noise_rad")


class DisturbanceConfig(Section):
    """What reality adds to a simulation, drawn for each episode; ``off``, ``mild`` and ``real`` are predefined levels.

    Attributes:
        action_delay_s: Delay from sending a command to its effect.
        observation_delay_s: Delay from a measurement to reading it.
        hold_rate_hz: How often the arm's target stands still for a while, as with a controller that stalls: on average,
            and at any time.
        hold_s: For how long.
        encoder_noise_rad, encoder_bias_rad: Joint angles: standard deviation per reading, and bound of the bias per
            episode.
        driver_noise_rad, driver_bias_rad: The same for the gripper's driver joints, relative to a travel of 0.8 rad
            from open to closed; other grippers get the same share of their travel.
        object_offset_m, object_turn_rad: Bounds of the tracker's error per episode, along each axis and about the
            vertical.
        object_noise_m, object_turn_noise_rad: Standard deviation per frame.
        camera_turn_rad: Bound of the camera's rotation error relative to the arm's base, about each axis.
        camera_rate_hz: Frames a second; None sees in every control period.
        camera_latency_s: Delay from a frame's exposure to its poses.
        camera_jitter_s: Largest extra delay, drawn for each frame.
        camera_drop: Largest share of frames that never arrive.
        camera_silence_s: For how long, once in an episode, no frame arrives.
        camera_odd: Largest share of frames in which an object is seen elsewhere, by 20 to 200 mm.
        camera_hidden_m: The hand hides an object that is nearer than this to the tool centre point.
        servo_stiffness: Factor on the stiffness of the arm's motors.
        servo_lag, servo_damping_factor: Factors on the lag and on the damping ratio of the arm's servo law.
        joint_friction_rad: Largest dry friction of a joint, drawn for each: how far from where its servo would have it
            friction may hold it, which is the friction's torque over the motor's stiffness.
        period_jitter: Largest share by which a control period takes longer, drawn for each period.
        tool_offset_m: Bound of the tool centre point's error, along each axis of the flange.
        gripper_speed: Speed of the fingers, as a share of the gripper's fastest.
        gripper_delay_s: Delay from a new position to the first motion of the fingers.
        object_mass_kg, object_friction: Ranges that replace the object's own values; mass is drawn log-uniformly.
        object_scale: Factor on the object's size.
        object_nudge_m: How far somebody moves an object over the table, once in every fifth episode at most, while the
            hand is away.
        payload_kg: Mass at the gripper that the controller does not know of.
        table_offset_m: Bound of the table's height error.
    """

    action_delay_s: DurationRange = (0.0, 0.0)
    observation_delay_s: DurationRange = (0.0, 0.0)
    hold_rate_hz: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    hold_s: DurationRange = (0.0, 0.0)
    encoder_noise_rad: NonNegative = 0.0
    encoder_bias_rad: NonNegative = 0.0
    driver_noise_rad: NonNegative = 0.0
    driver_bias_rad: NonNegative = 0.0
    object_offset_m: NonNegative = 0.0
    object_turn_rad: NonNegative = 0.0
    object_noise_m: NonNegative = 0.0
    object_turn_noise_rad: NonNegative = 0.0
    camera_turn_rad: Annotated[float, Field(ge=0.0, le=0.1)] = 0.0
    camera_rate_hz: Range | None = None
    camera_latency_s: DurationRange = (0.0, 0.0)
    camera_jitter_s: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    camera_drop: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    camera_silence_s: DurationRange = (0.0, 0.0)
    camera_odd: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    camera_hidden_m: LengthRange = (0.0, 0.0)
    servo_stiffness: Range = (1.0, 1.0)
    servo_lag: Range = (1.0, 1.0)
    servo_damping_factor: Range = (1.0, 1.0)
    joint_friction_rad: Annotated[float, Field(ge=0.0, le=0.005)] = 0.0
    period_jitter: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    tool_offset_m: Annotated[float, Field(ge=0.0, le=0.02)] = 0.0
    gripper_speed: Range = (1.0, 1.0)
    gripper_delay_s: DurationRange = (0.0, 0.0)
    object_mass_kg: Range | None = None
    object_friction: Range | None = None
    object_scale: Range = (1.0, 1.0)
    object_nudge_m: LengthRange = (0.0, 0.0)
    payload_kg: LoadRange = (0.0, 0.0)
    table_offset_m: Annotated[float, Field(ge=0.0, le=0.02)] = 0.0

    def undisturbed(self, parts: Sequence[str]) -> "DisturbanceConfig":
        """Return the same without what disturbs some of ``PARTS``; without all of them, it is ``off``."""
        kept = {name: value for name, value in self.model_dump().items() if part_of(name) not in parts}
        return DisturbanceConfig(**kept)


# The parts of a cell that disturbances are about.
PARTS = ("arm", "gripper", "camera")


def part_of(field: str) -> str:
    """Return the part of a cell that a field of :class:`DisturbanceConfig` disturbs; objects count as the arm's."""
    if field.startswith("camera_") or field in CALIBRATION_AND_NOISE:
        return "camera"
    return "gripper" if field.startswith(("gripper_", "driver_")) else "arm"


# docs/tasks.md has the sources of these numbers. `mild` is half of `real`.
DISTURBANCES: Mapping[str, DisturbanceConfig] = {
    "off": DisturbanceConfig(),
    "mild": DisturbanceConfig(
        action_delay_s=(0.0, 0.05),
        observation_delay_s=(0.0, 0.05),
        hold_rate_hz=0.01,
        hold_s=(0.04, 0.25),
        encoder_noise_rad=0.0001,
        encoder_bias_rad=0.0005,
        driver_noise_rad=0.001,
        driver_bias_rad=0.005,
        object_offset_m=0.002,
        object_turn_rad=0.035,
        object_noise_m=0.0005,
        object_turn_noise_rad=0.005,
        camera_turn_rad=0.0025,
        camera_rate_hz=(30.0, 60.0),
        camera_latency_s=(0.0, 0.075),
        camera_jitter_s=0.015,
        camera_drop=0.05,
        camera_silence_s=(0.0, 0.25),
        camera_odd=0.02,
        camera_hidden_m=(0.0, 0.04),
        servo_stiffness=(0.85, 1.15),
        servo_lag=(0.85, 1.15),
        servo_damping_factor=(0.87, 1.73),
        joint_friction_rad=0.00025,
        period_jitter=0.075,
        tool_offset_m=0.0015,
        gripper_speed=(0.57, 1.0),
        gripper_delay_s=(0.0, 0.075),
        object_mass_kg=(0.05, 0.2),
        object_friction=(0.6, 0.9),
        object_scale=(0.95, 1.05),
        object_nudge_m=(0.0, 0.025),
        payload_kg=(0.0, 0.15),
        table_offset_m=0.002,
    ),
    "real": DisturbanceConfig(
        action_delay_s=(0.0, 0.15),
        observation_delay_s=(0.0, 0.1),
        hold_rate_hz=0.02,
        hold_s=(0.04, 0.5),
        encoder_noise_rad=0.0002,
        encoder_bias_rad=0.001,
        driver_noise_rad=0.002,
        driver_bias_rad=0.01,
        object_offset_m=0.005,
        object_turn_rad=0.087,
        object_noise_m=0.001,
        object_turn_noise_rad=0.01,
        camera_turn_rad=0.005,
        camera_rate_hz=(15.0, 60.0),
        camera_latency_s=(0.0, 0.15),
        camera_jitter_s=0.03,
        camera_drop=0.1,
        camera_silence_s=(0.0, 0.5),
        camera_odd=0.04,
        camera_hidden_m=(0.0, 0.08),
        servo_stiffness=(0.7, 1.3),
        servo_lag=(0.7, 1.3),
        servo_damping_factor=(0.58, 1.73),
        joint_friction_rad=0.0005,
        period_jitter=0.15,
        tool_offset_m=0.003,
        gripper_speed=(0.13, 1.0),
        gripper_delay_s=(0.0, 0.15),
        object_mass_kg=(0.02, 0.3),
        object_friction=(0.5, 1.2),
        object_scale=(0.9, 1.1),
        object_nudge_m=(0.0, 0.05),
        payload_kg=(0.0, 0.3),
        table_offset_m=0.005,
    ),
}


def level_named(value: Any) -> DisturbanceConfig | None:
    """Return the level of a name, or None for anything else; YAML reads a bare ``off`` as false."""
    name = "off" if value is False else value
    return DISTURBANCES.get(name) if isinstance(name, str) else None


def disturbance_level(value: Any) -> Any:
    """Return the level of a name, or the value itself."""
    level = level_named(value)
    if level is None and isinstance(value, str):
        raise ValueError(choose("disturbance", value, DISTURBANCES))
    return value if level is None else level


def level_name(disturbance: DisturbanceConfig) -> str | None:
    """Return the name of a level, or None for values of its own."""
    return next((name for name, level in DISTURBANCES.items() if level == disturbance), None)
