"""Rotations and poses, with NumPy alone.

Rotations are matrices (3, 3) whose columns are a frame's axes; quaternions are (w, x, y, z); a rotation vector is axis
times angle [rad], as UR's controllers and ROS's ``rotvec`` use it. Angles about the vertical are right-handed about +z.
"""

from math import acos, atan2, cos, pi, sin, sqrt

import numpy as np
from numpy.typing import ArrayLike

from td3robot.state import Array, Pose

# A rotation smaller than this has no axis worth computing [rad].
NO_TURN = 1e-12
# A quaternion whose norm is further from 1 than this is a mistake, not rounding.
UNIT_TOLERANCE = 0.01


def about_vertical(angle: float) -> Array:
    """Compute the rotation (3, 3) by an angle [rad] about the vertical axis."""
    c, s = cos(angle), sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def yaw(rotation: Array) -> float:
    """Compute the direction of a frame's x axis about the vertical, in [-pi, pi] [rad]."""
    return atan2(rotation[1, 0], rotation[0, 0])


def angle_of(rotation: Array) -> float:
    """Compute the angle of a rotation (3, 3) about its axis, in [0, pi] [rad]."""
    return min(pi, acos(min(1.0, max(-1.0, (float(np.trace(rotation)) - 1.0) / 2.0))))


def quaternion(rotation: Array) -> Array:
    """Convert a rotation (3, 3) to a unit quaternion (4,), w first (Shepperd 1978).

    The same operations as MuJoCo's ``mju_mat2Quat``, so that recorded simulations repeat bit for bit.
    """
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = rotation.ravel().tolist()
    if m00 + m11 + m22 > 0.0:
        w = 0.5 * sqrt(1.0 + m00 + m11 + m22)
        x, y, z = 0.25 * (m21 - m12) / w, 0.25 * (m02 - m20) / w, 0.25 * (m10 - m01) / w
    elif m00 > m11 and m00 > m22:
        x = 0.5 * sqrt(1.0 + m00 - m11 - m22)
        w, y, z = 0.25 * (m21 - m12) / x, 0.25 * (m01 + m10) / x, 0.25 * (m02 + m20) / x
    elif m11 > m22:
        y = 0.5 * sqrt(1.0 - m00 + m11 - m22)
        w, x, z = 0.25 * (m02 - m20) / y, 0.25 * (m01 + m10) / y, 0.25 * (m12 + m21) / y
    else:
        z = 0.5 * sqrt(1.0 - m00 - m11 + m22)
        w, x, y = 0.25 * (m10 - m01) / z, 0.25 * (m02 + m20) / z, 0.25 * (m12 + m21) / z
    return _normalized(w, x, y, z)


def rotation_of(wxyz: ArrayLike) -> Array:
    """Convert a unit quaternion (4,), w first, to a rotation (3, 3)."""
    w, x, y, z = np.asarray(wxyz, np.float64).tolist()
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def rotation_vector(rotation: Array) -> Array:
    """Convert a rotation (3, 3) to axis times angle (3,), of at most pi [rad]."""
    w, *axis = quaternion(rotation).tolist()
    sine = sqrt(sum(part * part for part in axis))
    if sine < NO_TURN:
        return np.zeros(3)
    angle = 2.0 * atan2(sine, w)
    return np.array(axis) / sine * (angle - 2.0 * pi if angle > pi else angle)


def rotation_matrix(vector: ArrayLike) -> Array:
    """Convert axis times angle (3,) [rad] to a rotation (3, 3)."""
    turn = np.asarray(vector, np.float64)
    angle = float(np.linalg.norm(turn))
    if angle < NO_TURN:
        return np.eye(3)
    return rotation_of([cos(angle / 2.0), *(turn / angle * sin(angle / 2.0))])


def compose(pose: Pose, offset: Pose) -> Pose:
    """Return ``offset``, given in the frame of ``pose``, in the frame in which ``pose`` is given."""
    return Pose(pose.position + pose.rotation @ offset.position, pose.rotation @ offset.rotation)


def inverse(pose: Pose) -> Pose:
    """Return the frame in which ``pose`` is given, in the frame of ``pose``."""
    return Pose(-pose.rotation.T @ pose.position, pose.rotation.T)


def _normalized(w: float, x: float, y: float, z: float) -> Array:
    norm = sqrt(w * w + x * x + y * y + z * z)
    if abs(norm - 1.0) <= 1e-15:
        return np.array([w, x, y, z])
    scale = 1.0 / norm
    return np.array([w * scale, x * scale, y * scale, z * scale])
