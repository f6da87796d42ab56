"""The person's part in a rehearsal: placing objects, and agreeing to what a person would have to agree to."""

from collections.abc import Callable, Mapping, Sequence
from time import sleep

import numpy as np

from td3robot.deploy.operator import Operator
from td3robot.robots.camera_figures import Arrival
from td3robot.robots.objects import Objects, Sighting
from td3robot.simulators.sessions import SimulatorSession
from td3robot.state import Pose

# Where objects are out of the way.
ASIDE = Pose(np.array([0.45, -0.45, 0.05]), np.eye(3))


class PlacedObjects(Objects):
    """Objects that are placed in the lab where an episode needs them, and seen by its tracker.

    Args:
        seen: The objects that the environment would use by itself.
        lab: The lab in which they lie.
    """

    def __init__(self, seen: Objects, lab: SimulatorSession) -> None:
        self._seen, self._lab = seen, lab

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place every object, and wait until it is seen there."""
        for name, pose in poses.items():
            self._lab.place(name, pose)
        sleep(self._lab.config.preset.cell_model.camera.settled_s)
        return self._seen.arrange(poses)

    def read(self) -> Mapping[str, Sighting]:
        """Return the tracker's sightings."""
        return self._seen.read()

    def arrivals(self) -> Sequence[Arrival] | None:
        """Return the tracker's datagrams."""
        return self._seen.arrivals()

    def require_recent(self, name: str) -> None:
        """Ask the tracker."""
        self._seen.require_recent(name)

    def close(self) -> None:
        """Stop listening."""
        self._seen.close()


class ScriptedOperator(Operator):
    """Agree to everything, and take what the gripper holds out of it.

    Args:
        lab: The lab with the gripper.
        say: Called with each sentence.

    Attributes:
        said: Every sentence so far.
    """

    def __init__(self, lab: SimulatorSession, say: Callable[[str], None]) -> None:
        self._lab, self._say = lab, say
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Pass the sentence on."""
        self.said.append(text)
        self._say(text)

    def stop_wanted(self) -> bool:
        """Never stop."""
        return False

    def agree(self, what: str) -> None:
        """Agree."""

    def take(self, what: str) -> None:
        """Put every object aside."""
        for item in self._lab.config.objects:
            self._lab.place(item.name, ASIDE)

    def accepts(self, offer: str) -> bool:
        """Accept."""
        return True

    def require_keys(self) -> None:
        """Do nothing: no keys are needed."""

    def next_periods(self, rate_hz: float, ahead: str) -> int:
        """Let the arm move for a second."""
        return round(rate_hz)
