"""From a configuration to a trainer with its environments."""

from functools import partial
from pathlib import Path

from td3robot.build import make_contract, make_environment, make_robot_env
from td3robot.config import GymnasiumEnvironmentConfig, RobotEnvironmentConfig, RunConfig
from td3robot.errors import ConfigError
from td3robot.learning.agent import resolve_device
from td3robot.learning.arm_trainer import ArmTrainer
from td3robot.learning.environments import EnvironmentProcess, Environments, LocalEnvironments
from td3robot.learning.evaluator import Evaluator, EvaluatorProcesses, LocalEvaluator
from td3robot.learning.listener import Listener
from td3robot.learning.resources import require_room_for_environments, require_room_for_learning
from td3robot.learning.run_lock import RunLock
from td3robot.learning.trainer import Trainer
from td3robot.robots.cells import CellConfig


def make_trainer(config: RunConfig, run: Path, listener: Listener, lock: RunLock | None = None) -> Trainer:
    """Build everything a run needs; ``lock`` is the run directory's, where it is held already.

    Raises:
        ConfigError: The configuration cannot be run.
    """
    device = resolve_device(config.agent.device)  # before any process starts
    require_room_for_environments(config)
    configs, make = _training_environments(config), partial(make_environment, practice=True)
    environments: Environments
    if config.training.overlap:
        environments = EnvironmentProcess(make, configs, config.training.answer_limit_s)
    else:
        environments = LocalEnvironments([make(each) for each in configs])
    try:
        evaluator = _evaluator(config)
    except BaseException:
        environments.close()
        raise
    try:
        observation, action = evaluator.contract.observation, evaluator.contract.action
        if device.type == "cpu":
            require_room_for_learning(config, observation.size, action.size)
        return Trainer(config, environments, evaluator, run, listener, lock)
    except BaseException:
        environments.close()
        evaluator.close()
        raise


def _evaluator(config: RunConfig) -> Evaluator:
    """Start the processes that evaluate, where environments may be in processes; they are evaluated here else."""
    if config.training.overlap and config.training.evaluators:
        return EvaluatorProcesses(config)
    environment = make_environment(config.environment)
    contract = make_contract(config.environment, environment)
    return LocalEvaluator(environment, contract, config.seed, config.training.evaluation_episodes)


def make_arm_trainer(config: RunConfig, run: Path, listener: Listener, cell: CellConfig) -> ArmTrainer:
    """Build a run that resumes on an arm, and is evaluated in simulation; the arm moves to a first start.

    Raises:
        ConfigError: The run is not one of a robot.
        ContractError: The cell is not what the run was trained for.
        RobotError: The arm cannot be reached, or did not get to its start.
    """
    if not isinstance(config.environment, RobotEnvironmentConfig):
        raise ConfigError(f"this run trains on {config.environment.kind!r}, and there is no arm for that")
    environment = make_robot_env(config.environment, cell=cell)
    simulated = make_robot_env(config.environment)
    environment.contract().require_same(simulated.contract(), "the cell", "the run")
    alone = config.training.model_copy(update={"environments": 1, "overlap": False})
    evaluator = LocalEvaluator(simulated, simulated.contract(), config.seed, alone.evaluation_episodes)
    try:
        config = config.model_copy(update={"training": alone})
        return ArmTrainer(config, LocalEnvironments([environment]), evaluator, run, listener)
    except BaseException:
        environment.close()
        raise


def _training_environments(config: RunConfig) -> list[RobotEnvironmentConfig | GymnasiumEnvironmentConfig]:
    """Return the environments to train in, a share of them undisturbed.

    These are every second one, as far as it goes: the first environments may act without exploration
    (``agent.greedy_share``), which is to be met with disturbances and without.
    """
    environment, count = config.environment, config.training.environments
    environments = [environment] * count
    if isinstance(environment, RobotEnvironmentConfig):
        calm = RobotEnvironmentConfig(**environment.model_dump() | {"disturbance": "off"})
        order = [*range(0, count, 2), *range(1, count, 2)]
        for number in order[: round(config.training.undisturbed_share * count)]:
            environments[number] = calm
    return environments
