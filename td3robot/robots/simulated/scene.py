"""The MuJoCo models: the simulated cell, and the leaner one that the guard uses.

Arm and gripper bring their own models; this module assembles them with a table, servos and objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.errors import ConfigError
from td3robot.geometry import quaternion
from td3robot.robots.arms.model import MOTOR_DAMPING_S, ArmModel
from td3robot.robots.grippers.model import GripperModel
from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.arm_spec import FLANGE_SITE as FLANGE_SITE
from td3robot.state import Array, ObjectModel, Pose

GRIPPER_PREFIX = "gripper_"
TCP_SITE = "tcp"
TABLE_GEOM = "table"

# Two computations of the same kinematics agree in position to within [m], and in the rotation's entries to within [1].
SAME_PLACE_M, SAME_TURN = 1e-4, 1e-3


@dataclass(frozen=True, slots=True)
class GripperEnvelope:
    """The box around every posture of the gripper, in the flange frame [m]."""

    center: Array
    half_size: Array


def simulation_spec(robot: RobotSpec, physics_rate_hz: float, objects: tuple[ObjectModel, ...] = ()) -> mujoco.MjSpec:
    """Build the cell: arm, gripper, table and floor.

    The arm's actuators integrate a commanded velocity into their target, so a target moves in a straight line over many
    physics steps.
    """
    spec = _arm_spec(robot.arm)
    _keep_gripper_contacts(spec)
    spec.attach(_gripper_spec(robot), prefix=GRIPPER_PREFIX, site=spec.site(FLANGE_SITE))
    _add_tcp_site(spec, robot)
    spec.option.timestep = 1.0 / physics_rate_hz
    spec.option.integrator = (
        mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    )  # others are unstable with servos as stiff as these
    for body in spec.bodies:
        body.gravcomp = 1.0  # as a UR does for the payload set on its pendant
    arm = [actuator for actuator in spec.actuators if not actuator.name.startswith(GRIPPER_PREFIX)]
    for actuator, stiffness in zip(arm, robot.arm.servo.stiffness, strict=True):
        _make_motor(actuator, stiffness)
    _add_surroundings(spec, robot)
    for first, second in robot.arm.touching:
        if first == "world":  # a table that is a little higher than the base is beside the shoulder, not below it
            spec.add_exclude(bodyname1=first, bodyname2=second)
    for item in objects:
        _add_object(spec, item, robot.gripper.pads)
    return spec


def guard_spec(robot: RobotSpec) -> mujoco.MjSpec:
    """Build the guard's model: the arm's links, the gripper as one box, and the table."""
    spec = _arm_spec(robot.arm)
    drop_looks(spec, dynamics=False)
    flange = spec.site(FLANGE_SITE)
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, np.asarray(flange.quat) / np.linalg.norm(flange.quat))
    envelope = gripper_envelope(robot)
    flange.parent.add_geom(
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
    for first, second in robot.arm.touching:
        spec.add_exclude(bodyname1=first, bodyname2=second)
    return spec


def gripper_envelope(robot: RobotSpec, samples: int = 9) -> GripperEnvelope:
    """Compute the box around all collision geometry of the gripper from open to closed, in the flange frame."""
    spec = mujoco.MjSpec()
    _keep_gripper_contacts(spec)
    site = spec.worldbody.add_site(name=FLANGE_SITE)
    spec.attach(_gripper_spec(robot), prefix=GRIPPER_PREFIX, site=site)
    model = spec.compile()
    data = mujoco.MjData(model)
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for closed in np.linspace(0.0, 1.0, samples):
        set_gripper(model, data, robot.gripper, robot.gripper.drivers_at(closed))
        mujoco.mj_kinematics(model, data)
        for geom in range(model.ngeom):
            if model.geom_contype[geom] == 0:
                continue
            center, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
            corners = center + half * np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).T.reshape(-1, 3)
            points = data.geom_xpos[geom] + corners @ data.geom_xmat[geom].reshape(3, 3).T
            low, high = np.minimum(low, points.min(axis=0)), np.maximum(high, points.max(axis=0))
    return GripperEnvelope((low + high) / 2, (high - low) / 2)


def set_gripper(model: mujoco.MjModel, data: mujoco.MjData, gripper: GripperModel, driver_q: Array) -> None:
    """Place a gripper's whole linkage for given driver positions (right, left), in their unit."""
    for links, driver in zip(gripper.links, driver_q, strict=True):
        for name, share in links:
            data.qpos[model.joint(GRIPPER_PREFIX + name).qposadr[0]] = share * driver


def place_cell(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    robot: RobotSpec,
    q: Array,
    driver_q: Array,
    objects: Mapping[str, Pose],
) -> None:
    """Place arm, gripper and objects as measured, for viewing; no time passes.

    Args:
        model: The model made by :func:`simulation_spec`.
        data: The data to change.
        robot: The robot that the model was made for.
        q: (n,) joint angles [rad].
        driver_q: (2,) the gripper's drivers, right then left, in their unit.
        objects: Poses of objects by name; other objects stay where they are.
    """
    data.qpos[: len(q)] = q
    for name, pose in objects.items():
        data.joint(name).qpos[:] = [*pose.position, *quaternion(pose.rotation)]
    set_gripper(model, data, robot.gripper, driver_q)
    mujoco.mj_kinematics(model, data)


