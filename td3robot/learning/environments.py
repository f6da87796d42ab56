"""Environments side by side: here, or in a process of their own, while a learner has the interpreter to itself."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from td3robot.errors import EnvironmentFaultError, Td3RobotError
from td3robot.layout import Layout
from td3robot.subprocesses import end_with_parent, start_python

Vector = NDArray[np.float32]
MAIN = f"import sys; from {__name__} import run_environments; run_environments(*map(int, sys.argv[1:]))"
# The descriptor of standard error.
STDERR = 2
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
    """Environments of this process: they step when :meth:`finish` is called.

    Args:
        environments: At least one.
        say: Called with an environment's number and with what it is about to do.
    """

    def __init__(
        self,
        environments: Sequence[gymnasium.Env[Any, Any]],
        say: Callable[[int, str], None] = lambda index, what: None,
    ) -> None:
        self.environments, self._say = list(environments), say
        first = self.environments[0]
        layout = getattr(first.unwrapped, "observation_layout", None)
        self.facts = EnvironmentFacts(len(self.environments), first.action_space.shape or (), layout)
        self._actions = np.zeros((0, *self.facts.action_shape), np.float32)

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        self._say(index, "reset")
        observation, _ = self.environments[index].reset(seed=seed)
        return np.asarray(observation, np.float32)

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        self._say(index, "step")
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
        limit_s: How long it may take for any answer [s].
    """

    def __init__(
        self, make: Callable[[Any], gymnasium.Env[Any, Any]], configs: Sequence[Any], limit_s: float = 600.0
    ) -> None:
        self._limit_s = limit_s
        self._connection, other_end = Pipe()
        self._busy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed with the process
        self._process = start_python(
            ["-c", MAIN, str(other_end.fileno()), str(self._busy.fileno()), str(os.getpid())],
            pass_fds=[other_end.fileno(), self._busy.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=STDERR,  # standard output is for figures
        )
        other_end.close()
        self._waiting = False
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
        """End the process, and what its environments started; at once where it owes an answer."""
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if self._waiting else END_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it has a session of its own
        self._process.wait()
        self._busy.close()

    def _send(self, *message: Any) -> None:
        _ = self.facts  # they come first
        if self._stepping:  # whoever started that step was interrupted
            self.finish()
        try:
            self._connection.send(message)
        except ConnectionError:
            self._raise_gone()

    def _receive(self) -> Any:
        self._waiting = True
        try:
            if not self._connection.poll(self._limit_s):
                raise self._overdue()
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self._raise_gone()
        self._waiting = False
        if isinstance(answer, Td3RobotError):
            raise answer
        return answer

    def _overdue(self) -> EnvironmentFaultError:
        return EnvironmentFaultError(
            f"{self._busy_environment()} has not answered for {self._limit_s:g} s, and its process was ended; find out "
            "what it waits for, or raise training.answer_limit_s"
        )

    def _busy_environment(self) -> str:
        """Say which environment the process is busy with, and at what."""
        said = os.pread(self._busy.fileno(), 100, 0).decode(errors="replace").strip()
        return said or "the process of the training's environments"

    def _raise_gone(self) -> NoReturn:
        said = self._busy_environment()
        self._waiting = False
        self.close()
        raise EnvironmentFaultError(
            f"the process of the training's environments ended with status {self._process.returncode}; {said} was at "
            "work last, and what it said is above"
        ) from None


def run_environments(descriptor: int, busy: int, parent: int) -> None:
    """Make environments and serve requests on a connection, until its other end or the parent is gone.

    Args:
        descriptor: The connection.
        busy: A file that says which environment is at work, for the parent to read where it does not answer.
        parent: The parent's process id.
    """
    end_with_parent(parent)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # when to stop is for the parent to decide, which saves first
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    make, configs = connection.recv()
    try:
        environments = LocalEnvironments([make(config) for config in _named(configs, busy)], partial(_say, busy))
    except Td3RobotError as error:
        _answer(connection, error)
        return
    _answer(connection, environments.facts)
    with closing(environments):
        while (message := _next(connection, parent)) is not None:
            try:
                answer = _do(environments, *message)
            except Td3RobotError as error:
                answer = error
            _answer(connection, answer)


def _answer(connection: Connection, answer: Any) -> None:
    """Answer, where anybody is left to hear it."""
    with suppress(ConnectionError):
        connection.send(answer)


def _say(busy: int, index: int, what: str) -> None:
    os.pwrite(busy, f"environment {index} ({what})".ljust(40).encode(), 0)


def _named(configs: Sequence[Any], busy: int) -> Iterator[Any]:
    for index, config in enumerate(configs):
        _say(busy, index, "being made")
        yield config


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
