"""Run franka-sim's offline checker over a log of 1 kHz commands, and measure lag and shape."""

# isort: off
import stub  # noqa: F401  # makes the others importable
# isort: on

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from franka_sim.control_modes import ControlMode
from franka_sim.limits import tables
from franka_sim.limits.checker import MotionLimitChecker
from td3robot.state import Array

RECORD = np.dtype([("t", "f8"), ("id", "u8"), ("mode", "i8"), ("c", "f8", 7), ("q", "f8", 7)])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a log says.

    Attributes:
        commands, gaps: How many, and how many cycles without one.
        violations: What the checker found, in words.
        acceleration, jerk: Largest [rad/s^2, rad/s^3]; ``rms`` of the acceleration.
        speed_share: Largest joint velocity as a share of what the arm allows there.
    """

    commands: int
    gaps: int
    violations: list[str]
    acceleration: float
    rms: float
    jerk: float
    speed_share: float


def judge(path: Path) -> Verdict:
    """Judge every command of a log; a pause of over 50 cycles begins a new motion."""
    data = np.fromfile(path, dtype=RECORD)
    ids = data["id"].astype(np.int64)
    breaks = [0, *(np.flatnonzero((np.diff(ids) > 50) | (np.diff(ids) <= 0)) + 1), len(data)]
    violations: list[str] = []
    peaks = np.zeros(4)
    for begin, end in zip(breaks, breaks[1:], strict=False):
        if end - begin > 3:
            violations += _check(data[begin:end])
            peaks = np.maximum(peaks, _shape(data[begin:end]))
    gaps = int((np.diff(ids) > 1).sum())
    return Verdict(len(data), gaps, violations, peaks[0], peaks[1], peaks[2], peaks[3])


def _check(data: Array) -> list[str]:
    checker = MotionLimitChecker(enforce=False)
    first = data["c"][0].tolist()
    checker.start_motion(ControlMode.POSITION, {"q_d": first, "q": first, "dq_d": [0.0] * 7, "ddq_d": [0.0] * 7}, 1)
    found = []
    for message, c, q in zip(data["id"].tolist(), data["c"].tolist(), data["q"].tolist(), strict=True):
        command = {"message_id": message, "q_c": c}
        checker.note_published(message)
        violation = checker.check(command, q)
        if violation is not None:
            found.append(f"{message}: {violation.describe()}")
        checker.record(command)
    return found


def _shape(data: Array) -> Array:
    steps = np.diff(data["id"].astype(np.int64))
    velocity = np.diff(data["c"], axis=0) / steps[:, None] * 1e3
    acceleration = np.diff(velocity, axis=0) * 1e3
    jerk = np.diff(acceleration, axis=0) * 1e3
    one = (steps[1:] == 1) & (steps[:-1] == 1)
    two = one[1:] & one[:-1]
    share = 0.0
    for v, q in zip(velocity[::10], data["c"][1::10], strict=False):
        up, down = np.array(tables.upper_joint_velocity_limits(q)), np.array(tables.lower_joint_velocity_limits(q))
        share = max(share, float(np.max(np.where(v > 0, v / np.maximum(up, 1e-9), v / np.minimum(down, -1e-9)))))
    a = acceleration[one]
    return np.array([np.abs(a).max(), np.sqrt((a**2).mean()), np.abs(jerk[two]).max(), share])


def lag(path: Path, ticks: Array, targets: Array, column: str = "c") -> tuple[float, float, float]:
    """Fit a pure delay and a first-order lag behind straight lines between targets, on the robot's own clock.

    Args:
        path: The log.
        ticks: (k,) when each target was sent; it is to be reached one tick later [s].
        targets: (k, 7) [rad].
        column: ``c`` what was commanded at 1 kHz, ``q`` what was measured.

    Returns:
        Delay [s], root mean square of what is left [rad], and the first-order lag that fits best [s].
    """
    data = np.fromfile(path, dtype=RECORD)
    data = data[(data["t"] > ticks[2] - 1.0) & (data["t"] < ticks[-3])].copy()
    ticks = np.interp(ticks, data["t"], 1e-3 * data["id"])
    data["t"] = 1e-3 * data["id"]
    data = data[data["t"] > ticks[2]]
    ticks, targets = ticks[:-4], targets[:-4]
    data = data[data["t"] < ticks[-1]][-20_000::10]
    reached = np.append(ticks[1:], ticks[-1] + np.median(np.diff(ticks)))
    best = (np.inf, 0.0)
    for delay in np.arange(-0.01, 0.15, 0.002):
        best = min(best, (_rms(data, column, reached, targets, delay), delay))
    fine = np.arange(ticks[0], ticks[-1], 1e-3)
    line = np.stack([np.interp(fine, reached, targets[:, joint]) for joint in range(7)], axis=1)
    first = (np.inf, 0.0)
    for constant in np.arange(0.01, 0.12, 0.01):
        y = line.copy()
        for k in range(1, len(y)):
            y[k] = y[k - 1] + (line[k] - y[k - 1]) * (1e-3 / constant)
        value = np.stack([np.interp(data["t"], fine, y[:, joint]) for joint in range(7)], axis=1)
        first = min(first, (float(np.sqrt(((data[column] - value) ** 2).mean())), constant))
    return best[1], best[0], first[1]


def lag_by_speed(path: Path, ticks: Array, targets: Array) -> list[tuple[float, float, float]]:
    """Give the lag [s] of what was commanded behind straight lines, by joint speed: (rad/s, joint's own, fastest's)."""
    data = np.fromfile(path, dtype=RECORD)
    data = data[(data["t"] > ticks[2]) & (data["t"] < ticks[-3])][::5]
    reached = np.append(ticks[1:], ticks[-1] + np.median(np.diff(ticks)))
    line = np.stack([np.interp(data["t"], reached, targets[:, joint]) for joint in range(7)], axis=1)
    index = np.clip(np.searchsorted(reached, data["t"]), 1, len(reached) - 1)
    velocity = (targets[index] - targets[index - 1]) / (reached[index] - reached[index - 1])[:, None]
    behind = line - data["c"]
    fastest = np.abs(velocity).max(axis=1, keepdims=True) * np.ones(7)
    rows = []
    for low, high in ((0.05, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.0)):
        own, other = ((np.abs(x) >= low) & (np.abs(x) < high) & (np.abs(velocity) > 0.03) for x in (velocity, fastest))
        rows.append(
            (
                (low + high) / 2,
                *(float(np.median(behind[m] / velocity[m])) if m.sum() > 200 else np.nan for m in (own, other)),
            )
        )
    return rows


def _rms(data: Array, column: str, reached: Array, targets: Array, delay: float) -> float:
    line = np.stack([np.interp(data["t"] - delay, reached, targets[:, joint]) for joint in range(7)], axis=1)
    return float(np.sqrt(((data[column] - line) ** 2).mean()))


def main() -> None:
    """Judge the log named on the command line."""
    verdict = judge(Path(sys.argv[1]))
    print(f"{verdict.commands} commands, {verdict.gaps} gaps, {len(verdict.violations)} violations")
    print(
        f"acceleration {verdict.acceleration:.2f} rad/s2 (rms {verdict.rms:.2f}), jerk {verdict.jerk:.0f} rad/s3, "
        f"joint speed {100 * verdict.speed_share:.0f} % of what the arm allows there"
    )
    for line in verdict.violations[:10]:
        print("   ", line)


if __name__ == "__main__":
    main()
