"""Train a TD3 policy for a robot arm in simulation, test it, and run it on the arm under the same limits.

Importing the package registers its environments with Gymnasium, ``td3robot/UR5eReach-v0`` among them; see
``td3robot.envs.registration`` for the ids, and for what ``gymnasium.make`` can change about them.
"""

from typing import TYPE_CHECKING, Any

from td3robot.envs.registration import register
from td3robot.policy.checkpoint import load_policy
from td3robot.policy.policy import Policy

if TYPE_CHECKING:
    from td3robot.build import make_env

__all__ = ["Policy", "load_policy", "make_env"]


def __getattr__(name: str) -> Any:
    """Import what needs a simulator when it is first asked for."""
    if name == "make_env":
        from td3robot.build import make_env

        return make_env
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register()
