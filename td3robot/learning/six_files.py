"""The six-file layout of older TD3 programs: ``torch.save`` state dicts beside each other.

``<prefix>actor``, ``<prefix>Q1``, ``<prefix>Q2`` and an ``_optimizer`` file for each. They contain no target
networks, no normaliser, no replay buffer and no random states. Tensors are matched by order and shape, so the older
program's layer names do not matter.

Those programs act in [-a_max, a_max] and show their critics such actions; here actions lie in [-1, 1]. The actor is the
same except for the factor after its tanh. In a critic, the first layer's columns for the action are scaled, and Adam's
moments with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from td3robot.config import GymnasiumEnvironmentConfig, RobotEnvironmentConfig
from td3robot.envs.gymnasium_env import action_range, make_gymnasium
from td3robot.envs.trust import foreign_module
from td3robot.errors import CheckpointError
from td3robot.learning.agent import Agent, make_agent
from td3robot.learning.td3 import AVERAGE, TD3, TRAINED
from td3robot.policy.checkpoint import opened
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.validation import require_whole

CRITICS = ("Q1", "Q2")
MOMENTS = ("exp_avg", "exp_avg_sq")
# Names under which other programs keep the range of actions beside an actor's layers.
SCALES, BIASES = ("action_scale", "max_action"), ("action_bias",)
Tensors = dict[str, Tensor]
Bounds = tuple[NDArray[np.floating], NDArray[np.floating]]


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
        written[f"{name}_optimizer"] = _optimizer_state(getattr(agent, f"{name}_optimizer"), list(weights), moments)
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for name, values in written.items():
            torch.save(values, f"{prefix}{name}")
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{prefix}* could not be written: {error}") from None
    return paths


def import_legacy(
    agent: Agent, prefix: str, a_max: float | None = None, environment: Bounds | None = None
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
    # Everything is read before anything is loaded, so that a refused file leaves the agent unchanged.
    files = {name: _load(Path(f"{prefix}{name}")) for name in TRAINED}
    actions, notes = taken_range(files["actor"], agent.action_size, a_max, environment)
    read: dict[str, Tensors] = {}
    for name in TRAINED:
        weights = _read_weights(getattr(agent, name), files[name], Path(f"{prefix}{name}"))
        path = Path(f"{prefix}{name}_optimizer")
        moments = _read_moments(weights, _load(path), path)
        if name in CRITICS and not actions.apply(weights, moments):
            moments = {}
            notes.append(f"{path} starts afresh: its moments mean nothing for actions that are shifted")
        read |= {name: weights, f"{name}_optimizer": moments}
    agent.start_from(read)
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


@dataclass(frozen=True, slots=True)
class ActionRange:
    """An action of the older program is ``scale * a + bias``, for ``a`` in [-1, 1].

    Attributes:
        scale, bias: (action,).
    """

    scale: Tensor
    bias: Tensor

    @classmethod
    def of(cls, a_max: float, size: int) -> "ActionRange":
        """Return the range [-a_max, a_max].

        Raises:
            CheckpointError: That is not a range.
        """
        if not (np.isfinite(a_max) and a_max > 0.0):
            raise CheckpointError(f"--a-max {a_max:g} is no largest action; give a positive number")
        return cls(torch.full((size,), float(a_max), dtype=torch.float64), torch.zeros(size, dtype=torch.float64))

    def apply(self, weights: Tensors, moments: Tensors) -> bool:
        """Convert a critic in place to take actions in [-1, 1]; return whether Adam's moments could be converted.

        ``W (s a + b) + c = (W s) a + (W b + c)``. The gradient with respect to ``W s`` is that for ``W`` divided by
        ``s``.
        """
        columns = weights["net.0.weight"][:, -len(self.scale) :]
        shift = columns.double() @ self.bias
        columns.copy_(columns.double() * self.scale)
        weights["net.0.bias"] += shift
        for key, power in zip(MOMENTS, (1, 2), strict=True) if moments else ():
            columns = moments[f"net.0.weight.{key}"][:, -len(self.scale) :]
            columns.copy_(columns.double() / self.scale**power)
        return not (moments and self.bias.any())

    def undo(self, weights: Tensors, moments: Tensors) -> None:
        """Convert a critic in place from actions in [-1, 1] to those of this range, which has no bias."""
        ActionRange(1.0 / self.scale, self.bias).apply(weights, moments)


def taken_range(
    actor: dict[str, Any], size: int, a_max: float | None, environment: Bounds | None
) -> tuple[ActionRange, list[str]]:
    """Return the action range of an older program, and remove the tensors that state it from its actor's.

    Args:
        actor: The actor's file.
        size: Size of an action.
        a_max: The user's value.
        environment: The environment's own lowest and highest action.

    Returns:
        The range, and what the user should know about it.

    Raises:
        CheckpointError: No source states it, or two disagree.
    """
    scale, bias = (_surplus(actor, names, size) for names in (SCALES, BIASES))
    if scale is not None:
        found = ActionRange(scale, torch.zeros(size, dtype=torch.float64) if bias is None else bias)
        if a_max is not None and not torch.allclose(scale, torch.tensor(a_max, dtype=torch.float64)):
            raise CheckpointError(
                f"--a-max is {a_max:g}, and the actor's file says {scale.tolist()}; leave --a-max out"
            )
    elif a_max is not None:
        found = ActionRange.of(a_max, size)
    elif environment is None or _is_unit(*environment):
        found = ActionRange.of(1.0, size)
    else:
        low, high = (bound.tolist() for bound in environment)
        raise CheckpointError(
            f"the environment's own actions go from {low} to {high}, and the six files do not say which actions their "
            "critics were shown; add --a-max with the largest action of the program that made them"
        )
    if environment is None or _is_unit(*environment):
        return found, []
    low, high = (torch.as_tensor(bound, dtype=torch.float64) for bound in environment)
    if torch.allclose(found.bias - found.scale, low) and torch.allclose(found.bias + found.scale, high):
        return found, []
    first, last = (found.bias - found.scale).tolist(), (found.bias + found.scale).tolist()
    return found, [
        f"the older program acted from {first} to {last}, and "
        f"here the policy's actions go from {low.tolist()} to {high.tolist()}, as the environment's do"
    ]


def _surplus(actor: dict[str, Any], names: Sequence[str], size: int) -> Tensor | None:
    """Remove a tensor beside the layers from an actor's file, and return it as (action,)."""
    found = [key for key in actor if key.rpartition(".")[2] in names]
    if not found:
        return None
    try:
        value = torch.as_tensor(actor.pop(found[0]), dtype=torch.float64).reshape(-1).expand(size).clone()
    except (RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"the actor's {found[0]} is not of {size} actions: {error}") from None
    if not torch.isfinite(value).all() or (names == SCALES and (value <= 0.0).any()):
        raise CheckpointError(f"the actor's {found[0]} is {value.tolist()}, which is no range of actions")
    return value


