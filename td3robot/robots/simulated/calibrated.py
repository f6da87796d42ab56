"""An arm whose kinematics differ slightly from its model's: the model's joints are moved to their real axes."""

from dataclasses import replace
from functools import partial

import mujoco
import numpy as np

from td3robot.geometry import quaternion
from td3robot.robots.arms.model import ArmModel, Chain
from td3robot.robots.simulated.scene import FLANGE_SITE
from td3robot.state import Array


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
    poses, anchors, axes = _at_zero(arm)
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


def _at_zero(arm: ArmModel) -> tuple[dict[str, Array], Array, Array]:
    """Compute every body's pose (4, 4), and the joints' anchors and axes (n, 3), with all joints at zero."""
    model = arm.make_spec().compile()
    data = mujoco.MjData(model)
    data.qpos[:] = 0.0
    mujoco.mj_kinematics(model, data)
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
