"""The base of every agent's configuration, and how an agent is chosen by its kind."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from td3robot.config.section import MANY, Section, Widths, refused
from td3robot.registry import AGENTS

DEFAULT_KIND = "td3"


class AgentConfig(Section):
    """What every agent has. Each adds its own hyperparameters in its file of ``td3robot/learning/agents``.

    Attributes:
        kind: The algorithm.
        hidden: Widths of the hidden layers of every network.
        layer_norm: Whether layer normalization follows each hidden layer.
        normalize_observations: Whether observations are scaled to zero mean and unit variance.
        learning_rate: Learning rate of Adam.
        learning_rate_drop_step: Environment steps after which the learning rate is a fifth; 0 keeps it constant.
        gamma: Discount factor per step.
        n_step: Rewards summed before bootstrapping.
        batch_size: Transitions per update.
        updates_per_step: Learner updates per environment step.
        replay_capacity: Transitions in the replay buffer; the oldest are overwritten.
        hindsight_goals: How many times each step is stored once more, as if something achieved later in its episode had
            been the goal (HER); for environments with ``achieved_goal``, ``desired_goal`` and ``compute_reward``.
        device: ``auto`` uses CUDA if available.
        trained: The networks that updates change; a checkpoint for play holds them, and another run starts from them.
        optimizers: The groups with the state of their optimizers: ``actor_optimizer``, for example.
        more_groups: Further groups that resuming needs, of any shapes: a temperature and its optimizer, for example.
    """

    kind: str
    hidden: Widths = (400, 300)
    layer_norm: bool = False
    normalize_observations: bool = False
    learning_rate: PositiveFloat = 1e-3
    learning_rate_drop_step: Annotated[int, Field(ge=0, le=MANY)] = 0
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    n_step: Annotated[int, Field(gt=0, le=10_000)] = 1
    batch_size: Annotated[int, Field(gt=0, le=MANY)] = 100
    updates_per_step: Annotated[float, Field(gt=0.0, le=1000.0)] = 1.0
    replay_capacity: Annotated[int, Field(gt=0, le=MANY)] = 1_000_000
    hindsight_goals: Annotated[int, Field(ge=0, le=100)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    trained: ClassVar[tuple[str, ...]] = ("actor",)
    optimizers: ClassVar[tuple[str, ...]] = ()
    more_groups: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the class of the kind that some values name."""
        kind = values.get("kind", DEFAULT_KIND)
        chosen: type[Section] = AGENTS[kind] if cls is AgentConfig and kind in AGENTS else cls
        return chosen

    @property
    def is_asymmetric(self) -> bool:
        """Whether the critics see the true state of a simulation beside the observation; most agents' don't."""
        return False

    @property
    def imitates(self) -> bool:
        """Whether the policy imitates the task's hand-written policy; most agents' don't."""
        return False

    @property
    def period(self) -> int:
        """Updates after which their kinds repeat: the actor's may come with every second one."""
        return 1

    def networks(self, observation_size: int, action_size: int, privileged_size: int = 0) -> dict[str, list[int]]:
        """Return the widths of the layers, input to output, of each network in a checkpoint that can be resumed.

        ``actor_average`` is among them if a policy acts by the actor's average. ``privileged_size`` numbers more than
        the observation are seen by the critics of an agent that ``is_asymmetric``.
        """
        return {"actor": [observation_size, *self.hidden, action_size]}

    def agent_class(self) -> Any:
        """Return the subclass of :class:`~td3robot.learning.agent.Agent`; only this needs torch."""
        raise NotImplementedError

    def make_exploration(self, rng: Any) -> Any:
        """Return the :class:`~td3robot.learning.exploration.Exploration` that draws with a generator."""
        raise NotImplementedError


def chosen_agent(value: Any) -> Any:
    """Validate an agent's section with the configuration class of the agent that it names."""
    if not isinstance(value, Mapping):
        return value
    kind = str(value.get("kind", DEFAULT_KIND))
    if kind not in AGENTS:
        raise refused(AGENTS.unknown(kind), "kind")
    return AGENTS[kind].model_validate(value)
