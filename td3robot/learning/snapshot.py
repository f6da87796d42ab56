"""What a training saves, for resuming and for play."""

from typing import TYPE_CHECKING, Any

import torch

from td3robot import seeding
from td3robot.config import to_yaml
from td3robot.envs.playing import Evaluation
from td3robot.policy.checkpoint import Arrays, CheckpointData

if TYPE_CHECKING:
    from td3robot.learning.trainer import Trainer


def run_contents(trainer: "Trainer") -> CheckpointData:
    """Return everything that resuming a run needs."""
    rows, replay_counters = trainer.replay.state()
    episodes, episode_indices = trainer.collector.state()
    evaluations = trainer.evaluations
    documents = _documents(trainer, evaluations.best, evaluations.best_step)
    documents["counters"] |= {
        "replay": replay_counters,
        "episodes": episode_indices,
    }
    documents["evaluations"] = [evaluation.to_json() for evaluation in evaluations.figures]
    documents["random"] = {
        "exploration": seeding.state(trainer.exploration.rng),
        "replay": seeding.state(trainer.replay_rng),
    }
    arrays = {name: _to_numpy(group) for name, group in trainer.agent.tensors().items()}
    arrays |= {
        "normalizer": trainer.agent.normalizer.state(),
        "torch_generator": {"state": trainer.agent.generator.get_state().numpy()},
        "replay": rows,
        "episodes": episodes,
        "interim": _interim(trainer),
    }
    return CheckpointData(to_yaml(trainer.config), documents, arrays)


def play_contents(trainer: "Trainer") -> CheckpointData:
    """Return copies of the critics and of what running the policy needs; the evaluation is still to come."""
    groups = {name: _to_numpy(group) for name, group in trainer.agent.play_tensors().items()}
    groups["normalizer"] = trainer.agent.normalizer.state()
    return CheckpointData(
        config=to_yaml(trainer.config),
        documents=_documents(trainer, None, trainer.step),
        arrays={name: {key: array.copy() for key, array in group.items()} for name, group in groups.items()},
    )


def _documents(trainer: "Trainer", evaluation: Evaluation | None, evaluated_step: int) -> dict[str, Any]:
    documents: dict[str, Any] = {
        "contract": dict(trainer.contract.terms),
        "evaluation": evaluation.to_json() if evaluation else None,
        "counters": {
            "step": trainer.step,
            "updates": trainer.agent.updates,
            "evaluated_step": evaluated_step,
            "warm_start": trainer.warm,
        },
    }
    return documents | ({"changes": trainer.changes} if trainer.changes else {})


def _interim(trainer: "Trainer") -> Arrays:
    """Return what is in progress: chosen actions, an evaluation, the next row of metrics."""
    arrays = trainer.window.state(trainer.collector.averages) | trainer.evaluations.state()
    return arrays if trainer.actions is None else arrays | {"actions": trainer.actions}


def _to_numpy(tensors: dict[str, torch.Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
