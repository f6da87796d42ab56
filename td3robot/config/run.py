"""One whole run: environment, agent, training."""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, SerializeAsAny, model_validator

from td3robot.config.disturbance import DISTURBANCES, DisturbanceConfig, disturbance_level, in_periods
from td3robot.config.robot import ActionConfig, GuardConfig, RobotConfig
from td3robot.config.section import Fraction, NonNegative, Section, UnitInterval, Widths, refused
from td3robot.config.task import DEFAULT, TaskConfig, chosen_task
from td3robot.errors import choose
from td3robot.registry import ARMS, GRIPPERS, TASKS


class RobotEnvironmentConfig(Section):
    """A task on a robot, behind the guard."""

    kind: Literal["robot"] = "robot"
    robot: RobotConfig = RobotConfig()
    task: Annotated[SerializeAsAny[TaskConfig], BeforeValidator(chosen_task)] = Field(
        default_factory=lambda: chosen_task({})
    )
    action: ActionConfig = ActionConfig()
    guard: GuardConfig = GuardConfig()
    disturbance: Annotated[DisturbanceConfig, BeforeValidator(disturbance_level)] = DISTURBANCES["off"]
    episode_s: PositiveFloat = 5.0

    @model_validator(mode="before")
    @classmethod
    def _regions_of_the_arm(cls, values: Any) -> Any:
        """Fill the workspace, and where goals or objects are, from the arm's own regions where they are left out."""
        if not isinstance(values, Mapping):
            return values
        given = values.get("robot", {})
        name = given.get("arm", RobotConfig().arm) if isinstance(given, Mapping) else getattr(given, "arm", None)
        if not isinstance(name, str) or name not in ARMS:
            return values  # the field says so itself
        arm, task = ARMS[name], values.get("task", {})
        known = TASKS.get(_given(task, "name") or DEFAULT)
        region = arm.regions["workspace"]
        workspace = {"workspace": {"low": region.low, "high": region.high}}
        filled = {"guard": _filled(values.get("guard", {}), workspace)}
        if known is not None:
            filled["task"] = _filled(task, known.Config.regions(arm))
        return {**values, **filled}

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
        rate_hz = self.robot.control_rate_hz
        age = in_periods(disturbance.observation_delay_s, rate_hz)[1] / rate_hz
        if age > oldest - 1e-9:
            raise ValueError(
                f"disturbance.observation_delay_s {disturbance.observation_delay_s} makes states {age:g} s "
                f"old, and the guard refuses them from guard.max_state_age_s {oldest:g} s on"
            )
        return self


def _given(section: Any, key: str) -> Any:
    """Return what a section was given for a key, whether it was read yet or not."""
    return section.get(key) if isinstance(section, Mapping) else getattr(section, key, None)


def _filled(section: Any, defaults: dict[str, Any]) -> Any:
    """Put defaults into a section where nothing was given."""
    if isinstance(section, Mapping):
        return {**defaults, **section}
    if not isinstance(section, Section) or not (missing := defaults.keys() - section.model_fields_set):
        return section
    return section.model_dump(include=section.model_fields_set | {"name"}) | {key: defaults[key] for key in missing}


class GymnasiumEnvironmentConfig(Section):
    """Any registered Gymnasium environment with flat observations and bounded continuous actions."""

    kind: Literal["gymnasium"] = "gymnasium"
    id: str
    kwargs: dict[str, Any] = Field(default_factory=dict)


ENVIRONMENTS: Mapping[str, type[Section]] = {
    "robot": RobotEnvironmentConfig,
    "gymnasium": GymnasiumEnvironmentConfig,
}


# The module of each kind of agent. Another one is one line here; its module is imported when a run asks for it.
AGENTS = {"td3": "td3robot.learning.td3"}


