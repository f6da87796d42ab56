"""The hands of a rehearsal: who puts objects in place, and agrees, where the arm is a stand-in."""

from collections.abc import Callable, Mapping
from time import sleep

from td3robot.deploy.operator import Operator
from td3robot.robots.objects import Objects
from td3robot.robots.tracker import ObjectTracker
from td3robot.standin.process import Standin
from td3robot.state import Array, Pose

# Where objects are put that shall be out of the way [m].
ASIDE = (0.45, -0.45, 0.05)
# What a tracker saw before an object was put elsewhere has arrived by now [s].
SEEN_S = 0.1


class BenchObjects(Objects):
    """Objects that the bench puts where an episode wants them, and a tracker sees.

    Args:
        tracker: What the environment would use alone.
        standin: Whose bench.
    """

    def __init__(self, tracker: ObjectTracker, standin: Standin) -> None:
        self._tracker, self._standin = tracker, standin

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Put every object in its place, and wait until it is seen there."""
        for name, pose in poses.items():
            self._standin.place(name, pose.position.tolist(), quaternion(pose.rotation))
        sleep(SEEN_S)
        return self._tracker.arrange(poses)

    def read(self) -> Mapping[str, Pose]:
        """Ask the tracker."""
        return self._tracker.read()

    def close(self) -> None:
        """Stop listening."""
        self._tracker.close()


class BenchOperator(Operator):
    """Agrees to everything, and takes what the gripper holds out of it.

    Args:
        say: What to do with what is said.
    """

    def __init__(self, standin: Standin, say: Callable[[str], None]) -> None:
        self._standin, self._say = standin, say
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Pass it on."""
        self.said.append(text)
        self._say(text)

    def stop_wanted(self) -> bool:
        """Never."""
        return False

    def agree(self, what: str) -> None:
        """Agree."""

    def take(self, what: str) -> None:
        """Put every object aside."""
        for name in self._standin.config.objects:
            self._standin.place(name, ASIDE)

    def require_keys(self) -> None:
        """Nothing is asked for."""

    def next_periods(self, per_second: int) -> int:
        """Let the arm move for a second."""
        return per_second


def quaternion(rotation: Array) -> tuple[float, float, float, float]:
    """Compute the unit quaternion (w, x, y, z) of a rotation (3, 3) (Shepperd 1978, by the largest component)."""
    m = rotation
    squares = (
        1 + m[0, 0] + m[1, 1] + m[2, 2],
        1 + m[0, 0] - m[1, 1] - m[2, 2],
        1 - m[0, 0] + m[1, 1] - m[2, 2],
        1 - m[0, 0] - m[1, 1] + m[2, 2],
    )
    largest = max(range(4), key=lambda index: squares[index])
    sums = (
        (squares[0], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]),
        (m[2, 1] - m[1, 2], squares[1], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]),
        (m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], squares[2], m[1, 2] + m[2, 1]),
        (m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], squares[3]),
    )[largest]
    scale = 2 * squares[largest] ** 0.5
    w, x, y, z = (float(value) / scale for value in sums)
    return w, x, y, z
