"""Checks whether a run fits into this machine's memory, before it uses any."""

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from td3robot.config import AgentConfig, RobotEnvironmentConfig, RunConfig
from td3robot.errors import ConfigError
from td3robot.learning.environments import environment_processes

# Share of the free memory that a run may use; the rest is for everything that is not counted here.
SHARE = 0.9
# Memory of an environment [bytes]: 3 MB measured for a UR5e's grasp in a cell that differs from its model, and 1 MB in
# one that does not, beside 90 MB of its process, with room for other arms' meshes; for other environments, a nominal
# amount.
ARM_BYTES, OTHER_BYTES, PROCESS_BYTES = 6e6, 1e6, 150e6
CGROUP = Path("/sys/fs/cgroup")
FLOAT = 4


def free_bytes() -> float:
    """Return the memory that this process may still use: the machine's, or less if a control group limits it."""
    free = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        limit, used = ((CGROUP / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        free = min(free, float(limit) - float(used))
    except (OSError, ValueError, StopIteration):
        pass  # not Linux, or no control group with a limit
    return SHARE * free


def require_room_for_environments(config: RunConfig) -> None:
    """Require that the environments fit into memory.

    Raises:
        ConfigError: Naming the number that would fit.
    """
    training, is_arm, free = config.training, isinstance(config.environment, RobotEnvironmentConfig), free_bytes()
    count = environment_processes(training) if training.overlap else 1
    each, processes = (ARM_BYTES, count * PROCESS_BYTES) if is_arm else (OTHER_BYTES, 0.0)
    fitting = max(int((free - processes) / each), 1)
    needed = training.environments * each + processes
    if training.environments > fitting:
        raise ConfigError(
            f"training.environments {training.environments} need about {_gb(needed)}, and {_gb(free)} are free; "
            f"{fitting} would do"
        )


def require_room_for_learning(config: RunConfig, observation_size: int, action_size: int) -> None:
    """Require that the replay buffer and the networks fit into memory.

    A save briefly needs the replay buffer's memory once more. Networks are counted with targets, gradients, Adam's
    moments and the activations of a batch.

    Raises:
        ConfigError: Naming the setting, with a value that would fit.
    """
    agent, free = config.agent, free_bytes()
    row = 2.0 * FLOAT * (2 * observation_size + action_size + 3)
    filled = min(agent.replay_capacity, config.training.steps)
    if filled * row > free:
        raise ConfigError(
            f"agent.replay_capacity {agent.replay_capacity} needs {_gb(filled * row)} when it is saved, and "
            f"{_gb(free)} are free; {int(free / row)} would do"
        )
    sizes = observation_size, action_size

    def needed(width: int | None = None, batch: int = agent.batch_size) -> float:
        """Return the bytes of the agent's networks, or of those with hidden layers of a width."""
        hidden = agent.hidden if width is None else (width,) * len(agent.hidden)
        return _network_bytes(agent.model_copy(update={"hidden": hidden}), sizes, batch)

    need = needed()
    if need <= free:
        return
    if needed(batch=1) <= free:
        batch = _largest(lambda value: needed(batch=value) <= free)
        raise ConfigError(
            f"agent.batch_size {agent.batch_size} needs {_gb(need)}, and {_gb(free)} are free; {batch} would do"
        )
    width = _largest(lambda value: needed(value, 1) <= free)
    raise ConfigError(
        f"networks with agent.hidden {list(agent.hidden)} need {_gb(need)}, and {_gb(free)} are free; widths of "
        f"{width} would do"
    )


def _network_bytes(agent: AgentConfig, sizes: tuple[int, int], batch: int) -> float:
    weights = activations = 0.0
    for name, widths in agent.networks(*sizes).items():
        trained = name in agent.trained  # those have a gradient, two moments, and a batch's activations with slopes
        weights += (4.0 if trained else 1.0) * _parameters(widths)
        activations += 2.0 * batch * sum(map(float, widths[:-1])) if trained else 0.0
    return FLOAT * (weights + activations)


def _parameters(widths: Sequence[int]) -> float:
    return sum(float(before) * after + after for before, after in pairwise(widths))


def _largest(fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, at least 1."""
    high = 1
    while fits(2 * high):
        high *= 2
    low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