def require_chain(model: mujoco.MjModel, robot: RobotSpec, samples: int = 8) -> None:
    """Refuse a model whose forward kinematics disagree with the arm's numbers.

    Raises:
        ConfigError: Saying how far off the flange is.
    """
    data, site = mujoco.MjData(model), model.site(FLANGE_SITE).id
    arm = robot.arm
    for q in np.random.default_rng(0).uniform(arm.lower, arm.upper, (samples, arm.chain.joints)):
        for name, angle in zip(arm.joint_names, q, strict=True):
            data.qpos[model.joint(name).qposadr[0]] = angle
        mujoco.mj_kinematics(model, data)
        flange = arm.chain.flange(q)
        apart = float(np.linalg.norm(data.site_xpos[site] - flange[:3, 3]))
        turned = float(np.abs(data.site_xmat[site].reshape(3, 3) - flange[:3, :3]).max())
        if apart > SAME_PLACE_M or turned > SAME_TURN:
            raise ConfigError(
                f"the MuJoCo model of the arm {arm.name!r} puts its flange {1e3 * apart:.2f} mm from where its own "
                f"numbers put it, and turns it by up to {turned:.4f}; make link lengths, base frame and the "
                f"order of joints agree (at most {1e3 * SAME_PLACE_M:g} mm)"
            )


def _arm_spec(arm: ArmModel) -> mujoco.MjSpec:
    """Return the arm's model without its keyframes, which would not include a gripper."""
    try:
        spec = arm.make_spec()
    except (OSError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"the MuJoCo model of the arm {arm.name!r} cannot be made: {text}") from None
    _require_parts(spec, arm)
    for key in list(spec.keys):
        spec.delete(key)
    return spec


def _require_parts(spec: mujoco.MjSpec, arm: ArmModel) -> None:
    """Refuse a model that lacks the arm's joints, an actuator for each in the same order, or a flange."""
    joints = [joint.name for joint in spec.joints]
    if joints != list(arm.joint_names):
        raise ConfigError(
            f"the MuJoCo model of the arm {arm.name!r} has the joints {joints}, and the arm {list(arm.joint_names)}; "
            "name and order them alike"
        )
    targets = [actuator.target for actuator in spec.actuators]
    if targets != joints:
        raise ConfigError(
            f"the actuators of the arm {arm.name!r} drive {targets}, in this order; give each of the joints "
            f"{joints} one, in their order"
        )
    if spec.site(FLANGE_SITE) is None:
        raise ConfigError(
            f"the MuJoCo model of the arm {arm.name!r} has no site {FLANGE_SITE!r}; add one at its flange"
        )


def drop_looks(spec: mujoco.MjSpec, dynamics: bool = True) -> None:
    """Drop all geometries without contacts, and the meshes that only they use.

    Args:
        spec: The model to drop them from.
        dynamics: Whether to keep those that a body's mass and inertia are computed from.
    """
    for geom in list(spec.geoms):
        touches = geom.contype != 0 or geom.conaffinity != 0
        if not touches and (geom.parent.explicitinertial or not dynamics):
            spec.delete(geom)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)


def keep_hulls(spec: mujoco.MjSpec) -> None:
    """Replace every mesh by its convex hull, which is all that contacts are computed from, and drop what only draws.

    A 2F-85's meshes have 63,000 triangles, its hulls 4,000. Search trees of the triangles, which only rays use, would
    be two thirds of a compiled model.
    """
    drop_looks(spec)
    full = spec.compile()
    for body in spec.bodies:
        if body.name != "world" and not body.explicitinertial:  # a hull's would be another
            same = full.body(body.name)
            body.explicitinertial, body.mass = True, float(same.mass[0])
            body.ipos, body.iquat, body.inertia = same.ipos, same.iquat, same.inertia
    drop_looks(spec)
    for mesh in list(spec.meshes):
        vertices, faces = _hull(full, full.mesh(mesh.name).id)
        hull = spec.add_mesh(name=f"{mesh.name}_hull", uservert=vertices.ravel(), userface=faces.ravel())
        for geom in spec.geoms:
            if geom.meshname == mesh.name:
                geom.meshname = hull.name
        spec.delete(mesh)


def _hull(model: mujoco.MjModel, mesh: int) -> tuple[Array, NDArray[np.int32]]:
    """Return the convex hull of a compiled mesh: vertices (v, 3) in the file's frame [m], and triangles (f, 3) of them.

    The layout of ``mesh_graph`` is in MuJoCo's ``mjmodel.h``.
    """
    graph = model.mesh_graph[model.mesh_graphadr[mesh] :]
    count, triangles = int(graph[0]), int(graph[1])
    chosen = graph[2 + count : 2 + 2 * count]
    faces = graph[2 + 3 * count + 3 * triangles :][: 3 * triangles].reshape(-1, 3)
    first = model.mesh_vertadr[mesh]
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.mesh_quat[mesh])
    vertices = model.mesh_vert[first + chosen].astype(np.float64) @ rotation.reshape(3, 3).T + model.mesh_pos[mesh]
    places = np.empty(model.mesh_vertnum[mesh], np.int32)
    places[chosen] = np.arange(count)
    return vertices, places[faces]


