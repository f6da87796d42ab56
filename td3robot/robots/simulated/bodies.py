"""Builds an arm's MuJoCo model from its numbers: a chain, inertials, and cylinders around the links."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from td3robot.geometry import quaternion
from td3robot.robots.arms.model import Chain

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
