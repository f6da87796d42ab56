"""Franka's FR3 (Franka Research 3), and the Menagerie's model of it with its hand, from the wheel ``franky-sim``.

Kinematics: Franka's own description of the robot, in Craig's convention, as ``franka_description`` generates it.
Positions: the same, and the Menagerie's model. Speeds: libfranka, ``include/franka/rate_limiting.h`` (458b47e), whose
numbers the description repeats as ``position_based_velocity_limits``.

The wheel is a simulator in its own right. Only its model files are read: none of its Python is imported, and nothing is
downloaded.
"""

from importlib.util import find_spec
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np

from td3robot.errors import MissingExtraError, RobotError
from td3robot.registry import ARMS
from td3robot.robots.arms.model import ArmModel, Chain, Region, Servo, ServoLaw

if TYPE_CHECKING:
    import mujoco

PACKAGE, VERSION = "franky_sim", "1.0.4"
Element = ElementTree.Element


def model_tree() -> Element:
    """Read ``fr3.xml``, with absolute paths to its meshes.

    Raises:
        MissingExtraError: The wheel is not installed.
        RobotError: The wheel is installed, but has no such file.
    """
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("franka", "the model of the FR3 and its hand")
    assets = Path(found.submodule_search_locations[0]) / "assets"
    path = assets / "fr3.xml"
    if not path.is_file():
        raise RobotError(f"the package franky-sim has no model {path}; install franky-sim=={VERSION} again")
    tree = ElementTree.parse(path).getroot()
    one(tree, "compiler").set("meshdir", str(assets / "meshes"))  # the file says "assets", but they are not there
    for tag in ("keyframe", "contact"):
        tree.remove(one(tree, tag))
    return tree


def one(tree: Element, tag: str, name: str | None = None) -> Element:
    """Return the element with a tag, and with a name if given.

    Raises:
        RobotError: There is none: the file is not the one that this code was written for.
    """
    for element in tree.iter(tag):
        if name is None or element.get("name") == name:
            return element
    wanted = tag if name is None else f"{tag} {name!r}"
    raise RobotError(f"the model of the FR3 has no {wanted}; install franky-sim=={VERSION}")


def remove(tree: Element, tag: str, name: str) -> None:
    """Remove an element, wherever it is in the tree."""
    element = one(tree, tag, name)
    next(parent for parent in tree.iter() if element in list(parent)).remove(element)


def as_xml(tree: Element) -> str:
    """Return the tree as XML, without the meshes that it does not use."""
    used = {geom.get("mesh") for geom in tree.iter("geom")}
    assets = one(tree, "asset")
    for mesh in [mesh for mesh in assets.iter("mesh") if mesh.get("name") not in used]:
        assets.remove(mesh)
    return ElementTree.tostring(tree, encoding="unicode")


JOINTS = tuple(f"fr3_joint{number}" for number in range(1, 8))
LOWER = np.array([-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159])
UPPER = np.array([2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159])
VELOCITY = np.array([2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26])
FLANGE_M = 0.107
# Franka's tools are mounted at -45 deg, with fingers that slide along the tool's y axis. Here, the flange frame is
# turned so that its x axis is the fingers' direction, as everywhere in td3robot.
FLANGE_TURN = pi / 4
CHAIN = Chain.from_modified_dh(
    a=(0.0, 0.0, 0.0, 0.0825, -0.0825, 0.0, 0.088),
    d=(0.333, 0.0, 0.316, 0.0, 0.384, 0.0, 0.0),
    alpha=(0.0, -pi / 2, pi / 2, pi / 2, -pi / 2, pi / 2, pi / 2),
    flange_m=FLANGE_M,
).turned(FLANGE_TURN)

# The joint speed envelope: its range, slightly wider than LOWER and UPPER [rad]; the deceleration that it assumes
# [rad/s2]; its offset below the parabola, and the tolerance of libfranka's own limiter [rad/s].
ENVELOPE_LOWER = np.array([-2.75010, -1.79180, -2.90650, -3.04810, -2.81010, 0.54092, -3.01960])
ENVELOPE_UPPER = np.array([2.75010, 1.79180, 2.90650, -0.14580, 2.81010, 4.52050, 3.01960])
ENVELOPE_DECELERATION = np.array([6.0, 2.585, 3.5, 4.0, 17.0, 5.5, 17.0])
ENVELOPE_OFFSET = np.array([0.30, 0.20, 0.20, 0.30, 0.35, 0.35, 0.35])
ENVELOPE_TOLERANCE = 1e-3


def menagerie_fr3() -> "mujoco.MjSpec":
    """Load the Menagerie's FR3 without its hand.

    Raises:
        MissingExtraError: The wheel that contains it is not installed.
    """
    import mujoco

    tree = model_tree()
    remove(tree, "body", "hand")
    remove(tree, "general", "hand")
    for tag in ("tendon", "equality"):
        tree.remove(one(tree, tag))
    spec = mujoco.MjSpec.from_string(as_xml(tree))
    for actuator, lower, upper in zip(spec.actuators, LOWER, UPPER, strict=True):
        actuator.inheritrange, actuator.ctrlrange = 0.0, [lower, upper]
    # Neighbours: the first two share the base; the hulls of links 5 and 7 overlap where the links do not.
    for first, second in (("fr3_link0", "fr3_link1"), ("fr3_link5", "fr3_link7")):
        spec.add_exclude(bodyname1=first, bodyname2=second)
    spec.body("fr3_link7").add_site(
        name="attachment_site",
        pos=[0.0, 0.0, FLANGE_M],
        quat=[cos(FLANGE_TURN / 2), 0.0, 0.0, sin(FLANGE_TURN / 2)],
    )
    return spec


# Home: Franka's "ready" posture, turned by 90 degrees so that the tool is in front of the arm (+y).
# Servo: the stiffness is the Menagerie's, which stays overdamped at the largest inertia each joint can see: 6 kg m2 for
# the first two with the payload stretched out, 2.7 and 2 for the next, 0.3 for the wrist, reflected motors included.
# Law: franka-rs followed a 20 Hz target within 68 to 96 ms on `franka-sim`, by speed; measured there, not on a robot.
# That it is critically damped is assumed.
# Payload: Franka's data sheet. Regions: docs/franka.md says how they were found.
FR3: ArmModel = ARMS.register(
    "fr3",
    ArmModel(
        name="fr3",
        joint_names=JOINTS,
        chain=CHAIN,
        lower=LOWER,
        upper=UPPER,
        velocity=VELOCITY,
        home=np.array([pi / 2, -pi / 4, 0.0, -3 * pi / 4, 0.0, pi / 2, pi / 4]),
        servo=Servo((4500.0, 4500.0, 3500.0, 3500.0, 2000.0, 2000.0, 2000.0), ServoLaw((2.0 / 0.09) ** 2, 0.09)),
        payload_kg=3.0,
        regions={
            "workspace": Region((-0.45, 0.2, 0.01), (0.45, 0.8, 0.7)),
            "goals": Region((-0.25, 0.35, 0.05), (0.25, 0.65, 0.45)),
            "patch": Region((-0.2, 0.35), (0.2, 0.65)),
            "table": Region((-0.5, -0.15), (0.5, 0.85)),
        },
        make_spec=menagerie_fr3,
        speed_envelope=np.array(
            [ENVELOPE_LOWER, ENVELOPE_UPPER, ENVELOPE_DECELERATION, ENVELOPE_OFFSET, np.full(7, ENVELOPE_TOLERANCE)]
        ),
        label="Franka FR3",
    ),
)
