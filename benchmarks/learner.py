"""Learner updates a second beside peers at the same sizes, in turn in one run, so that the ratios hold.

Stable-Baselines3 (extra ``bench``), SBX (``pip install sbx-rl``, into an environment of its own) and CleanRL's TD3 in
PyTorch and in JAX (cleanrl_td3.py tells how to install it) are left out where they are not installed. ``products`` are
the update's matrix products alone, in NumPy: what no learner can do better.

With one thread, ``compiled_to_this`` compares processor time, which other programs on the machine disturb less; with
several, the wall's clock, since threads that wait for each other take processor time, too.

With ``--device cuda``, the reference, the recorded graph and the peers run on a GPU, ``compiled`` stays on a processor
beside them, and a wider size is added.

Examples: python benchmarks/learner.py --threads 1 2; python benchmarks/learner.py --device cuda
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import cleanrl_td3
import gymnasium
import numpy as np

ROWS, BUSY = 20_000, 0.3
PAUSE = 0.1  # seconds; for a while, the threads of the one before still wait for work, on the processors
PACKAGES = {
    "reference": ("torch",),
    "cuda_graph": ("torch",),
    "compiled": ("numba", "scipy"),
    "stable_baselines3": ("stable-baselines3", "torch"),
    "sbx": ("sbx-rl", "jax"),
    "cleanrl": ("cleanrl", "torch"),
    "cleanrl_jax": ("cleanrl", "jax"),
    "products": ("numpy",),
}
Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Sizes to compare at, and the agent's configuration."""

    observation: int
    action: int
    agent: Any


def case(config: str) -> Case:
    """Take the sizes of a configuration."""
    from td3robot.build import make_environment
    from td3robot.config import load_config

    run = load_config(Path(config), ["agent.device=cpu"])
    environment = make_environment(run.environment)
    sizes = [int(np.prod(space.shape)) for space in (environment.observation_space, environment.action_space)]
    environment.close()
    return Case(*sizes, run.agent)


def of_width(width: int, batch: int) -> Case:
    """Take two hidden layers of a width, and what else most papers use."""
    from td3robot.learning.agents.td3 import TD3Config

    hidden = (width, width)
    return Case(20, 7, TD3Config(hidden=hidden, batch_size=batch, device="cpu"))


def cases(device: str) -> dict[str, Case]:
    """Give two shipped configurations, and what most papers use; for a GPU, a wider one, too."""
    found = {"reach": case("ur5e_reach_quick"), "grasp": case("ur5e_grasp_quick"), "256-256": of_width(256, 256)}
    if device == "cuda":
        found["512-512"] = of_width(512, 1024)
    return found


def transitions(sizes: Case) -> Iterator[tuple[np.ndarray, np.ndarray, float, np.ndarray]]:
    """Draw random transitions."""
    rng = np.random.default_rng(0)
    for _ in range(ROWS):
        observation, following = rng.standard_normal((2, sizes.observation)).astype(np.float32)
        yield observation, rng.uniform(-1, 1, sizes.action).astype(np.float32), float(rng.normal()), following


def ours(sizes: Case, choice: str, threads: int, updates: int, device: str = "cpu") -> Run:
    """Make this project's learner."""
    import torch

    from td3robot.config import TrainingConfig
    from td3robot.learning.learner import make_learner
    from td3robot.learning.replay import ReplayBuffer, Transition
    from td3robot.learning.td3 import TD3

    agent = TD3(sizes.observation, sizes.action, sizes.agent.model_copy(update={"device": device}), 0)
    replay, rng = ReplayBuffer(ROWS, sizes.observation, sizes.action), np.random.default_rng(0)
    replay.add([Transition(*drawn, False, sizes.agent.gamma) for drawn in transitions(sizes)])
    agent.normalizer.update(replay.rows[:, : sizes.observation])
    learner = make_learner(agent, TrainingConfig(learner=choice, threads=threads), None, print)

    def run() -> None:
        learner.learn(replay, rng, updates)
        if device == "cuda":
            torch.cuda.synchronize()

    return run


