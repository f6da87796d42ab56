"""Play the scripted grasp: what the grasp task allows for, and what learned policies are compared with.

Example: python benchmarks/scripted.py --episodes 200
"""

import argparse
import json

from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.envs.playing import evaluate
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.scripted import scripted_grasp

OBJECTS = {
    "cube 40 mm": ObjectConfig(),
    "cylinder 50 x 60 mm": ObjectConfig(shape="cylinder", size_m=(0.05, 0.05, 0.06)),
    "box 30 x 100 x 50 mm": ObjectConfig(size_m=(0.03, 0.1, 0.05)),
}


def main() -> None:
    """Print one JSON line for each object and disturbance level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    arguments = parser.parse_args()
    for name, item in OBJECTS.items():
        for level in DISTURBANCES if name == "cube 40 mm" else ("off",):
            task = GraspConfig(object=item)
            config = RobotEnvironmentConfig(task=task, disturbance=DISTURBANCES[level], episode_s=6.0)
            environment = make_robot_env(config)
            script = scripted_grasp(
                environment.task.layout, task, config.action, environment.robot.spec, config.guard.max_tcp_speed_m_s
            )
            figures = evaluate(environment, script.act, arguments.episodes, seed=12345)
            print(json.dumps({"object": name, "under": level} | figures.to_json()), flush=True)


if __name__ == "__main__":
    main()
