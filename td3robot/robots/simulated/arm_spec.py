"""An arm's MuJoCo model: built from its numbers, dressed with visual meshes, or moved to another chain."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from td3robot.errors import ConfigError
from td3robot.geometry import quaternion
from td3robot.robots.arms.model import ArmModel, Chain
from td3robot.state import Array

FLANGE_SITE = "attachment_site"
# Inertia of motor and gear at the joint [kg m2]: UR publishes none; this is the Menagerie's for its UR5e.
ARMATURE = 0.1


@dataclass(frozen=True, slots=True)
class Link:
    """One moving body of an arm, in the frame of its joint: z along the axis.

    Attributes:
        inertial: Mass [kg], centre of mass x y z [m], inertia about it xx xy xz yy yz zz [kg m2].
        inertia_turn: Rotation of the tensor's axes from the link's frame, about x [rad].
        shell_mm: Cylinders around it: axis, the two other coordinates of the centre, low end, high end, radius [mm].
    """

    name: str
    inertial: tuple[float, ...]
    inertia_turn: float
    shell_mm: tuple[tuple[str, int, int, int, int, int], ...]


def arm_of_links(
    chain: Chain,
    joint_names: Sequence[str],
    limits: Sequence[float],
    torques: Sequence[float],
    base_shell_mm: tuple[tuple[str, int, int, int, int, int], ...],
    links: Sequence[Link],
) -> mujoco.MjSpec:
    """Return a model with bodies, joints, actuators and a flange; the world frame is the base frame.

    The base is bolted down and has no mass. An actuator has only its joint and its torque limit here; the servos are
    configured when the cell is assembled.

    Args:
        chain: Its frames are the links' frames.
        joint_names: Names from base to flange.
        limits: Joint positions stay within plus and minus these [rad].
        torques: Torque limits of the actuators [N m].
        base_shell_mm: Cylinders around the base.
        links: One per joint.
    """
    transforms = chain.transforms()
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    _add_materials(spec)
    base = body = spec.worldbody.add_body(name="base")
    _add_shell(base, base_shell_mm)
    for joint, limit, torque, link, frame in zip(joint_names, limits, torques, links, transforms[:-1], strict=True):
        body = body.add_body(name=link.name, pos=frame[:3, 3], quat=quaternion(frame[:3, :3]))
        _set_inertial(body, link)
        body.add_joint(
            name=joint, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1], armature=ARMATURE,
            limited=True, range=[-limit, limit],
        )  # fmt: skip
        _add_shell(body, link.shell_mm)
        _add_actuator(spec, joint, limit, torque)
    flange = transforms[-1]
    body.add_site(name=FLANGE_SITE, pos=flange[:3, 3], quat=quaternion(flange[:3, :3]), size=[0.001] * 3, group=4)
    for link in links[:2]:  # the first turns on the base, the second passes beside it, by a few millimetres
        spec.add_exclude(bodyname1="base", bodyname2=link.name)
    return spec


def _set_inertial(body: mujoco.MjsBody, link: Link) -> None:
    mass, x, y, z, xx, xy, xz, yy, yz, zz = link.inertial
    c, s = np.cos(link.inertia_turn), np.sin(link.inertia_turn)
    turn = np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    tensor = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T
    body.mass, body.ipos, body.explicitinertial = mass, [x, y, z], True
    body.fullinertia = tensor[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]


def _add_materials(spec: mujoco.MjSpec) -> None:
    """Add the colours of the Menagerie's UR5e."""
    for name, rgb in (("jointgray", (0.278,) * 3), ("linkgray", (0.82,) * 3), ("urblue", (0.49, 0.678, 0.8))):
        spec.add_material(name=name, rgba=[*rgb, 1.0], specular=0.5, shininess=0.25)


