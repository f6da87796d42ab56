"""What can be looked at: one moment after the other, and the curves beside them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from td3robot.config import Box
from td3robot.errors import ConfigError
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState

# What a source may be asked for, besides to advance.
ACTIONS = ("play", "step", "speed", "next", "goal", "seek", "act", "jog")


@dataclass(frozen=True, slots=True)
class Workcell:
    """What stands there, whatever it does.

    Attributes:
        objects: What lies on the table.
        workspace: Where the guard keeps the tool, in the base frame [m].
    """

    spec: RobotSpec
    objects: tuple[ObjectModel, ...]
    workspace: Box


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment.

    Attributes:
        state: Measured.
        commanded: What the guard last let through, or None where nothing is commanded.
        objects: Where they are, by name; one that is missing is not seen.
        goal: (3,) where the tool, or the object, shall go [m], or None.
        reasons: Why the guard changed the wish; empty where it did not.
        caption: In words, a line each.
        lasts_s: Until the next moment.
        begins: Whether an episode begins here.
    """

    state: RobotState
    commanded: JointCommand | None = None
    objects: Mapping[str, Pose] = field(default_factory=dict)
    goal: Array | None = None
    reasons: tuple[str, ...] = ()
    caption: tuple[str, ...] = ()
    lasts_s: float = 0.05
    begins: bool = False


@dataclass(frozen=True)
class Chart:
    """Some lines over one axis.

    Attributes:
        title: With the unit.
        over: What the axis counts, with its unit.
        x: (points,), increasing.
        lines: By name, each (points,).
        span: Lowest and highest value of the other axis; None leaves it to the data.
    """

    title: str
    over: str
    x: Array
    lines: Mapping[str, Array]
    span: tuple[float, float] | None = None


class Source(ABC):
    """Something to look at.

    Attributes:
        title: What it is called.
        kind: What it is, in words.
        actions: What it can be asked for, of :data:`ACTIONS`.
        acts: What may move the arm, by name; the first does.
        status: What is going on, in a sentence; empty where the caption says enough.
        ghost: What the translucent arm is, for the legend.
    """

    title: str
    kind: str
    actions: frozenset[str] = frozenset()
    acts: tuple[str, ...] = ()
    status: str = ""
    ghost: str = "where it is commanded to be, where that is elsewhere"

    @property
    @abstractmethod
    def workcell(self) -> Workcell | None:
        """What stands there; None where that is not known yet."""

    @abstractmethod
    def advance(self) -> Snapshot | None:
        """Return the next moment, or None where there is none now.

        Raises:
            Td3RobotError: There is not going to be one; the sentence is shown.
        """

    def charts(self) -> list[Chart]:
        """Return the curves as they are now."""
        return []

    def next_episode(self) -> None:  # noqa: B027  # not every source has use for it
        """Begin the next episode."""

    def set_goal(self, position: Array) -> None:
        """Go to a goal (3,) [m] from where the arm is.

        Raises:
            ConfigError: It cannot be had.
        """
        raise ConfigError(f"{self.title} takes no goal")

    def choose_act(self, name: str) -> None:  # noqa: B027  # not every source has use for it
        """Let another of :attr:`acts` move the arm."""

    def jog(self, q: Array, gripper: float) -> None:  # noqa: B027  # not every source has use for it
        """Ask for a posture (n,) [rad] and a closed fraction, which the guard rules on."""

    @property
    def length(self) -> int:
        """How many moments there are to seek in; 0 where there are none."""
        return 0

    @property
    def position(self) -> int:
        """Which of them is next."""
        return 0

    def seek(self, position: int) -> None:  # noqa: B027  # not every source has use for it
        """Go to one of them; at the last, follow what is added."""

    def close(self) -> None:  # noqa: B027  # not every source has use for it
        """Let go of everything. May be repeated."""
