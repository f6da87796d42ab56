"""The guard's limits, seen at the stand-in's wire, under policies that try to break them."""

import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import GuardConfig, RobotEnvironmentConfig
from td3robot.deploy.session import Session
from td3robot.records import Record
from td3robot.robots.ur.robot import UrRobot


def absurd(rng):
    """Make a policy that holds a random corner of its actions for a while, and then another."""
    state = {"left": 0, "action": np.zeros(3)}

    def act(observation):
        if state["left"] == 0:
            state["left"] = int(rng.integers(1, 15))
            kind = rng.integers(3)
            state["action"] = (
                rng.uniform(-1, 1, 3)
                if kind == 0
                else np.sign(rng.normal(size=3))
                if kind == 1
                else rng.normal(size=3) * 1e6
            )
        state["left"] -= 1
        return state["action"].astype(np.float32)

    return act


@pytest.mark.parametrize("seconds", [4.0, pytest.param(600.0, marks=pytest.mark.slow)])
def test_no_limit_is_crossed_at_the_wire(seconds, standin, cell, person, tmp_path):
    config = RobotEnvironmentConfig(episode_s=seconds, guard=GuardConfig(max_state_age_s=0.5))
    robot = UrRobot(robot_spec(cell.robot), cell)
    environment = make_robot_env(config, cell=cell, robot=robot)
    record = Record(tmp_path / "record.jsonl")
    session = Session(environment, absurd(np.random.default_rng(5)), record, person, "run")
    try:
        session.run(1, 1, {"stay": True})
        figures = robot.figures()
    finally:
        environment.close()
        record.close()
    assert session.fault is None
    assert session.episodes[0].steps == config.episode_steps
    guard, arm = config.guard, robot.spec.arm
    wire = standin.state()["wire"]
    for side in ("targets", "measured"):
        assert wire[side]["tcp_speed_m_s"] <= guard.max_tcp_speed_m_s
        assert wire[side]["joint_speed_rad_s"] <= guard.joint_speed_fraction * arm.velocity.max()
        assert wire[side]["lowest_tcp_m"] >= guard.workspace.low[2] - 0.001
    assert wire["targets"]["joint_acceleration_rad_s2"] <= guard.max_joint_acceleration_rad_s2
    assert wire["measured"]["tcp_speed_m_s"] > 0.1
    assert figures["streamed"] > 100 * seconds
    assert standin.state()["safety_mode"] == "NORMAL"
