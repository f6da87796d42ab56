"""Checkpoints for other programs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from td3robot.config import GymnasiumEnvironmentConfig, RobotEnvironmentConfig
from td3robot.envs.gymnasium_env import action_range, make_gymnasium
from td3robot.envs.trust import foreign_module
from td3robot.errors import CheckpointError
from td3robot.learning.agent import make_agent
from td3robot.learning.legacy import export_legacy, require_td3
from td3robot.learning.networks import Actor
from td3robot.learning.onnx import ScaledActor, export_onnx
from td3robot.policy.checkpoint import opened
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.validation import require_playable, require_whole


def to_legacy(path: Path, prefix: str, a_max: float | None = None, names: Sequence[str] | None = None) -> list[Path]:
    """Write the six-file layout from a resumable checkpoint, and return the files' paths.

    Args:
        path: The checkpoint, or its run.
        prefix: Beginning of the file names.
        a_max: The largest action of the program that will read them; 1 if the environment's own is 1.
        names: Its layer names.

    Raises:
        CheckpointError: The checkpoint is not TD3's, is incomplete or has no optimizers, the range of the actions that
            the critics will see is not known, or a file exists already.
    """
    saved = opened(path, ("last", "best"))
    run, contract = saved.config(), saved.contract()
    require_whole(saved, run)
    config = run.agent
    agent = make_agent(contract.observation.size, contract.action.size, config.model_copy(update={"device": "cpu"}), 0)
    require_td3(agent)
    if not saved.has("Q1_optimizer"):
        raise CheckpointError(
            f"{saved.path} was saved for play and has no optimizers; export the run's last-* checkpoint"
        )
    agent.normalizer.load_state(saved.normalizer())
    agent.load_tensors(
        {name: {key: torch.from_numpy(value) for key, value in saved.arrays(name).items()} for name in agent.tensors()}
    )
    return export_legacy(agent, prefix, _largest_action(run.environment) if a_max is None else a_max, names)


def _largest_action(environment: RobotEnvironmentConfig | GymnasiumEnvironmentConfig) -> float:
    """Return 1 if the environment's own actions lie in [-1, 1]; otherwise the user has to give the range."""
    if isinstance(environment, RobotEnvironmentConfig):
        return 1.0
    if foreign_module(environment.id) is None:
        made = make_gymnasium(environment)
        low, high = action_range(made)
        made.close()
        if np.allclose(low, -1.0) and np.allclose(high, 1.0):
            return 1.0
        actions = f"go from {low.tolist()} to {high.tolist()}"
    else:
        actions = "are not known without importing its module"
    raise CheckpointError(
        f"the actions of {environment.id!r} {actions}; add --a-max with the largest action of the program that is "
        "going to read the six files, which its critics are shown"
    )


def to_onnx(path: Path, out: Path) -> float:
    """Write scaling and actor as ONNX, and return the largest difference from the policy."""
    saved = opened(path)
    require_playable(saved, saved.config())
    config, contract = saved.config().agent, saved.contract()
    actor = Actor(contract.observation.size, contract.action.size, config.hidden, config.layer_norm)
    actor.load_state_dict({name: torch.from_numpy(value) for name, value in saved.actor().items()})
    scaling = ObservationScaling.from_moments(saved.normalizer())
    module = ScaledActor(actor, torch.from_numpy(scaling.shift), torch.from_numpy(scaling.scale), float(scaling.clip))
    return export_onnx(module, saved.policy(), out)
