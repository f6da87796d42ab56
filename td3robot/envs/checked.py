"""A wrapper that turns an environment's mistakes, exceptions and wrong kinds of values, into errors of td3robot."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import td3robot
from td3robot.errors import EnvironmentFaultError, Td3RobotError

Vector = NDArray[np.float32]
LONGEST = 300  # characters of an exception's own text in a sentence
# Code that calls an environment, and is not an environment's own.
CALLERS = tuple(Path(module.__file__ or "").parent for module in (gymnasium, td3robot))
OLD_API = (
    "; this is the API of Gym before 0.26: let step return (observation, reward, terminated, truncated, info), and "
    "reset(seed=None, options=None) return (observation, info); an environment of the package gym can be wrapped: "
    "pip install 'shimmy[gym-v21]', environment.id=GymV21Environment-v0 and environment.kwargs.env_id=ITS_ID"
)


class CheckedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pass everything on, and raise :class:`EnvironmentFaultError` if the environment breaks Gymnasium's contract."""

    def __init__(self, environment: gymnasium.Env[Any, Any], title: str) -> None:
        super().__init__(environment)
        self._title = title
        self._shape = environment.observation_space.shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the observation is a copy.

        Raises:
            EnvironmentFaultError: The environment raised an exception, or its observation has another shape.
        """
        with checked(self._title, "reset"):
            observation, info = self.env.reset(seed=seed, options=options)
            if not isinstance(info, dict):
                raise EnvironmentFaultError(f"reset of the environment {self._title!r} returned no info{OLD_API}")
            return self._copied(observation, "reset"), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment; the observation is a copy, because an environment may return its own buffer each time.

        Raises:
            EnvironmentFaultError: The environment raised an exception, its observation has another shape, its reward
                is not a number, or what says whether the episode ended is neither true nor false.
        """
        with checked(self._title, "step"):
            observation, reward, terminated, truncated, info = self.env.step(action)
            return (
                self._copied(observation, "step"), number(reward), truth(terminated, "terminated"),
                truth(truncated, "truncated"), info,
            )  # fmt: skip

    def close(self) -> None:
        """Close the environment.

        Raises:
            EnvironmentFaultError: The environment raised an exception.
        """
        with checked(self._title, "close"):
            self.env.close()

    def _copied(self, observation: Any, where: str) -> Vector:
        array = np.asarray(observation)
        if array.shape != self._shape or array.dtype.kind not in "fiub":
            raise EnvironmentFaultError(
                f"the environment {self._title!r} returned an observation of shape {array.shape} in {where}"
                f"{'' if array.shape != self._shape else f' of type {array.dtype}'}; its observation space promises "
                f"numbers of shape {self._shape}"
            )
        return array.astype(np.float32)


def number(reward: Any) -> float:
    """Return a reward as a float, whatever kind of number it is."""
    return reward if isinstance(reward, float) else float(np.asarray(reward).item())


def truth(value: Any, what: str) -> bool:
    """Return what an environment says as a bool: a bool, 0 or 1, or an array of one of these.

    Raises:
        EnvironmentFaultError: It is anything else; ``what`` names it.
    """
    if isinstance(value, bool):
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise EnvironmentFaultError(f"the environment's {what} is {value!r}; it must be true or false")
    return bool(array.item())


@contextmanager
def checked(title: str, where: str) -> Iterator[None]:
    """Turn exceptions of an environment's code into errors of td3robot.

    Raises:
        EnvironmentFaultError: Naming the environment, what its code raised and where.
    """
    try:
        yield
    except Td3RobotError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code may raise anything
        details = "".join(traceback.format_exception(error))
        raise EnvironmentFaultError(
            f"the environment {title!r} {in_words(error)} in {where}{_advice(error)}", details
        ) from None


def _advice(error: BaseException) -> str:
    """Return what to do about an environment with an older API: it is noticed by whoever called it."""
    text, caller = str(error), traceback.extract_tb(error.__traceback__)[-1].filename
    ours = any(Path(caller).is_relative_to(folder) for folder in CALLERS)
    unpacked = isinstance(error, ValueError) and "values to unpack" in text
    refused = isinstance(error, TypeError) and "reset() got an unexpected keyword argument" in text
    return OLD_API if ours and (unpacked or refused) else ""


def in_words(error: BaseException) -> str:
    """Return what foreign code raised, and where, in words: ``raised ValueError: no (my_env.py, line 3)``."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r}){place}"
    text = " ".join(str(error).split())[:LONGEST]
    return f"raised {type(error).__name__}{f': {text}' if text else ''}{place}"
