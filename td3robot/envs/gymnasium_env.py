"""Any Gymnasium environment, with flat float observations and actions scaled to [-1, 1]."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, flatdim
from gymnasium.wrappers import FlattenObservation, RescaleAction
from numpy.typing import NDArray

from td3robot.config import GymnasiumEnvironmentConfig
from td3robot.envs.checked import in_words
from td3robot.errors import ConfigError
from td3robot.layout import Field, Layout
from td3robot.policy.contract import Contract

Environment = gymnasium.Env[Any, Any]


def make_gymnasium(config: GymnasiumEnvironmentConfig, render_mode: str | None = None) -> Environment:
    """Make a registered environment.

    Raises:
        ConfigError: It is not registered, cannot be made, or has spaces that TD3 cannot use.
    """
    try:
        environment = gymnasium.make(config.id, render_mode=render_mode, **config.kwargs)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"environment {config.id!r} cannot be made: {' '.join(str(error).split())}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code may raise anything
        raise ConfigError(f"environment {config.id!r} cannot be made: it {in_words(error)}") from None
    actions = environment.action_space
    if not isinstance(actions, Box) or len(actions.shape) != 1 or not actions.is_bounded():
        raise ConfigError(f"environment {config.id!r} has action space {actions}; TD3 needs a bounded Box of one axis")
    if not isinstance(environment.observation_space, Box) or len(environment.observation_space.shape) != 1:
        environment = FlattenObservation(environment)
    return ContractedEnvironment(RescaleAction(environment, np.float32(-1.0), np.float32(1.0)), config)


class ContractedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with the contract of a policy that is trained on it."""

    def __init__(self, environment: Environment, config: GymnasiumEnvironmentConfig) -> None:
        super().__init__(environment)
        self._config = config

    def contract(self) -> Contract:
        """Return the contract of a policy for this environment."""
        return gymnasium_contract(self._config, self)


def action_range(environment: Environment) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the lowest and highest action of an environment, before scaling to [-1, 1]."""
    inner: Any = environment
    while isinstance(inner, gymnasium.Wrapper) and not isinstance(inner, RescaleAction):
        inner = inner.env
    space = inner.env.action_space if isinstance(inner, RescaleAction) else environment.action_space
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
