"""Numbers of the arms and grippers, each with its source.

These are not a safety function: a robot's own safety configuration, on its pendant, lies outside them.
"""

from dataclasses import dataclass
from math import pi

import numpy as np

from td3robot.state import Array

# UR's `servoj` follows its target like a first-order lag of about the lookahead time: users measured 34 ms at
# 0.03 s, and 0.1 s is ur_rtde's default [s].
SERVO_LAG_S = 0.1


@dataclass(frozen=True, slots=True)
class ArmModel:
    """A serial arm's kinematics and limits.

    Attributes:
        joint_names: From base to flange.
        dh_a, dh_d, dh_alpha: Denavit-Hartenberg parameters, standard convention [m, m, rad].
        lower, upper: (n,) joint position limits [rad].
        velocity: (n,) joint speed limits [rad/s].
        home: (n,) posture to start from [rad]; the tool points down, in front of the arm (+y).
    """

    name: str
    joint_names: tuple[str, ...]
    dh_a: tuple[float, ...]
    dh_d: tuple[float, ...]
    dh_alpha: tuple[float, ...]
    lower: Array
    upper: Array
    velocity: Array
    home: Array


@dataclass(frozen=True, slots=True)
class GripperModel:
    """A parallel gripper whose two driver joints tell its opening.

    Attributes:
        driver_names: Right, then left.
        driver_closed: Driver angle when closed [rad]; 0 is open.
        closing_rate: Largest change of the closed fraction [1/s].
        tcp_offset_m: From the flange along its z axis to the point between the finger pads.
        mass_kg: What an arm's controller has to be told as payload.
    """

    name: str
    driver_names: tuple[str, str]
    driver_closed: float
    closing_rate: float
    tcp_offset_m: float
    mass_kg: float


# Kinematics: Universal Robots, "DH Parameters for calculations of kinematics and dynamics", UR5e row.
# Positions and speeds: UR5e technical specification (+-360 deg and 180 deg/s on every joint); the elbow is
# capped at +-180 deg as in UR's own robot description, since it meets the upper arm beyond.
# Home: the `home` keyframe of the MuJoCo Menagerie's model.
UR5E = ArmModel(
    name="ur5e",
    joint_names=(
        "shoulder_pan_joint",
        "shoulder_lift_joint",
        "elbow_joint",
        "wrist_1_joint",
        "wrist_2_joint",
        "wrist_3_joint",
    ),
    dh_a=(0.0, -0.425, -0.3922, 0.0, 0.0, 0.0),
    dh_d=(0.1625, 0.0, 0.0, 0.1333, 0.0997, 0.0996),
    dh_alpha=(pi / 2, 0.0, 0.0, pi / 2, -pi / 2, 0.0),
    lower=np.array([-2 * pi, -2 * pi, -pi, -2 * pi, -2 * pi, -2 * pi]),
    upper=np.array([2 * pi, 2 * pi, pi, 2 * pi, 2 * pi, 2 * pi]),
    velocity=np.full(6, pi),
    home=np.array([-pi / 2, -pi / 2, pi / 2, -pi / 2, -pi / 2, 0.0]),
)

# Closing: 85 mm of stroke at 150 mm/s (Robotiq data sheet: 20 to 150 mm/s).
# Driver range: the Menagerie's 2F-85 (0 open to 0.8 rad closed). Offset: base mount 7 mm + adapter 3.8 mm + 145 mm
# to its `pinch` site, between the pads when closed (open, they are 14 mm further back), along the flange's z axis.
# Mass: Robotiq's instruction manual, with its coupling.
ROBOTIQ_2F85 = GripperModel(
    name="robotiq_2f85",
    driver_names=("right_driver_joint", "left_driver_joint"),
    driver_closed=0.8,
    closing_rate=150.0 / 85.0,
    tcp_offset_m=0.1558,
    mass_kg=0.925,
)

ARMS = {UR5E.name: UR5E}
GRIPPERS = {ROBOTIQ_2F85.name: ROBOTIQ_2F85}
