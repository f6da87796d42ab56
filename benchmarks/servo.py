"""Compare the servo's law with a UR5e's own recordings of its targets and joints.

Usage: git clone https://github.com/Yuxuan-Liang-git/UR5e_Torque; python benchmarks/servo.py UR5e_Torque

The client called ``servoJ(q, 0, 0, 0.002, 0.1, 300)`` about every 2 ms, lost some rows, and stood still for about 40 ms
at every fiftieth while it drew a plot. The time column ignores that. So times are rebuilt, in periods of the
controller: a row is as much later than the one before as the joint moved, over its speed. Each recording is predicted
from its targets alone, with the numbers that the client passed and only the transport fitted, then with all three.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, minimize_scalar

from td3robot.robots.arms import UR_LAW, ServoLaw
from td3robot.robots.servo import follow_line
from td3robot.state import Array

JOINTS = {0: "pan", 4: "wrist 2", 5: "wrist 3"}
PERIOD_S = 0.002
# Below this speed, a joint does not tell the time [rad/s].
SLOW_RAD_S = 0.02
# After how many rows the client drew its plot; where the joint was too slow to tell, that took as long as usual.
PLOT_ROWS = 50
LONG = 8


@dataclass(frozen=True)
class Recording:
    """One joint's recording: (n,) rows' times in whole periods, targets and angles [rad].

    Attributes:
        holds: How many times the target stood still.
        hold_s: For how long, in the median.
    """

    periods: Array
    targets: Array
    q: Array
    holds: int
    hold_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self.periods[-1]) * PERIOD_S

    def goals(self) -> Array:
        """Return the target in each period: a row's, until the next one comes."""
        return np.repeat(self.targets[:-1], np.diff(self.periods).astype(int))


def read(file: Path) -> Recording:
    """Read a recording and rebuild its times."""
    names = file.read_text().partition("\n")[0].split(",")
    columns = [names.index(name) for name in ("q_des", "q_act", "dq_act")]
    targets, q, v = np.loadtxt(file, delimiter=",", skiprows=1, usecols=columns).T
    a = np.gradient(v) / PERIOD_S
    a0, a1 = np.concatenate([a[:1], a[:1], a[:-3]]), np.concatenate([a[2:], a[-1:]])  # away from a hold
    mean, gaps = (v[1:] + v[:-1]) / 2.0, np.ones(len(v) - 1)
    quick = np.abs(mean) > SLOW_RAD_S
    for _ in range(4):  # the mean speed of a long gap needs its duration
        speed = mean - gaps * PERIOD_S / 12.0 * (a1 - a0) * (gaps > LONG)
        gaps[quick] = np.clip(np.diff(q)[quick] / speed[quick] / PERIOD_S, 1.0, 50.0)
    gaps = np.round(gaps)
    long = gaps > LONG
    usual = float(np.median(gaps[long]))
    last = int(np.argmax(long))
    for row in range(last + 1, len(gaps)):
        if long[row]:
            last = row
        elif row - last > PLOT_ROWS + 2:
            last += PLOT_ROWS
            gaps[last], long[last] = usual, True
    return Recording(np.concatenate([[0.0], np.cumsum(gaps)]), targets, q, int(long.sum()), usual * PERIOD_S)


def predicted(recording: Recording, law: ServoLaw, transport_s: float) -> Array:
    """Return the angles (n,) [rad] that the law gives at the recording's times.

    As the time of a servoJ says, the goal moves to each target within a period.
    """
    goals, gain = recording.goals()[:, None], np.array([law.gain])
    q, speed, found = goals[0].copy(), np.zeros(1), np.empty(len(goals) + 1)
    found[0] = q[0]
    for period in range(len(goals)):
        follow_line(gain, law.lookahead_s, PERIOD_S, goals[max(period - 1, 0)], goals[period], q, speed)
        found[period + 1] = q[0]
    return np.interp(recording.periods - transport_s / PERIOD_S, np.arange(len(found)), found)


def error(recording: Recording, law: ServoLaw, transport_s: float) -> Array:
    """Return by how much a prediction is off (n,) [mrad]."""
    return 1e3 * (recording.q - predicted(recording, law, transport_s))


def rms(values: Array) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(values**2)))


def row(joint: str, recording: Recording) -> str:
    """Fit a recording; return a row of the table."""
    given = minimize_scalar(lambda s: rms(error(recording, UR_LAW, s)), bounds=(-0.005, 0.02), method="bounded")
    free = least_squares(  # in units in which the three numbers are about 1
        lambda x: error(recording, ServoLaw(300.0 * x[0], 0.1 * x[1]), 0.002 * x[2]), (1.0, 1.0, 1.0), diff_step=1e-3
    )
    gain, lookahead_s, transport_s = np.array([300.0, 0.1, 0.002]) * free.x
    return (
        f"| {joint} | {recording.seconds:.0f} s, {recording.holds} of {1e3 * recording.hold_s:.0f} ms "
        f"| {1e3 * given.x:.1f} ms | {given.fun:.3f} "
        f"| {gain:.0f}, {1e3 * lookahead_s:.1f} ms, {1e3 * transport_s:.1f} ms | {rms(free.fun):.3f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    folder = parser.parse_args(arguments).clone / "joint_test" / "Data"
    print("| joint | recording, holds | transport, with 300 and 0.1 s | rms mrad | all three fitted | rms mrad |")
    print("|---" * 6 + "|")
    for index, joint in JOINTS.items():
        print(row(joint, read(folder / f"Data_Joint_{index}.csv")), flush=True)


if __name__ == "__main__":
    main()
