"""Where the objects of a cell are: laid out at the beginning of an episode, and tracked during it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from td3robot.state import Pose


class Objects(ABC):
    """The objects of a cell, by name."""

    @abstractmethod
    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Have objects lie where an episode begins.

        Returns:
            Where they really lie: only simulations can place them.
        """

    @abstractmethod
    def read(self) -> Mapping[str, Pose]:
        """Give the latest pose of every object, in the base frame."""

    def truth(self) -> Mapping[str, Pose]:
        """Give where the objects are: as they are read, unless disturbed."""
        return self.read()

    def close(self) -> None:  # noqa: B027  # most have nothing to let go
        """Let go of what brings the poses. May be repeated."""


class NoObjects(Objects):
    """A cell without objects."""

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Do nothing."""
        return {}

    def read(self) -> Mapping[str, Pose]:
        """Give nothing."""
        return {}
