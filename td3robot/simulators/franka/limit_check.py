"""Checks a log of 1 kHz commands against the FR3's limits.

Runs as a child process in the environment that ``launch/franka_sim.sh`` makes, with that environment's offline checker
and nothing of td3robot but ``processes``.
"""

from pathlib import Path
from typing import Any

import numpy as np
from franka_sim.control_modes import ControlMode
from franka_sim.limits import tables
from franka_sim.limits.checker import MotionLimitChecker

from td3robot.processes import Parent

# As ``serve.py`` writes it.
RECORD = np.dtype([("t", "f8"), ("id", "u8"), ("mode", "i8"), ("c", "f8", 7), ("q", "f8", 7)])
# A pause of this many cycles begins a new motion; fewer commands than the second number are not a motion.
PAUSE, SHORTEST = 50, 4


def run_child(parent: Parent) -> None:
    """Check the log that the first message names, and answer with the result."""
    parent.answer(check_limits(parent.next()))


def check_limits(path: Path) -> dict[str, Any]:
    """Check every command of a log.

    Returns:
        ``commands``, ``gaps`` (cycles without one), ``violations`` in words, and the largest ``acceleration`` [rad/s2],
        ``jerk`` [rad/s3] and ``speed_share`` (joint speed by what the arm allows there).
    """
    data = np.fromfile(path, dtype=RECORD)
    ids = data["id"].astype(np.int64)
    cuts = np.flatnonzero((np.diff(ids) > PAUSE) | (np.diff(ids) <= 0)) + 1
    violations: list[str] = []
    peaks = np.zeros(3)
    for part in np.split(data, cuts):
        if len(part) >= SHORTEST:
            violations += _check(part)
            peaks = np.maximum(peaks, _peaks(part))
    acceleration, jerk, share = peaks.tolist()
    return {
        "commands": len(data),
        "gaps": int((np.diff(ids) > 1).sum()),
        "violations": violations,
        "acceleration": acceleration,
        "jerk": jerk,
        "speed_share": share,
    }


def _check(data: Any) -> list[str]:
    checker = MotionLimitChecker(enforce=False)
    first = data["c"][0].tolist()
    at_rest = {"q_d": first, "q": first, "dq_d": [0.0] * 7, "ddq_d": [0.0] * 7}
    checker.start_motion(ControlMode.POSITION, at_rest, 1)
    found = []
    for message, commanded, q in zip(data["id"].tolist(), data["c"].tolist(), data["q"].tolist(), strict=True):
        command = {"message_id": message, "q_c": commanded}
        checker.note_published(message)
        violation = checker.check(command, q)
        if violation is not None:
            found.append(f"{message}: {violation.describe()}")
        checker.record(command)
    return found


def _peaks(data: Any) -> Any:
    steps = np.diff(data["id"].astype(np.int64))
    velocity = np.diff(data["c"], axis=0) / steps[:, None] * 1e3
    acceleration = np.diff(velocity, axis=0) * 1e3
    jerk = np.diff(acceleration, axis=0) * 1e3
    one = (steps[1:] == 1) & (steps[:-1] == 1)
    share = 0.0
    for v, q in zip(velocity[::10], data["c"][1::10], strict=False):
        up, down = np.array(tables.upper_joint_velocity_limits(q)), np.array(tables.lower_joint_velocity_limits(q))
        share = max(share, float(np.max(np.where(v > 0, v / np.maximum(up, 1e-9), v / np.minimum(down, -1e-9)))))
    most, jerks = np.abs(acceleration[one]).max(initial=0.0), np.abs(jerk[one[1:] & one[:-1]]).max(initial=0.0)
    return np.array([most, jerks, share])
