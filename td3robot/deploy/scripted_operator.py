"""The person's part in a rehearsal: placing objects, and agreeing to what a person would have to agree to."""

from collections.abc import Callable, Mapping, Sequence
from time import sleep, time
from typing import Any

import numpy as np

from td3robot.deploy.operator import Operator
from td3robot.robots.camera_figures import Arrival
from td3robot.robots.objects import Objects, Sighting
from td3robot.simulators.sessions import SimulatorSession
from td3robot.state import Array, Pose

# Where objects are out of the way, and how far apart [m].
ASIDE, APART_M = np.array([0.45, -0.45, 0.05]), np.array([0.0, 0.15, 0.0])


class PlacedObjects(Objects):
    """Objects that are placed in the lab where an episode needs them, and seen by its tracker.

    Args:
        seen: The objects that the environment would use by itself.
        lab: The lab in which they lie.

    Attributes:
        sightings: Every pose that was read: the object's name, the Unix time of its stamp [s], its position (3,) [m].
    """

    def __init__(self, seen: Objects, lab: SimulatorSession) -> None:
        self._seen, self._lab = seen, lab
        self.sightings: list[tuple[str, float, Array]] = []
        self._numbers: dict[str, int] = {}

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place every object, and wait until it is seen there."""
        self._lab.place(poses)
        sleep(self._lab.settled_s)
        self._numbers.clear()
        return self._seen.arrange(poses)

    def read(self) -> Mapping[str, Sighting]:
        """Return the tracker's sightings."""
        found = self._seen.read()
        for name, sighting in found.items():
            if self._numbers.get(name) != sighting.number:
                self._numbers[name] = sighting.number
                self.sightings.append((name, time() - sighting.age_s, sighting.pose.position))
        return found

    def figures(self) -> dict[str, Any] | None:
        """Return the tracker's own figures."""
        return self._seen.figures()

    def arrivals(self) -> Sequence[Arrival] | None:
        """Return the tracker's datagrams."""
        return self._seen.arrivals()

    def require_recent(self, name: str) -> None:
        """Ask the tracker."""
        self._seen.require_recent(name)

    def require_possible(self, name: str, pose: Pose) -> None:
        """Ask the tracker."""
        self._seen.require_possible(name, pose)

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
        names = [item.name for item in self._lab.config.objects]
        self._lab.place({name: Pose(ASIDE + index * APART_M, np.eye(3)) for index, name in enumerate(names)})

    def accepts(self, offer: str) -> bool:
        """Accept."""
        return True

    def require_keys(self) -> None:
        """Do nothing: no keys are needed."""

    def next_periods(self, rate_hz: float, ahead: str) -> int:
        """Let the arm move for a second."""
        return round(rate_hz)
