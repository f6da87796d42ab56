"""Robotiq's 2F-140: linkages that keep the fingertips parallel, and make them 24 mm longer on their way closed.

Sources: PN is robotiq_description/urdf/robotiq_2f_140*.xacro of PickNikRobotics/ros2_robotiq_gripper, and the sizes of
that package's meshes (BSD-3-Clause; no mesh is used here). RROS is robotiq/ros, the maker's own. HD is
macmacal/robotiq_hande_description (Apache-2.0). FT is Robotiq's FT 300 manual, p. 71. The data sheet could not be
opened: what would stand there is marked as assumed.
"""

from math import asin, cos, pi, sin
from typing import TYPE_CHECKING

from td3robot.registry import GRIPPERS
from td3robot.robots.grippers.model import Counts, GripperModel, Jaw

if TYPE_CHECKING:
    import mujoco

    from td3robot.robots.simulated.gripper_builder import GripperBuilder

DRIVERS = ("right_driver_joint", "left_driver_joint")
# Stroke: the gripper's name. Speeds and the highest force: RROS. Lowest force: assumed.
STROKE_M, SPEED_M_S, FORCE_N = 0.140, (0.030, 0.250), (10.0, 125.0)
# The e-Series I/O coupling (HD); body and lugs (PN).
COUPLING_M, BODY_M, BODY_RADIUS_M, LUGS_X = 0.011, 0.090, 0.0375, 0.0424
# A driver's pivot in the body's frame, the links' length, and their angle to z when open: from outer knuckle to inner
# finger PN goes (99.975, -2.219) mm, turned by 0.725 rad.
PIVOT_X, PIVOT_Z, LINK_M, OPEN_RAD = 0.030601, 0.054905, 0.100000, 0.70281
# Pads of 27 x 65 mm (PN), 13.3 to 78.3 mm beyond the fingertip's pivot. Closed, they end 244 mm from the flange, which
# is what the maker's UR software enters as tool centre point (assumed).
PAD_WIDTH_M, PAD_DEPTH_M, PAD_Z = 0.027, 0.0075, (0.013255, 0.078255)
# The pads' faces are where they leave the open jaw its stroke: 1.3 mm before the metal of PN's mesh, a plausible
# rubber. PN's own boxes are thicker, and leave 128.5 mm.
PAD_FACE_X = PIVOT_X + LINK_M * sin(OPEN_RAD) - STROKE_M / 2
# The pads meet at 0.757 rad. PN stops at 0.695 rad, on its thicker pads; users of Gazebo found 0.76 to 0.77
# (AcutronicRobotics/MARA, issue 23).
DRIVER_CLOSED = OPEN_RAD - asin((PAD_FACE_X - PIVOT_X) / LINK_M)
# Mass: assumed; FT comes to 0.975 kg without a coupling, and to this center, from the flange.
MASS_KG, CENTER_M = 1.025, 0.066
# Of one side (PN): outer knuckle, outer finger and inner knuckle move as one link; the fingertip is without its pad.
LINK_KG, TIP_KG, PAD_KG = 0.0583, 0.0104, 0.0035
# How hard it grips at force count 50, which is what a cell asks for by default.
GRIP_N = FORCE_N[0] + (FORCE_N[1] - FORCE_N[0]) * 50 / 255


def driver_at(width_m: float) -> float:
    """Compute the driver angle [rad] at which the pads are a width [m] apart."""
    return OPEN_RAD - asin((width_m / 2 + PAD_FACE_X - PIVOT_X) / LINK_M)


def fingertips_at(width_m: float) -> float:
    """Compute how far the fingers' ends are from the flange [m] when the pads are a width [m] apart."""
    return COUPLING_M + PIVOT_Z + LINK_M * cos(OPEN_RAD - driver_at(width_m)) + PAD_Z[1]


TCP_OFFSET_M = fingertips_at(0.0) - (PAD_Z[1] - PAD_Z[0]) / 2


def reach_at(width_m: float) -> float:
    """Compute how far the fingers reach beyond the tool centre point [m] when the pads are a width [m] apart."""
    return fingertips_at(width_m) - TCP_OFFSET_M


