"""Drive an FR3's stand-in with absurd policies through guard and driver, and judge every 1 kHz command.

    python benchmarks/franka_absurd.py [--seconds 600] [--host 127.0.0.8] [--tcp-speed 0.25]

Needs the extra `franka` and the environment that launch/franka_sim.sh makes.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from td3robot.build import robot_spec
from td3robot.config import GuardConfig, RobotEnvironmentConfig
from td3robot.robots.cells import CellConfig
from td3robot.robots.guard import Guard
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.physical import PhysicalRobot
from td3robot.simulators.franka.log import extremes, read_log
from td3robot.simulators.franka.process import FrankaSimulator, check_log
from td3robot.state import Array, JointCommand

PERIODS_OF_A_KIND = 37


def absurd(step: int, commanded: Array, home: Array, rng: np.random.Generator) -> JointCommand:
    """Do the worst: jumps, reversals at every step, far beyond the limits, and the hand at random."""
    n, kind = len(home), (step // PERIODS_OF_A_KIND) % 5
    if kind == 0:
        return JointCommand(rng.uniform(-4.0, 4.0, n), float(rng.integers(2)))
    if kind == 1:
        return JointCommand(commanded + rng.normal(0.0, 10.0, n), float(rng.uniform()))
    if kind == 2:
        return JointCommand(commanded + (1e9 if step % 2 else -1e9) * np.ones(n), 0.0)
    if kind == 3:
        return JointCommand(commanded + np.where(rng.uniform(size=n) < 0.5, -0.3, 0.3), 1.0)
    return JointCommand(home + rng.normal(0.0, 0.02, n), 0.0)


def drive(robot: PhysicalRobot, config: GuardConfig, seconds: float, seed: int = 0) -> Guard:
    """Drive a connected robot for so many seconds of its control clock, and stop; returns the guard that was asked."""
    rng, home = np.random.default_rng(seed), robot.spec.arm.home
    guard = Guard(robot.spec, config, Kinematics(robot.spec, config.clearance_m))
    guard.reset(robot.read().q)
    for step in range(round(seconds * robot.spec.control_rate_hz)):
        wish = absurd(step, guard.commanded.q, home, rng)
        robot.send(guard.filter(wish, robot.read(), robot.now()).command)
        robot.advance()
    robot.stop()
    return guard


def main() -> None:
    """Drive, judge, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--host", default="127.0.0.8")
    parser.add_argument("--tcp-speed", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kit = {"arm": "fr3", "gripper": "franka_hand"}
    guard = RobotEnvironmentConfig.model_validate(
        {"robot": kit, "guard": {"max_tcp_speed_m_s": options.tcp_speed, "max_state_age_s": 1.0}}
    ).guard
    franka = {"host": options.host, "realtime": "ignore", "late_periods": 30, "max_state_age_s": 1.0}
    cell = CellConfig.model_validate({"franka": franka})
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "commands.bin"
        standin = FrankaSimulator(options.host, log=log)
        robot = cell.driver(robot_spec(cell.robot))
        try:
            robot.connect()
            asked = drive(robot, guard, options.seconds, options.seed)
            print("driver:", robot.figures(), "missed", robot.status().missed_ticks)
        finally:
            robot.close()
            standin.close()
        verdict, records = check_log(log), read_log(log)
    print("guard:", dict(asked.interventions), "of", asked.commands)
    print("stand-in:", len(standin.events_of("reflex")), "reflexes,", len(standin.events_of("violation")), "violations")
    for column, meaning in (("c", "commanded by the client's generator"), ("q", "measured")):
        print(f"{meaning}:", extremes(records, column, robot.spec))
    print("offline:", verdict | {"violations": verdict["violations"][:5]}, len(verdict["violations"]), "violations")


if __name__ == "__main__":
    main()