class Nothing(gymnasium.Env):
    """An environment of a size that is never stepped."""

    def __init__(self, sizes: Case) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (sizes.observation,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (sizes.action,), np.float32)


def peer_policy(package: str, agent: Any) -> dict[str, Any]:
    """Give a peer the networks of an agent's configuration, as far as it has them."""
    networks: dict[str, Any] = {"net_arch": {"pi": list(agent.hidden), "qf": list(agent.hidden)}}
    return networks | ({"layer_norm": True} if package == "sbx" and agent.layer_norm else {})


def peer(sizes: Case, package: str, updates: int, device: str = "cpu") -> Run:
    """Make a peer's learner: ``stable_baselines3`` (without layer norm, which it lacks) or ``sbx``."""
    from importlib import import_module

    from stable_baselines3.common.logger import configure

    agent, policy = sizes.agent, peer_policy(package, sizes.agent)
    model = import_module(package).TD3(
        "MlpPolicy", Nothing(sizes), policy_kwargs=policy, buffer_size=ROWS, batch_size=agent.batch_size, device=device
    )
    model.set_logger(configure(None, []))
    for observation, action, reward, following in transitions(sizes):
        model.replay_buffer.add(
            observation[None], following[None], action[None], np.array([reward]), np.zeros(1), [{}]
        )  # fmt: skip
    return lambda: model.train(gradient_steps=updates, batch_size=agent.batch_size)  # it ends by reading its losses


def products(sizes: Case) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """List the products (rows, inner, columns) of each update, and those of each update of the actor."""
    agent, batch = sizes.agent, sizes.agent.batch_size
    actor = [*pairwise([sizes.observation, *agent.hidden, sizes.action])]
    critic = [*pairwise([sizes.observation + sizes.action, *agent.hidden, 1])]

    def forward(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(outputs, inputs, batch) for inputs, outputs in layers]

    def to_weights(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(outputs, batch, inputs) for inputs, outputs in layers]

    def to_inputs(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(inputs, outputs, batch) for inputs, outputs in layers]

    always = forward(actor) + 2 * (2 * forward(critic) + to_weights(critic) + to_inputs(critic[1:]))
    of_the_actor = forward(actor) + to_weights(actor) + to_inputs(actor[1:]) + forward(critic) + to_inputs(critic)
    return always, of_the_actor


def limit(sizes: Case, updates: int) -> Run:
    """Make the products alone."""
    rng, shapes = np.random.default_rng(0), {}
    always, of_the_actor = products(sizes)
    for rows, inner, columns in {*always, *of_the_actor}:
        a, b = rng.normal(size=(rows, inner)), rng.normal(size=(inner, columns))
        shapes[rows, inner, columns] = a.astype(np.float32), b.astype(np.float32), np.empty((rows, columns), np.float32)

    def run() -> None:
        for number in range(updates):
            for shape in always + (of_the_actor if number % sizes.agent.policy_freq == 0 else []):
                a, b, out = shapes[shape]
                np.matmul(a, b, out=out)

    return run


def learners(sizes: Case, threads: int, updates: int, device: str) -> dict[str, Run]:
    """Make all that are installed."""
    made = {
        "reference": ours(sizes, "reference", threads, updates, device),
        "compiled": ours(sizes, "compiled", threads, updates),
    }
    if device == "cuda":
        made["cuda_graph"] = ours(sizes, "cuda_graph", threads, updates, device)
    for package in ("stable_baselines3", "sbx"):
        if find_spec(package) is None:
            print(f"{package} is not installed, and left out")
        else:
            made[package] = peer(sizes, package, updates, device)
    if device == "cuda":
        return made
    for name in cleanrl_td3.SCRIPTS:
        if reason := cleanrl_td3.why_not(name, sizes.agent):
            print(f"{name} is left out: {reason}")
        else:
            made[name] = cleanrl_td3.Updates(name, Nothing(sizes), sizes.agent, transitions(sizes), ROWS, updates)
    return made | {"products": limit(sizes, updates)}


