"""Any Gymnasium environment, with flat float observations and actions scaled to [-1, 1]."""

import os
import random
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, flatdim
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray

from td3robot.config import GymnasiumEnvironmentConfig
from td3robot.envs.checked import in_words, truth
from td3robot.envs.goals import GoalReader
from td3robot.envs.playing import REPORTED
from td3robot.envs.spaces import ScaledActions, require_actions, require_observations
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.layout import Field, Layout
from td3robot.policy.contract import Contract
from td3robot.robots.simulated.drawing_library import drawing_library

Environment = gymnasium.Env[Any, Any]
# Steps of an episode that nothing limits. Its evaluation would otherwise never end, if it does not.
LONGEST_EPISODE = 10_000
# What td3robot reads in the info of its own robots only.
OF_ROBOTS = ("interventions", "tcp_speed_m_s", "joint_speed_rad_s", "fault", "failure")
READ = {*REPORTED, "is_success"}


def make_gymnasium(config: GymnasiumEnvironmentConfig, render_mode: str | None = None) -> Environment:
    """Make a registered environment.

    Raises:
        ConfigError: It is not registered, cannot be made, or has spaces that TD3 cannot use.
    """
    drawn: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}  # some take none
    if drawn and (library := drawing_library()):
        os.environ["MUJOCO_GL"] = library
    _find_beside(config.id)
    try:
        environment = gymnasium.make(config.id, **drawn, **config.kwargs)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"environment {config.id!r} cannot be made: {text}{_advice(config, error)}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code may raise anything
        raise ConfigError(f"environment {config.id!r} cannot be made: it {in_words(error)}") from None
    try:
        require_actions(config.id, environment.action_space)
        require_observations(config.id, environment.observation_space)
    except ConfigError:
        environment.close()
        raise
    goals = GoalReader.of(environment, config.id)
    if not isinstance(environment.observation_space, Box) or len(environment.observation_space.shape) != 1:
        environment = FlattenObservation(environment)
    return ContractedEnvironment(ScaledActions(environment), config, goals)


class ContractedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with the contract of a policy that is trained on it, and the info that td3robot reads.

    Attributes:
        goals: Reads its goals; None if it has none.
    """

    def __init__(
        self, environment: Environment, config: GymnasiumEnvironmentConfig, goals: GoalReader | None = None
    ) -> None:
        super().__init__(environment)
        self.goals = goals
        self._config, self._steps = config, 0
        self._limited = environment.spec is not None and environment.spec.max_episode_steps is not None

    def contract(self) -> Contract:
        """Return the contract of a policy for this environment."""
        return gymnasium_contract(self._config, self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the global random generators, from which some environments draw, get its seed, too."""
        self._steps = 0
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environment.

        Raises:
            EnvironmentFaultError: Its info is not what td3robot can read, or its episode does not end.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._steps > LONGEST_EPISODE and not self._limited:
            raise EnvironmentFaultError(
                f"an episode of {self._config.id!r} has not ended after {LONGEST_EPISODE:,} steps, and nothing limits "
                "it; limit it, for example with --set environment.kwargs.max_episode_steps=1000"
            )
        return observation, reward, terminated, truncated, readable(info)


def readable(info: Any) -> dict[str, Any]:
    """Return an environment's info with ``success`` (or ``is_success``) as a bool, and without what is of robots only.

    Raises:
        EnvironmentFaultError: Success is neither true nor false, or the reward terms or the distance are no numbers.
    """
    if not isinstance(info, dict):
        raise EnvironmentFaultError(f"the environment's info is {info!r}; it must be a dictionary")
    if READ.isdisjoint(info):
        return info
    kept = {key: value for key, value in info.items() if key not in OF_ROBOTS}
    if (success := info.get("success", info.get("is_success"))) is not None:
        kept["success"] = truth(success, "info['success']" if "success" in info else "info['is_success']")
    elif "success" in info:
        del kept["success"]
    if "reward_terms" in info:
        kept["reward_terms"] = _terms(info["reward_terms"])
    if "distance_m" in info:
        kept["distance_m"] = _number(info["distance_m"], "info['distance_m']")
    return kept


def _terms(terms: Any) -> dict[str, float]:
    if not isinstance(terms, Mapping):
        raise EnvironmentFaultError(
            f"the environment's info['reward_terms'] is {terms!r}; td3robot reads it as a dictionary of numbers by name"
        )
    return {str(name): _number(value, f"info['reward_terms'][{name!r}]") for name, value in terms.items()}


def _number(value: Any, what: str) -> float:
    try:
        return float(np.asarray(value, np.float64).item())
    except (TypeError, ValueError):
        raise EnvironmentFaultError(f"the environment's {what} is {value!r}; td3robot reads it as a number") from None


def _find_beside(environment_id: str) -> None:
    """Let the module of ``module:Name`` be imported from the working directory, if it is nowhere else."""
    module, colon, _ = environment_id.rpartition(":")
    top, here = module.partition(".")[0], Path.cwd()
    if not colon or not top.isidentifier() or str(here) in sys.path:
        return
    if ((here / f"{top}.py").is_file() or (here / top / "__init__.py").is_file()) and find_spec(top) is None:
        sys.path.append(str(here))


def _advice(config: GymnasiumEnvironmentConfig, error: Exception) -> str:
    """Return what to do about an environment that cannot be made, if that is known."""
    module, _, name = config.id.rpartition(":")
    if isinstance(error, gymnasium.error.NameNotFound) and hasattr(sys.modules.get(module), name):
        return (
            f"; {module} has {name}, and does not register it: add gymnasium.register(id={name + '-v0'!r}, "
            f"entry_point='{module}:{name}') to it, and train on {module}:{name}-v0"
        )
    if isinstance(error, TypeError) and "'render_mode'" in str(error):
        return "; it takes no render_mode, so no film of it can be made"
    if isinstance(error, TypeError) and "argument" in str(error):
        return "; its arguments are given as --set environment.kwargs.NAME=VALUE"
    return ""


def action_range(environment: Environment) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the lowest and highest action of an environment (size,), before scaling to [-1, 1]."""
    inner: Any = environment
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, ScaledActions):
            return inner.low, inner.high
        inner = inner.env
    space = environment.action_space
    assert isinstance(space, Box)
    return space.low, space.high


def gymnasium_contract(config: GymnasiumEnvironmentConfig, environment: Environment) -> Contract:
    """Return the contract of a policy for this environment."""
    observation = Layout([_numbered("observation", flatdim(environment.observation_space))])
    action = Layout([_numbered("action", flatdim(environment.action_space))])
    return Contract(
        {
            "environment": {"id": config.id, "kwargs": config.kwargs},
            "observation": observation.to_json(),
            "action": {"layout": action.to_json()},
        }
    )


def _numbered(name: str, size: int) -> Field:
    return Field(name, tuple(str(index) for index in range(size)), "1", "simulator")
