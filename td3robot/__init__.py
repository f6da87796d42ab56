"""Train a TD3 policy for a robot arm in simulation, prove it, and run it on the arm under the same limits.

Importing the package registers ``td3robot/UR5eReach-v0`` and ``td3robot/UR5eGrasp-v0`` with Gymnasium.
"""

import gymnasium

from td3robot.policy.checkpoint import load_policy
from td3robot.policy.policy import Policy

__all__ = ["Policy", "load_policy"]

gymnasium.register(id="td3robot/UR5eReach-v0", entry_point="td3robot.build:make_ur5e_reach")
gymnasium.register(id="td3robot/UR5eGrasp-v0", entry_point="td3robot.build:make_ur5e_grasp")
