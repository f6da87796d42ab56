"""Loads another program's TD3 checkpoint into an agent, so that it acts and judges as it did there."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from td3robot.errors import CheckpointError
from td3robot.learning.action_range import MOMENTS, ActionRange, Bounds, Tensors, taken_range
from td3robot.learning.agent import Agent
from td3robot.learning.foreign_files import ForeignCheckpoint, read_foreign
from td3robot.learning.six_files import require_symmetric, require_td3
from td3robot.learning.td3 import TRAINED
from td3robot.policy.observation_scaling import CLIP, MIN_DEVIATION, Moments, require_moments

CRITICS = ("Q1", "Q2")
# Stable-Baselines3's VecNormalize adds this to a variance by default.
EPSILON = 1e-8
WRITE_SCALING = (
    "np.savez('scaling.npz', mean=venv.obs_rms.mean, var=venv.obs_rms.var, count=venv.obs_rms.count, "
    "epsilon=venv.epsilon, clip_obs=venv.clip_obs)"
)


def import_foreign(
    agent: Agent, path: str, a_max: float | None = None, environment: Bounds | None = None, scaling: Path | None = None
) -> list[str]:
    """Load a checkpoint of another program; targets start as copies of the networks if it has none.

    Args:
        agent: The agent to load it into.
        path: As in :func:`read_foreign`.
        a_max: The largest action of the other program, if its files do not say so (``action_scale``).
        environment: The environment's lowest and highest action, before scaling to [-1, 1].
        scaling: The other program's observation scaling; see :func:`read_scaling`.

    Returns:
        What the user should know about it, one sentence each.

    Raises:
        CheckpointError: The agent is not TD3; a file is missing, contains more than tensors, has a number that is not
            finite, or does not fit the agent; or the action range of the other program is not known.
    """
    agent = require_td3(agent)
    require_symmetric(agent.config)
    if agent.normalizer.enabled and scaling is None:
        raise CheckpointError(
            "the six files carry no observation scaling, so their networks take raw observations; "
            "add --set agent.normalize_observations=false"
        )
    if scaling is not None and not agent.normalizer.enabled:
        raise CheckpointError(f"{scaling} scales observations; add --set agent.normalize_observations=true")
    # Everything is read before anything is loaded, so that a refused file leaves the agent unchanged.
    foreign = read_foreign(path)
    moments = None if scaling is None else read_scaling(scaling, agent.observation_size)
    actions, notes = _actions(foreign, agent.action_size, a_max, environment)
    read: dict[str, Tensors] = {}
    for name in TRAINED:
        given = foreign.networks[name]
        weights = _read_weights(getattr(agent, name), given.tensors, given.source)
        adam = {} if given.optimizer is None else _read_moments(weights, given.optimizer, given.optimizer_source)
        if name in CRITICS and not actions.apply(weights, adam):
            adam = {}
            notes.append(
                f"{given.optimizer_source} starts afresh: its moments mean nothing for actions that are shifted"
            )
        read |= {name: weights, f"{name}_optimizer": adam}
    for name, given in foreign.targets.items():
        read[f"{name}_target"] = _read_weights(getattr(agent, name), given.tensors, f"{given.source}")
        if name in CRITICS:
            actions.apply(read[f"{name}_target"], {})
    agent.start_from(read)
    if moments is not None:
        agent.normalizer.load_state(moments)
    return notes


def missing_parts(foreign: ForeignCheckpoint, scaled: bool) -> str:
    """List what a run that is imported begins without."""
    parts = [] if foreign.targets else ["no targets (they start as copies of the networks)"]
    parts += [] if foreign.networks["actor"].optimizer else ["no optimizers (they start afresh)"]
    parts += [] if scaled else ["no normalizer"]
    return ", ".join([*parts, "no replay buffer"]) + " and no random states"


def read_scaling(path: Path, size: int) -> Moments:
    """Read an observation scaling ``clip((o - mean) / sqrt(var + epsilon), -clip_obs, clip_obs)`` from an .npz file.

    Args:
        path: With ``mean`` and ``var`` (observation,), and optionally ``count``, ``epsilon`` and ``clip_obs``.
        size: Size of an observation.

    Returns:
        A normaliser's state.

    Raises:
        CheckpointError: It is something else, or a scaling that a normaliser here cannot express.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
        mean, variance = values["mean"], values["var"] + values.get("epsilon", np.array(EPSILON))
        count, clip = values.get("count", np.ones(1)).reshape(1), float(values.get("clip_obs", np.array(CLIP)))
        moments = {"enabled": np.ones(1), "count": count, "mean": mean, "variance": variance}
        require_moments(moments)
    except FileNotFoundError:
        raise CheckpointError(f"there is no scaling {path}; write one with {WRITE_SCALING}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        reason = "it is a pickle, which could run code" if "pickle" in str(error) else str(error)
        raise CheckpointError(f"{path} is not a scaling ({reason}); write one with {WRITE_SCALING}") from None
    if len(mean) != size:
        raise CheckpointError(f"{path} scales {len(mean)} numbers, and an observation here has {size}")
    if clip != CLIP:
        raise CheckpointError(f"{path} clips scaled observations at {clip:g}, and td3robot at {CLIP:g}")
    narrow = np.flatnonzero(np.sqrt(variance) < MIN_DEVIATION)
    if len(narrow):
        raise CheckpointError(
            f"{path} divides components {narrow.tolist()} by as little as {np.sqrt(variance).min():.2g}, and td3robot "
            f"by {MIN_DEVIATION} at least, so the policy would act otherwise; train it again without those components, "
            f"or accept that and set their var to {MIN_DEVIATION**2:g}"
        )
    return moments


def _actions(
    foreign: ForeignCheckpoint, size: int, a_max: float | None, environment: Bounds | None
) -> tuple[ActionRange, list[str]]:
    """Return the range of the actions that critics were shown, and what the user should know about it."""
    if not foreign.unit_actions:
        return taken_range(foreign.networks["actor"].tensors, size, a_max, environment)
    if a_max is not None:
        raise CheckpointError(f"{foreign.title} show critics actions in [-1, 1], whatever they are; leave --a-max out")
    return ActionRange.of(1.0, size), []


def _read_weights(network: nn.Module, given: dict[str, Any], source: str) -> Tensors:
    """Return a file's tensors under the names of a network's."""
    wanted = network.state_dict()
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    shapes, expected = [tuple(t.shape) for t in tensors.values()], [tuple(t.shape) for t in wanted.values()]
    if shapes != expected:
        raise CheckpointError(
            f"{source} has tensors of shapes {shapes} and the configuration's network has {expected}; "
            "set agent.hidden to the checkpoint's, and use its environment"
        )
    for name, tensor in tensors.items():
        _require_numbers(tensor, f"{source}: {name}")
    return {name: tensor.to(torch.float32, copy=True) for name, tensor in zip(wanted, tensors.values(), strict=True)}


def _read_moments(weights: Tensors, given: dict[str, Any], source: str) -> Tensors:
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
        raise CheckpointError(f"{source} is not the state of an Adam optimizer for this network: {error}") from None
    for name, value in found.items():
        _require_numbers(value, f"{source}: {name}")
    return found


def _require_numbers(tensor: Tensor, what: str) -> None:
    if not tensor.is_floating_point():
        raise CheckpointError(f"{what} is of type {tensor.dtype}, not of floats")
    bad = tensor[~torch.isfinite(tensor)]
    if bad.numel():
        raise CheckpointError(f"{what} holds {bad.numel()} numbers that are not finite, the first one {bad[0].item()}")
