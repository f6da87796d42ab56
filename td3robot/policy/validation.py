"""Checks that the parts of a checkpoint are possible and belong together, before anything is built from them."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from td3robot.config import RobotEnvironmentConfig, RunConfig
from td3robot.errors import CheckpointError
from td3robot.policy.checkpoint import Arrays, Checkpoint
from td3robot.policy.contract import Contract
from td3robot.policy.documents import MODELS, short
from td3robot.policy.observation_scaling import LARGEST

OPTIMIZER = "_optimizer"
MOMENTS = ("exp_avg", "exp_avg_sq")
GENERATOR_BYTES = 5056  # torch's Mersenne twister

Shapes = dict[str, tuple[int, ...]]


def require_playable(saved: Checkpoint, config: RunConfig) -> None:
    """Refuse a checkpoint whose documents, actor and normaliser do not match each other and its configuration.

    Args:
        saved: The checkpoint.
        config: The checkpoint's configuration, without overrides.

    Raises:
        CheckpointError: Naming the first part that does not fit.
    """
    for name in MODELS:
        if saved.has(name):
            saved.document(name)
    contract, counters = saved.contract(), saved.document("counters")
    evaluation = saved.document("evaluation")
    if saved.has("evaluations") and evaluation is not None and evaluation not in saved.document("evaluations"):
        raise _inconsistent(saved, "evaluation.json is none of those in evaluations.json")
    has_evaluation = evaluation is not None
    if has_evaluation is not (counters["evaluated_step"] > 0):
        raise _inconsistent(
            saved,
            f"counters.json names step {counters['evaluated_step']} as evaluated, evaluation.json "
            f"{'another' if has_evaluation else 'none'}",
        )
    _require_same_environment(saved, config, contract)
    averages = saved.has("actor_average")
    if averages is not (saved.has("replay") and "actor_average" in _networks(config, contract)):
        raise _inconsistent(
            saved, f"it {'has' if averages else 'lacks'} an actor_average, unlike its configuration's agent"
        )
    _require_network(saved, "actor_average" if averages else "actor", config, contract)
    scaled = bool(saved.normalizer()["enabled"][0])
    if scaled is not (wanted := config.agent.normalize_observations):
        raise _inconsistent(
            saved,
            f"its configuration has agent.normalize_observations {str(wanted).lower()}, and its "
            f"normaliser {'is' if scaled else 'is not'} enabled",
        )
    saved.policy()


def require_whole(saved: Checkpoint, config: RunConfig) -> None:
    """Refuse a checkpoint with a part that is missing, impossible, or does not fit; reads every file.

    Args:
        saved: The checkpoint, saved for play or for resuming.
        config: The checkpoint's configuration, without overrides.

    Raises:
        CheckpointError: Naming the first part that does not fit.
    """
    require_playable(saved, config)
    contract = saved.contract()
    groups = [name.removesuffix(".safetensors") for name in saved.manifest["files"] if name.endswith(".safetensors")]
    for name in groups:
        if name in _networks(config, contract):
            _require_network(saved, name, config, contract)
        elif name.endswith(OPTIMIZER):
            _require_optimizer(saved, name, config)
        else:
            saved.arrays(name)
    if saved.has("replay"):
        _require_resumable(saved, config, contract, groups)


def _require_same_environment(saved: Checkpoint, config: RunConfig, contract: Contract) -> None:
    environment = config.environment
    if isinstance(environment, RobotEnvironmentConfig):
        if contract.terms.get("guard") is None:
            raise _inconsistent(saved, "its configuration is of a robot, and its contract of none")
        arm = contract.terms["robot"].get("arm", environment.robot.arm)
        if arm != environment.robot.arm:
            raise _inconsistent(
                saved, f"its configuration is of the arm {environment.robot.arm!r}, its contract of {short(arm)}"
            )
        return
    named = {"id": environment.id, "kwargs": environment.kwargs}
    if (trained := contract.terms.get("environment")) != named:
        raise _inconsistent(
            saved, f"its configuration names the environment {short(named)}, its contract {short(trained)}"
        )


def _networks(config: RunConfig, contract: Contract) -> dict[str, list[int]]:
    return config.agent.networks(contract.observation.size, contract.action.size)


def _require_network(saved: Checkpoint, name: str, config: RunConfig, contract: Contract) -> Shapes:
    """Return the shapes of a network; refuse layers other than the configuration's, and absurd weights."""
    arrays = saved.arrays(name)
    wanted = _shapes(_networks(config, contract)[name], config.agent.layer_norm)
    _require_shapes(saved, name, arrays, wanted)
    for key, array in arrays.items():
        if not (np.abs(array) < LARGEST).all():
            raise _inconsistent(saved, f"{name}: {key} holds a number beyond {LARGEST:g}")
    return wanted


