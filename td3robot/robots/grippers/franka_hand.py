"""Franka's hand, as the MuJoCo Menagerie models it."""

from math import sqrt
from typing import TYPE_CHECKING

from td3robot.registry import GRIPPERS
from td3robot.robots.arms.franka import Element, as_xml, model_tree, one
from td3robot.robots.grippers.model import GripperModel, Jaw

if TYPE_CHECKING:
    import mujoco

FINGERS = {"right": "finger_joint2", "left": "finger_joint1"}
OPEN_M = 0.04
# Of the five boxes of a fingertip, four corners touch: two at its end, two at its root. The first and the second are
# one of each; the fifth fills the middle, 1.5 mm back.
PAD_BOXES = {f"fingertip_pad_collision_{box}": number for number, box in enumerate((2, 4, 3, 5, 1), start=1)}
# Each finger presses with half the actuator's force. The Menagerie's actuator presses with 1 N on a 40 mm cube; the
# hand grasps with 30 to 70 N. Stiffness brings a free finger to its target, damping keeps it from ringing.
GRASP_N = 40.0
STIFFNESS_N_M, DAMPING_N_S_M = 4000.0, 200.0


def menagerie_hand() -> "mujoco.MjSpec":
    """Load the hand of the Menagerie's FR3, its fingers sliding along x.

    Raises:
        MissingExtraError: The wheel that contains it is not installed.
    """
    import mujoco

    tree = model_tree()
    hand, world, actuators = one(tree, "body", "hand"), one(tree, "worldbody"), one(tree, "actuator")
    for element in (world, actuators, one(tree, "option")):
        element.clear()  # the arm that it is attached to has the options
    world.append(hand)
    hand.set("childclass", "fr3")
    hand.set("pos", "0 0 0")
    hand.set("quat", f"{sqrt(0.5)} 0 0 {-sqrt(0.5)}")  # the fingers slide along the hand's y axis
    for side, joint in FINGERS.items():
        _name_pads(one(hand, "body", f"{side}_finger"), side)
        # Stops as hard as the 2F-85's linkage has: the file leaves them so soft that an impact passes one by 1 mm.
        one(hand, "joint", joint).attrib.update(solimplimit="0.95 0.99 0.001", solreflimit="0.005 1")
    spec = mujoco.MjSpec.from_string(as_xml(tree))
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10
    _add_actuator(spec)
    return spec


def _name_pads(finger: Element, side: str) -> None:
    """Name a finger and its tip's boxes as in other grippers, and let the boxes set friction, as the 2F-85's do."""
    finger.set("name", f"{side}_pad")
    for geom in finger.findall("geom"):
        number = PAD_BOXES.get(geom.get("class", ""))
        if number is None:
            continue
        geom.set("name", f"{side}_pad{number}")
        geom.set("priority", "1")
        geom.set("friction", "0.7")
        geom.set("solimp", "0.95 0.99 0.001")
        geom.set("solref", "0.004 1")


def _add_actuator(spec: "mujoco.MjSpec") -> None:
    """Add a position servo of the mean finger."""
    import mujoco

    fingers = spec.add_actuator(name="fingers", target="split", trntype=mujoco.mjtTrn.mjTRN_TENDON)
    fingers.set_to_position(kp=STIFFNESS_N_M, kv=DAMPING_N_S_M)
    fingers.ctrllimited, fingers.ctrlrange = True, [0.0, OPEN_M]
    fingers.forcelimited, fingers.forcerange = True, [-2.0 * GRASP_N, 2.0 * GRASP_N]


# Width, offset and masses: Franka's description of the hand (`franka_hand.xacro`, `inertials.yaml`). Speed: its
# documentation, 0.1 m/s of width. Payload: what is left of the arm's 3 kg, under what 70 N hold by friction.
# Heights: the fingertips reach 10 mm beyond the tool centre point, and the palm is 37 mm above it; the guard keeps them
# 5 mm off the table.
FRANKA_HAND: GripperModel = GRIPPERS.register(
    "franka_hand",
    GripperModel(
        name="franka_hand",
        label="Franka Hand",
        driver_names=(FINGERS["right"], FINGERS["left"]),
        driver_unit="m",
        driver_open=OPEN_M,
        driver_closed=0.0,
        closing_rate=0.1 / (2 * OPEN_M),
        tcp_offset_m=0.1034,
        mass_kg=0.76,
        jaw=Jaw(
            stroke_m=2 * OPEN_M,
            margin_m=0.005,
            min_width_m=0.015,
            payload_kg=2.0,
            grasp_height_m=0.018,
            min_height_m=0.02,
            max_height_m=0.06,
            fingertips_m=0.012,
        ),
        counts=None,
        make_spec=menagerie_hand,
        base="hand",
        palm="hand",
        actuator="fingers",
        control_open=OPEN_M,
        control_closed=0.0,
        links=(((FINGERS["right"], 1.0),), ((FINGERS["left"], 1.0),)),
    ),
)
