"""Builds the objects of a run from a configuration: the only place that knows every robot and every task by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from td3robot import catalog
from td3robot.config import (
    DISTURBANCES,
    ActionConfig,
    GuardConfig,
    GymnasiumEnvironmentConfig,
    RobotConfig,
    RobotEnvironmentConfig,
    explain,
)
from td3robot.envs.actions import make_action_kind
from td3robot.envs.batch import Cell, RobotBatch, Setting
from td3robot.envs.checked import CheckedEnvironment
from td3robot.envs.goal_env import GoalEnv
from td3robot.envs.gymnasium_env import Environment, gymnasium_contract, make_gymnasium
from td3robot.envs.initial_states import InitialStateSampler
from td3robot.envs.registration import RELEASED, with_overrides
from td3robot.envs.robot_env import RENDER_MODES, RobotEnv
from td3robot.envs.trust import require_trusted
from td3robot.errors import ConfigError, ContractError, Td3RobotError, choose
from td3robot.policy.checkpoint import opened
from td3robot.policy.contract import Contract
from td3robot.robots.cells import CELLS, CellConfig
from td3robot.robots.guard import Guard
from td3robot.robots.interface import Robot, RobotSpec
from td3robot.robots.interface import robot_spec as robot_spec
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.objects import NoObjects, ObjectBounds, Objects
from td3robot.robots.simulated.disturbed import Camera, DisturbedRobot
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.robot import SimulatedRobot
from td3robot.robots.toolbox import KinematicRobot
from td3robot.state import ObjectModel
from td3robot.tasks import TASKS
from td3robot.tasks.interface import Task

if TYPE_CHECKING:
    from td3robot.envs.renderer import Renderer


def _from_cell(
    config: RobotConfig, objects: tuple[ObjectModel, ...], cell: CellConfig | None, guard: GuardConfig
) -> Robot:
    robot = _require_cell(config, cell).driver(robot_spec(config), max_tcp_speed_m_s=guard.max_tcp_speed_m_s)
    robot.max_contact_force_n = guard.max_contact_force_n
    return robot


# Makers of the robot of each backend: a simulation here, or the cell's driver for every physical robot.
ROBOTS: dict[str, Callable[[RobotConfig, tuple[ObjectModel, ...], CellConfig | None, GuardConfig], Robot]] = {
    "mujoco": lambda config, objects, cell, guard: MujocoRobot(robot_spec(config), config.physics_rate_hz, objects),
    "kinematic": lambda config, objects, cell, guard: KinematicRobot(robot_spec(config)),
    **dict.fromkeys(CELLS, _from_cell),
}


def make_robot_env(
    config: RobotEnvironmentConfig,
    render_mode: str | None = None,
    practice: bool = False,
    cell: CellConfig | None = None,
    objects: Objects | None = None,
    robot: Robot | None = None,
    privileged: bool = False,
) -> RobotEnv:
    """Build the environment of a robot, its guard and its task.

    Args:
        config: The environment of a run.
        render_mode: As in Gymnasium.
        practice: Whether episodes may begin where there is most to learn; for training alone.
        cell: A physical or stand-in cell; its robot replaces the configured one.
        objects: Source of object poses, if the cell has none or a better one is available.
        robot: An existing robot to use in place of the configured one.
        privileged: Whether the true state follows each observation; for training in simulation alone.

    Raises:
        ConfigError: The goals are out of reach, the positions of the task's objects are unknown, or there is no such
            render mode.
        ContractError: The task observes what no physical cell can supply.
    """
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ConfigError(choose("render mode", render_mode, RENDER_MODES))
    alone = robot is None and objects is None
    recipe = partial(make_robot_env, config, render_mode, practice, cell, privileged=privileged) if alone else None
    if cell is not None:
        cell.require_within(config.guard)
        config = config.in_cell(cell.robot, cell.object)
        _require_told(config)
    models = config.task.objects()
    if robot is None:
        robot = ROBOTS[config.robot.backend](config.robot, models, cell, config.guard)
    spec = robot.spec
    kinematics = Kinematics(spec, config.guard.clearance_m)
    task = TASKS[config.task.name](config.task, spec, config.guard.max_tcp_speed_m_s)
    if cell is not None:
        _require_supplied(task)
        _compile_kernels(config)
    objects = objects or _objects(robot, config, cell)
    guard = Guard(spec, config.guard, kinematics)
    space = config.task.space(spec.table_height_m, spec.gripper)
    initial = InitialStateSampler(task, guard, space, practice)
    seen: Robot = robot
    simulated = robot if isinstance(robot, SimulatedRobot) else None
    if simulated is not None and config.disturbance != DISTURBANCES["off"]:
        seen = DisturbedRobot(simulated, config.disturbance)
        objects = Camera(objects, seen) if models else objects
    setting = Setting(
        task=task,
        action_kind=make_action_kind(
            config.action,
            config.guard,
            spec,
            kinematics,
            task.uses_gripper,
            task.turns_tool,
            config.pace,
            task.tilts_tool,
        ),
        guard=guard,
        objects=models,
        episode_steps=config.episode_steps,
        rising=None
        if practice
        else make_action_kind(
            ActionConfig(), config.guard, spec, kinematics, task.uses_gripper, task.turns_tool, config.pace
        ),
        bounds=object_bounds(config, spec) if models else None,
        pace=config.pace,
        observer=None if simulated is None else simulated.kinematics,
        privileged=privileged,
    )
    initial.require_reachable(config.task.region, np.array(space.low), np.array(space.high))
    return RobotEnv(
        RobotBatch([Cell(seen, objects, initial)], setting),
        renderer=None if render_mode is None else partial(_make_renderer, spec, models),
        recipe=recipe,
    )


def _compile_kernels(config: RobotEnvironmentConfig) -> None:
    """Compile what a control period computes, by stepping a simulation: no arm waits for a compiler."""
    simulated = config.model_copy(update={"robot": config.robot.model_copy(update={"backend": "mujoco"})})
    environment = make_robot_env(simulated)
    environment.reset(seed=0)
    for _ in range(3):  # a state that is seen late lies between two earlier ones
        environment.step(np.zeros(environment.action_space.shape or (), np.float32))
    guard, row = environment.guard.twin(), np.array([0])
    guard.decide(guard.q - 0.1, guard.gripper, guard.q + 1.0, np.zeros(1), row)  # far ahead: the guard has to search
    environment.close()


def _make_renderer(spec: RobotSpec, models: tuple[ObjectModel, ...]) -> "Renderer":
    from td3robot.envs.renderer import Renderer  # it loads OpenGL, which an environment does not need

    return Renderer(spec, models)


def _require_cell(config: RobotConfig, cell: CellConfig | None) -> CellConfig:
    if cell is None:
        raise ConfigError(
            f"robot.backend {config.backend!r} is a physical arm, and needs a cell that says where it is; see "
            "configs/robots/"
        )
    return cell


def _require_told(config: RobotEnvironmentConfig) -> None:
    if (item := config.task.typical) is not None:
        raise ConfigError(
            "the policy is for any object, and the cell does not say which one lies there; give its file the object's "
            f"shape and size, such as object: {{shape: {item.shape}, size_m: {list(item.size_m)}}}"
        )


def _require_supplied(task: Task) -> None:
    for field in task.layout.fields:
        if not field.on_hardware:
            raise ContractError(
                f"the task {task.name!r} observes {field.name!r}, which only a simulator knows; no physical cell can "
                "supply it"
            )


def object_bounds(config: RobotEnvironmentConfig, spec: RobotSpec) -> ObjectBounds:
    """Return the bounds of a task's objects on a robot's table."""
    space, workspace = config.task.space(spec.table_height_m, spec.gripper), config.guard.workspace
    corners = (space.low, space.high), (workspace.low, workspace.high)
    return ObjectBounds.of(config.task.objects(), spec.table_height_m, *corners)


def _objects(robot: Robot, config: RobotEnvironmentConfig, cell: CellConfig | None) -> Objects:
    if not config.task.objects():
        return NoObjects()
    if cell is not None:
        return cell.objects(object_bounds(config, robot.spec))
    objects = robot.objects() if isinstance(robot, SimulatedRobot) else None
    if objects is None:
        raise ConfigError("this task has objects, and robot.backend 'kinematic' has no contacts; use 'mujoco'")
    return objects


def make_environment(
    config: RobotEnvironmentConfig | GymnasiumEnvironmentConfig,
    render_mode: str | None = None,
    practice: bool = False,
    privileged: bool = False,
) -> Environment:
    """Build the environment of a run, whose mistakes are errors of td3robot; see :func:`make_robot_env`."""
    if isinstance(config, RobotEnvironmentConfig):
        return CheckedEnvironment(make_robot_env(config, render_mode, practice, privileged=privileged), config.title)
    return CheckedEnvironment(make_gymnasium(config, render_mode), config.title)


def make_contract(config: RobotEnvironmentConfig | GymnasiumEnvironmentConfig, environment: Environment) -> Contract:
    """Return the contract of a policy trained on an environment."""
    if isinstance(config, GymnasiumEnvironmentConfig):
        return gymnasium_contract(config, environment)
    contract: Contract = environment.get_wrapper_attr("contract")()
    return contract


def make_env(policy: str | Path, render_mode: str | None = None, trust: bool = False, **overrides: Any) -> Environment:
    """Make the environment that a policy was trained in.

    Args:
        policy: A released policy's name, a run directory, or a checkpoint.
        render_mode: As in Gymnasium.
        trust: Whether to import the module that a checkpoint of somebody else's environment names.
        overrides: Fields of the environment's configuration, for example ``disturbance="off"``; sections as nested
            mappings, merged with those of training.

    Raises:
        CheckpointError: There is no such policy, or it is damaged.
        ConfigError: An override is unknown or impossible.
        ContractError: An override makes it an environment that the policy was not trained for.
    """
    saved = opened(Path(policy))
    trained = saved.config().environment
    require_trusted(trained, catalog.shown(saved.path), trust)
    kind, values = type(trained), with_overrides(trained.model_dump(mode="json"), overrides)
    try:
        config = kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{policy}: {explain(error, kind, values, 'environment.')}") from None
    environment = make_environment(config, render_mode)
    try:
        saved.policy().require(environment)
    except Td3RobotError:
        environment.close()
        raise
    return environment


def make_released(
    released: str,
    render_mode: str | None = None,
    practice: bool = False,
    goal_env: bool = False,
    **overrides: Any,
) -> RobotEnv | GoalEnv:
    """Make a released environment with overrides; Gymnasium calls this for ``gymnasium.make(id, **overrides)``.

    Args:
        released: Its id, a row of ``envs.registration.RELEASED``.
        render_mode: As in Gymnasium.
        practice: Whether episodes may begin where there is most to learn; for training alone.
        goal_env: Whether to observe goals apart, with sparse rewards, for hindsight experience replay.
        overrides: Fields of :class:`RobotEnvironmentConfig`; sections as nested mappings, merged with the row.

    Raises:
        ConfigError: An override is unknown, or the resulting configuration cannot be run.
    """
    known = [*RobotEnvironmentConfig.model_fields, "practice", "render_mode", "goal_env"]
    for key in overrides:
        if key not in known:
            raise ConfigError(f"{released}: {choose('override', key, known)}")
    values = with_overrides(RELEASED[released], overrides)
    try:
        config = RobotEnvironmentConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{released}: {explain(error, RobotEnvironmentConfig, values, 'environment.')}") from None
    environment = make_robot_env(config, render_mode, practice)
    return GoalEnv(environment) if goal_env else environment
