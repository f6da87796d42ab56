"""Checkpoints for other programs."""

from pathlib import Path

import torch

from td3robot.errors import CheckpointError
from td3robot.learning.agent import make_agent
from td3robot.learning.legacy import export_legacy, require_td3
from td3robot.learning.networks import Actor
from td3robot.learning.onnx import ScaledActor, export_onnx
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.policy.observation_scaling import ObservationScaling


def to_legacy(path: Path, prefix: str) -> list[Path]:
    """Write the six-file layout from a resumable checkpoint, and return the files' paths.

    Raises:
        CheckpointError: The checkpoint is not TD3's or has no optimizers, or a file exists already.
    """
    saved = Checkpoint(find(path, ("last", "best")))
    config, contract = saved.config().agent, saved.contract()
    agent = make_agent(contract.observation.size, contract.action.size, config.model_copy(update={"device": "cpu"}), 0)
    require_td3(agent)
    if not saved.has("Q1_optimizer"):
        raise CheckpointError(
            f"{saved.path} was saved for play only and has no optimizers; export the run's last-* checkpoint"
        )
    agent.normalizer.load_state(saved.arrays("normalizer"))
    agent.load_tensors(
        {name: {key: torch.from_numpy(value) for key, value in saved.arrays(name).items()} for name in agent.tensors()}
    )
    return export_legacy(agent, prefix)


def to_onnx(path: Path, out: Path) -> float:
    """Write scaling and actor as ONNX, and return the largest difference from the policy."""
    saved = Checkpoint(find(path))
    config, contract = saved.config().agent, saved.contract()
    actor = Actor(contract.observation.size, contract.action.size, config.actor_hidden, config.layer_norm)
    actor.load_state_dict({name: torch.from_numpy(value) for name, value in saved.actor().items()})
    scaling = ObservationScaling.from_moments(saved.arrays("normalizer"))
    module = ScaledActor(actor, torch.from_numpy(scaling.shift), torch.from_numpy(scaling.scale), float(scaling.clip))
    return export_onnx(module, saved.policy(), out)