def _add_shell(body: mujoco.MjsBody, cylinders: tuple[tuple[str, int, int, int, int, int], ...]) -> None:
    """Add a link's cylinders twice, without mass: for visuals (group 2) and for collisions (group 3)."""
    quats = {"x": [1.0, 0.0, 1.0, 0.0], "y": [1.0, -1.0, 0.0, 0.0], "z": [1.0, 0.0, 0.0, 0.0]}
    for axis, first, second, low, high, radius in cylinders:
        middle: list[float] = [first, second]
        middle.insert("xyz".index(axis), (low + high) / 2)
        common: dict[str, Any] = {
            "type": mujoco.mjtGeom.mjGEOM_CYLINDER,
            "size": [radius * 1e-3, (high - low) * 5e-4, 0.0],
            "pos": [value * 1e-3 for value in middle],
            "quat": quats[axis],
            "mass": 0.0,
        }
        color = "jointgray" if len(cylinders) == 1 else "linkgray" if axis == "x" else "urblue"
        body.add_geom(**common, group=2, contype=0, conaffinity=0, material=color)
        body.add_geom(**common, group=3)


def _add_actuator(spec: mujoco.MjSpec, joint: str, limit: float, torque: float) -> None:
    actuator = spec.add_actuator(name=joint.removesuffix("_joint"), target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.set_to_position(kp=1.0, kv=1.0)
    actuator.ctrllimited, actuator.ctrlrange = True, [-limit, limit]
    actuator.forcelimited, actuator.forcerange = True, [-torque, torque]


# Names the folder of the user's Menagerie; the package mujoco-menagerie reads the same variable.
VARIABLE = "MENAGERIE_ROOT"
# Group of the visual geometries, in the Menagerie's models and in ours.
VISUAL_GROUP = 2


def find_menagerie(folder: str, file: str) -> Path | None:
    """Return the path of a model in the user's Menagerie, or None if there is no Menagerie or no such model.

    Raises:
        ConfigError: The variable does not name a folder.
    """
    root = os.environ.get(VARIABLE)
    if not root:
        return None
    if not Path(root).is_dir():
        raise ConfigError(f"{VARIABLE} is {root!r}, which is no folder; set it to a copy of the MuJoCo Menagerie")
    path = Path(root) / folder / file
    return path if path.is_file() else None


def add_visual_meshes(spec: mujoco.MjSpec, source: Path) -> None:
    """Replace the visual cylinders with the meshes of another model of the same arm.

    Both models have the same joints, zeros and body names; link frames may differ. Meshes have no mass and no
    contacts, so no number of the model changes.

    Args:
        spec: The model that gets the meshes.
        source: The file of the other model.

    Raises:
        ConfigError: The file is not a model of the same links.
    """
    try:
        theirs = mujoco.MjModel.from_xml_path(str(source))
    except ValueError as error:
        raise ConfigError(f"{source} cannot be loaded as a MuJoCo model: {error}") from None
    ours = spec.copy().compile()
    data, shown = _at_zero(ours), _at_zero(theirs)
    for body in spec.bodies[1:]:
        if mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_BODY, body.name) < 0:
            raise ConfigError(f"{source} has no body {body.name!r}: it is a model of another arm")
        for geom in list(body.geoms):
            if geom.group == VISUAL_GROUP:
                spec.delete(geom)
        position, rotation = data.body(body.name).xpos, data.body(body.name).xmat.reshape(3, 3)
        for index in _visuals(theirs, body.name):
            mesh = theirs.geom_dataid[index]
            name = f"{body.name}_{index}"
            first, count = theirs.mesh_vertadr[mesh], theirs.mesh_vertnum[mesh]
            face, faces = theirs.mesh_faceadr[mesh], theirs.mesh_facenum[mesh]
            spec.add_mesh(
                name=name,
                uservert=theirs.mesh_vert[first : first + count].ravel(),
                userface=theirs.mesh_face[face : face + faces].ravel(),
                inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
            )
            turned = rotation.T @ shown.geom_xmat[index].reshape(3, 3)
            material = theirs.geom_matid[index]
            body.add_geom(
                type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, group=VISUAL_GROUP, contype=0, conaffinity=0, mass=0.0,
                pos=rotation.T @ (shown.geom_xpos[index] - position), quat=quaternion(turned),
                rgba=theirs.geom_rgba[index] if material < 0 else theirs.mat_rgba[material],
            )  # fmt: skip


