"""From a configuration to a trainer with its environments, if they fit into this machine's memory."""

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from td3robot.build import make_contract, make_environment, make_robot_env
from td3robot.config import AgentConfig, GymnasiumEnvironmentConfig, RobotEnvironmentConfig, RunConfig
from td3robot.config.disturbance import PARTS
from td3robot.errors import ConfigError
from td3robot.learning.arms import ArmProcess, Arms
from td3robot.learning.environments import (
    ANSWER_LIMIT_S,
    EnvironmentProcesses,
    LocalEnvironments,
    environment_processes,
    make_all,
)
from td3robot.learning.evaluator import Episodes, Evaluator, EvaluatorProcesses, LocalEvaluator
from td3robot.learning.loggers import require_loggers
from td3robot.learning.ray_environments import RayEnvironments
from td3robot.learning.run_directory import RunLock
from td3robot.policy.contract import require_covered
from td3robot.processes import HAS_CHANNELS, free_bytes
from td3robot.ray_cluster import Workers
from td3robot.robots.cells import CellConfig

if TYPE_CHECKING:
    from td3robot.learning.arm_trainer import ArmTrainer
    from td3robot.learning.trainer import Listener, SimulationTrainer

# Memory of an environment [bytes]: 3 MB measured for a UR5e's grasp in a cell that differs from its model, and 1 MB in
# one that does not, beside 90 MB of its process, with room for other arms' meshes; for other environments, a nominal
# amount.
ARM_BYTES, OTHER_BYTES, PROCESS_BYTES = 6e6, 1e6, 150e6
FLOAT = 4


def make_trainer(
    config: RunConfig, run: Path, listener: "Listener", lock: RunLock | None = None, workers: Workers | None = None
) -> "SimulationTrainer":
    """Build the trainer of a run, with everything that it needs.

    Args:
        config: The run's configuration.
        run: Its directory.
        listener: Reports the progress.
        lock: Lock of the run directory, if already held.
        workers: Ray cluster workers for the environments; results do not depend on them.

    Raises:
        ConfigError: The configuration cannot be run, or the cluster cannot be used.
        MissingExtraError: A logger is not installed.
    """
    require_loggers(config)
    if config.agent.device == "cuda":  # it may be missing; then no process is started
        from td3robot.learning.agent import resolve_device

        resolve_device(config.agent.device)
    if workers is None:
        require_room_for_environments(config)
    make = partial(make_environment, practice=True, privileged=config.agent.is_asymmetric)
    configs, training = training_environments(config), config.training
    with ExitStack() as made:
        evaluator: Evaluator
        environments: RayEnvironments | EnvironmentProcesses | LocalEnvironments
        if workers is not None:
            environments = RayEnvironments(make, configs, workers, ANSWER_LIMIT_S)
        elif training.overlap and HAS_CHANNELS:  # without, they step in turn, with the same results
            environments = EnvironmentProcesses(make, configs, environment_processes(training))
        else:
            environments = LocalEnvironments(make_all(make, configs))
        made.callback(environments.close)
        from td3robot.learning.agent import resolve_device  # all this takes seconds, in which that process starts
        from td3robot.learning.collector import Collector
        from td3robot.learning.guide import make_guide
        from td3robot.learning.learner import import_early
        from td3robot.learning.trainer import SimulationTrainer

        device = resolve_device(config.agent.device)
        import_early(config.agent, config.training, device)
        if not isinstance(environments, LocalEnvironments) and config.training.evaluators:
            contract, evaluator = environments.contract, EvaluatorProcesses(config)
        else:
            episodes = Episodes.made(config.environment, config.seed, training.evaluation_episodes)
            contract = make_contract(config.environment, episodes.environments[0])
            evaluator = LocalEvaluator(episodes, training.evaluation_episodes)
        made.callback(evaluator.close)
        if device.type == "cpu":
            sizes = contract.observation.size, contract.action.size
            require_room_for_learning(config, *sizes, environments.facts.privileged_size)
        agent = config.agent
        adviser = make_guide(config, contract.observation) if agent.imitates else None
        collector = Collector(environments, config.seed, agent.n_step, agent.gamma, agent.hindsight_goals, adviser)
        trainer = SimulationTrainer(config, collector, evaluator, contract, run, listener, lock)
        made.pop_all()
    return trainer


