"""Which spaces of other people's environments TD3 can use, and the scaling of their actions to [-1, 1]."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatdim
from numpy.typing import NDArray

from td3robot.errors import ConfigError

LONGEST = 120  # characters of a space in a sentence
UNLIMITED = 1e18  # a bound beyond this bounds nothing
TRANSFORM = "gymnasium.wrappers.TransformAction"


class ScaledActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """Take actions (size,) in [-1, 1], and pass on actions in the environment's own Box, whatever rounding does.

    A component whose bounds are equal has one value, which is sent.

    Args:
        environment: Its action space passes :func:`require_actions`.

    Attributes:
        low, high: The environment's own bounds (size,).
    """

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        self._box = environment.action_space
        assert isinstance(self._box, Box)
        self.low, self.high = self._box.low.reshape(-1), self._box.high.reshape(-1)
        self.action_space = Box(-1.0, 1.0, self.low.shape, np.float32)
        self._as_it_is = self._box.dtype == np.dtype(np.float32) and self._box.low.ndim == 1
        self._middle = self.low / 2 + self.high / 2
        self._half = np.minimum(self.high - self._middle, self._middle - self.low)
        # Rounding keeps order: if the ends are inside, so is what lies between.
        one = np.ones(self.low.shape, np.float32)
        while not (inside := self._inside(one) & self._inside(-one)).all():
            self._half = np.where(inside, self._half, np.nextafter(self._half, self._box.dtype.type(0)))

    def action(self, action: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Return the environment's action."""
        scaled: NDArray[np.floating[Any]] = self._half * action + self._middle
        return scaled if self._as_it_is else scaled.astype(self._box.dtype).reshape(self._box.shape)

    def _inside(self, action: NDArray[np.float32]) -> NDArray[np.bool_]:
        scaled = self.action(action).reshape(-1)
        inside: NDArray[np.bool_] = (self.low <= scaled) & (scaled <= self.high)
        return inside


def require_actions(title: str, space: Space[Any]) -> None:
    """Require actions that TD3 can choose: a bounded Box of floats.

    Raises:
        ConfigError: They are of another kind; with the wrapper that helps.
    """
    has = f"environment {title!r} has the action space {_shown(space)}"
    if not isinstance(space, Box):
        raise ConfigError(
            f"{has}, and TD3 needs a bounded Box of floats, because its actions are continuous; wrap it with "
            f"{TRANSFORM}, or use an algorithm for such actions"
        )
    if space.dtype is None or space.dtype.kind != "f":
        raise ConfigError(
            f"{has} of whole numbers, and TD3 needs a bounded Box of floats; wrap it with {TRANSFORM}, which can round "
            "them"
        )
    if not space.low.size:
        raise ConfigError(f"{has}, which is empty: there is nothing to choose")
    if not (np.abs([space.low, space.high], dtype=np.float64) < UNLIMITED).all():
        raise ConfigError(
            f"{has}, and TD3 needs finite bounds; wrap it with {TRANSFORM} and a Box of the values that make sense"
        )


def require_observations(title: str, space: Space[Any]) -> None:
    """Require observations that can be flattened to a fixed number of numbers and are no images.

    Raises:
        ConfigError: They cannot; with the wrapper that helps.
    """
    has = f"environment {title!r} has the observation space {_shown(space)}"
    wrapper = "wrap it with gymnasium.wrappers.TransformObservation"
    for part in _parts(space):
        if not isinstance(part, Box | Discrete | MultiBinary | MultiDiscrete):
            raise ConfigError(
                f"{has}, and TD3's networks take a fixed number of numbers, which {type(part).__name__} has not; "
                f"{wrapper} to a Box"
            )
        if isinstance(part, Box) and len(part.shape) == 3 and part.dtype == np.uint8:
            raise ConfigError(
                f"{has}, which are images, and TD3's networks here have no layers for them; {wrapper} to a Box of "
                "features, or use an algorithm with a convolutional network"
            )
    if not flatdim(space):
        raise ConfigError(f"{has}, which is empty: there is nothing to observe")


def _parts(space: Space[Any]) -> Iterator[Space[Any]]:
    """Yield the spaces that a Dict or a Tuple is made of, or the space itself."""
    if not isinstance(space, Dict | Tuple):
        yield space
        return
    for inner in space.spaces.values() if isinstance(space, Dict) else space.spaces:
        yield from _parts(inner)


def _shown(space: Space[Any]) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
