"""The six-file layout of older TD3 programs: ``torch.save`` state dicts beside each other.

``<prefix>actor``, ``<prefix>Q1``, ``<prefix>Q2`` and an ``_optimizer`` file for each. They contain no target
networks, no normaliser, no replay buffer and no random states. Tensors are matched by order and shape, so the older
program's layer names do not matter.

Those programs act in [-a_max, a_max] and show their critics such actions; here actions lie in [-1, 1]. The actor is the
same except for the factor after its tanh. In a critic, the first layer's columns for the action are scaled, and Adam's
moments with them.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from td3robot.errors import CheckpointError
from td3robot.learning.agent import Agent
from td3robot.learning.legacy_actions import ActionRange, taken_range
from td3robot.learning.td3 import TD3, TRAINED
from td3robot.policy.observation_scaling import ObservationScaling

CRITICS = ("Q1", "Q2")
MOMENTS = ("exp_avg", "exp_avg_sq")
State = dict[str, Any]


def export_legacy(agent: Agent, prefix: str, a_max: float = 1.0, names: Sequence[str] | None = None) -> list[Path]:
    """Write the six files, with the agent's observation scaling folded into the first layers.

    The actor is the one used for play: its running average, if the run keeps one. Folding drops the clipping of scaled
    observations, and also Adam's moments: those of the unfolded weights mean nothing for the folded ones, so the older
    program's optimizers start afresh.

    Args:
        agent: The agent to write.
        prefix: Beginning of the file names.
        a_max: The largest action of the older program.
        names: Its layer names, first to last, for programs that need them; ``net.0``, ``net.2``, ... by default.

    Raises:
        CheckpointError: The agent is not TD3, has layer normalization or a number of layers other than ``names``, or
            one of the files exists already or cannot be written.
    """
    agent = require_td3(agent)
    if agent.config.layer_norm:
        raise CheckpointError(
            "the six files are of networks without layer normalization, and this run's have it (agent.layer_norm); "
            "export its policy with --onnx instead"
        )
    paths = [Path(f"{prefix}{name}{suffix}") for name in TRAINED for suffix in ("", "_optimizer")]
    for path in paths:
        if path.exists():
            raise CheckpointError(f"{path} exists already; choose another prefix")
    if agent.normalizer.enabled:
        agent = _folded(agent)
    actions = ActionRange.of(a_max, agent.action_size)
    written: dict[str, State] = {}
    for name in TRAINED:
        weights, state = _weights(agent.networks()[name]), _moments_of(agent, name)
        if name == "actor":
            weights = _weights(agent.actor_average)
        else:
            actions.undo(weights, state)
        written[name] = _named(weights, name, names)
        written[f"{name}_optimizer"] = _optimizer_state(getattr(agent, f"{name}_optimizer"), state)
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for name, values in written.items():
            torch.save(values, f"{prefix}{name}")
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{prefix}* could not be written: {error}") from None
    return paths


def import_legacy(
    agent: Agent,
    prefix: str,
    a_max: float | None = None,
    environment: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None,
) -> list[str]:
    """Load the six files into an agent; targets start as copies of the networks.

    Args:
        agent: The agent to load them into.
        prefix: Beginning of the file names.
        a_max: The largest action of the older program, if its files do not say so (``action_scale``).
        environment: The environment's lowest and highest action, before scaling to [-1, 1].

    Returns:
        What the user should know about it, one sentence each.

    Raises:
        CheckpointError: The agent is not TD3; a file is missing, contains more than tensors, has a number that is not
            finite, or does not fit the agent; or the action range of the older program is not known.
    """
    agent = require_td3(agent)
    if agent.normalizer.enabled:
        raise CheckpointError(
            "the six files carry no observation scaling, so their networks take raw observations; "
            "add --set agent.normalize_observations=false"
        )
    # Load into copies first, so that a refused file leaves the agent unchanged.
    files = {name: _load(Path(f"{prefix}{name}")) for name in TRAINED}
    actions, notes = taken_range(files["actor"], agent.action_size, a_max, environment)
    read = {}
    for name in TRAINED:
        network: nn.Module = deepcopy(getattr(agent, name))
        _load_network(network, Path(f"{prefix}{name}"), files[name])
        path = Path(f"{prefix}{name}_optimizer")
        weights, state = _weights(network), _read_moments(network, _load(path), path)
        if name in CRITICS and not actions.apply(weights, state):
            state = []
            notes.append(f"{path} starts afresh: its moments mean nothing for actions that are shifted")
        read[name] = weights, state
    agent.start_from({name: weights for name, (weights, _) in read.items()})
    for name, (_, state) in read.items():
        optimizer: torch.optim.Adam = getattr(agent, f"{name}_optimizer")
        for parameter, moments in zip(getattr(agent, name).parameters(), state, strict=bool(state)):
            optimizer.state[parameter] = {key: value.to(agent.device) for key, value in moments.items()}
    return notes


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


def _folded(agent: TD3) -> TD3:
    """Return a copy of an agent whose networks take raw observations: ``W (s (o - m)) = (W s) o - W s m``."""
    scaling = ObservationScaling.from_moments(agent.normalizer.state())
    shift, scale = torch.from_numpy(scaling.shift), torch.from_numpy(scaling.scale)
    config = agent.config.model_copy(update={"normalize_observations": False, "device": "cpu", "average_tau": 1.0})
    folded = TD3(agent.observation_size, agent.action_size, config, seed=0)
    for name in TRAINED:
        network = agent.actor_average if name == "actor" else getattr(agent, name)
        weights = _weights(network)
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


def _load_network(network: nn.Module, path: Path, given: State) -> None:
    wanted = network.state_dict()
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    shapes, expected = [tuple(t.shape) for t in tensors.values()], [tuple(t.shape) for t in wanted.values()]
    if shapes != expected:
        raise CheckpointError(
            f"{path} has tensors of shapes {shapes} and the configuration's network has {expected}; "
            "set agent.hidden to the checkpoint's, and use its environment"
        )
    for name, tensor in tensors.items():
        _require_numbers(tensor, f"{path}: {name}")
    network.load_state_dict(dict(zip(wanted, tensors.values(), strict=True)))


def _require_numbers(tensor: Tensor, what: str) -> None:
    if not tensor.is_floating_point():
        raise CheckpointError(f"{what} is of type {tensor.dtype}, not of floats")
    bad = tensor[~torch.isfinite(tensor)]
    if bad.numel():
        raise CheckpointError(f"{what} holds {bad.numel()} numbers that are not finite, the first one {bad[0].item()}")


def _read_moments(network: nn.Module, given: State, path: Path) -> list[dict[str, Tensor]]:
    """Return Adam's step and moments of each parameter, or none if it never took a step.

    Its other settings stay those of the configuration: the older program's may be for another device.
    """
    parameters = list(network.parameters())
    try:
        order = [index for group in given["param_groups"] for index in group["params"]]
        states = [given["state"][index] for index in order if index in given["state"]]
        if len(order) != len(parameters) or len(states) != len(given["state"]) or len(states) not in (0, len(order)):
            raise ValueError(f"it is of {len(order)} parameters, {len(states)} of them stepped, not {len(parameters)}")
        moments = [
            _moments(state, parameter, path) for state, parameter in zip(states, parameters, strict=bool(states))
        ]
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not the state of an Adam optimizer for this network: {error}") from None
    return moments


def _moments(state: State, parameter: Tensor, path: Path) -> dict[str, Tensor]:
    found = {"step": torch.as_tensor(state["step"], dtype=torch.float32).reshape(())}
    for key in MOMENTS:
        if tuple(state[key].shape) != tuple(parameter.shape):
            raise ValueError(f"{key} has shape {tuple(state[key].shape)}, not {tuple(parameter.shape)}")
        found[key] = state[key].to(torch.float32)
    for key, value in found.items():
        _require_numbers(value, f"{path}: {key}")
    if found["step"] < 1.0 or (found["exp_avg_sq"] < 0.0).any():
        raise ValueError("its step or its exp_avg_sq is negative")
    return found


def _weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}


def _moments_of(agent: TD3, name: str) -> list[dict[str, Tensor]]:
    """Return copies of Adam's moments for a network, or none if it never took a step."""
    optimizer: torch.optim.Adam = getattr(agent, f"{name}_optimizer")
    states = [optimizer.state.get(parameter) for parameter in getattr(agent, name).parameters()]
    return [{key: value.detach().cpu().clone() for key, value in state.items()} for state in states if state]


def _optimizer_state(optimizer: torch.optim.Adam, moments: list[dict[str, Tensor]]) -> State:
    """Return an optimizer's state dict for another program, whose device and kernels are not known."""
    groups = [group | {"fused": None, "foreach": None} for group in optimizer.state_dict()["param_groups"]]
    return {"state": dict(enumerate(moments)), "param_groups": groups}


def _named(weights: dict[str, Tensor], network: str, names: Sequence[str] | None) -> dict[str, Tensor]:
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
