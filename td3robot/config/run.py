"""One whole run: environment, agent, training."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from td3robot.config.agent import AgentConfig, chosen_agent
from td3robot.config.disturbance import DISTURBANCES, DisturbanceConfig, disturbance_level
from td3robot.config.objects import ObjectConfig
from td3robot.config.robot import ActionConfig, GuardConfig, RobotConfig
from td3robot.config.section import MANY, Box, Section, UnitInterval, refused
from td3robot.config.task import DEFAULT, TaskConfig, chosen_task
from td3robot.registry import ARMS, GRIPPERS, TASKS

Steps = Annotated[int, Field(gt=0, le=MANY)]


class RobotEnvironmentConfig(Section):
    """A task on a robot, behind the guard.

    Attributes:
        kind: Selects a robot's environment.
        disturbance: Domain randomization: a level (``off``, ``mild``, ``real``), or individual values.
        episode_s: Duration of an episode.
    """

    kind: Literal["robot"] = "robot"
    robot: RobotConfig = RobotConfig()
    task: Annotated[SerializeAsAny[TaskConfig], BeforeValidator(chosen_task)] = Field(
        default_factory=lambda: chosen_task({})
    )
    action: ActionConfig = ActionConfig()
    guard: GuardConfig = GuardConfig()
    disturbance: Annotated[DisturbanceConfig, BeforeValidator(disturbance_level)] = DISTURBANCES["off"]
    episode_s: Annotated[float, Field(gt=0.0, le=3600.0)] = 5.0
    _pace: float = PrivateAttr(1.0)

    @model_validator(mode="before")
    @classmethod
    def _regions_of_the_arm(cls, values: Any) -> Any:
        """Fill in the workspace and the task's regions from the arm's own, if they are left out."""
        if not isinstance(values, Mapping):
            return values
        task = values.get("task", {})
        known = TASKS.get(_given(task, "name") or DEFAULT)
        try:
            robot = RobotConfig.model_validate(values.get("robot", {}))
        except ValidationError:
            return values  # the field says so itself
        filled = {"guard": _filled(values.get("guard", {}), {"workspace": _workspace(robot, known and known.Config)})}
        if known is not None:
            filled["task"] = _filled(task, known.Config.regions(ARMS[robot.arm]))
        return {**values, **filled}

    @property
    def title(self) -> str:
        """Title for people: ``UR5e with Robotiq 2F-85: reach a point``."""
        arm, gripper = ARMS[self.robot.arm], GRIPPERS[self.robot.gripper]
        task = self.task.title or self.task.name
        return f"{arm.label or arm.name} with {gripper.label or gripper.name}: {task}"

    @property
    def achieved(self) -> str:
        """What a policy did in a successful episode, before a count: ``reached``."""
        return self.task.achieved

    @property
    def pace(self) -> float:
        """Speed of the arm, as a share of training's; no file sets it. Time since an object was seen counts at it."""
        return self._pace

    def slowed(self, pace: float, **changes: Any) -> Self:
        """Return this environment with another pace, and the changes that make it so."""
        slow = self.model_copy(update=changes)
        slow._pace = self._pace * pace
        return slow

    def in_cell(self, robot: RobotConfig, item: ObjectConfig | None = None) -> Self:
        """Return this environment on the robot of a cell, with the object that lies there if its file says which.

        The workspace begins as far above the cell's table as it did above this one's. With another arm or gripper,
        regions that were the arm's own become those of the cell's arm.
        """
        task, guard = self.task, self.guard
        if (robot.arm, robot.gripper) != (self.robot.arm, self.robot.gripper):
            kind, there = type(task), robot.model_copy(update={"table_height_m": self.robot.table_height_m})
            own, new = (
                kind.model_validate(task.model_dump() | kind.regions(ARMS[arm])) for arm in (self.robot.arm, robot.arm)
            )
            task = new if own == task else task
            if guard.workspace == Box.model_validate(_workspace(self.robot, kind)):
                guard = guard.model_copy(update={"workspace": Box.model_validate(_workspace(there, kind))})
        guard = guard.raised(robot.table_height_m - self.robot.table_height_m)
        changes: dict[str, Any] = {"robot": robot, "task": task.told(item), "guard": guard}
        return self.model_copy(update=changes)

    @property
    def episode_steps(self) -> int:
        """Control periods in an episode."""
        return round(self.episode_s * self.robot.control_rate_hz)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        arm, gripper = ARMS[self.robot.arm], GRIPPERS[self.robot.gripper]
        if gripper.mass_kg > arm.payload_kg:
            raise refused(
                f"the gripper {gripper.name!r} weighs {gripper.mass_kg:g} kg, and the arm {arm.name!r} may carry at "
                f"most {arm.payload_kg:g} kg; choose a lighter gripper or a stronger arm",
                "robot",
                "gripper",
            )
        self.task.require_fit(arm, gripper, self.disturbance)
        names = [item.name for item in self.task.objects()]
        if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
            raise ValueError(
                f"two objects of the task {self.task.name!r} are named {twice!r}, and a tracker could not tell them "
                "apart; give each a name of its own"
            )
        space = self.task.space(self.robot.table_height_m, gripper)
        if not self.guard.workspace.contains(space):
            raise ValueError(
                f"{self.task.region} {space.low}..{space.high} m reaches outside guard.workspace "
                f"{self.guard.workspace.low}..{self.guard.workspace.high} m, so some goals could never be reached"
            )
        if self.episode_s < self.task.hold_s:
            raise ValueError(f"an episode of {self.episode_s:g} s is shorter than task.hold_s {self.task.hold_s:g} s")
        return self

    @model_validator(mode="after")
    def _can_be_disturbed(self) -> Self:
        disturbance, oldest = self.disturbance, self.guard.max_state_age_s
        age = disturbance.observation_delay_s[1]
        if age > oldest - 1e-9:
            raise ValueError(
                f"disturbance.observation_delay_s {disturbance.observation_delay_s} makes states {age:g} s "
                f"old, and the guard refuses them from guard.max_state_age_s {oldest:g} s on"
            )
        objects = self.task.objects()
        for key, own in (("object_mass_kg", "mass_kg"), ("object_friction", "friction")):
            drawn = getattr(disturbance, key)
            outside = [each for each in objects if drawn and not drawn[0] <= getattr(each, own) <= drawn[1]]
            if outside and len(objects) > 1:
                raise ValueError(
                    f"disturbance.{key} {drawn} replaces the value of every object, and the {own} of "
                    f"{outside[0].name!r}, {getattr(outside[0], own):g}, is outside; widen it, or set it to null, "
                    "which keeps each object's own"
                )
        return self


