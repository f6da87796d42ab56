"""Play a policy, and train one, with other gains and lookahead times of servoj than the recorded ones.

Usage: python benchmarks/gains.py --policy ur5e_reach --disturbance off real [--episodes 100]
       python benchmarks/gains.py --train ur5e_reach_quick

Everything but 300 and 0.1 s is an extrapolation: the law of docs/design.md, in simulation. A table in Markdown is
printed: the law's damping ratio and its overshoot of a step, how many episodes succeeded, the median time until the
goal was met for as long as it takes, and the highest tool speed.
"""

import argparse
import subprocess
import sys
from math import exp, pi, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, RobotEnvironmentConfig
from td3robot.policy.checkpoint import Checkpoint, find, load_policy
from td3robot.robots.arms import ServoLaw

LAWS = tuple(ServoLaw(*each) for each in ((300.0, 0.1), (600.0, 0.1), (1000.0, 0.1), (2000.0, 0.1), (1000.0, 0.05)))
SEED = 12345


def played(policy: Path, law: ServoLaw, level: str, episodes: int) -> tuple[float, float, float]:
    """Play a policy; return the share of episodes that succeeded, the median time until then [s] and the top speed."""
    place = find(policy)
    config = Checkpoint(place).config().environment
    assert isinstance(config, RobotEnvironmentConfig)
    robot = config.robot.model_copy(update={"servo_gain": law.gain, "servo_lookahead_s": law.lookahead_s})
    environment = make_robot_env(config.model_copy(update={"robot": robot, "disturbance": DISTURBANCES[level]}))
    act, took, succeeded, fastest = load_policy(place).act, [], 0, 0.0
    for episode in range(episodes):
        observation, _ = environment.reset(seed=SEED + episode)
        first, truncated, info = None, False, {"success": False}
        for step in range(1, config.episode_steps + 1):
            if truncated:
                break
            observation, _, _, truncated, info = environment.step(act(observation))
            first = step if first is None and info["success"] else first
            fastest = max(fastest, info["tcp_speed_m_s"])
        succeeded += bool(info["success"])
        took += [] if first is None else [first / config.robot.control_rate_hz]
    environment.close()
    return succeeded / episodes, float(np.median(took)), fastest


def trained(config: str, law: ServoLaw, folder: Path) -> Path:
    """Train a policy for a law, and return its run."""
    settings = {"robot.servo_gain": law.gain, "robot.servo_lookahead_s": law.lookahead_s}
    run = folder / f"gain{law.gain:g}_{law.lookahead_s:g}"
    subprocess.run(
        [
            sys.executable, "-m", "td3robot", "train", config, "--out", str(run),
            *(part for key, value in settings.items() for part in ("--set", f"environment.{key}={value}")),
        ],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return run


def overshoot(damping: float) -> float:
    """Return by what share a step is overshot."""
    return exp(-pi * damping / sqrt(1.0 - damping**2)) if damping < 1.0 else 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--policy", type=Path)
    chosen.add_argument("--train", help="a configuration to train with each law, and to play what comes of it")
    parser.add_argument("--disturbance", nargs="+", choices=DISTURBANCES, default=["off"])
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    print("| gain, lookahead | damping | overshoot | disturbance | success | time to goal | fastest tool |")
    print("|---" * 7 + "|")
    with TemporaryDirectory() as folder:
        for law in LAWS:
            policy = arguments.policy or trained(arguments.train, law, Path(folder))
            for level in arguments.disturbance:
                success, seconds, fastest = played(policy, law, level, arguments.episodes)
                print(
                    f"| {law.gain:g}, {law.lookahead_s:g} s | {law.damping:.2f} | {100 * overshoot(law.damping):.1f} % "
                    f"| {level} | {100 * success:.0f} % | {seconds:.2f} s | {1e3 * fastest:.0f} mm/s |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
