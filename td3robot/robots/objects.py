"""Where the objects of a cell are: laid out at the beginning of an episode, and tracked during it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from td3robot.robots.camera_figures import Arrival
from td3robot.state import Pose


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of an object last.

    Attributes:
        pose: In the base frame.
        age_s: Since it was measured.
        number: How often the object was seen so far; while this stays, nothing new was seen.
    """

    pose: Pose
    age_s: float
    number: int


class Objects(ABC):
    """The objects of a cell, by name."""

    @abstractmethod
    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Have objects lie where an episode begins.

        Returns:
            Where they really lie: only simulations can place them.
        """

    @abstractmethod
    def read(self) -> Mapping[str, Sighting]:
        """Give what was seen last of every object. In a simulation, call it once a control period."""

    def require_recent(self, name: str) -> None:  # noqa: B027  # most see whenever they are asked
        """Refuse to go on where an object in full view has not been seen for too long.

        Raises:
            TrackerError: Saying for how long.
        """

    def arrivals(self) -> Sequence[Arrival] | None:
        """Return a tracker's datagrams of the last seconds, oldest first; None where no tracker sends any.

        Raises:
            TrackerError: None can be received.
        """
        return None

    def truth(self) -> Mapping[str, Pose] | None:
        """Give where the objects are, or None where nobody knows better than :meth:`read`."""
        return None

    def close(self) -> None:  # noqa: B027  # most have nothing to let go
        """Let go of what brings the poses. May be repeated."""


class NoObjects(Objects):
    """A cell without objects."""

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Do nothing."""
        return {}

    def read(self) -> Mapping[str, Sighting]:
        """Give nothing."""
        return {}
