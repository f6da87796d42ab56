"""Train a TD3 policy for a robot arm in simulation, test it, and run it on the arm under the same limits.

Importing the package registers its environments with Gymnasium, ``td3robot/UR5eReach-v0`` among them; see
``td3robot.envs.registration`` for the ids, and for what ``gymnasium.make`` can change about them.
"""

from td3robot.envs.registration import register
from td3robot.policy.checkpoint import load_policy
from td3robot.policy.policy import Policy

__all__ = ["Policy", "load_policy"]

register()
