"""A training's environments on the nodes of a Ray cluster.

All environments step once before any steps again, and their answers are taken in a fixed order, so the results are
those of environments on this machine, whatever the nodes' speed.
"""

import socket
from collections.abc import Sequence
from concurrent import futures
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot import ray_cluster
from td3robot.build import make_contract
from td3robot.errors import ConfigError, EnvironmentFaultError, Td3RobotError
from td3robot.learning.environments import (
    EnvironmentFacts,
    LocalEnvironments,
    Make,
    RemoteEnvironments,
    Rewards,
    Step,
    place,
    shares,
    steps_of,
)
from td3robot.policy.contract import Contract

Vector = NDArray[np.float32]


class RayEnvironments(RemoteEnvironments):
    """Environments distributed among workers on a Ray cluster, which make them while this process does something else.

    Args:
        make: Makes an environment from its configuration; a function that the nodes can import.
        configs: One per environment, for environments with the same contract.
        workers: The cluster, and the number of workers; each takes one core.
        limit_s: How long any answer may take [s].

    Raises:
        ConfigError: The cluster does not answer, it has fewer cores, or there are fewer environments.
        MissingExtraError: Ray is not installed.
    """

    def __init__(self, make: Make, configs: Sequence[Any], workers: ray_cluster.Workers, limit_s: float) -> None:
        if workers.count > len(configs):
            raise ConfigError(
                f"--workers {workers.count} is more than training.environments {len(configs)}; every worker needs one"
            )
        self._ray = ray = ray_cluster.join(workers.address, "a training on a cluster")
        cores = sum(ray_cluster.cores_of_nodes(ray))
        if workers.count > cores:
            ray.shutdown()
            raise ConfigError(
                f"--workers {workers.count} is more than {workers.address} has cores ({cores:g}); they could not start"
            )
        self._limit_s = limit_s
        self._shares = shares(len(configs), workers.count)
        actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(EnvironmentWorker)
        self._workers = [
            actor.remote(make, [configs[index] for index in share], ray_cluster.installed_version())
            for share in self._shares
        ]
        self._making = [worker.made.remote() for worker in self._workers]
        self._stepping: list[tuple[Vector, Any]] = []  # actions, and the answer to them

    def reset(self, index: int, seed: int) -> Vector:
        """Begin an episode."""
        observation: Vector = self._ask(index, "reset", seed)
        return observation

    def step(self, index: int, action: Vector) -> Step:
        """Step one."""
        step: Step = self._ask(index, "step", action)
        return step

    def start(self, actions: Vector) -> None:
        """Make all environments begin to step."""
        self._end_interrupted()
        parts = [actions[share.start : share.stop] for share in self._shares]
        asked = [worker.do.remote("step_all", part) for worker, part in zip(self._workers, parts, strict=True)]
        self._stepping = list(zip(parts, asked, strict=True))

    def finish(self) -> list[Step]:
        """Wait for all steps, and return them."""
        stepping, self._stepping = self._stepping, []
        taken = self._answers([asked for _, asked in stepping])
        return [step for (part, _), each in zip(stepping, taken, strict=True) for step in steps_of(part, each)]

    def rewards(self, index: int, achieved: Vector, desired: Vector) -> Rewards:
        """Ask it."""
        found: Rewards = self._ask(index, "rewards", achieved, desired)
        return found

    def close(self) -> None:
        """End the workers, and leave the cluster."""
        self._ray.shutdown()

    def _await_made(self) -> tuple[EnvironmentFacts, Contract]:
        facts, contract = self._answers(self._making)[0]
        return replace(facts, count=sum(map(len, self._shares))), contract

    def _ask(self, index: int, what: str, *arguments: Any) -> Any:
        self._end_interrupted()
        number, own = place(self._shares, index)
        return self._answers([self._workers[number].do.remote(what, own, *arguments)])[0]

    def _end_interrupted(self) -> None:
        if self._stepping:  # whoever started that step was interrupted
            self.finish()

    def _answers(self, asked: list[Any]) -> list[Any]:
        """Wait for answers in order, and return them; raise an error that a worker answers with."""
        # Waits in Python: an interrupt that ends a training's step would be lost in one of Ray's waits.
        if futures.wait([task.future() for task in asked], self._limit_s).not_done:
            raise EnvironmentFaultError(
                f"the environments on the cluster have not answered for {self._limit_s:g} s; see what they wait for "
                "(ray status)"
            )
        try:
            answers: list[Any] = self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            raise EnvironmentFaultError(
                f"a worker of the cluster is lost, and its environments with it ({ray_cluster.first_line(error)})"
            ) from None
        for answer in answers:
            if isinstance(answer, Td3RobotError):
                raise answer
        return answers


class EnvironmentWorker:
    """Some of the environments, on a node: :class:`LocalEnvironments` whose errors are answers.

    Args:
        make: Makes an environment from its configuration.
        configs: One per environment.
        version: The caller's version of td3robot.
    """

    def __init__(self, make: Make, configs: Sequence[Any], version: str) -> None:
        self._made: tuple[EnvironmentFacts, Contract] | Td3RobotError
        try:
            if (other := ray_cluster.another_version(version)) is not None:
                raise ConfigError(other)
            self._environments = LocalEnvironments([make(config) for config in configs], threads=1)
            self._made = self._environments.facts, make_contract(configs[0], self._environments.environments[0])
        except Td3RobotError as error:
            self._made = error
        except Exception as error:  # noqa: BLE001  # Ray would say only that the worker died
            where = f"no environment could be made on node {socket.gethostname()}"
            self._made = EnvironmentFaultError(f"{where}: {type(error).__name__}: {error}")

    def made(self) -> tuple[EnvironmentFacts, Contract] | Td3RobotError:
        """Return the environments' facts and contract, or the error that kept them from being made."""
        return self._made

    def do(self, what: str, *arguments: Any) -> Any:
        """Call a method of the environments, and return its answer, or the error that it raised."""
        try:
            return getattr(self._environments, what)(*arguments)
        except Td3RobotError as error:
            return error
