"""The six-file layout of older TD3 programs: ``torch.save`` state dicts beside each other.

``<prefix>actor``, ``<prefix>Q1``, ``<prefix>Q2`` and an ``_optimizer`` file for each. They carry no target
networks, no normaliser, no replay and no random states. Tensors are matched by order and shape, so it does not
matter what the older program called its layers.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from td3robot.errors import CheckpointError
from td3robot.learning.agent import Agent
from td3robot.learning.td3 import TD3, TRAINED
from td3robot.policy.observation_scaling import ObservationScaling


def export_legacy(agent: Agent, prefix: str) -> list[Path]:
    """Write the six files, with the agent's observation scaling folded into the first layers.

    Folding leaves out the clip of scaled observations, and Adam's moments with it: those of the unfolded weights
    mean nothing for the folded ones, so the older program's optimizers start afresh.

    Raises:
        CheckpointError: The agent is not TD3, or one of the files exists already or cannot be written.
    """
    agent = require_td3(agent)
    paths = [Path(f"{prefix}{name}{suffix}") for name in TRAINED for suffix in ("", "_optimizer")]
    for path in paths:
        if path.exists():
            raise CheckpointError(f"{path} exists already; choose another prefix")
    if agent.normalizer.enabled:
        agent = _folded(agent)
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for name in TRAINED:
            torch.save(getattr(agent, name).state_dict(), f"{prefix}{name}")
            torch.save(getattr(agent, f"{name}_optimizer").state_dict(), f"{prefix}{name}_optimizer")
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{prefix}* could not be written: {error}") from None
    return paths


def import_legacy(agent: Agent, prefix: str) -> None:
    """Load the six files into an agent; targets start as copies of the networks.

    Raises:
        CheckpointError: The agent is not TD3, or a file is missing, is more than tensors, or does not fit the agent.
    """
    agent = require_td3(agent)
    if agent.normalizer.enabled:
        raise CheckpointError(
            "the six files carry no observation scaling, so their networks take raw observations; "
            "add --set agent.normalize_observations=false"
        )
    # Into copies first, so that a file that is refused leaves the agent as it was.
    read = {}
    for name in TRAINED:
        network: nn.Module = deepcopy(getattr(agent, name))
        _load_network(network, name, _load(Path(f"{prefix}{name}")))
        path = Path(f"{prefix}{name}_optimizer")
        state = _load(path)
        try:
            _require_moments(network, state, path)
            torch.optim.Adam(network.parameters()).load_state_dict(state)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is not the state of an Adam optimizer for this network: {error}") from None
        read[name] = network.state_dict(), state
    agent.start_from({name: weights for name, (weights, _) in read.items()})
    for name, (_, state) in read.items():
        optimizer: torch.optim.Adam = getattr(agent, f"{name}_optimizer")
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(state)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate  # the configuration's, not the older program's


def require_td3(agent: Agent) -> TD3:
    """Return the agent, refused unless it is TD3.

    Raises:
        CheckpointError: It is another kind of agent, whose networks the six files do not hold.
    """
    if not isinstance(agent, TD3):
        raise CheckpointError(
            f"the six files hold TD3's networks, and this run's agent.kind is {agent.config.kind!r}; "
            "export its policy with --onnx instead"
        )
    return agent


def _folded(agent: TD3) -> TD3:
    """Copy an agent, its networks now taking raw observations: ``W (s (o - m)) = (W s) o - W s m``."""
    scaling = ObservationScaling.from_moments(agent.normalizer.state())
    shift, scale = torch.from_numpy(scaling.shift), torch.from_numpy(scaling.scale)
    config = agent.config.model_copy(update={"normalize_observations": False, "device": "cpu"})
    folded = TD3(agent.observation_size, agent.action_size, config, seed=0)
    for name in TRAINED:
        weights = {key: value.cpu().clone() for key, value in getattr(agent, name).state_dict().items()}
        columns = weights["net.0.weight"][:, : len(shift)]
        columns *= scale
        weights["net.0.bias"] -= columns @ shift
        getattr(folded, name).load_state_dict(weights)
    return folded


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing; a six-file checkpoint has <prefix>actor, Q1, Q2 and their _optimizer"
        )
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  # torch.load raises anything at all on a foreign file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is not a torch.save of plain tensors, so it was not loaded: {reason}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}, not a state dict")
    return values


def _load_network(network: nn.Module, name: str, given: dict[str, Any]) -> None:
    wanted = network.state_dict()
    tensors = [value for value in given.values() if isinstance(value, Tensor)]
    shapes, expected = [tuple(t.shape) for t in tensors], [tuple(t.shape) for t in wanted.values()]
    if shapes != expected:
        raise CheckpointError(
            f"{name} has tensors of shapes {shapes} and the configuration's network has {expected}; "
            "set agent.actor_hidden and agent.critic_hidden to the checkpoint's, and use its environment"
        )
    network.load_state_dict(dict(zip(wanted, tensors, strict=True)))


def _require_moments(network: nn.Module, state: dict[str, Any], path: Path) -> None:
    shapes = [tuple(parameter.shape) for parameter in network.parameters()]
    for index, moments in state["state"].items():
        for key in ("exp_avg", "exp_avg_sq"):
            if tuple(moments[key].shape) != shapes[index]:
                raise CheckpointError(
                    f"{path}: {key} {index} has shape {tuple(moments[key].shape)}, not {shapes[index]}"
                )