class AgentConfig(Section):
    """TD3's hyperparameters; the defaults are those of the paper (Fujimoto et al. 2018, Appendix C).

    An agent with hyperparameters of its own adds them in a subclass (``Agent.Config``).

    Attributes:
        kind: Which algorithm; see ``AGENTS``.
        updates_per_step: Learner updates for each environment step.
        n_step: Rewards summed before bootstrapping.
        average_tau: Share of the actor that its running average takes over at each of the actor's updates. The average
            is what is evaluated, saved for play and deployed; with 1 that is the actor itself.
        random_share: Share of exploration's actions that are uniformly random, at the beginning.
        random_share_steps: Environment steps over which that share falls to 0, linearly; 0 keeps it.
        random_action_steps: How many steps in a row such an action is kept, on average.
        greedy_share: Share of the environments that act without exploration. A policy that is played without noise can
            repeat itself for ever where noise would free it; so that this is met, and learned away, in training.
        device: ``auto`` takes CUDA where there is one.
    """

    kind: str = "td3"
    actor_hidden: Widths = (400, 300)
    critic_hidden: Widths = (400, 300)
    layer_norm: bool = False
    normalize_observations: bool = False
    actor_learning_rate: PositiveFloat = 1e-3
    critic_learning_rate: PositiveFloat = 1e-3
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    tau: Fraction = 0.005
    average_tau: Fraction = 1.0
    policy_noise: NonNegative = 0.2
    noise_clip: NonNegative = 0.5
    policy_freq: PositiveInt = 2
    exploration_noise: NonNegative = 0.1
    random_share: UnitInterval = 0.0
    random_share_steps: NonNegativeInt = 0
    random_action_steps: PositiveInt = 1
    greedy_share: UnitInterval = 0.0
    batch_size: PositiveInt = 100
    updates_per_step: PositiveFloat = 1.0
    n_step: PositiveInt = 1
    replay_capacity: PositiveInt = 1_000_000
    device: Literal["auto", "cpu", "cuda"] = "auto"


def chosen_agent(value: Any) -> Any:
    """Check an agent's section by the configuration class of the agent that it names."""
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind", AgentConfig().kind)
    if kind not in AGENTS:
        raise refused(choose("kind", str(kind), AGENTS), "kind")
    return agent_section(kind).model_validate(value)


def agent_section(kind: str) -> type[AgentConfig]:
    """Return the configuration class of an agent; that of the default agent without its module, which needs torch."""
    if kind == AgentConfig().kind:
        return AgentConfig
    section: type[AgentConfig] = import_module(AGENTS[kind]).AGENT.Config
    return section


class TrainingConfig(Section):
    """How long, how wide, and how often to look.

    Attributes:
        steps: Environment steps in all, over every parallel environment.
        random_steps: Steps with uniformly random actions before the policy acts and learning starts.
        environments: Environments stepped side by side into one replay.
        undisturbed_share: Share of the environments that stay undisturbed where the others are disturbed. A cell that
            is just as its model is an edge of what disturbances draw, and rarely met else.
        overlap: Step the environments in a second process while the learner updates. The order of all random
            draws stays fixed, so runs still repeat bit for bit. That process makes them anew from their configuration:
            an ``id`` of Gymnasium that a program registered by hand is unknown there, ``module:Name`` is known.
        torch_threads: Threads of the learner; 0 leaves PyTorch's own choice.
        evaluate_every, checkpoint_every, log_every: In environment steps.
    """

    steps: PositiveInt = 1_000_000
    random_steps: PositiveInt = 10_000
    environments: PositiveInt = 1
    undisturbed_share: UnitInterval = 0.0
    overlap: bool = False
    torch_threads: Annotated[int, Field(ge=0, le=256)] = 0
    evaluate_every: PositiveInt = 5_000
    evaluation_episodes: PositiveInt = 10
    checkpoint_every: PositiveInt = 50_000
    log_every: PositiveInt = 1_000


class RunConfig(Section):
    """One whole run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    environment: Annotated[RobotEnvironmentConfig | GymnasiumEnvironmentConfig, Field(discriminator="kind")]
    agent: Annotated[SerializeAsAny[AgentConfig], BeforeValidator(chosen_agent)] = AgentConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.agent.replay_capacity < self.agent.batch_size:
            raise ValueError(
                f"agent.replay_capacity {self.agent.replay_capacity} is smaller than "
                f"agent.batch_size {self.agent.batch_size}"
            )
        return self
