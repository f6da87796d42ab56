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
    turned, seen, depth = _seen_from(points_m, pose.rotation, pose.position - place.position, place.rotation)
    return None if depth.min() <= 0.01 else View(turned, seen, depth)


@kernel
def _seen_from(points: Array, rotation: Array, shift: Array, turn: Array) -> tuple[Array, Array, Array]:
    """Return a :class:`View` of points (n, 3), turned by (3, 3), shifted by (3,), from a camera turned by (3, 3)."""
    turned, seen, depth = np.empty((len(points), 3)), np.empty((len(points), 2)), np.empty(len(points))
    moved = np.empty(3)
    for i in range(len(points)):
        for k in range(3):
            turned[i, k] = rotation[k, 0] * points[i, 0] + rotation[k, 1] * points[i, 1] + rotation[k, 2] * points[i, 2]
            moved[k] = turned[i, k] + shift[k]
        depth[i] = moved[0] * turn[0, 2] + moved[1] * turn[1, 2] + moved[2] * turn[2, 2]
        for k in range(2):
            seen[i, k] = (moved[0] * turn[0, k] + moved[1] * turn[1, k] + moved[2] * turn[2, k]) / depth[i]
    return turned, seen, depth


@kernel
def blur_kernel(across: Array, blur_px: float, reach: int) -> NDArray[np.float32]:
    """Compute how a picture's blur [pixels] looks on a print: a normal distribution, at most so far to each side.

    ``across`` (2, 2) are the picture's pixels for one of the print's to the right, and down, as columns.
    """
    (a, b), (c, d) = (across[0, 0], across[0, 1]), (across[1, 0], across[1, 1])
    # The inverse of a covariance B B^T with B = blur * across^-1 is (across^T across) / blur^2.
    right, both, down = (a * a + c * c) / blur_px**2, (a * b + c * d) / blur_px**2, (b * b + d * d) / blur_px**2
    area = (a * d - b * c) / blur_px**2
    widest = np.sqrt(max(right, down)) / abs(area)
    reach = int(min(max(np.ceil(2.5 * widest), 1), reach))
    kernel = np.empty((2 * reach + 1, 2 * reach + 1))
    for i in range(2 * reach + 1):
        for j in range(2 * reach + 1):
            x, y = j - reach, i - reach
            kernel[i, j] = np.exp(-0.5 * (right * x * x + 2.0 * both * x * y + down * y * y))
    whole: NDArray[np.float32] = (kernel / kernel.sum()).astype(np.float32)
    return whole


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
