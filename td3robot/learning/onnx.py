"""A policy as one ONNX file: scaling and actor together."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from td3robot.errors import CheckpointError, MissingExtraError
from td3robot.learning.networks import Actor
from td3robot.policy.checkpoint import opened
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.policy import Policy
from td3robot.policy.validation import require_playable

TOLERANCE = 1e-5


class ScaledActor(nn.Module):
    """Scale an observation as the policy does, then act."""

    shift: Tensor
    scale: Tensor

    def __init__(self, actor: Actor, shift: Tensor, scale: Tensor, clip: float) -> None:
        super().__init__()
        self.actor, self.clip = actor, clip
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    def forward(self, observation: Tensor) -> Tensor:
        """Compute actions (batch, action) for raw observations (batch, observation)."""
        scaled = (observation - self.shift) * self.scale
        action: Tensor = self.actor(scaled.clamp(-self.clip, self.clip) if np.isfinite(self.clip) else scaled)
        return action


def to_onnx(path: Path, out: Path) -> float:
    """Write a checkpoint's scaling and actor as ONNX, and return the largest difference from the policy.

    Raises:
        MissingExtraError: The extra ``onnx`` is not installed.
        CheckpointError: The checkpoint is damaged, or the exported file acts differently; it is deleted.
    """
    saved = opened(path)
    require_playable(saved, saved.config())
    config, contract = saved.config().agent, saved.contract()
    actor = Actor(contract.observation.size, contract.action.size, config.hidden, config.layer_norm)
    actor.load_state_dict({name: torch.from_numpy(value) for name, value in saved.actor().items()})
    scaling = ObservationScaling.from_moments(saved.normalizer())
    module = ScaledActor(actor, torch.from_numpy(scaling.shift), torch.from_numpy(scaling.scale), float(scaling.clip))
    return export_onnx(module, saved.policy(), out)


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the messages of PyTorch's exporter about packages that a policy does not need."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
    log.setLevel(level)


def export_onnx(module: ScaledActor, policy: Policy, path: Path) -> float:
    """Write the policy with input ``observation`` and output ``action``, and compare it with the original.

    Returns:
        The largest difference over 1,000 random observations.

    Raises:
        MissingExtraError: The extra ``onnx`` is not installed.
        CheckpointError: The exported file acts differently; it is deleted.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtraError("onnx", "exporting to ONNX") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    example = torch.zeros(2, policy.observation_size)
    with _quietly():
        program = torch.onnx.export(
            module.eval(), (example,), input_names=["observation"], output_names=["action"],
            dynamic_shapes=({0: torch.export.Dim("batch")},), dynamo=True, verbose=False,
        )  # fmt: skip
    assert program is not None
    program.save(str(path), external_data=False)

    observations = np.random.default_rng(0).normal(0.0, 2.0, (1000, policy.observation_size)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    difference = float(np.abs(session.run(None, {"observation": observations})[0] - policy.act(observations)).max())
    if difference > TOLERANCE:
        path.unlink()
        raise CheckpointError(
            f"the ONNX export acts otherwise by {difference:.2g}, more than {TOLERANCE}; it was deleted"
        )
    return difference
