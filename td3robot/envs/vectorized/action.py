"""Wishes of many environments at once; the arithmetic is that of :mod:`td3robot.envs.action`."""

import numpy as np
from numpy.typing import NDArray

from td3robot.envs.action import (
    CLOSES_AT,
    MAX_TURN,
    NULL_SPACE_DAMPING,
    OPENS_AT,
    POSTURE_GAIN_HZ,
    POSTURE_SPEED,
    TASK_JOINTS,
    TILT_RADIUS,
    JointDelta,
    TcpDelta,
)
from td3robot.geometry import lengths, solve, times, turns_down
from td3robot.robots.vectorized.kinematics import Tools
from td3robot.state import Array
from td3robot.tasks.interface import CLOSING_PER_S


class VectorizedTcpDelta:
    """What :class:`TcpDelta` wishes, for m environments."""

    def __init__(self, kind: TcpDelta) -> None:
        self.kind, self._terms = kind, kind.terms()

    def moves(self, actions: NDArray[np.float32], q: Array, velocity: Array, tools: Tools) -> Array:
        """Compute the changes (m, n) [rad] that actions (m, action) ask for.

        Args:
            actions: In [-1, 1].
            q: (m, n) commanded postures [rad].
            velocity: (m, n) of the commanded joints [rad/s].
            tools: At the commanded postures.
        """
        t, config = self._terms, self.kind.config
        linear, angular = tools.linear, tools.jacobians[:, 3:]
        before = times(linear, velocity)
        tool = before + t.response * (self._velocities(actions[:, :3].astype(np.float64)) - before)
        dx = np.minimum(np.maximum(tools.positions + tool * t.period_s, t.low), t.high) - tools.positions
        turn = self._upright(tools.rotations) * (config.orientation_gain_hz * t.period_s)
        if t.turns_tool:
            rate = (angular[:, 2] * velocity).sum(axis=1)
            bent = config.signed_share(actions[:, 3].astype(np.float64))
            change = np.clip(t.response * (bent * config.turn_rad_s - rate), -t.turn_change, t.turn_change)
            turn[:, 2] = (rate + change) * t.period_s
        across = linear.transpose(0, 2, 1)
        gram = linear @ across
        dq = times(across, solve(gram + t.position_damping, dx[..., None])[..., 0])
        crossed = solve(gram + t.null_space_damping, linear @ angular.transpose(0, 2, 1))
        free = angular - crossed.transpose(0, 2, 1) @ linear
        free_across = free.transpose(0, 2, 1)
        missing = turn - times(angular, dq)
        left = solve(free @ free_across + t.orientation_damping, missing[..., None])[..., 0]
        moves: Array = dq + times(free_across, left)
        return moves + self._back_to_posture(tools.jacobians, q, velocity) if t.redundant else moves

    def _velocities(self, directions: Array) -> Array:
        """Return the tool velocities (m, 3) [m/s] that actions (m, 3) ask for; see :class:`TcpDelta`."""
        config, speed = self.kind.config, self._terms.speed
        if config.per_axis:
            bent = config.signed_share(directions)
            along: Array = speed * bent / np.maximum(lengths(bent), 1.0)[:, None]
            return along
        size = lengths(directions)
        per_length = speed * config.share(np.minimum(size, 1.0)) / np.maximum(size, 1e-9)
        return directions * per_length[:, None]

    def _back_to_posture(self, jacobians: Array, q: Array, velocity: Array) -> Array:
        """Compute the changes (m, n) [rad] that bring arms nearer to home without moving their tools."""
        t = self._terms
        wanted = POSTURE_GAIN_HZ * (t.home - q)
        wanted[:, -1] = 0.0
        wanted *= np.minimum(1.0, POSTURE_SPEED / np.maximum(np.abs(wanted).max(axis=1), 1e-9))[:, None]
        change = (velocity + t.response * (wanted - velocity)) * t.period_s
        across = jacobians.transpose(0, 2, 1)
        gram = jacobians @ across + NULL_SPACE_DAMPING**2 * np.eye(TASK_JOINTS)
        return change - times(across, solve(gram, times(jacobians, change)[..., None])[..., 0])

    def _upright(self, rotations: Array) -> Array:
        """Approximate the rotation vectors (m, 3) from tools to home's orientation, as ``small_turn`` does."""
        home = self._terms.home_rotation
        wanted = home
        if self._terms.turns_tool:
            x, y = home[:2, 0], rotations[:, :2, 0]
            c, s = x[0] * y[:, 0] + x[1] * y[:, 1], x[0] * y[:, 1] - x[1] * y[:, 0]
            scale = np.maximum(np.hypot(c, s), 1e-9)
            about = np.zeros((len(c), 3, 3))
            about[:, 0, 0] = about[:, 1, 1] = c / scale
            about[:, 1, 0], about[:, 0, 1], about[:, 2, 2] = s / scale, -s / scale, 1.0
            wanted = about @ home
        m = wanted @ rotations.transpose(0, 2, 1)
        error = 0.5 * np.stack([m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]], axis=1)
        cut: Array = error * np.minimum(1.0, MAX_TURN / np.maximum(lengths(error), 1e-9))[:, None]
        return cut


class VectorizedJointDelta:
    """What :class:`JointDelta` wishes, for m environments."""

    def __init__(self, kind: JointDelta) -> None:
        self.kind, self._terms = kind, kind.terms()

    def moves(self, actions: NDArray[np.float32], q: Array, velocity: Array, tools: Tools) -> Array:
        """Compute the changes (m, n) [rad] that actions ask for; arguments as in :class:`VectorizedTcpDelta`."""
        t = self._terms
        bent = self.kind.config.signed_share(actions)
        wanted = bent[:, : velocity.shape[1]] * t.speed
        tool = lengths(times(tools.linear, wanted))
        wanted *= np.minimum(1.0, t.tool_speed / np.maximum(tool, 1e-9))[:, None]
        moves: Array = (velocity + t.response * (wanted - velocity)) * t.period_s
        moved = times(tools.jacobians, moves)
        positions, tilts = tools.positions + moved[:, :3], turns_down(tools.rotations)[:, :2] - moved[:, 3:5]
        low = t.low + np.zeros_like(positions)
        low[:, 2] += TILT_RADIUS * lengths(tilts)
        back: Array = np.minimum(np.maximum(positions, low), t.high) - positions
        beyond = lengths(back) > 0.0
        if beyond.any():
            across = tools.jacobians.transpose(0, 2, 1)
            gram = tools.jacobians @ across + t.slide_damping
            twist = np.concatenate([back, np.zeros_like(back)], axis=1)
            slid = moves + times(across, solve(gram, twist[..., None])[..., 0])
            moves = np.where(beyond[:, None], slid, moves)
        return moves


def waiting(actions: NDArray[np.float32], closing_rate: Array, gripper: Array) -> NDArray[np.float32]:
    """Return actions (m, action), asking nothing of arms that wait for their grippers; see ActionKind.waiting."""
    found = actions.copy()
    found[(gripper >= 1.0) & (closing_rate >= CLOSING_PER_S), :-1] = 0.0
    return found


def told(intent: Array, before: Array) -> Array:
    """Return the grippers' next commanded closed fractions (m,); see :meth:`ActionKind.told`."""
    return np.where(intent >= CLOSES_AT, 1.0, np.where(intent <= OPENS_AT, 0.0, before))