def _require_optimizer(saved: Checkpoint, name: str, config: RunConfig) -> None:
    """Refuse arrays that are not Adam's state of a network; it is empty until the network's first update."""
    arrays, network = saved.arrays(name), name.removesuffix(OPTIMIZER)
    contract, counters = saved.contract(), saved.document("counters")
    if not arrays:
        if counters["updates"] >= config.agent.period and not saved.has("changes"):
            raise _inconsistent(saved, f"{name} is empty after {counters['updates']} updates")
        return
    if not saved.has(network):
        raise _inconsistent(saved, f"{name} is there without {network}")
    if network not in _networks(config, contract):
        return
    wanted: Shapes = {}
    for key, shape in _require_network(saved, network, config, contract).items():
        wanted |= {f"{key}.step": ()} | {f"{key}.{moment}": shape for moment in MOMENTS}
    _require_shapes(saved, name, arrays, wanted)
    for key, array in arrays.items():
        if key.endswith((".step", ".exp_avg_sq")) and (array < 0.0).any():
            raise _inconsistent(saved, f"{name}: {key} holds {array.min():g}, and cannot be negative")


def _require_resumable(saved: Checkpoint, config: RunConfig, contract: Contract, groups: Iterable[str]) -> None:
    counters = saved.document("counters")
    wanted = {"episodes", "torch_generator"} | {name for name in ("random",) if not saved.has(name)}
    wanted |= {*_networks(config, contract), *config.agent.optimizers}
    if missing := sorted(wanted - set(groups)):
        raise _inconsistent(saved, f"{missing[0]} is missing")
    if counters.get("replay") is None or counters.get("episodes") is None:
        raise _inconsistent(saved, "counters.json lacks replay or episodes")
    if len(counters["episodes"]) != config.training.environments:
        raise _inconsistent(
            saved,
            f"it has {len(counters['episodes'])} episodes in progress, and its configuration "
            f"{config.training.environments} environments",
        )
    _require_updates(saved, config)
    _require_replay(saved, config, contract)
    _require_episodes(saved, config, contract)
    state = saved.arrays("torch_generator").get("state")
    if state is None or state.dtype != np.uint8 or state.shape != (GENERATOR_BYTES,):
        raise _inconsistent(saved, "torch_generator is no state of a random generator")


def _require_updates(saved: Checkpoint, config: RunConfig) -> None:
    """Refuse more updates than the steps call for, or so few that a resumed run would catch up all at once."""
    if _changed(saved, "agent.updates_per_step") or _changed(saved, "training.random_steps"):
        return
    counters, rate = saved.document("counters"), config.agent.updates_per_step
    step, updates = counters["step"], counters["updates"]
    if updates > step * rate:
        raise _inconsistent(saved, f"{updates} updates are more than {step} steps allow")
    # On an arm, updates wait for the end of an episode; with overlap, for the next step.
    waiting = 2 * config.training.environments
    waiting += config.environment.episode_steps if isinstance(config.environment, RobotEnvironmentConfig) else 0
    if updates and updates < (step - config.training.random_steps - waiting) * rate - 1.0:
        raise _inconsistent(saved, f"{updates} updates are fewer than {step} steps call for")


