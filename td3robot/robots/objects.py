"""Where the objects of a cell are: laid out at the beginning of an episode, and tracked during it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from td3robot.robots.camera_figures import Arrival
from td3robot.state import Pose


@dataclass(frozen=True, slots=True)
class Sighting:
    """The last sighting of an object.

    Attributes:
        pose: Pose in the base frame.
        age_s: Time since the measurement.
        number: How many sightings of the object there were; while this stays the same, there is nothing new.
    """

    pose: Pose
    age_s: float
    number: int


class Objects(ABC):
    """The objects of a cell, by name."""

    @abstractmethod
    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the objects for the start of an episode.

        Returns:
            Where they really lie: only simulations can place them.
        """

    @abstractmethod
    def read(self) -> Mapping[str, Sighting]:
        """Return the last sighting of every object. In a simulation, call it once per control period."""

    def require_recent(self, name: str) -> None:  # noqa: B027  # most see whenever they are asked
        """Refuse to go on if an object in full view has not been seen for too long.

        Raises:
            TrackerError: Saying for how long.
        """

    def arrivals(self) -> Sequence[Arrival] | None:
        """Return a tracker's datagrams of the last seconds, oldest first, or None if there is no tracker.

        Raises:
            TrackerError: No datagram can be received.
        """
        return None

    def truth(self) -> Mapping[str, Pose] | None:
        """Return the true poses of the objects, or None if nothing is known beyond :meth:`read`."""
        return None

    def close(self) -> None:  # noqa: B027  # most have nothing to let go
        """Release the source of the poses. May be repeated."""


class NoObjects(Objects):
    """A cell without objects."""

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Do nothing."""
        return {}

    def read(self) -> Mapping[str, Sighting]:
        """Return nothing."""
        return {}
