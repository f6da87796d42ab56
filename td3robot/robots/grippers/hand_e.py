"""Robotiq's Hand-E: two fingers on slides.

Sources: HD is urdf/robotiq_hande_gripper.xacro and meshes/finger_collision.dae of macmacal/robotiq_hande_description
(Apache-2.0; no mesh is used here). RROS is robotiq/ros, the maker's own, robotiq_hand_e_macro.urdf.xacro. HM is the
Hand-E's manual, p. 72. The data sheet could not be opened: what would stand there is marked as assumed.
"""

from math import pi
from typing import TYPE_CHECKING

from td3robot.registry import GRIPPERS
from td3robot.robots.grippers.model import Counts, GripperModel, Jaw

if TYPE_CHECKING:
    import mujoco

    from td3robot.robots.simulated.gripper_builder import GripperBuilder

DRIVERS = ("right_finger_joint", "left_finger_joint")
# Stroke, the highest speed and force: RROS. Lowest speed: castetsb/pyRobotiqGripper. Lowest force: assumed.
STROKE_M, SPEED_M_S, FORCE_N = 0.050, (0.020, 0.150), (20.0, 185.0)
DRIVER_CLOSED = STROKE_M / 2
# The e-Series I/O coupling, the body, the fingers (HD): 156.5 mm; the maker's UR software enters 157 mm as tool centre
# point (assumed).
COUPLING_M, BODY_M, BODY_RADIUS_M, FINGER_M = 0.011, 0.099, 0.0375, 0.0465
# The gripping faces are 21.2 mm wide, and the last 21 mm of the fingers; before, those stand 4.5 mm back (HD).
PAD_WIDTH_M, PAD_DEPTH_M, PAD_Z, FINGER_BACK_M, FINGER_DEPTH_M = 0.0212, 0.0065, (0.0255, 0.0465), 0.0045, 0.011
# Body, fingers, coupling and bolts, and their center from the flange (HD); the data sheet has 1.07 kg (assumed).
MASS_KG, CENTER_M = 1.059, 0.057
FINGER_KG, PAD_KG = 0.03454, 0.0035
TCP_OFFSET_M = COUPLING_M + BODY_M + sum(PAD_Z) / 2
# How hard it grips at force count 50, which is what a cell asks for by default.
GRIP_N = FORCE_N[0] + (FORCE_N[1] - FORCE_N[0]) * 50 / 255


def robotiq_hand_e() -> "mujoco.MjSpec":
    """Build the model, coupling included."""
    from td3robot.robots.simulated.gripper_builder import GripperBuilder

    model = GripperBuilder("robotiq_hand_e", COUPLING_M)
    model.housing(BODY_RADIUS_M, -COUPLING_M, BODY_M)
    fingers = 2.0 * (FINGER_KG + PAD_KG)
    # With the fingers, about 20 mm beyond the body, the whole gripper's center is HD's.
    center = (MASS_KG * CENTER_M - fingers * (COUPLING_M + BODY_M + 0.02)) / (MASS_KG - fingers) - COUPLING_M
    model.inertia(model.base, MASS_KG - fingers, (0, 0, center), (0.066, 0.066, 0.11))
    for side, turn in (("right", 0.0), ("left", pi)):
        _add_finger(model, model.body(model.base, f"{side}_side", (0, 0, BODY_M), turn), side)
    # A finger moves half as far as the gap.
    model.actuator(DRIVERS, DRIVER_CLOSED, GRIP_N, SPEED_M_S[1] / STROKE_M)
    return model.spec


def _add_finger(model: "GripperBuilder", side_body: "mujoco.MjsBody", side: str) -> None:
    """Add one finger on +x of its side's frame, posed open."""
    finger = model.body(side_body, f"{side}_finger", (STROKE_M / 2, 0, 0))
    model.slide(finger, f"{side}_finger_joint", (0.0, DRIVER_CLOSED))
    half = PAD_WIDTH_M / 2
    low, high = (FINGER_BACK_M, -half, 0.0), (FINGER_DEPTH_M, half, PAD_Z[0])
    model.box(finger, f"{side}_finger", low, high, (0.7, 0.7, 0.7, 1))
    model.inertia(finger, FINGER_KG, (0.008, 0, 0.02), (0.02, 0.021, 0.04))
    model.pads(finger, side, 0.0, PAD_Z, PAD_WIDTH_M, PAD_DEPTH_M)


# Payload: HM, "W = (2 x 130 N x 0.3) / 2.4 = 32.5 N ... a 3.3 kg part". Grasp height: the fingers' ends are 10.5 mm
# beyond the tool centre point, 5 mm off the table with 3 mm of play; but no lower than the workspace of the arms here,
# 20 mm. Lowest and highest object: pads that overlap it by 9.5 mm, a palm 4 mm above it. Narrowest: distinguished from
# nothing by 0.16 of the way. The gap is linear in the drivers. Counts: assumed to be the 2F-85's.
ROBOTIQ_HAND_E: GripperModel = GRIPPERS.register(
    "robotiq_hand_e",
    GripperModel(
        name="robotiq_hand_e",
        label="Robotiq Hand-E",
        driver_names=DRIVERS,
        driver_unit="m",
        driver_open=0.0,
        driver_closed=DRIVER_CLOSED,
        closing_rate=SPEED_M_S[1] / STROKE_M,
        tcp_offset_m=TCP_OFFSET_M,
        mass_kg=MASS_KG,
        jaw=Jaw(
            stroke_m=STROKE_M,
            margin_m=0.005,
            min_width_m=0.008,
            payload_kg=3.3,
            grasp_height_m=0.021,
            min_height_m=0.02,
            max_height_m=0.064,
            fingertips_m=0.0125,
        ),
        counts=Counts(open=3, closed=230, speed_m_s=SPEED_M_S, force_n=FORCE_N),
        make_spec=robotiq_hand_e,
        links=((("right_finger_joint", 1.0),), (("left_finger_joint", 1.0),)),
    ),
)
