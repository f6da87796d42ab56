"""Records of six joints that follow a sine, of any length, without an arm and without waiting."""

import json
import math
from pathlib import Path

import pytest

from td3robot.build import make_robot_env
from td3robot.config import load_config

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach_quick.yaml"
HOME = [-1.57, -1.57, 1.57, -1.57, -1.57, 0.0]
PERIOD_S = 0.05


def session_line(contract, **more):
    """Give the first line of a record."""
    check = {
        "go": True, "edges_ms": [], "histograms": {}, "facts": {"serial_number": "20195500001"},
        "findings": [
            {"name": "brakes", "expected": "open", "found": "open", "verdict": "go", "advice": ""},
            {"name": "jitter", "expected": "below 4 ms", "found": "5 ms", "verdict": "attention", "advice": "look"},
        ],
    }  # fmt: skip
    return {
        "kind": "session", "at": 100.0, "version": 1, "td3robot": "0.1.0", "unix_time": 1.8e9, "mode": "run",
        "checkpoint": "checkpoints/ur5e_reach", "digest": "0" * 64, "speed": 1.0, "override": None, "check": check,
        "contract": contract,
        "cell": {"robot": {"backend": "ur", "arm": "ur5e", "gripper": "robotiq_2f85", "control_rate_hz": 20.0}},
    } | more  # fmt: skip


def record_lines(contract, episodes, periods, failing=(), **more):
    """Yield the lines of a record whose joints trail a sine by 10 mrad; failing episodes miss their goals."""
    yield session_line(contract, **more)
    at = 100.0
    for number in range(episodes):
        yield {"kind": "episode", "at": at, "number": number, "seed": number, "mode": "run", "options": {}}
        yield {"kind": "goal", "at": at, "number": number, "position": [0.1, 0.5, 0.3], "gripper": 0.0}
        for step in range(periods):
            at += PERIOD_S
            angle = 0.1 * math.sin(2 * math.pi * step / 50)
            wish, sent = [q + 1.1 * angle for q in HOME], [q + angle for q in HOME]
            reasons = ["acceleration"] if step % 10 == 0 else []
            yield {
                "kind": "period", "at": at, "episode": number, "step": step, "decide_s": 0.001 + 1e-5 * (step % 7),
                "state": state(at, [q + 0.1 * math.sin(2 * math.pi * (step - 1) / 50) - 0.01 for q in HOME]),
                "observation": [0.0] * 20, "action": [0.1, 0.2, 0.3], "wish": command(wish), "command": command(sent),
                "sent": command(sent), "reasons": reasons, "total_reward": 0.5 * step,
            }  # fmt: skip
        at += PERIOD_S
        yield {
            "kind": "episode_end", "at": at, "number": number, "ended": "time", "success": number not in failing,
            "fault": None, "distance_m": 0.2 if number in failing else 0.002, "missed_ticks": 0,
            "total_reward": 0.5 * periods, "state": state(at, HOME),
        }  # fmt: skip
    yield {"kind": "rest", "at": at, "state": state(at, HOME)}


def state(at, q):
    return {"stamp": at - 0.005, "q": q, "dq": [0.1] * 6, "driver_q": [0.0, 0.0]}


def command(q):
    return {"q": q, "gripper": 0.0}


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return path


@pytest.fixture(scope="session")
def contract():
    environment = make_robot_env(load_config(REACH).environment)
    terms = json.loads(json.dumps(dict(environment.contract().terms)))
    environment.close()
    return terms


@pytest.fixture
def write_record(tmp_path, contract):
    """Write a record of so many episodes of so many periods, and give its folder."""

    def write(name="20260101-120000-000000-run-ur5e_reach", episodes=3, periods=20, **more):
        folder = tmp_path / "records" / name
        write_lines(folder / "record.jsonl", record_lines(contract, episodes, periods, **more))
        return folder

    return write


@pytest.fixture
def pendulum():
    return REACH.with_name("gym_pendulum.yaml")
