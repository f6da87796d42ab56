"""Sources of what to show: one moment after another, and the curves beside them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from td3robot.config import Box
from td3robot.errors import ConfigError
from td3robot.metrics import Chart
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState

# Actions of a source, besides advancing.
ACTIONS = ("play", "step", "speed", "next", "goal", "seek", "act", "jog")


@dataclass(frozen=True, slots=True)
class Workcell:
    """The static description of a scene.

    Attributes:
        objects: The objects on the table.
        workspace: Where the guard keeps the tool, in the base frame [m].
    """

    spec: RobotSpec
    objects: tuple[ObjectModel, ...]
    workspace: Box


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment.

    Attributes:
        state: The measured state.
        commanded: The command that the guard last let through, or None if nothing is commanded.
        objects: Their poses by name; a missing one is not seen.
        goal: (3,) where the tool, or the object, must go [m], or None.
        reasons: Why the guard changed the desired command; empty if it did not.
        caption: Lines of text.
        lasts_s: Time until the next moment.
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


class Source(ABC):
    """Something to show.

    Attributes:
        title: Its name.
        kind: What it is, in words.
        actions: The actions that it supports, of :data:`ACTIONS`.
        controllers: What may move the arm, by name; initially the first one.
        status: What is going on, in a sentence; empty if the caption says enough.
        ghost: What the translucent arm is, for the legend.
        picture_url: Where a camera's picture with what is found in it is shown (Motion JPEG); empty without one.
    """

    title: str
    kind: str
    actions: frozenset[str] = frozenset()
    controllers: tuple[str, ...] = ()
    status: str = ""
    ghost: str = "where it is commanded to be, where that is elsewhere"
    picture_url: str = ""

    @property
    @abstractmethod
    def workcell(self) -> Workcell | None:
        """The workcell, or None if it is not known yet."""

    @abstractmethod
    def advance(self) -> Snapshot | None:
        """Return the next moment, or None if there is none now.

        Raises:
            Td3RobotError: There will not be one; the sentence is shown.
        """

    def charts(self) -> list[Chart]:
        """Return the current curves."""
        return []

    def next_episode(self) -> None:  # noqa: B027  # not every source has use for it
        """Begin the next episode."""

    def set_goal(self, position: Array) -> None:
        """Go to a goal (3,) [m] from where the arm is.

        Raises:
            ConfigError: The goal is not possible.
        """
        raise ConfigError(f"{self.title} takes no goal")

    def choose_controller(self, name: str) -> None:  # noqa: B027  # not every source has use for it
        """Choose another of :attr:`controllers` to move the arm."""

    def jog(self, q: Array, gripper: float) -> None:  # noqa: B027  # not every source has use for it
        """Request a posture (n,) [rad] and a closed fraction, subject to the guard."""

    @property
    def length(self) -> int:
        """Number of moments to seek in, or 0."""
        return 0

    @property
    def position(self) -> int:
        """Number of the next moment."""
        return 0

    def seek(self, position: int) -> None:  # noqa: B027  # not every source has use for it
        """Go to a moment; at the last one, follow what is added."""

    def close(self) -> None:  # noqa: B027  # not every source has use for it
        """Release everything. May be repeated."""
