"""Environments side by side: here, or in a process of their own, while a learner has the interpreter to itself."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from td3robot.errors import EnvironmentFaultError, Td3RobotError
from td3robot.layout import Layout
from td3robot.subprocesses import start_python

Vector = NDArray[np.float32]
MAIN = f"import sys; from {__name__} import run_environments; run_environments(int(sys.argv[1]), int(sys.argv[2]))"
# How long a process may take to finish its step when it is closed, and how often it checks that its parent lives [s].
END_S, LOOK_S = 5.0, 1.0


@dataclass(slots=True)
class Step:
    """One step of one environment: the action, and what the environment returned.

    Attributes:
        success: Whether the episode counts as a success so far; None where the environment does not say.
        reward_terms: The reward's terms by name.
        interventions: Why the guard changed the action, if it did.
    """

    action: Vector
    observation: Vector
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None
    reward_terms: dict[str, float]
    interventions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """What environments that are alike have in common.

    Attributes:
        observation_layout: Names of an observation's numbers, where they have any.
    """

    count: int
    action_shape: tuple[int, ...]
    observation_layout: Layout | None


class Environments(Protocol):
    """Environments with observations (size,) and actions in [-1, 1], alike but for what disturbs them."""

    @property
    def facts(self) -> EnvironmentFacts:
        """What they have in common."""

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode in one of them, and return its first observation."""

    def step(self, index: int, action: Vector) -> Step:
        """Step one of them."""

    def start(self, actions: Vector) -> None:
        """Have every one step with its row of ``actions``, by the next :meth:`finish`."""

    def finish(self) -> list[Step]:
        """Wait for the steps that :meth:`start` began, and return them."""

    def close(self) -> None:
        """Close them."""


class LocalEnvironments:
    """Environments of this process: they step when :meth:`finish` is called."""

    def __init__(self, environments: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self.environments = list(environments)
        first = self.environments[0]
        layout = getattr(first.unwrapped, "observation_layout", None)
        self.facts = EnvironmentFacts(len(self.environments), first.action_space.shape or (), layout)
        self._actions = np.zeros((0, *self.facts.action_shape), np.float32)

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        observation, _ = self.environments[index].reset(seed=seed)
        return np.asarray(observation, np.float32)

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        observation, reward, terminated, truncated, info = self.environments[index].step(action)
        return Step(
            action, np.asarray(observation, np.float32), float(reward), bool(terminated), bool(truncated),
            info.get("success"), info.get("reward_terms", {}), info.get("interventions", ()),
        )  # fmt: skip

    def start(self, actions: Vector) -> None:
        """Keep the actions."""
        self._actions = actions

    def finish(self) -> list[Step]:
        """Step all."""
        return [self.step(index, action) for index, action in enumerate(self._actions)]

    def close(self) -> None:
        """Close all."""
        for environment in self.environments:
            environment.close()


class EnvironmentProcess:
    """A process with the environments of a training; it ends with this one, or when closed.

    It is started at once, and makes them while this one does something else.

    Args:
        make: Makes an environment from its configuration; a function that the process can import.
        configs: One for each environment.
    """

    def __init__(self, make: Callable[[Any], gymnasium.Env[Any, Any]], configs: Sequence[Any]) -> None:
        self._connection, other_end = Pipe()
        self._process = start_python(
            ["-c", MAIN, str(other_end.fileno()), str(os.getpid())],
            pass_fds=[other_end.fileno()],
            stdin=subprocess.DEVNULL,
        )
        other_end.close()
        self._connection.send((make, configs))
        self._facts: EnvironmentFacts | None = None
        self._stepping = False

    @property
    def facts(self) -> EnvironmentFacts:
        """What the environments have in common.

        Raises:
            Td3RobotError: They could not be made.
        """
        if self._facts is None:
            self._facts = self._receive()
        return self._facts

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        self._send("reset", index, seed)
        observation: Vector = self._receive()
        return observation

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        self._send("step", index, action)
        step: Step = self._receive()
        return step

    def start(self, actions: Vector) -> None:
        """Have all begin to step."""
        self._send("step_all", actions)
        self._stepping = True

    def finish(self) -> list[Step]:
        """Wait for all."""
        self._stepping = False
        steps: list[Step] = self._receive()
        return steps

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, *message: Any) -> None:
        _ = self.facts  # they come first
        if self._stepping:  # whoever started that step was interrupted
            self.finish()
        try:
            self._connection.send(message)
        except ConnectionError:
            self._raise_gone()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self._raise_gone()
        if isinstance(answer, Td3RobotError):
            raise answer
        return answer

    def _raise_gone(self) -> NoReturn:
        self.close()
        raise EnvironmentFaultError(
            f"the process of the training's environments ended with status {self._process.returncode}; "
            "what it said last is above"
        ) from None


def run_environments(descriptor: int, parent: int) -> None:
    """Make environments and serve requests on a connection, until its other end or the parent is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # when to stop is for the parent to decide, which saves first
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    make, configs = connection.recv()
    try:
        environments = LocalEnvironments([make(config) for config in configs])
    except Td3RobotError as error:
        connection.send(error)
        return
    connection.send(environments.facts)
    with closing(environments):
        while (message := _next(connection, parent)) is not None:
            try:
                answer = _do(environments, *message)
            except Td3RobotError as error:
                answer = error
            with suppress(ConnectionError):
                connection.send(answer)


def _next(connection: Connection, parent: int) -> Any:
    """Wait for the next request, and return it; None once the other end or the parent is gone."""
    try:
        while not connection.poll(LOOK_S):
            if os.getppid() != parent:
                return None
        return connection.recv()
    except (EOFError, ConnectionError):
        return None


def _do(environments: LocalEnvironments, what: str, *arguments: Any) -> Any:
    if what == "step_all":
        environments.start(*arguments)
        return environments.finish()
    return environments.step(*arguments) if what == "step" else environments.reset(*arguments)