def _is_unit(low: NDArray[np.floating], high: NDArray[np.floating]) -> bool:
    return bool(np.allclose(low, -1.0) and np.allclose(high, 1.0))


def _largest_action(environment: RobotEnvironmentConfig | GymnasiumEnvironmentConfig) -> float:
    """Return 1 if the environment's own actions lie in [-1, 1]; otherwise the user has to give the range."""
    if isinstance(environment, RobotEnvironmentConfig):
        return 1.0
    if foreign_module(environment.id) is None:
        made = make_gymnasium(environment)
        low, high = action_range(made)
        made.close()
        if _is_unit(low, high):
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


def _read_weights(network: nn.Module, given: dict[str, Any], path: Path) -> Tensors:
    """Return a file's tensors under the names of a network's."""
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
    return {name: tensor.to(torch.float32, copy=True) for name, tensor in zip(wanted, tensors.values(), strict=True)}


def _read_moments(weights: Tensors, given: dict[str, Any], path: Path) -> Tensors:
    """Return Adam's step and moments of each weight, as an agent names them; none if it never took a step.

    Its other settings stay those of the configuration: the older program's may be for another device.
    """
    found: Tensors = {}
    try:
        order = [index for group in given["param_groups"] for index in group["params"]]
        states = [given["state"][index] for index in order if index in given["state"]]
        if len(order) != len(weights) or len(states) != len(given["state"]) or len(states) not in (0, len(order)):
            raise ValueError(f"it is of {len(order)} parameters, {len(states)} of them stepped, not {len(weights)}")
        for (name, weight), state in zip(weights.items(), states, strict=bool(states)):
            found[f"{name}.step"] = torch.as_tensor(state["step"], dtype=torch.float32).reshape(())
            for key in MOMENTS:
                if state[key].shape != weight.shape:
                    raise ValueError(f"{key} has shape {tuple(state[key].shape)}, not {tuple(weight.shape)}")
                found[f"{name}.{key}"] = state[key].to(torch.float32)
            if found[f"{name}.step"] < 1.0 or (found[f"{name}.exp_avg_sq"] < 0.0).any():
                raise ValueError("its step or its exp_avg_sq is negative")
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not the state of an Adam optimizer for this network: {error}") from None
    for name, value in found.items():
        _require_numbers(value, f"{path}: {name}")
    return found


def _require_numbers(tensor: Tensor, what: str) -> None:
    if not tensor.is_floating_point():
        raise CheckpointError(f"{what} is of type {tensor.dtype}, not of floats")
    bad = tensor[~torch.isfinite(tensor)]
    if bad.numel():
        raise CheckpointError(f"{what} holds {bad.numel()} numbers that are not finite, the first one {bad[0].item()}")


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