def _at_zero(model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = np.zeros(model.nq)
    mujoco.mj_kinematics(model, data)
    return data


def _visuals(model: mujoco.MjModel, body: str) -> list[int]:
    first, count = model.body(body).geomadr[0], model.body(body).geomnum[0]
    is_seen = (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH) & (model.geom_group == VISUAL_GROUP)
    return [index for index in range(first, first + count) if is_seen[index]]


def calibrated_arm(arm: ArmModel, chain: Chain) -> ArmModel:
    """Return the arm with another chain, and a MuJoCo model that has exactly that chain's forward kinematics."""
    return replace(arm, chain=chain, make_spec=partial(calibrated_spec, arm, chain))


def calibrated_spec(arm: ArmModel, chain: Chain) -> mujoco.MjSpec:
    """Return an arm's model with its joints moved to the axes of a chain.

    Forward kinematics depend on the joint axes and the flange pose with all joints at zero (product of exponentials);
    a frame's position along its axis does not matter. So each link is turned by the smallest rotation that makes its
    axis parallel to the chain's, and shifted perpendicular to it. Apart from the calibration, links stay where they
    were, even if the chain's own frames are hundreds of metres along the axis, as with the Denavit-Hartenberg
    parameters of nearly parallel axes.

    Args:
        arm: The nominal arm.
        chain: Chain from the base to the flange, with the nominal chain's joint angles.
    """
    spec = arm.make_spec()
    poses, anchors, axes = _bodies_at_zero(arm)
    placed: dict[str, Array] = {}
    joints = {spec.joint(name).parent.name: index for index, name in enumerate(arm.joint_names)}
    frames = _frames(chain)
    for body in spec.bodies:
        if body.name == "world":
            placed[body.name] = np.eye(4)
            continue
        above = placed[body.parent.name]
        index = joints.get(body.name)
        if index is None:
            placed[body.name] = above @ np.linalg.inv(poses[body.parent.name]) @ poses[body.name]
            continue
        placed[body.name] = _moved(poses[body.name], anchors[index], axes[index], frames[index])
        body.pos, body.quat = _pos_quat(np.linalg.inv(above) @ placed[body.name])
    site = spec.site(FLANGE_SITE)
    site.pos, site.quat = _pos_quat(np.linalg.inv(placed[site.parent.name]) @ chain.flange(np.zeros(chain.joints)))
    return spec


def _bodies_at_zero(arm: ArmModel) -> tuple[dict[str, Array], Array, Array]:
    """Compute every body's pose (4, 4), and the joints' anchors and axes (n, 3), with all joints at zero."""
    model = arm.make_spec().compile()
    data = _at_zero(model)
    poses = {}
    for index in range(model.nbody):
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = data.xmat[index].reshape(3, 3), data.xpos[index]
        poses[model.body(index).name] = pose
    joints = [model.joint(name).id for name in arm.joint_names]
    return poses, data.xanchor[joints], data.xaxis[joints]


def _frames(chain: Chain) -> list[Array]:
    """Compute the pose (4, 4) of every joint's frame with all joints at zero."""
    frames, pose = [], np.eye(4)
    for transform in chain.transforms()[:-1]:
        pose = pose @ transform
        frames.append(pose)
    return frames


def _moved(pose: Array, anchor: Array, axis: Array, frame: Array) -> Array:
    """Return a link's pose (4, 4), moved so that its joint axis lies on the z axis of a frame (4, 4)."""
    direction, origin = frame[:3, 2], frame[:3, 3]
    turn = _smallest_rotation(axis, direction)
    moved_anchor = origin + direction * float(direction @ (anchor - origin))
    moved = np.eye(4)
    moved[:3, :3] = turn @ pose[:3, :3]
    moved[:3, 3] = moved_anchor + turn @ (pose[:3, 3] - anchor)
    return moved


def _smallest_rotation(start: Array, end: Array) -> Array:
    """Compute the smallest rotation (3, 3) that turns one unit vector into another that is not its opposite."""
    x, y, z = np.cross(start, end)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    rotation: Array = np.eye(3) + cross + cross @ cross / (1.0 + float(start @ end))
    return rotation


def _pos_quat(pose: Array) -> tuple[Array, Array]:
    return pose[:3, 3], quaternion(pose[:3, :3])