def _gripper_spec(robot: RobotSpec) -> mujoco.MjSpec:
    """Return the gripper's model, moved out by the coupling between it and the flange."""
    spec = robot.gripper.make_spec()
    base = spec.body(robot.gripper.base)
    base.pos = np.asarray(base.pos) + np.array([0, 0, robot.tcp_offset_m - robot.gripper.tcp_offset_m])
    return spec


def _keep_gripper_contacts(spec: mujoco.MjSpec) -> None:
    """Copy two contact options from the gripper's model to its parent, because attaching would drop them."""
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10


def _add_tcp_site(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """Add a site at the tool centre point: the flange's frame, moved along its z axis."""
    flange = spec.site(FLANGE_SITE)
    z_axis = np.zeros(3)
    mujoco.mju_rotVecQuat(z_axis, np.array([0.0, 0.0, 1.0]), np.asarray(flange.quat) / np.linalg.norm(flange.quat))
    flange.parent.add_site(name=TCP_SITE, pos=np.asarray(flange.pos) + robot.tcp_offset_m * z_axis, quat=flange.quat)


def _make_motor(actuator: mujoco.MjsActuator, stiffness: float) -> None:
    """Make an actuator a motor with a stiffness [N m/rad], and damping, about a target that leads the joint."""
    actuator.dyntype = mujoco.mjtDyn.mjDYN_INTEGRATOR
    actuator.gaintype, actuator.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
    actuator.gear = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    actuator.actlimited = actuator.ctrllimited = False
    actuator.gainprm[0] = stiffness
    actuator.biasprm[1] = -stiffness
    actuator.biasprm[2] = -stiffness * MOTOR_DAMPING_S


def _add_surroundings(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """Add floor, light and a table."""
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
    table, table_height_m = robot.arm.regions["table"], robot.table_height_m
    low, high = np.array(table.low), np.array(table.high)
    thickness, depth = 0.02, 0.75
    spec.worldbody.add_geom(
        name=TABLE_GEOM, type=mujoco.mjtGeom.mjGEOM_BOX, size=[*(high - low) / 2, thickness],
        pos=[*(high + low) / 2, table_height_m - thickness], rgba=[0.72, 0.60, 0.47, 1],
    )  # fmt: skip
    spec.worldbody.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], pos=[0, 0, table_height_m - depth],
        material="floor",
    )  # fmt: skip


def _add_object(spec: mujoco.MjSpec, item: ObjectModel, pads: str) -> None:
    """Add an object as a free body; its friction is set on the pads, whose own has priority.

    Raises:
        ConfigError: Another body has its name.
    """
    if spec.body(item.name) is not None:
        raise ConfigError(
            f"the object {item.name!r} has the name of a part of the robot, or of another object; rename it"
        )
    body = spec.worldbody.add_body(name=item.name, pos=[0.0, 0.5, item.size_m[2] / 2])
    body.add_freejoint(name=item.name)
    kind, size = _form(item)
    body.add_geom(
        name=item.name,
        type=kind,
        size=size,
        mass=item.mass_kg,
        rgba=[0.85, 0.25, 0.20, 1],
        condim=4,
        friction=[0.7, 0.01, 0.0001],
        solimp=[0.95, 0.99, 0.001, 0.5, 2],
        solref=[0.004, 1],
    )
    for geom in spec.geoms:
        if geom.name.startswith(GRIPPER_PREFIX) and pads in geom.name:
            geom.friction[0] = item.friction


def _form(item: ObjectModel) -> tuple[mujoco.mjtGeom, Array]:
    """Return an object's type of geometry, and its size (3,) as MuJoCo has it [m]."""
    x, y, z = item.size_m
    if item.shape == "box":
        return mujoco.mjtGeom.mjGEOM_BOX, np.array([x / 2, y / 2, z / 2])
    return mujoco.mjtGeom.mjGEOM_CYLINDER, np.array([x / 2, z / 2, 0.0])


def reshape(model: mujoco.MjModel, item: ObjectModel, scale: float = 1.0) -> None:
    """Give an object of a compiled model the shape and size of a model of the same name, times a factor."""
    geom = model.geom(item.name)
    kind, size = _form(item)
    half = np.array(item.size_m) / 2 * scale
    model.geom_type[geom.id] = kind
    geom.size[:] = size * scale
    model.geom_aabb[geom.id, 3:] = half
    model.geom_rbound[geom.id] = np.hypot(half[0], half[2]) if item.shape == "cylinder" else np.linalg.norm(half)


def inertia_of(item: ObjectModel) -> Array:
    """Compute the moments of inertia (3,) of a solid object about its own axes [kg m2]."""
    x, y, z = np.square(item.size_m)
    if item.shape == "box":
        return item.mass_kg / 12 * np.array([y + z, x + z, x + y])
    return item.mass_kg / 12 * np.array([0.75 * x + z, 0.75 * x + z, 1.5 * x])