def _workspace(robot: RobotConfig, task: type[TaskConfig] | None) -> dict[str, Any]:
    """Return the workspace of a robot's arm, which begins where the task says, if it does."""
    region = ARMS[robot.arm].regions["workspace"]
    low = region.low
    if task is not None and (floor := task.floor_m(GRIPPERS[robot.gripper])) is not None:
        low = (*low[:2], round(robot.table_height_m + floor, 6))
    return {"low": low, "high": region.high}


def _given(section: Any, key: str) -> Any:
    """Return a section's value for a key, whether the section was parsed yet or not."""
    return section.get(key) if isinstance(section, Mapping) else getattr(section, key, None)


def _filled(section: Any, defaults: dict[str, Any]) -> Any:
    """Return a section's values with defaults for missing keys."""
    if isinstance(section, Mapping):
        return {**defaults, **section}
    if not isinstance(section, Section) or not (missing := defaults.keys() - section.model_fields_set):
        return section
    return section.model_dump(include=section.model_fields_set | {"name"}) | {key: defaults[key] for key in missing}


class GymnasiumEnvironmentConfig(Section):
    """Any registered Gymnasium environment with continuous actions, each in a finite range.

    Attributes:
        kind: Selects a Gymnasium environment.
        id: The id for ``gymnasium.make``.
        kwargs: Further arguments of ``gymnasium.make``.
    """

    kind: Literal["gymnasium"] = "gymnasium"
    id: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    achieved: ClassVar[str] = "succeeded in"

    @property
    def title(self) -> str:
        """Title for people."""
        return self.id


ENVIRONMENTS: Mapping[str, type[Section]] = {
    "robot": RobotEnvironmentConfig,
    "gymnasium": GymnasiumEnvironmentConfig,
}


