"""The six-file layout of older TD3 programs: ``torch.save`` state dicts beside each other.

``<prefix>actor``, ``<prefix>Q1``, ``<prefix>Q2`` and an ``_optimizer`` file for each. They contain no target
networks, no normaliser, no replay buffer and no random states. This module writes them; ``foreign_files.py`` reads
them, among the layouts of other programs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from td3robot import atomic
from td3robot.config import AgentConfig, GymnasiumEnvironmentConfig, RobotEnvironmentConfig
from td3robot.envs.gymnasium_env import action_range, make_gymnasium
from td3robot.envs.trust import foreign_module
from td3robot.errors import CheckpointError
from td3robot.learning.action_range import MOMENTS, ActionRange, Tensors, is_unit
from td3robot.learning.agent import Agent, make_agent
from td3robot.learning.td3 import AVERAGE, TD3, TRAINED
from td3robot.policy.checkpoint import opened
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.validation import require_whole


def to_legacy(
    path: Path,
    prefix: str,
    a_max: float | None = None,
    names: Sequence[str] | None = None,
    optimizers: bool = True,
) -> list[Path]:
    """Write the six-file layout from a checkpoint, and return the files' paths.

    Args:
        path: The checkpoint, or its run.
        prefix: Beginning of the file names.
        a_max: The largest action of the program that will read them; 1 if the environment's own is 1.
        names: Its layer names.
        optimizers: Whether to write the optimizers' three files, too; a checkpoint for play has none.

    Raises:
        CheckpointError: The checkpoint is not TD3's, is incomplete or has no optimizers, the range of the actions that
            the critics will see is not known, or a file exists already.
    """
    saved = opened(path, ("last", "best"))
    run, contract = saved.config(), saved.contract()
    require_whole(saved, run)
    config = run.agent
    require_symmetric(config)
    agent = make_agent(contract.observation.size, contract.action.size, config.model_copy(update={"device": "cpu"}), 0)
    require_td3(agent)
    if optimizers and not saved.has("Q1_optimizer"):
        raise CheckpointError(
            f"{saved.path} was saved for play and has no optimizers; export the run's last-* checkpoint, or add "
            "--without-optimizers"
        )
    agent.normalizer.load_state(saved.normalizer())
    read = {
        name: {key: torch.from_numpy(value) for key, value in saved.arrays(name).items()}
        for name in agent.tensors()
        if saved.has(name)
    }
    if optimizers:
        agent.load_tensors(read)
    else:
        agent.start_from({name: read[name] for name in TRAINED} | {AVERAGE: read.get(AVERAGE, read["actor"])})
    a_max = _largest_action(run.environment) if a_max is None else a_max
    return export_legacy(agent, prefix, a_max, names, optimizers)


def export_legacy(
    agent: Agent, prefix: str, a_max: float = 1.0, names: Sequence[str] | None = None, optimizers: bool = True
) -> list[Path]:
    """Write the six files, with the agent's observation scaling folded into the first layers.

    The actor is the one used for play: its running average, if the run keeps one. Folding drops the clipping of scaled
    observations. Adam's moments of the unfolded weights mean nothing for the folded ones.

    Args:
        agent: The agent to write.
        prefix: Beginning of the file names.
        a_max: The largest action of the older program.
        names: Its layer names, first to last, for programs that need them; ``net.0``, ``net.2``, ... by default.
        optimizers: Whether to write the optimizers' files, too.

    Raises:
        CheckpointError: The agent is not TD3, has layer normalization or a number of layers other than ``names``, its
            optimizers mean nothing for folded weights, or one of the files exists already or cannot be written.
    """
    agent = require_td3(agent)
    require_symmetric(agent.config)
    if agent.config.layer_norm:
        raise CheckpointError(
            "the six files are of networks without layer normalization, and this run's have it (agent.layer_norm); "
            "export its policy with --onnx instead"
        )
    if optimizers and agent.normalizer.enabled and agent.Q1_optimizer.state:
        raise CheckpointError(
            "this run scales observations; the six files have that scaling in their first layers, and "
            "the optimizers' moments mean nothing for those; add --without-optimizers to write the networks alone"
        )
    paths = [Path(f"{prefix}{name}{suffix}") for name in TRAINED for suffix in ("", "_optimizer")[: 1 + optimizers]]
    for path in paths:
        if path.exists():
            raise CheckpointError(f"{path} exists already; choose another prefix")
    if agent.normalizer.enabled:
        agent = _folded(agent)
    actions = ActionRange.of(a_max, agent.action_size)
    groups = {
        name: {key: value.cpu().clone() for key, value in group.items()} for name, group in agent.tensors().items()
    }
    written: dict[str, dict[str, Any]] = {}
    for name in TRAINED:
        weights, moments = groups[name], groups[f"{name}_optimizer"]
        if name == "actor":
            weights = groups.get(AVERAGE, weights)
        else:
            actions.undo(weights, moments)
        written[name] = _named(weights, name, names)
        if optimizers:
            adam = getattr(agent, f"{name}_optimizer")
            written[f"{name}_optimizer"] = _optimizer_state(adam, list(weights), moments)
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for name, values in written.items():
            torch.save(values, f"{prefix}{name}")
    except (OSError, RuntimeError) as error:  # PyTorch's own writer says nothing of what was wrong
        for path in paths:
            atomic.delete(path)
        reason = getattr(error, "strerror", None) or "the disk may be full"
        raise CheckpointError(f"{prefix}* could not be written: {reason}; nothing was left there") from None
    return paths


def require_symmetric(config: AgentConfig) -> None:
    """Refuse an agent whose critics see more than its actor.

    Raises:
        CheckpointError: They do.
    """
    if config.is_asymmetric:
        raise CheckpointError(
            "the six files are of critics that see what their actor sees, and agent.asymmetric_critic is true here, so "
            "they see more; export the policy with --onnx instead, or set it to false"
        )


def require_td3(agent: Agent) -> TD3:
    """Return the agent if it is TD3.

    Raises:
        CheckpointError: It is another kind of agent, whose networks the six files do not hold.
    """
    if not isinstance(agent, TD3):
        raise CheckpointError(
            f"the six files hold TD3's networks, and this run's agent.kind is {agent.config.kind!r}; "
            "export its policy with --onnx instead"
        )
    return agent


def _largest_action(environment: RobotEnvironmentConfig | GymnasiumEnvironmentConfig) -> float:
    """Return 1 if the environment's own actions lie in [-1, 1]; otherwise the user has to give the range."""
    if isinstance(environment, RobotEnvironmentConfig):
        return 1.0
    if foreign_module(environment.id) is None:
        made = make_gymnasium(environment)
        low, high = action_range(made)
        made.close()
        if is_unit(low, high):
            return 1.0
        actions = f"go from {low.tolist()} to {high.tolist()}"
    else:
        actions = "are not known without importing its module"
    raise CheckpointError(
        f"the actions of {environment.id!r} {actions}; add --a-max with the largest action of the program that is "
        "going to read the six files, which its critics are shown"
    )


