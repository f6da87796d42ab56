"""Vectors and rotations over rows, compiled: for the few rows of a batch, several times as fast as NumPy.

What a row gets does not depend on how many there are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel
from td3robot.state import Array


@formula
def peak(values: Array) -> float:
    """Return the largest magnitude of the numbers (n,)."""
    found = 0.0
    for value in values:
        found = max(found, abs(value))
    return found


@kernel
def largest(values: Array) -> Array:
    """Return the largest magnitudes (m,) of rows (m, n)."""
    found = np.empty(len(values))
    for row in range(len(values)):
        found[row] = peak(values[row])
    return found


@formula
def dot(one: Array, other: Array) -> float:
    """Return the sum of the products of two vectors (n,)."""
    total = 0.0
    for index in range(len(one)):
        total += one[index] * other[index]
    return total


@formula
def length(vector: Array) -> float:
    """Compute the Euclidean length of a vector (n,)."""
    return float(np.sqrt(dot(vector, vector)))


@kernel
def apart(one: Array, other: Array) -> float:
    """Compute the distance between two points (n,)."""
    squared = 0.0
    for axis in range(len(one)):
        squared += (one[axis] - other[axis]) ** 2
    return float(np.sqrt(squared))


@kernel
def lengths(vectors: Array) -> Array:
    """Compute the Euclidean lengths (m,) of vectors (m, n)."""
    found = np.empty(len(vectors))
    for row in range(len(vectors)):
        found[row] = length(vectors[row])
    return found


@kernel
def is_finite(values: NDArray[Any]) -> bool:
    """Whether every number of an array is finite."""
    total = 0.0
    for value in values.flat:
        total += value * 0.0
    return total == 0.0


@kernel
def shift(history: Array, rows: NDArray[np.intp], newest: Array, anew: bool) -> None:
    """Move the histories (t, m, n) of some rows on by one, oldest first, to end with the newest values (r, n).

    Where histories begin anew, they hold nothing but these.
    """
    for index in range(len(rows)):
        row = rows[index]
        for moment in range(len(history)):
            for item in range(history.shape[2]):
                if anew or moment == len(history) - 1:
                    history[moment, row, item] = newest[index, item]
                else:
                    history[moment, row, item] = history[moment + 1, row, item]


@kernel
def totals(values: Array) -> Array:
    """Compute the sums (m,) of numbers (k, m), in their order."""
    found = np.zeros(values.shape[1])
    for each in values:
        for row in range(len(found)):
            found[row] += each[row]
    return found


@formula
def yaw(rotation: Array) -> float:
    """Compute the direction of a frame's x axis about the vertical, in [-pi, pi] [rad]."""
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))


@kernel
def turns_down(rotations: Array) -> Array:
    """Approximate the rotation vectors (m, 3) that point tools down, in the base frame.

    They are the axes of these rotations, which are level, times the sine of the angle [rad].
    """
    found = np.zeros((len(rotations), 3))
    for row in range(len(rotations)):
        found[row, 0], found[row, 1] = -rotations[row, 1, 2], rotations[row, 0, 2]
    return found


@kernel
def turns_between(rotations: Array, wanted: Array) -> Array:
    """Compute the rotation vectors (m, 3) that turn frames (m, 3, 3) into others (m, 3, 3), in the base frame [rad].

    Half a turn has two; near it, the axis loses its digits.
    """
    found = np.zeros((len(rotations), 3))
    turn = np.empty((3, 3))
    for row in range(len(rotations)):
        for i in range(3):
            for j in range(3):
                turn[i, j] = dot(wanted[row, i], rotations[row, j])
        sine = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2.0
        size, cosine = length(sine), (turn[0, 0] + turn[1, 1] + turn[2, 2] - 1.0) / 2.0
        share = 1.0 if size < 1e-9 else np.arctan2(size, cosine) / size
        for axis in range(3):
            found[row, axis] = share * sine[axis]
    return found


@formula
def damped_inverse(jacobian: Array, twist: Array, damping: float) -> Array:
    """Compute the joint displacements (n,) ``J' (J J' + damping^2 I)^-1 twist`` for a Jacobian (k, n).

    The matrix is positive definite, and solved by Cholesky's factors (Golub and Van Loan, Algorithm 4.2.1).
    """
    size, joints = jacobian.shape
    factor, solution = np.zeros((size, size)), np.empty(size)
    for i in range(size):
        for j in range(i + 1):
            total = damping * damping if i == j else 0.0
            for k in range(joints):
                total += jacobian[i, k] * jacobian[j, k]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            factor[i, j] = np.sqrt(total) if i == j else total / factor[j, j]
    for i in range(size):
        total = twist[i]
        for k in range(i):
            total -= factor[i, k] * solution[k]
        solution[i] = total / factor[i, i]
    for i in range(size - 1, -1, -1):
        total = solution[i]
        for k in range(i + 1, size):
            total -= factor[k, i] * solution[k]
        solution[i] = total / factor[i, i]
    displacement = np.zeros(joints)
    for i in range(size):
        for k in range(joints):
            displacement[k] += jacobian[i, k] * solution[i]
    return displacement
