"""What it costs to have a training's environments in another process, or on a Ray cluster.

    python benchmarks/workers.py [--steps 200] [--rounds 3]

Steps the same environments with the same actions in every place, in turn, and prints the medians. The cluster is one
of this machine, so a network adds its own delay. Environments that sleep in each step stand for slow simulations: they
need no core, so two workers here are as good as two machines. Needs the extra ray.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import gymnasium
import numpy as np

from td3robot.build import make_environment
from td3robot.cluster import Workers
from td3robot.config import load_config
from td3robot.learning.environments import EnvironmentProcess, Environments, LocalEnvironments
from td3robot.learning.ray_environments import RayEnvironments

LIMIT_S = 600.0
PLACES = ("here", "a process", "Ray, 1 worker", "Ray, 2 workers")
# What slow environments sleep in each step [s], and how many there are.
SLEEPS_S, SLOW = (0.25e-3, 0.5e-3, 1e-3, 2e-3, 5e-3), 8


@contextmanager
def cluster_here(workers: int) -> Iterator[str]:
    """Start a cluster on this machine, and give its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": workers, "include_dashboard": False})
    try:
        yield made.address
    finally:
        made.shutdown()


def seconds_a_round(environments: Environments, steps: int) -> float:
    """Return how long a step of all environments takes [s]; each begins an episode first."""
    facts = environments.facts
    for index in range(facts.count):
        environments.reset(index, index)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (steps, facts.count, *facts.action_shape)).astype(np.float32)
    began = perf_counter()
    for row in actions:
        environments.start(row)
        environments.finish()
    return (perf_counter() - began) / steps


class Sleeping(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps take longer by a sleep [s]."""

    def __init__(self, environment: Any, seconds: float) -> None:
        super().__init__(environment)
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        """Sleep, and step."""
        sleep(self._seconds)
        return super().step(action)


def make_sleeping(config: Any, seconds: float) -> Any:
    """Make an environment that sleeps in each step."""
    return Sleeping(make_environment(config), seconds)


def started(place: str, config: Any, count: int, address: str, make: Any) -> Environments:
    """Start so many environments in a place."""
    configs = [config] * count
    if place == "here":
        return LocalEnvironments([make(each) for each in configs])
    if place == "a process":
        return EnvironmentProcess(make, configs, LIMIT_S)
    return RayEnvironments(make, configs, Workers(address, PLACES.index(place) - 1), LIMIT_S)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    pendulum, grasp = (load_config(Path(name)).environment for name in ("gym_pendulum", "ur5e_grasp"))
    plain = partial(make_environment, practice=True)
    rows: list[tuple[str, Any, int, Any, tuple[str, ...]]] = [
        (f"{count} of {name}", config, count, plain, PLACES)
        for name, config in (("gym_pendulum", pendulum), ("ur5e_grasp", grasp))
        for count in (2, 8, 32)
    ]
    rows += [
        # Another process could not import what this script defines; Ray's workers are sent it.
        (
            f"{SLOW} that sleep for {1e3 * s:g} ms",
            pendulum,
            SLOW,
            partial(make_sleeping, seconds=s),
            PLACES[:1] + PLACES[2:],
        )
        for s in SLEEPS_S
    ]
    print(f"| environments | {' | '.join(PLACES)} |\n|{'---|' * (1 + len(PLACES))}")
    with cluster_here(2) as address:
        for title, config, count, make, places in rows:
            found: dict[str, list[float]] = {place: [] for place in PLACES}
            for _ in range(asked.rounds):
                for place in places:
                    with closing(started(place, config, count, address, make)) as environments:
                        found[place].append(seconds_a_round(environments, asked.steps))
            figures = " | ".join(f"{1e3 * median(times):.2f} ms" if times else "" for times in found.values())
            print(f"| {title} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
