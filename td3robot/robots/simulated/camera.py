"""The objects of a simulated cell as a real camera sees them."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from td3robot.geometry import rotation_matrix
from td3robot.jit import kernel
from td3robot.robots.objects import Objects, Sighting
from td3robot.robots.simulated.disturbed import DisturbedRobot
from td3robot.row_math import apart
from td3robot.state import Array, Pose


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame: the poses of the objects in view, by name."""

    exposed_s: float
    due_s: float
    poses: Mapping[str, Pose]


@kernel
def between(before: Array, after: Array, share: float) -> Array:
    """Return the point (3,) at a share of the way between two."""
    point = np.empty(3)
    for axis in range(3):
        point[axis] = before[axis] + share * (after[axis] - before[axis])
    return point


@kernel
def seen_from(frame: Array, offset: Array, turn: float, position: Array, rotation: Array) -> tuple[Array, Array]:
    """Return where a camera with a calibration error sees a pose, in the base frame.

    Args:
        frame: (3, 3) rotation of the calibration.
        offset: (3,) its offset, with noise [m].
        turn: By how much the object appears turned about the vertical [rad].
        position: (3,) true position [m].
        rotation: (3, 3) true rotation.
    """
    seen, turned, c, s = offset.copy(), np.zeros((3, 3)), np.cos(turn), np.sin(turn)
    for axis in range(3):
        for k in range(3):
            seen[axis] += frame[axis, k] * position[k]
            for column in range(3):
                turned[axis, column] += frame[axis, k] * rotation[k, column]
    for column in range(3):
        x, y = turned[0, column], turned[1, column]
        turned[0, column], turned[1, column] = c * x - s * y, s * x + c * y
    return seen, turned


class Camera(Objects):
    """See objects at the camera's own rate, late, noisily, with calibration errors, and not through the hand.

    Rate, latency, jitter, the share of lost frames, how much the hand hides, and the calibration's rotation and offset
    are drawn for each episode.
    """

    def __init__(self, objects: Objects, robot: DisturbedRobot) -> None:
        self._objects, self._robot = objects, robot

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the objects for the start of an episode, and draw the camera; its first frame has just arrived."""
        c, rng = self._robot.config, self._robot.rng
        self._offset = rng.uniform(-c.object_offset_m, c.object_offset_m, 3)
        self._turn = rng.uniform(-c.object_turn_rad, c.object_turn_rad)
        self._frame = rotation_matrix(rng.uniform(-c.camera_turn_rad, c.camera_turn_rad, 3))
        self._latency = rng.uniform(*c.camera_latency_s)
        self._jitter = rng.uniform(0.0, c.camera_jitter_s)
        self._drop = rng.uniform(0.0, c.camera_drop)
        self._hidden = rng.uniform(*c.camera_hidden_m)
        self._interval = None if c.camera_rate_hz is None else 1.0 / rng.uniform(*c.camera_rate_hz)
        lying = self._objects.arrange(poses)
        now = self._robot.now()
        self._before_s, self._before_tool, self._before_poses = now, self._tool(), lying
        self._next_s = now + (0.0 if self._interval is None else rng.uniform(0.0, self._interval))
        self._coming: deque[_Frame] = deque()
        self._seen = {name: (self._measured(pose, rng), now - self._latency) for name, pose in lying.items()}
        self._numbers = dict.fromkeys(lying, 1)
        return lying

    def read(self) -> Mapping[str, Sighting]:
        """Expose the frames of the last period, and return what has arrived of them and of earlier ones."""
        now, tool, poses = self._robot.now(), self._tool(), self._objects.truth()
        assert poses is not None
        if self._interval is None:
            self._expose(now, tool, poses)
        else:
            while self._next_s <= now:
                share = (self._next_s - self._before_s) / max(now - self._before_s, 1e-9)
                self._expose(
                    self._next_s,
                    between(self._before_tool, tool, share),
                    # The rotation is that of the end of the period.
                    {
                        name: Pose(between(self._before_poses[name].position, pose.position, share), pose.rotation)
                        for name, pose in poses.items()
                    },
                )
                self._next_s += self._interval
        self._before_s, self._before_tool, self._before_poses = now, tool, poses
        while self._coming and self._coming[0].due_s <= now + 1e-9:
            frame = self._coming.popleft()
            for name, pose in frame.poses.items():
                self._seen[name] = pose, frame.exposed_s
                self._numbers[name] += 1
        return {
            name: Sighting(pose, now - exposed, self._numbers[name]) for name, (pose, exposed) in self._seen.items()
        }

    def truth(self) -> Mapping[str, Pose] | None:
        """Return the true poses of the objects."""
        return self._objects.truth()

    def close(self) -> None:
        """Release the wrapped objects."""
        self._objects.close()

    def _tool(self) -> Array:
        return self._robot.robot.tool_position()

    def _expose(self, at: float, tool: Array, poses: Mapping[str, Pose]) -> None:
        rng = self._robot.rng
        late = self._latency + rng.uniform(0.0, self._jitter)
        if rng.random() < self._drop:
            return
        seen = {
            name: self._measured(pose, rng)
            for name, pose in poses.items()
            if apart(pose.position, tool) >= self._hidden
        }
        # Frames are processed in order.
        due = max(at + late, self._coming[-1].due_s if self._coming else -inf)
        self._coming.append(_Frame(at, due, seen))

    def _measured(self, pose: Pose, rng: np.random.Generator) -> Pose:
        c = self._robot.config
        offset = self._offset + rng.normal(0.0, c.object_noise_m, 3)
        turn = self._turn + rng.normal(0.0, c.object_turn_noise_rad)
        return Pose(*seen_from(self._frame, offset, turn, pose.position, pose.rotation))
