"""How a picture differs from the prints on an object, and how that changes with the object's pose; the inner loops."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import kernel
from td3robot.state import Array, Pose

# A sample that is off by this counts half, in standard deviations of its face.
OUTLIER = 0.6


@kernel
def compare(seen: Array, wanted: Array, J: Array, normal: Array, right: Array) -> tuple[float, float, float]:
    """Compare a face with its print, and add its part to the normal equations of a step.

    The face's own brightness and contrast are fitted with the same weights. ``seen`` and ``wanted`` (n,) are brightness
    in the picture and of the print, ``J`` (k, n) how the first changes with the pose, ``normal`` (k, k) and ``right``
    (k,) the equations.

    Returns:
        The weighted sum of squared errors, the sum of weights, and how alike the face is to its print.
    """
    n, k = len(seen), len(J)
    weight, error = np.ones(n), np.empty(n)
    mean = level = 0.0
    contrast = similar = 1.0
    for repeat in range(2):
        total = weight.sum()
        mean, level = (weight * seen).sum() / total, (weight * wanted).sum() / total
        across = along = bright = 0.0
        for i in range(n):
            across += weight[i] * (seen[i] - mean) * (wanted[i] - level)
            along += weight[i] * (wanted[i] - level) ** 2
            bright += weight[i] * (seen[i] - mean) ** 2
        if repeat == 0:
            similar = across / np.sqrt(along * bright) if bright > 1e-6 else 0.0
        contrast = max(across / along, 1.0)  # [of 255]
        for i in range(n):
            error[i] = (wanted[i] - level) - (seen[i] - mean) / contrast
            weight[i] = 1.0 / (1.0 + (error[i] / OUTLIER) ** 2)
    total = weight.sum()
    level = (weight * wanted).sum() / total
    along = (weight * (wanted - level) ** 2).sum()
    own = np.empty((k, n))
    for row in range(k):
        shift = tilt = 0.0
        for i in range(n):
            shift += weight[i] * J[row, i]
            tilt += weight[i] * (wanted[i] - level) * J[row, i]
        for i in range(n):
            own[row, i] = (J[row, i] - shift / total - (wanted[i] - level) * tilt / along) / contrast
    squares = 0.0
    for i in range(n):
        squares += weight[i] * error[i] ** 2
    for row in range(k):
        for i in range(n):
            right[row] += weight[i] * own[row, i] * error[i]
        for column in range(k):
            for i in range(n):
                normal[row, column] += weight[i] * own[row, i] * own[column, i]
    return squares, total, similar


class View(NamedTuple):
    """Points as a camera sees them: turned (n, 3) and seen at a distance of 1 (n, 2), with their depth (n,) [m]."""

    turned: Array
    seen: Array
    depth: Array


def view_of(points_m: Array, pose: Pose, place: Pose) -> View | None:
    """Return where points (n, 3) of an object are seen; None if one is not in front of the camera."""
    turned = points_m @ pose.rotation.T
    inside = (turned + pose.position - place.position) @ place.rotation
    depth = inside[:, 2].copy()
    return None if depth.min() <= 0.01 else View(turned, inside[:, :2] / depth[:, None], depth)


@kernel
def slopes(
    turned: Array, seen: Array, depth: Array, rotation: Array, axes: NDArray[np.int64], across: Array, down: Array
) -> Array:
    """Compute how something changes with the pose of the object that it is on, (k, n).

    The first three are of :class:`View`, ``rotation`` (3, 3) is the camera's; ``axes`` (k,) are the moves: along
    the base frame's axes, and about them. ``across`` and ``down`` (n,) say how it changes with where it is seen.
    """
    changes = np.empty((len(axes), len(depth)))
    for row in range(len(axes)):
        axis = axes[row]
        after, last = (axis - 2) % 3, (axis - 1) % 3
        for i in range(len(depth)):
            if axis < 3:
                x, y, z = rotation[axis, 0], rotation[axis, 1], rotation[axis, 2]
            else:
                ahead, behind = turned[i, after], turned[i, last]
                x = rotation[last, 0] * ahead - rotation[after, 0] * behind
                y = rotation[last, 1] * ahead - rotation[after, 1] * behind
                z = rotation[last, 2] * ahead - rotation[after, 2] * behind
            changes[row, i] = (across[i] * (x - seen[i, 0] * z) + down[i] * (y - seen[i, 1] * z)) / depth[i]
    return changes