def _folded(agent: TD3) -> TD3:
    """Return a copy of an agent whose networks take raw observations: ``W (s (o - m)) = (W s) o - W s m``."""
    scaling = ObservationScaling.from_moments(agent.normalizer.state())
    shift, scale = torch.from_numpy(scaling.shift), torch.from_numpy(scaling.scale)
    config = agent.config.model_copy(update={"normalize_observations": False, "device": "cpu", "average_tau": 1.0})
    folded = TD3(agent.observation_size, agent.action_size, config, seed=0)
    for name, tensors in agent.play_tensors().items():
        weights = {key: value.cpu().clone() for key, value in tensors.items()}
        columns = weights["net.0.weight"][:, : len(shift)]
        columns *= scale
        weights["net.0.bias"] -= columns @ shift
        folded.networks()[name].load_state_dict(weights)
    return folded


def _optimizer_state(optimizer: torch.optim.Adam, weights: Sequence[str], moments: Tensors) -> dict[str, Any]:
    """Return an optimizer's state dict for another program, whose device and kernels are not known."""
    groups = [group | {"fused": None, "foreach": None} for group in optimizer.state_dict()["param_groups"]]
    states = [{key: moments[f"{name}.{key}"] for key in ("step", *MOMENTS)} for name in weights if moments]
    return {"state": dict(enumerate(states)), "param_groups": groups}


def _named(weights: Tensors, network: str, names: Sequence[str] | None) -> Tensors:
    """Return a network's weights with other layer names, first to last."""
    if names is None:
        return weights
    layers = list(dict.fromkeys(key.rpartition(".")[0] for key in weights))
    if len(layers) != len(names) or len(set(names)) != len(names) or not all(names):
        raise CheckpointError(
            f"--names gives {len(names)} names ({', '.join(names)}), and {network} has {len(layers)} layers; give each "
            "its own"
        )
    called = dict(zip(layers, names, strict=True))
    return {f"{called[key.rpartition('.')[0]]}.{key.rpartition('.')[2]}": value for key, value in weights.items()}