class TrainingConfig(Section):
    """How long to train, in how many environments, and how often to evaluate, save and log.

    Attributes:
        steps: Environment steps in total, over all parallel environments.
        random_steps: Steps with uniformly random actions before the policy acts and learning starts.
        environments: Parallel environments that fill one replay buffer.
        undisturbed_share: Share of the environments in which the arm is undisturbed, the gripper is, or the camera is,
            in all combinations. A cell that matches its model is at the edge of what disturbances draw, and otherwise
            rarely seen.
        guided_share: Share of the environments in which the task's hand-written policy acts, with some noise, so that
            a long task is also learned from successes that the policy does not have by itself yet.
        overlap: Step the environments in other processes while the learner updates. The order of all random
            draws stays fixed, so runs still repeat bit for bit. Those processes make the environments from their
            configuration: a Gymnasium ``id`` that a program registered by hand is unknown there, ``module:Name`` is
            known.
        evaluators: Processes that share the episodes of an evaluation while the training goes on, with ``overlap``;
            with 0, or without ``overlap``, the training waits for its evaluations. Results do not depend on it.
        learner: Which code does the updates: ``reference``, the readable one; ``compiled``, the same updates several
            times as fast on the CPU, rounded differently; ``cuda_graph``, the same as one recorded graph on a GPU;
            ``auto``, the fastest possible. A run keeps the one it began with.
        threads: Threads of the learner.
        evaluate_every, checkpoint_every, log_every: Intervals in environment steps.
        evaluation_episodes: Episodes per evaluation.
        loggers: Services that get every row of metrics beside CSV and TensorBoard: ``wandb``, ``mlflow``, each an
            extra. Training goes on without one that fails.
    """

    steps: Steps = 1_000_000
    random_steps: Steps = 10_000
    environments: Annotated[int, Field(gt=0, le=1024)] = 1
    undisturbed_share: UnitInterval = 0.0
    guided_share: UnitInterval = 0.0
    overlap: bool = False
    evaluators: Annotated[int, Field(ge=0, le=64)] = 1
    learner: Literal["auto", "reference", "compiled", "cuda_graph"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    evaluate_every: Steps = 5_000
    evaluation_episodes: Annotated[int, Field(gt=0, le=100_000)] = 10
    checkpoint_every: Steps = 50_000
    log_every: Steps = 1_000
    loggers: Annotated[tuple[Literal["wandb", "mlflow"], ...], Field(max_length=2)] = ()

    @property
    def guided(self) -> int:
        """In how many environments the hand-written policy acts."""
        return round(self.guided_share * self.environments)


class RunConfig(Section):
    """One whole run.

    Attributes:
        name: Name of the run, used for its directory and reports.
        seed: Seed of every random draw. The same seed gives the same run.
        environment: The environment to train on: a robot with a task, or any Gymnasium environment.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    environment: Annotated[RobotEnvironmentConfig | GymnasiumEnvironmentConfig, Field(discriminator="kind")]
    agent: Annotated[SerializeAsAny[AgentConfig], BeforeValidator(chosen_agent)] = Field(
        default_factory=lambda: chosen_agent({})
    )
    training: TrainingConfig = TrainingConfig()

    def updates_due(self, step: int) -> int:
        """Return how many updates a number of environment steps call for; none before learning begins."""
        return max(0, int((step - self.training.random_steps) * self.agent.updates_per_step))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.agent.replay_capacity < self.agent.batch_size:
            raise ValueError(
                f"agent.replay_capacity {self.agent.replay_capacity} is smaller than "
                f"agent.batch_size {self.agent.batch_size}"
            )
        if self.agent.is_asymmetric and not isinstance(self.environment, RobotEnvironmentConfig):
            raise ValueError(
                f"agent.asymmetric_critic needs the true state beside the observation, and the environment "
                f"{self.environment.title!r} has none that td3robot knows; set it to false"
            )
        if self.agent.hindsight_goals and isinstance(self.environment, RobotEnvironmentConfig):
            raise ValueError(
                "agent.hindsight_goals needs an environment with achieved_goal, desired_goal and compute_reward; the "
                "tasks of arms reward each step and do without: set it to 0"
            )
        if self.agent.hindsight_goals and self.agent.n_step > 1:
            raise ValueError(
                f"agent.hindsight_goals replaces the goals of single steps, and agent.n_step {self.agent.n_step} sums "
                "several; set agent.n_step to 1"
            )
        if (self.training.guided or self.agent.imitates) and not isinstance(self.environment, RobotEnvironmentConfig):
            raise ValueError(
                "training.guided_share and agent.imitation need a hand-written policy, and the environment "
                f"{self.environment.title!r} has none; set both to 0"
            )
        return self
