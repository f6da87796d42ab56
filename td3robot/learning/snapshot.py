"""What a training saves, for resuming and for play, and how it is restored."""

from typing import TYPE_CHECKING, Any

import torch

from td3robot import seeding
from td3robot.config import to_yaml
from td3robot.envs.playing import Evaluation
from td3robot.learning.metrics import Window
from td3robot.policy.checkpoint import Arrays, Checkpoint
from td3robot.policy.checkpoint_writer import CheckpointData

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
    arrays |= trainer.agent.normalizers() | {
        "torch_generator": {"state": trainer.agent.generator.get_state().numpy()},
        "replay": rows,
        "episodes": episodes,
        "interim": _interim(trainer),
    }
    return CheckpointData(to_yaml(trainer.config), documents, arrays)


def restore(trainer: "Trainer", saved: Checkpoint) -> None:
    """Restore what :func:`run_contents` returned, except for the episodes in progress.

    Raises:
        CheckpointError: It does not fit the trainer's configuration.
    """
    counters, random_states = saved.document("counters"), saved.document("random")
    agent = trainer.agent
    trainer.learned_by = saved.config().training.learner
    agent.load_tensors({name: to_torch(saved.arrays(name)) for name in agent.tensors()})
    agent.normalizer.load_state(saved.training_normalizer())
    agent.generator.set_state(torch.from_numpy(saved.arrays("torch_generator")["state"]))
    agent.updates = counters["updates"]
    trainer.replay.load_state(saved.arrays("replay"), counters["replay"])
    seeding.restore(trainer.exploration.rng, random_states["exploration"])
    seeding.restore(trainer.replay_rng, random_states["replay"])
    trainer.step, trainer.warm = counters["step"], counters["warm_start"]
    trainer.changes = saved.document("changes") if saved.has("changes") else []
    evaluation, evaluations = saved.document("evaluation"), trainer.evaluations
    if evaluation is not None:
        evaluations.best, evaluations.best_step = Evaluation(**evaluation), counters["evaluated_step"]
    # Earlier versions kept only the best evaluation, and nothing of what was in progress.
    figures = saved.document("evaluations") if saved.has("evaluations") else [evaluation] if evaluation else []
    evaluations.figures = [Evaluation(**values) for values in figures]
    evaluations.last_step = trainer.step  # unless it was saved: earlier versions did not evaluate at a run's end
    if saved.has("interim"):
        interim = saved.arrays("interim")
        evaluations.load_state(interim, trainer)
        trainer.actions = interim.get("actions")
        trainer.window = Window.of_state(interim, agent.device)


def play_contents(trainer: "Trainer") -> CheckpointData:
    """Return copies of the critics and of what running the policy needs; the evaluation is still to come."""
    groups = {name: _to_numpy(group) for name, group in trainer.agent.play_tensors().items()}
    groups |= trainer.agent.normalizers()
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
    arrays = trainer.window.state() | trainer.evaluations.state()
    return arrays if trainer.actions is None else arrays | {"actions": trainer.actions}


def _to_numpy(tensors: dict[str, torch.Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def to_torch(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Return arrays as tensors, which share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
