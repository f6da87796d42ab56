"""Pictures of the printed board through any lens, by casting each pixel's ray: flat, bent, or of another size."""

import cv2
import numpy as np

from td3robot.geometry import rotation_matrix
from td3robot.state import Pose
from td3robot.vision.camera import pinhole
from td3robot.vision.tags import BOARD_SQUARE_M, BOARD_SQUARES, charuco_board

SIZE = np.array(BOARD_SQUARES) * BOARD_SQUARE_M
PIXELS_PER_M = 2000
LENS = pinhole(640, 480, np.radians(45.0)).model_copy(
    update={
        "matrix": ((590.0, 0.0, 326.0), (0.0, 588.0, 236.0), (0.0, 0.0, 1.0)),
        "distortion": (-0.25, 0.08, 0.001, -0.001),
    }
)
PRINT = charuco_board().generateImage(tuple((SIZE * PIXELS_PER_M).astype(int).tolist()))


class BoardPictures:
    """Draw the board.

    Args:
        camera: The lens.
        bend_m: How far the middle of the board is behind its two ends [m].
        scale: The true size of the print over the wanted one.
        noise: Standard deviation of the sensor's noise [of 255].
    """

    def __init__(self, camera=LENS, bend_m=0.0, scale=1.0, noise=2.0, seed=0):
        self.camera, self.bend, self.scale, self.noise = camera, bend_m, scale, noise
        self._rng = np.random.default_rng(seed)
        x, y = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
        pixels = np.column_stack((x.ravel(), y.ravel())).astype(float)
        self._rays = np.column_stack((camera.normalized(pixels), np.ones(len(pixels))))

    def draw(self, pose):
        """Return a picture of the board at a pose in the camera's frame."""
        rays, start = self._rays @ pose.rotation, -pose.rotation.T @ pose.position
        height = np.zeros(len(rays))
        for _ in range(2 if self.bend else 1):
            along = (height - start[2]) / rays[:, 2]
            points = start + along[:, None] * rays
            height = self.bend * (2 * (points[:, 0] / self.scale - SIZE[0] / 2) / SIZE[0]) ** 2
        sheet = points[:, :2] / self.scale * PIXELS_PER_M - 0.5
        columns, rows = (sheet[:, k].astype(np.float32).reshape(self.camera.height, -1) for k in (0, 1))
        seen = cv2.remap(PRINT, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=200)
        grey = cv2.GaussianBlur(seen.astype(np.float32) * 0.8 + 20.0, (0, 0), 0.7)
        return np.clip(grey + self.noise * self._rng.standard_normal(grey.shape), 0, 255).astype(np.uint8)


def held(x, y, z, *turn):
    """Return a pose with the board's middle at (x, y, z) in the camera's frame [m], turned by a rotation vector."""
    rotation = rotation_matrix(turn)
    return Pose(np.array([x, y, z]) - rotation @ np.array([*SIZE / 2, 0.0]), rotation)


def poses(count=16, seed=0, tilt=0.6):
    """Return poses all over the picture, each tilted to some side by up to so much [rad]."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        z = rng.uniform(0.35, 0.6)
        x, y = (
            0.32 * z * (-1) ** (number % 2) * rng.uniform(0.4, 1.1),
            0.26 * z * (-1) ** (number // 2 % 2) * rng.uniform(0.4, 1.1),
        )
        side = rng.uniform(0, 2 * np.pi)
        found.append(held(x, y, z, tilt * np.cos(side), tilt * np.sin(side), rng.uniform(-0.3, 0.3)))
    return found