def robotiq_2f140() -> "mujoco.MjSpec":
    """Build the model, coupling included.

    A side's links are a parallelogram: one driver, and one follower that turns back by the same angle. Fingertips that
    turn around an object, the adaptive grip, are not modelled. It grips by up to 31 % harder on wide objects, where the
    links' lever is shorter.
    """
    from td3robot.robots.simulated.gripper_builder import GripperBuilder

    model = GripperBuilder("robotiq_2f140", COUPLING_M)
    model.housing(BODY_RADIUS_M, -COUPLING_M, BODY_M)
    model.box(model.base, "lugs", (-LUGS_X, -0.02, 0.04), (LUGS_X, 0.02, BODY_M - 0.01))
    fingers = 2.0 * (LINK_KG + TIP_KG + PAD_KG)
    # With the fingers, about 140 mm from the flange, the whole gripper's center is FT's.
    center = (MASS_KG * CENTER_M - fingers * 0.14) / (MASS_KG - fingers) - COUPLING_M
    model.inertia(model.base, MASS_KG - fingers, (0, 0, center), (0.075, 0.075, 0.1))
    for side, turn in (("right", 0.0), ("left", pi)):
        _add_finger(model, model.body(model.base, f"{side}_side", (0, 0, 0), turn), side)
        model.couple(f"{side}_follower_joint", f"{side}_driver_joint", -1.0)
        model.spec.add_exclude(bodyname1="base", bodyname2=f"{side}_driver")
    model.actuator(DRIVERS, DRIVER_CLOSED, GRIP_N * LINK_M, SPEED_M_S[1] / STROKE_M)
    return model.spec


def _add_finger(model: "GripperBuilder", side_body: "mujoco.MjsBody", side: str) -> None:
    """Add one finger on +x of its side's frame, posed open."""
    link = model.body(side_body, f"{side}_driver", (PIVOT_X, 0, PIVOT_Z), OPEN_RAD, (0, 1, 0))
    model.hinge(link, f"{side}_driver_joint", (0.0, DRIVER_CLOSED))
    model.box(link, f"{side}_link", (-0.006, -0.0135, 0.0), (0.018, 0.0135, LINK_M), (0.46, 0.46, 0.46, 1))
    model.inertia(link, LINK_KG, (0.006, 0, 0.05), (0.024, 0.027, 0.1))
    tip = model.body(link, f"{side}_follower", (0, 0, LINK_M), -OPEN_RAD, (0, 1, 0))
    model.hinge(tip, f"{side}_follower_joint", (-0.9, 0.1), armature=0.001)
    model.box(tip, f"{side}_tip", (PAD_DEPTH_M - PAD_FACE_X, -0.0075, -0.006), (0.006, 0.0075, 0.0445))
    model.inertia(tip, TIP_KG, (-0.0137, 0, 0.016), (0.03, 0.015, 0.05))
    model.pads(tip, side, -PAD_FACE_X, PAD_Z, PAD_WIDTH_M, PAD_DEPTH_M)


# Payload by friction: assumed. Grasp height: the guard boxes the closed gripper, whose ends are 32.6 mm beyond the tool
# centre point; 5 mm off the table, and 3 mm of play. Lowest and highest object: pads that overlap it by 10 mm where the
# fingers are long, a palm 4 mm above it. Narrowest: distinguished from nothing by 0.13 of the way.
# Counts: assumed to be the 2F-85's.
ROBOTIQ_2F140: GripperModel = GRIPPERS.register(
    "robotiq_2f140",
    GripperModel(
        name="robotiq_2f140",
        label="Robotiq 2F-140",
        driver_names=DRIVERS,
        driver_unit="rad",
        driver_open=0.0,
        driver_closed=DRIVER_CLOSED,
        closing_rate=SPEED_M_S[1] / STROKE_M,
        tcp_offset_m=TCP_OFFSET_M,
        mass_kg=MASS_KG,
        jaw=Jaw(
            stroke_m=STROKE_M,
            margin_m=0.005,
            min_width_m=0.02,
            payload_kg=2.5,
            grasp_height_m=0.041,
            min_height_m=0.019,
            max_height_m=0.21,
            fingertips_m=0.035,
            reach_at=reach_at,
        ),
        counts=Counts(open=3, closed=230, speed_m_s=SPEED_M_S, force_n=FORCE_N),
        make_spec=robotiq_2f140,
        links=(
            (("right_driver_joint", 1.0), ("right_follower_joint", -1.0)),
            (("left_driver_joint", 1.0), ("left_follower_joint", -1.0)),
        ),
        driver_at=driver_at,
    ),
)