def _require_replay(saved: Checkpoint, config: RunConfig, contract: Contract) -> None:
    counters, arrays = saved.document("counters"), saved.arrays("replay")
    observation, action = contract.observation.size, contract.action.size
    rows, capacity = arrays.get("rows"), config.agent.replay_capacity
    if rows is None or rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != 2 * observation + action + 3:
        raise _inconsistent(saved, "replay holds no rows of this contract's transitions")
    if len(rows) > capacity or len(rows) > counters["step"]:
        raise _inconsistent(
            saved, f"replay holds {len(rows)} transitions of {counters['step']} steps, with room for {capacity}"
        )
    following = counters["replay"]["next"]
    if following != len(rows) % capacity if len(rows) < capacity else following >= capacity:
        raise _inconsistent(saved, f"counters.json writes the next transition at {following} of {len(rows)}")
    actions, terminated = rows[:, observation : observation + action], rows[:, -2]
    if (np.abs(actions) > 1.0).any() or not np.isin(terminated, (0.0, 1.0)).all():
        raise _inconsistent(saved, "replay holds an action outside of [-1, 1], or an end that is neither 0 nor 1")
    if (rows[:, -1] < 0.0).any() or (rows[:, -1] > 1.0).any() or (np.abs(rows) > LARGEST).any():
        raise _inconsistent(saved, f"replay holds a discount outside of [0, 1], or a number beyond {LARGEST:g}")


def _require_episodes(saved: Checkpoint, config: RunConfig, contract: Contract) -> None:
    count, observation, action = config.training.environments, contract.observation.size, contract.action.size
    arrays = saved.arrays("episodes")
    for index in range(count):
        actions, last = arrays.get(f"{index}.actions"), arrays.get(f"{index}.observation")
        if actions is None or actions.dtype != np.float32 or actions.ndim != 2 or actions.shape[1] != action:
            raise _inconsistent(saved, f"episodes has no actions of environment {index}")
        if last is None or last.dtype.kind != "f" or last.shape != (observation,):
            raise _inconsistent(saved, f"episodes has no observation of environment {index}")
        if (np.abs(actions) > 1.0).any():
            raise _inconsistent(saved, f"episodes has an action outside of [-1, 1] in environment {index}")


def _changed(saved: Checkpoint, setting: str) -> bool:
    """Whether the run was ever resumed with another value of a setting."""
    changes = saved.document("changes") if saved.has("changes") else []
    return any(setting in change["settings"] for change in changes)


def _require_shapes(saved: Checkpoint, name: str, arrays: Arrays, wanted: Shapes) -> None:
    for key in sorted(arrays.keys() | wanted.keys()):
        found = tuple(arrays[key].shape) if key in arrays else None
        if found != wanted.get(key):
            raise _inconsistent(
                saved,
                f"{name} does not fit: {short(key)[1:-1]} is {found} in the checkpoint and {wanted.get(key)} by "
                "its configuration and contract",
            )
        if arrays[key].dtype.kind != "f":
            raise _inconsistent(saved, f"{name}: {key} is of type {arrays[key].dtype}, not of floats")


def _shapes(sizes: list[int], layer_norm: bool) -> Shapes:
    """Return names and shapes of a network's tensors; see ``learning.networks.mlp``."""
    shapes: Shapes = {}
    index = 0
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes |= {f"net.{index}.weight": (outputs, inputs), f"net.{index}.bias": (outputs,)}
        if layer_norm and layer < len(sizes) - 2:
            shapes |= {f"net.{index + 1}.weight": (outputs,), f"net.{index + 1}.bias": (outputs,)}
        index += 3 if layer_norm else 2
    return shapes


def _inconsistent(saved: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(f"{saved.path}: {what}; the checkpoint's parts do not belong together")
