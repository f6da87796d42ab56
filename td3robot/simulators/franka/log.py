"""Evaluates the stand-in's log of 1 kHz commands: speeds and accelerations on the wire, and timekeeping."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.robots.arms import Chain
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array

# As ``serve.py`` writes it: monotonic time [s], number of the robot's cycle, mode, commanded and measured angles [rad].
RECORD = np.dtype([("t", "f8"), ("id", "u8"), ("mode", "i8"), ("c", "f8", 7), ("q", "f8", 7)])
CYCLE_S = 1e-3
# A pause of this many cycles begins a new motion.
PAUSE = 50
# Velocities of measured angles, and all accelerations, are taken over this many cycles: a control period's worth would
# hide the effect of 20 Hz targets, and a single cycle's is the generator's jerk.
SPAN = 10


def read_log(path: Path, since_s: float = 0.0) -> NDArray[Any]:
    """Return the records from a monotonic time [s] on."""
    data = np.fromfile(path, dtype=RECORD) if path.is_file() else np.zeros(0, RECORD)
    return data[data["t"] >= since_s]


def motions(data: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the records split where the arm rested."""
    ids = data["id"].astype(np.int64)
    cuts = np.flatnonzero((np.diff(ids) > PAUSE) | (np.diff(ids) <= 0)) + 1
    return [part for part in np.split(data, cuts) if len(part) > 2 * SPAN]


def extremes(data: NDArray[Any], column: str, spec: RobotSpec) -> dict[str, float]:
    """Return the largest tool speed [m/s], joint speed [rad/s] and joint acceleration [rad/s2] of ``c`` or ``q``."""
    tool, speed, acceleration = 0.0, 0.0, 0.0
    for part in motions(data):
        times = CYCLE_S * part["id"].astype(np.float64)[::SPAN]
        q = part[column][::SPAN]
        velocity = np.diff(q, axis=0) / np.diff(times)[:, None]
        change = np.diff(velocity, axis=0) / np.diff(times)[1:, None]
        points = tool_positions(spec.arm.chain, spec.tcp_offset_m, q)
        speeds = np.linalg.norm(np.diff(points, axis=0), axis=1) / np.diff(times)
        tool = max(tool, float(speeds.max()))
        speed = max(speed, float(np.abs(velocity).max()))
        acceleration = max(acceleration, float(np.abs(change).max(initial=0.0)))
    return {"tcp_speed_m_s": tool, "joint_speed_rad_s": speed, "joint_acceleration_rad_s2": acceleration}


def tool_positions(chain: Chain, offset_m: float, q: Array) -> Array:
    """Compute the tool centre point (k, 3) [m] of many postures (k, n) [rad]."""
    first, *others = chain.transforms()
    poses = np.broadcast_to(first, (len(q), 4, 4))
    for joint, transform in enumerate(others):
        c, s = np.cos(q[:, joint]), np.sin(q[:, joint])
        turns = np.broadcast_to(np.eye(4), (len(q), 4, 4)).copy()
        turns[:, 0, 0], turns[:, 0, 1], turns[:, 1, 0], turns[:, 1, 1] = c, -s, s, c
        poses = poses @ turns @ transform
    points: Array = poses[:, :3, 3] + offset_m * poses[:, :3, 2]
    return points


def timekeeping(data: NDArray[Any]) -> dict[str, float]:
    """Return how late cycles were by this computer's clock, and how much time was lost in total [s]."""
    late, lost = [np.zeros(1)], 0.0
    for part in motions(data):
        cycles = np.diff(part["id"].astype(np.int64))
        passed = np.diff(part["t"])
        late.append(np.maximum(passed - CYCLE_S * cycles, 0.0))
        lost += max(0.0, float(part["t"][-1] - part["t"][0] - CYCLE_S * cycles.sum()))
    every = np.concatenate(late)
    p50, p99 = (float(value) for value in np.percentile(every, [50, 99]))
    return {"late_p50_s": p50, "late_p99_s": p99, "late_worst_s": float(every.max()), "lost_s": lost}
