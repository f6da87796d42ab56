"""What the stand-in sees when its own process, or the driver's worker, is held up for some milliseconds.

Usage: python benchmarks/stalls.py [--rtde-rate 125] [--rounds 5] [--host 127.0.0.3]

The shoulder goes at a steady 0.3 rad/s while one of the two is stopped six times (SIGSTOP). What is printed is by how
much targets and arm were faster than that, as the stand-in sees it: medians over the rounds, as Markdown, in about a
minute a round. Where a host takes a virtual machine's processors away, the rows without a stop are not zero either.
"""

import argparse
import os
import signal
import time

import numpy as np

from td3robot.build import robot_spec
from td3robot.robots.cells import CellConfig
from td3robot.robots.ur.robot import UrRobot
from td3robot.simulators.process import start_ur_simulator
from td3robot.state import JointCommand

SPEED = 0.3  # [rad/s]
STALLS_MS = (0, 3, 6, 10, 15, 30)
# Control periods until the first stop, and from one to the next; six stops, and back at twice the speed.
STEADY, BETWEEN = 14, 7
PERIODS = STEADY + 6 * BETWEEN
SIDES = ("targets", "measured")


def stop_for(pid: int, seconds: float) -> None:
    """Stop a process for a time, to the tenth of a millisecond."""
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
    finally:
        os.kill(pid, signal.SIGCONT)


def drive(robot: UrRobot, periods: int, speed: float, pid: int = 0, stall_s: float = 0.0) -> None:
    """Turn the shoulder from where it is, and stop a process now and then."""
    q = robot.read().q
    for period in range(periods):
        q = q + np.array([speed * robot.spec.period_s, 0, 0, 0, 0, 0])
        robot.send(JointCommand(q, 0.0))
        if stall_s > 0.0 and period >= STEADY and period % BETWEEN == 0:
            stop_for(pid, stall_s)
        robot.advance()
    robot.stop()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtde-rate", type=int, default=125, choices=(125, 500))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--host", default="127.0.0.3")
    arguments = parser.parse_args()
    ur = {"host": arguments.host, "rtde_rate_hz": arguments.rtde_rate, "late_periods": 5.0}
    cell = CellConfig.model_validate({"ur": ur})
    with start_ur_simulator(arguments.host, gripper_active=True) as standin:
        robot = UrRobot(robot_spec(cell.robot), cell)
        robot.connect()
        stopped = {"stand-in": standin.child.pid, "worker": robot.worker_pid}
        found: dict[tuple[str, int], list[list[float]]] = {(who, ms): [] for who in stopped for ms in STALLS_MS}
        for _ in range(arguments.rounds):
            for (who, stall_ms), figures in found.items():
                lost = standin.state()["clock"]["lost_s"]
                standin.ask(reset_wire=True)
                drive(robot, PERIODS, SPEED, stopped[who], 1e-3 * stall_ms)
                state = standin.state()
                faster = [100 * (state["wire"][side]["joint_speed_rad_s"] / SPEED - 1) for side in SIDES]
                figures.append([*faster, 1e3 * (state["clock"]["lost_s"] - lost)])
                drive(robot, PERIODS // 2, -2 * SPEED)
        print("| who was stopped, 6 times | for | targets | arm | stand-in gave up |\n|---|---|---|---|---|")
        for (who, stall_ms), figures in found.items():
            targets, arm, lost = np.median(figures, axis=0)
            print(f"| {who} | {stall_ms} ms | {targets:+.1f} % | {arm:+.1f} % | {lost:.0f} ms |")
        robot.close()


if __name__ == "__main__":
    main()
