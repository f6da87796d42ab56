"""Play released policies in cells that differ from training by more than `real` does, each in one way, or in several.

Example: python benchmarks/cells.py --policies ur5e_grasp --episodes 100

Every variation goes beyond `real` in at least one number (a test holds that), and has its physical reason beside it.
All are played with the same seeds as plain simulation, to which they are compared; the table has the worst first. What
has nothing to do with a policy's task is left out: reach sees no objects and does not close its gripper.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.envs.playing import Evaluation, evaluate
from td3robot.policy.checkpoint import Checkpoint, find, load_policy

SEED = 777
PLAIN = "plain simulation"


@dataclass(frozen=True)
class Variation:
    """One kind of cell: its name, who has it, what differs (fields of a disturbance), and for which tasks it counts."""

    name: str
    reason: str
    differs: dict[str, Any]
    tasks: tuple[str, ...] = ("reach", "grasp")


GRASP = ("grasp",)
VARIATIONS = (
    Variation(
        "gripper answers after 0.3 s",
        "a URCap polled by a slow program, or a gripper behind a fieldbus gateway",
        {"gripper_delay_s": (0.25, 0.3)},
        GRASP,
    ),
    Variation(
        "slowest gripper, late",
        "SPE 0 is 20 mm/s on a 2F-85, as for fragile parts, and the gateway besides",
        {"gripper_speed": (0.13, 0.14), "gripper_delay_s": (0.25, 0.3)},
        GRASP,
    ),
    Variation(
        "camera at 10 Hz",
        "a detector of poses that needs 100 ms a frame on a small computer",
        {"camera_rate_hz": (10.0, 10.0)},
        GRASP,
    ),
    Variation(
        "camera 0.25 s late",
        "compressed video over the network, then a pose network",
        {"camera_rate_hz": (30.0, 30.0), "camera_latency_s": (0.25, 0.25)},
        GRASP,
    ),
    Variation(
        "frames up to 0.1 s uneven",
        "a camera program that shares its computer",
        {"camera_rate_hz": (30.0, 30.0), "camera_jitter_s": 0.2, "camera_latency_s": (0.05, 0.05)},
        GRASP,
    ),
    Variation(
        "up to half of the frames lost",
        "Wi-Fi between camera and robot, or a marker that is often missed",
        {"camera_rate_hz": (30.0, 30.0), "camera_drop": 0.5},
        GRASP,
    ),
    Variation(
        "a frame in ten is odd",
        "another tag of the same number at the edge of the picture",
        {"camera_rate_hz": (30.0, 30.0), "camera_odd": 0.2},
        GRASP,
    ),
    Variation(
        "silent for 0.5 to 1 s",
        "a program that stores its pictures",
        {"camera_rate_hz": (30.0, 30.0), "camera_silence_s": (0.5, 1.0)},
        GRASP,
    ),
    Variation(
        "nudged by 50 to 100 mm",
        "somebody at the table",
        {"camera_rate_hz": (30.0, 30.0), "object_nudge_m": (0.05, 0.1)},
        GRASP,
    ),
    Variation(
        "hidden within 0.12 m",
        "a camera on the far side of the arm: forearm and gripper hide the object early",
        {"camera_rate_hz": (30.0, 30.0), "camera_hidden_m": (0.12, 0.12)},
        GRASP,
    ),
    Variation(
        "a poor webcam",
        "10 Hz, 0.2 s late, a fifth of the frames lost, hidden within 0.1 m, 2 mm of noise",
        {
            "camera_rate_hz": (10.0, 10.0),
            "camera_latency_s": (0.2, 0.2),
            "camera_drop": 0.4,
            "camera_hidden_m": (0.1, 0.1),
            "object_noise_m": 0.002,
        },
        GRASP,
    ),
    Variation(
        "3 mm of noise",
        "small markers, seen from 1.5 m",
        {"camera_rate_hz": (30.0, 30.0), "object_noise_m": 0.003},
        GRASP,
    ),
    Variation(
        "heading noise of 3 degrees",
        "a cube without texture has edges alone to tell its heading",
        {"camera_rate_hz": (30.0, 30.0), "object_turn_noise_rad": 0.05},
        GRASP,
    ),
    Variation(
        "camera up to 8 mm off",
        "a hand-eye calibration of ten poses, not of thirty",
        {"object_offset_m": 0.008},
        GRASP,
    ),
    Variation(
        "camera turned by half a degree",
        "the tripod was touched after its calibration: up to 6 mm at 0.65 m from the base, about each axis",
        {"camera_turn_rad": 0.009},
        GRASP,
    ),
    Variation("heading up to 8 degrees off", "a marker that was glued on by eye", {"object_turn_rad": 0.14}, GRASP),
    Variation("tool point 5 mm off", "fingertips that were exchanged for longer ones", {"tool_offset_m": 0.005}, GRASP),
    Variation("table 8 mm off", "a mat on the table, or a robot on a shim", {"table_offset_m": 0.008}, GRASP),
    Variation("object of 0.6 kg", "a cube of steel, not of plastic", {"object_mass_kg": (0.5, 0.6)}, GRASP),
    Variation("slippery object", "polished metal between dusty pads", {"object_friction": (0.35, 0.4)}, GRASP),
    Variation("object a fifth larger", "48 mm in place of 40: another product", {"object_scale": (1.2, 1.2)}, GRASP),
    Variation("object a fifth smaller", "32 mm in place of 40", {"object_scale": (0.8, 0.8)}, GRASP),
    Variation(
        "driver zeros 0.02 rad off",
        "a gripper whose counts were never read at its pendant page",
        {"driver_bias_rad": 0.02},
        GRASP,
    ),
    Variation(
        "targets act 0.2 s late",
        "a controller behind ROS over Wi-Fi",
        {"action_delay_s": (0.2, 0.2)},
    ),
    Variation("lag of 0.16 s", "a lookahead time of 0.16 s in servoj, for a smooth motion", {"servo_lag": (1.6, 1.6)}),
    Variation("half the stiffness", "a worn gear: the arm sags under its own motion", {"servo_stiffness": (0.5, 0.5)}),
    Variation(
        "overshooting joints",
        "a servoj with a short lookahead time or a low gain, or a joint that swings; users report both",
        {"servo_damping_factor": (0.4, 0.4)},
    ),
    Variation(
        "periods up to 30 % longer",
        "a computer without real-time priority under load",
        {"period_jitter": 0.3},
    ),
    Variation("zeros up to 3 mrad off", "a joint replaced and not calibrated again", {"encoder_bias_rad": 0.003}),
    Variation("0.5 kg untold", "a camera and its cable on the wrist, not in the payload", {"payload_kg": (0.5, 0.5)}),
    Variation(
        "a fair cell at its worst",
        "60 ms each way, overshoot, uneven periods, tool 3.5 mm off, a slow gripper, a webcam",
        {
            "action_delay_s": (0.05, 0.05),
            "observation_delay_s": (0.05, 0.05),
            "encoder_bias_rad": 0.001,
            "servo_damping_factor": (0.52, 0.69),
            "period_jitter": 0.16,
            "tool_offset_m": 0.0035,
            "gripper_speed": (0.4, 0.5),
            "gripper_delay_s": (0.05, 0.1),
            "camera_rate_hz": (14.0, 16.0),
            "camera_latency_s": (0.1, 0.2),
            "camera_drop": 0.1,
            "camera_hidden_m": (0.06, 0.06),
            "object_noise_m": 0.001,
        },
    ),
)


def play(policy: Path, differs: dict[str, Any], episodes: int) -> Evaluation:
    """Play a released policy, or a checkpoint, in a cell that differs from the model in the given ways alone."""
    place = find(policy)
    trained = Checkpoint(place).config().environment
    assert isinstance(trained, RobotEnvironmentConfig)
    environment = make_robot_env(RobotEnvironmentConfig(**trained.model_dump() | {"disturbance": differs}))
    try:
        return evaluate(environment, load_policy(place).act, episodes, SEED)
    finally:
        environment.close()


def main() -> None:
    """Play, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", nargs="+", type=Path, default=[Path("ur5e_grasp"), Path("ur5e_reach")])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        for policy in arguments.policies:
            environment = Checkpoint(find(policy)).config().environment
            assert isinstance(environment, RobotEnvironmentConfig)
            cells: dict[str, dict[str, Any]] = {PLAIN: {}} | {
                each.name: each.differs for each in VARIATIONS if environment.task.name in each.tasks
            }
            under_way = {name: pool.submit(play, policy, cell, arguments.episodes) for name, cell in cells.items()}
            figures = {name: each.result() for name, each in under_way.items()}
            results[str(policy)] = {name: each.to_json() for name, each in figures.items()}
            print(f"\n{policy}, {arguments.episodes} episodes each\n")
            print("| cell | success (95 % interval) | beside plain | fastest tool | steps changed by the guard |")
            print("|---|---|---|---|---|")
            for name in sorted(figures, key=lambda name: figures[name].success_rate or 0.0):
                print(row(name, figures[name], figures[PLAIN]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def row(name: str, figures: Evaluation, plain: Evaluation) -> str:
    """Lay out one line of the table."""
    assert figures.success_rate is not None
    assert plain.success_rate is not None
    assert figures.success_ci95 is not None
    assert figures.guard_interventions is not None
    low, high = figures.success_ci95
    fastest = 1e3 * (figures.max_tcp_speed_m_s or 0.0)
    return (
        f"| {name} | {100 * figures.success_rate:.1f} % ({100 * low:.1f} to {100 * high:.1f}) | "
        f"{100 * (figures.success_rate - plain.success_rate):+.1f} | {fastest:.0f} mm/s | "
        f"{100 * figures.guard_interventions.get('any', 0.0):.1f} % |"
    )


if __name__ == "__main__":
    main()
