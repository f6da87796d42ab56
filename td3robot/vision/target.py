"""What a calibration looks at: a rigid set of points that a picture shows, the printed board or some tags."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from td3robot.errors import ConfigError, choose
from td3robot.state import Array, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.tags import CORNERS, Image, Tag, Tags, charuco_board, family

# Fewer corners than this are no view of a board.
LEAST_CORNERS = 8


@dataclass(frozen=True, slots=True)
class Points:
    """Points of a target that are seen in one picture.

    Attributes:
        ids: (n,) which points.
        points_m: (n, 3) where they are in the target's frame [m].
        pixels: (n, 2) where they are seen.
    """

    ids: NDArray[np.int64]
    points_m: Array
    pixels: Array

    def pose_in(self, camera: Camera, guess: Pose | None = None) -> Pose:
        """Return the target's pose in the camera's frame, near a guess if there is one."""
        if guess is None:
            _, turn, shift = cv2.solvePnP(self.points_m, self.pixels, camera.K, camera.D, flags=cv2.SOLVEPNP_SQPNP)
        else:
            turn, shift = cv2.Rodrigues(guess.rotation)[0], guess.position.reshape(3, 1).copy()
        turn, shift = cv2.solvePnPRefineLM(self.points_m, self.pixels, camera.K, camera.D, turn, shift)
        return Pose(np.ravel(shift).astype(np.float64), np.asarray(cv2.Rodrigues(turn)[0], np.float64))

    def misfit_px(self, camera: Camera, pose: Pose) -> float:
        """Return how far the points are from where they would be seen at a pose: the median, in pixels."""
        away = camera.project(self.points_m @ pose.rotation.T + pose.position) - self.pixels
        return float(np.median(np.linalg.norm(away, axis=1)))


class Target(ABC):
    """A rigid set of points.

    Attributes:
        title: What it is, for messages.
    """

    title: str

    @abstractmethod
    def find(self, image: Image) -> Points | None:
        """Return its points in a picture (height, width, 3) or (height, width), or None if too few are seen."""


class BoardTarget(Target):
    """The printed ChArUco board.

    Args:
        scale: The true size of its print over the wanted one.
    """

    title = "the board"

    def __init__(self, scale: float = 1.0) -> None:
        board = charuco_board(scale)
        self._corners = np.asarray(board.getChessboardCorners(), np.float64)
        self._detector = cv2.aruco.CharucoDetector(board)

    def find(self, image: Image) -> Points | None:
        """Return the inner corners of its squares."""
        corners, ids, _, _ = self._detector.detectBoard(_grey(image))
        if ids is None or len(ids) < LEAST_CORNERS:
            return None
        found = np.ravel(ids).astype(np.int64)
        pixels = np.asarray(corners, np.float64).reshape(-1, 2)
        return None if _are_on_a_line(self._corners[found]) else Points(found, self._corners[found], pixels)


class TagsTarget(Target):
    """Some tags that keep their places to each other: those of an object, or of the table.

    Args:
        tags: The tags.
        title: What they are on, for messages.
    """

    def __init__(self, tags: Sequence[Tag], title: str) -> None:
        self.title = title
        self._tags = {tag.id: tag for tag in tags}

    def find(self, image: Image) -> Points | None:
        """Return the corners of those tags that are seen."""
        seen = {tag: pixels for tag, pixels in find_tags(image).items() if tag in self._tags}
        if not seen:
            return None
        ids = np.array([4 * tag + corner for tag in seen for corner in range(len(CORNERS))], np.int64)
        points = np.concatenate([self._tags[tag].corners_m for tag in seen])
        return Points(ids, points, np.concatenate(list(seen.values())))


def target_of(name: str, tags: Tags, board_scale: float) -> Target:
    """Return a target by its name: ``board``, ``table`` for the tags on it, or an object of the tags file.

    Raises:
        ConfigError: There is none of that name.
    """
    if name == "board":
        return BoardTarget(board_scale)
    if name == "table" and tags.table:
        return TagsTarget(tags.of_table(), "the table's tags")
    if name in tags.objects:
        return TagsTarget(tags.of_object(name), repr(name))
    raise ConfigError(choose("target", name, ["board", *tags.objects, *(["table"] if tags.table else [])]))


def find_tags(image: Image) -> dict[int, Array]:
    """Return the corners (4, 2) of every tag in a picture, by its number, to a fraction of a pixel."""
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    parameters.relativeCornerRefinmentWinSize = 0.2
    corners, ids, _ = cv2.aruco.ArucoDetector(family(), parameters).detectMarkers(_grey(image))
    found = [] if ids is None else [int(tag) for tag in np.ravel(ids)]
    return {tag: np.asarray(pixels, np.float64).reshape(4, 2) for tag, pixels in zip(found, corners, strict=True)}


def _grey(image: Image) -> Image:
    return image if image.ndim == 2 else np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)


def _are_on_a_line(points: Array) -> bool:
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return bool(spread[1] < 0.05 * spread[0])
