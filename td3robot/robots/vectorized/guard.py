"""The guard's ruling on many wishes at once, where nothing objects; all others are the guard's own."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import lengths, times
from td3robot.robots.guard import FAR, ROUNDING, UNEVEN_S, Limits
from td3robot.robots.vectorized.kinematics import Tools, VectorizedKinematics
from td3robot.state import Array

Flags = NDArray[np.bool_]
# Reasons to scale a wish, in the order in which the guard finds them.
SCALED = ("joint_speed", "tcp_speed", "acceleration")


class Rulings(NamedTuple):
    """What became of m wishes.

    Attributes:
        objected: (m,) whether the guard has to search for an admissible step; nothing else is said of these.
        scaled: (3, m) whether a wish was scaled, by ``SCALED``.
        q, velocity, behind: (m, n) commands, their joint velocities, and how far the arms are behind them.
        tools: The tools at the commands.
    """

    objected: Flags
    scaled: Flags
    q: Array
    velocity: Array
    behind: Array
    tools: Tools


class VectorizedGuard:
    """Rule on the wishes of m environments with one guard's limits.

    The arithmetic is that of :class:`Guard`, over arrays. A wish that reach objects to is left to the guard itself,
    which then searches: one in a hundred.
    """

    def __init__(self, limits: Limits, kinematics: VectorizedKinematics) -> None:
        self.limits, self._kinematics = limits, kinematics

    def rule(
        self, wishes: Array, measured: Array, q: Array, velocity: Array, behind: Array, tools: Tools, box: Array
    ) -> Rulings:
        """Rule on wishes (m, n) [rad] after the commands q, at their velocities; ``box`` is (2, m, 3) [m]."""
        limits = self.limits
        way = wishes - q
        desired = way / np.maximum(1.0, largest(way) / FAR)[:, None] / limits.period_s
        excess = self._excess(desired, q)
        too_fast = excess > 1.0 + 1e-9
        scale = np.where(too_fast, 1.0 / np.where(too_fast, excess, 1.0), 1.0)
        speed = scale * lengths(times(tools.linear, desired))
        tool_too_fast = speed > limits.tcp_speed * (1.0 + 1e-9)
        scale = np.where(tool_too_fast, scale * limits.tcp_speed / np.where(tool_too_fast, speed, 1.0), scale)
        desired = desired * scale[:, None]
        change = desired - velocity
        excess = largest(change) / limits.change
        too_sudden = excess > 1.0 + 1e-9
        if too_sudden.any():
            desired = np.where(too_sudden[:, None], velocity + change / np.maximum(excess, 1.0)[:, None], desired)
        scaled = np.array([too_fast, tool_too_fast, too_sudden])
        return self._reach(scaled, desired, measured, q, behind, box)

    def _reach(self, scaled: Flags, velocity: Array, measured: Array, q: Array, behind: Array, box: Array) -> Rulings:
        """Check a period at ``velocity``, and braking after it."""
        limits = self.limits
        ahead = q + velocity * limits.period_s
        lead = largest(ahead - measured)
        objected = (lead > limits.lead) & (lead > largest(q - measured))
        followed = limits.followed(behind, velocity)
        tools = Tools(*velocity.shape)
        objected |= self._objections(ahead, velocity, followed, tools, range(len(q)), box)
        braking, posture, trailing = velocity, ahead, followed
        while True:
            braking = self._braked(braking)
            moving = largest(braking) > 0.0
            rows = np.flatnonzero(moving & ~objected).tolist()
            if not rows:
                return Rulings(objected, scaled, ahead, velocity, followed, tools)
            posture = posture + braking * limits.period_s
            trailing = limits.followed(trailing, braking)
            found = self._objections(posture, braking, trailing, Tools(*velocity.shape), rows, box)
            objected[rows] |= found[rows]

    def _excess(self, velocity: Array, q: Array) -> Array:
        """Compute the largest share (m,) of a joint's speed limit at postures q (m, n) that velocities take."""
        lowest, highest = self.limits.speeds.at(q)
        excess: Array = np.maximum(velocity / lowest, velocity / highest).max(axis=1)
        return excess

    def _braked(self, velocity: Array) -> Array:
        """Return the velocities (m, n) after one period of braking as hard as allowed."""
        peak = largest(velocity)
        left = np.where(peak > 0.0, np.maximum(0.0, 1.0 - self.limits.change / np.maximum(peak, 1e-300)), 0.0)
        return velocity * left[:, None]

    def _objections(
        self, posture: Array, velocity: Array, behind: Array, tools: Tools, rows: Iterable[int], box: Array
    ) -> Flags:
        """Whether any limit is broken at postures, or by the arms behind them; of other rows, nothing is said."""
        limits, low, high = self.limits, box[0], box[1]
        near, arms = np.zeros(len(posture), np.bool_), Tools(*posture.shape)
        self._kinematics.fill(tools, posture, rows, near)
        self._kinematics.fill(arms, posture - behind, rows)
        outside = (posture < limits.lower) | (posture > limits.upper)
        beyond = (tools.positions < low) | (tools.positions > high)
        beyond |= (arms.positions < low) | (arms.positions > high)
        tool = times(tools.linear, velocity)
        fast = (tool * tool).sum(axis=1) > limits.tcp_speed_squared
        linear, speeds = arms.linear, behind / limits.lag_s
        gaining = (np.abs(velocity - speeds) * np.sqrt((linear * linear).sum(axis=1))).sum(axis=1)
        fast |= lengths(times(linear, speeds)) + UNEVEN_S / limits.lag_s * gaining > limits.speed_of_arm
        if not limits.speeds.same_everywhere:
            fast |= self._excess(velocity, posture) > 1.0 + ROUNDING
        found: Flags = near | fast | outside.any(axis=1) | beyond.any(axis=1)
        return found


def largest(values: Array) -> Array:
    """Return the largest magnitude of each row."""
    found: Array = np.abs(values).max(axis=1)
    return found