def make_arm_trainer(
    config: RunConfig,
    run: Path,
    listener: "Listener",
    cells: Mapping[str, CellConfig],
    agree: Callable[[str, str], bool],
) -> "ArmTrainer":
    """Build the trainer of a run that resumes on arms and is evaluated in simulation; nothing moves yet.

    Args:
        config: The run's configuration.
        run: Its directory.
        listener: Reports the progress.
        cells: Cells of the arms, by their names in messages.
        agree: Called with an arm's name to ask whether it may do something that a person has to agree to.

    Raises:
        ConfigError: The run does not train a robot.
        ContractError: A cell does not match what the run was trained for.
        MissingExtraError: A logger is not installed.
    """
    require_loggers(config)
    from td3robot.learning.arm_trainer import ArmCollector, ArmTrainer
    from td3robot.learning.guide import make_guide

    environment = config.environment
    if not isinstance(environment, RobotEnvironmentConfig):
        raise ConfigError(f"this run trains on {environment.kind!r}, and there is no arm for that")
    if config.agent.is_asymmetric:
        raise ConfigError(
            "this run has agent.asymmetric_critic, and no arm supplies the true state that its critics see; resume it "
            "in simulation, or deploy its policy"
        )
    with ExitStack() as made:
        processes = []
        for name, cell in cells.items():
            processes.append(ArmProcess(name, environment, cell, ANSWER_LIMIT_S))
            made.callback(processes[-1].close)
        simulated = make_robot_env(environment)
        for process in processes:
            advice = f"the cell {process.name} is not what the run was trained for"
            require_covered(process.contract, simulated.contract(), environment.disturbance, advice)
        here = config.training.model_copy(update={"environments": len(processes), "overlap": False})
        config = config.model_copy(update={"training": here})
        adviser = make_guide(config, simulated.contract().observation) if config.agent.imitates else None
        collector = ArmCollector(Arms(processes, agree), config, adviser)
        evaluator = LocalEvaluator(Episodes([simulated], config.seed), here.evaluation_episodes)
        trainer = ArmTrainer(config, collector, evaluator, simulated.contract(), run, listener)
        made.pop_all()
    return trainer


def training_environments(config: RunConfig) -> list[RobotEnvironmentConfig | GymnasiumEnvironmentConfig]:
    """Return the environments to train in, a share of them undisturbed in each of their parts.

    Parts vary with the digits of the environment's number in base 2, so that eight environments have every
    combination. Undisturbed together, a late pose would tell a policy that the fingers are slow, too. The first
    environments may act without exploration (``agent.greedy_share``), which should happen with all combinations.
    """
    environment, count = config.environment, config.training.environments
    environments = [environment] * count
    if isinstance(environment, RobotEnvironmentConfig):
        calm = round(config.training.undisturbed_share * count)
        disturbances = [environment.disturbance] * count
        for digit, part in enumerate(PARTS):
            for number in sorted(range(count), key=lambda number: number >> digit & 1)[:calm]:
                disturbances[number] = disturbances[number].undisturbed([part])
        environments = [environment.model_copy(update={"disturbance": drawn}) for drawn in disturbances]
    return environments


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


def require_room_for_learning(
    config: RunConfig, observation_size: int, action_size: int, privileged_size: int = 0
) -> None:
    """Require that the replay buffer and the networks fit into memory.

    A save briefly needs the replay buffer's memory once more. Networks are counted with targets, gradients, Adam's
    moments and the activations of a batch.

    Raises:
        ConfigError: Naming the setting, with a value that would fit.
    """
    agent, free = config.agent, free_bytes()
    row = 2.0 * FLOAT * (2 * (observation_size + privileged_size) + action_size * (1 + agent.imitates) + 3)
    filled = min(agent.replay_capacity, config.training.steps * (1 + agent.hindsight_goals))
    if filled * row > free:
        raise ConfigError(
            f"agent.replay_capacity {agent.replay_capacity} needs {_gb(filled * row)} when it is saved, and "
            f"{_gb(free)} are free; {int(free / row)} would do"
        )
    sizes = observation_size, action_size, *([privileged_size] if agent.is_asymmetric else [])

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


def _network_bytes(agent: AgentConfig, sizes: tuple[int, ...], batch: int) -> float:
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
    return max(1, bisect(range(2**40), False, lo=1, key=lambda number: not fits(number)) - 1)


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
