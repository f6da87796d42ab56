"""Records to look at, as a deployment writes them."""

from contextlib import closing

import numpy as np
import pytest

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.records import Record, command_to_json, pose_to_json, state_to_json


@pytest.fixture(scope="session")
def grasp_config():
    return RobotEnvironmentConfig.model_validate({"task": {"name": "grasp"}})


@pytest.fixture
def write_record(tmp_path, grasp_config):
    """Write the record of one episode of some periods, in simulation; give its path."""

    def write(periods=10, session=True, name="20260101-120000-run-grasp", end=True):
        environment = make_robot_env(grasp_config)
        environment.reset(seed=3)
        path = tmp_path / name / "record.jsonl"
        with closing(Record(path)) as record:
            if session:
                record.add("session", mode="run", contract=dict(environment.contract().terms))
            record.add("goal", number=0, position=environment.goal.position, gripper=0.0)
            environment.watch = lambda wish, ruling, sent: record.add(
                "period", episode=0, step=0, state=state_to_json(environment.seen.robot),
                command=command_to_json(ruling.command), reasons=ruling.reasons,
                objects={name: pose_to_json(pose) for name, pose in environment.seen.objects.items()},
            )  # fmt: skip
            for _ in range(periods):
                environment.step(np.full(5, 0.3, np.float32))
            if end:
                record.add("episode_end", number=0, ended="time", success=True, fault=None)
        environment.close()
        return path

    return write