def compare(runs: dict[str, Run], updates: int, passes: int, clock: str, to: str) -> dict[str, dict[str, float]]:
    """Time them in turn: medians of updates a second, by the wall's clock and by the processor time of all threads.

    Args:
        runs: The learners.
        updates: What each does in a pass.
        passes: How many passes.
        clock: The clock of the ratios: ``wall`` or ``cpu``.
        to: The learner that the others are compared with.
    """
    rates: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in runs}
    for run in runs.values():
        run()
    for _ in range(passes):
        for name, run in runs.items():
            sleep(PAUSE)
            wall, cpu = perf_counter(), process_time()
            run()
            rates[name]["wall"].append(updates / (perf_counter() - wall))
            rates[name]["cpu"].append(updates / (process_time() - cpu))
    mine = rates[to][clock]
    return {
        name: {each_clock: round(median(values), 1) for each_clock, values in each.items()}
        | {f"{to}_to_this": round(median(a / b for a, b in zip(mine, each[clock], strict=True)), 2)}
        for name, each in rates.items()
    }


def busy() -> float:
    """Count the processors that other programs keep busy, over a second; elsewhere than on Linux, take the load."""
    if not (counts := Path("/proc/stat")).exists():
        return os.getloadavg()[0]

    def idle() -> float:
        fields = counts.read_text(encoding="ascii").splitlines()[0].split()
        return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")

    began, start = idle(), perf_counter()
    sleep(1.0)
    return round((os.cpu_count() or 1) - (idle() - began) / (perf_counter() - start), 2)


def measure(given: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Compare at each size with some threads; once in a process, since JAX counts the processors when it starts."""
    before, clock = busy(), "cpu" if threads == 1 and given.device == "cpu" else "wall"
    if before > BUSY:
        trust = "trust the processor time and the ratios, not the wall's"
        if threads > 1:
            trust = "don't trust even the ratios, since a thread that is held up holds up the others"
        print(f"this machine is not quiet ({before:.1f} processors busy): {trust}", flush=True)
    if given.device == "cpu":
        if hasattr(os, "sched_setaffinity"):  # before any of them counts the processors
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of a GPU's memory
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    found: dict[str, Any] = {"busy": before, "threads": threads, "compared_by": clock}
    found["device"] = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    measured, to = set[str](), "cuda_graph" if given.device == "cuda" else "compiled"
    with threadpool_limits(threads):
        for name, sizes in cases(given.device).items():
            if given.only in (None, name):
                runs = learners(sizes, threads, given.updates, given.device)
                measured |= set(runs)
                found[name] = compare(runs, given.updates, given.passes, clock, to)
                print(name, json.dumps(found[name]), flush=True)
    found["versions"] = {
        package: version(package) for name in PACKAGES if name in measured for package in PACKAGES[name]
    }
    return found | {"busy_afterwards": busy()}


def sees_gpu() -> bool:
    """Tell whether PyTorch can use a GPU."""
    import torch

    return torch.cuda.is_available()


def main() -> None:
    """Compare at each size, and print one JSON object for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="of every learner; several: one after another"
    )
    parser.add_argument("--updates", type=int, default=50, help="in one pass")
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--only", help="one of the sizes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not all(1 <= threads <= processors for threads in given.threads):
        parser.error(f"--threads: from 1 to the {processors} processors that this process may use")
    if given.device == "cuda" and not sees_gpu():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    if len(given.threads) == 1:
        print(json.dumps(measure(given, given.threads[0])))
        return
    options = ["--updates", str(given.updates), "--passes", str(given.passes), "--device", given.device]
    options += ["--only", given.only] if given.only else []
    for threads in given.threads:
        subprocess.run([sys.executable, __file__, "--threads", str(threads), *options], check=True)


if __name__ == "__main__":
    main()
