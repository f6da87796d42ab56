"""A calibrated camera: how it maps points to pixels, where it is, how fast and how late it sees.

A camera's axes are OpenCV's: x right, y down, z forward. A pixel's coordinates are those of its centre.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import yaml
from pydantic import Field, model_validator

from td3robot.atomic import write_text
from td3robot.config.loading import read_section
from td3robot.config.section import Section, Vector3
from td3robot.geometry import UNIT_TOLERANCE, quaternion, rotation_of
from td3robot.state import Array, Pose

Row = tuple[float, float, float]
# Lengths of OpenCV's models of distortion that have a meaning here.
DISTORTIONS = (0, 4, 5, 8)


class PoseFigures(Section):
    """How well a calibration of a camera's place fits.

    Attributes:
        date: When it was made.
        mode: How: ``touch``, ``carry`` or ``wrist``.
        used: How many poses or tags it is from.
        residual_mm, residual_deg: What does not fit, root mean square.
        deviation_mm: Standard deviation of what is seen where the target was.
        check_mm: How far one more pose or tag, which was not used, is from where the calibration puts it.
    """

    date: str
    mode: str
    used: int
    residual_mm: float
    residual_deg: float
    deviation_mm: float
    check_mm: float | None = None


class LensFigures(Section):
    """How well a calibration of a lens fits.

    Attributes:
        date: When it was made.
        source: The camera's number, file or URL.
        views: How many views of the board it is from.
        misfit_px: What does not fit, root mean square [pixels].
        coverage: Share of the picture's cells in which the board was seen.
    """

    date: str
    source: str
    views: int
    misfit_px: float
    coverage: float


class CameraPose(Section):
    """Where a camera is.

    Attributes:
        mount: ``base`` for a camera that stands in the cell, ``flange`` for one on the arm.
        position_m: Its optical centre in the frame of its mount [m].
        quaternion_wxyz: Rotation of its axes in that frame.
        figures: How well its calibration fits, if it has one.
    """

    mount: Literal["base", "flange"] = "base"
    position_m: Vector3
    quaternion_wxyz: tuple[float, float, float, float]
    figures: PoseFigures | None = None

    @model_validator(mode="after")
    def _is_unit(self) -> Self:
        length = float(np.linalg.norm(self.quaternion_wxyz))
        if abs(length - 1.0) > UNIT_TOLERANCE:
            raise ValueError(f"quaternion_wxyz has length {length:.3f}, not 1")
        return self

    @classmethod
    def of(cls, pose: Pose, mount: Literal["base", "flange"] = "base") -> "CameraPose":
        """Return the section of a pose."""
        x, y, z = pose.position.tolist()
        w, i, j, k = quaternion(pose.rotation).tolist()
        return cls(mount=mount, position_m=(x, y, z), quaternion_wxyz=(w, i, j, k))

    @property
    def pose(self) -> Pose:
        """The pose in the frame of the mount."""
        wxyz = np.array(self.quaternion_wxyz)
        return Pose(np.array(self.position_m), rotation_of(wxyz / np.linalg.norm(wxyz)))


class Camera(Section):
    """A camera, as its file has it.

    Attributes:
        width, height: Size of its frames [pixels].
        matrix: Its three rows: focal lengths and principal point [pixels].
        distortion: OpenCV's k1, k2, p1, p2 and so on; none for a perfect lens.
        lens: How well the calibration of matrix and distortion fits, if it has one.
        pose: Where it is, once calibrated against the arm.
        rate_hz: Frames a second to ask for.
        latency_s: Time from the middle of the exposure until a program has the frame, where the frame does not say.
    """

    width: Annotated[int, Field(ge=64, le=16384)]
    height: Annotated[int, Field(ge=64, le=16384)]
    matrix: tuple[Row, Row, Row]
    distortion: tuple[float, ...] = ()
    lens: LensFigures | None = None
    pose: CameraPose | None = None
    rate_hz: Annotated[float, Field(ge=1.0, le=1000.0)] = 30.0
    latency_s: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0

    @model_validator(mode="after")
    def _is_a_lens(self) -> Self:
        (fx, skew, cx), (zero, fy, cy), last = self.matrix
        if skew != 0.0 or zero != 0.0 or last != (0.0, 0.0, 1.0):
            raise ValueError("matrix must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels")
        for name, focal, length in (("fx", fx, self.width), ("fy", fy, self.height)):
            if not 0.1 * length <= focal <= 50.0 * length:
                raise ValueError(f"matrix has {name} = {focal:g}, no focal length of a frame of {length} pixels")
        if not (0.0 <= cx < self.width and 0.0 <= cy < self.height):
            raise ValueError(f"matrix has its principal point at ({cx:g}, {cy:g}), outside of the frame")
        if len(self.distortion) not in DISTORTIONS:
            raise ValueError(f"distortion has {len(self.distortion)} values; OpenCV's models have {DISTORTIONS}")
        return self

    @property
    def K(self) -> Array:  # noqa: N802  # the field's name
        """The matrix (3, 3) [pixels]."""
        return np.array(self.matrix)

    @property
    def D(self) -> Array:  # noqa: N802  # the field's name
        """The distortion (k,), with at least four values."""
        return np.array(self.distortion or (0.0,) * 4)

    def project(self, points: Array) -> Array:
        """Return the pixels (n, 2) of points (n, 3) in the camera's frame [m]."""
        import cv2

        pixels, _ = cv2.projectPoints(points.reshape(-1, 1, 3), np.zeros(3), np.zeros(3), self.K, self.D)
        return np.asarray(pixels, np.float64).reshape(-1, 2)

    def normalized(self, pixels: Array) -> Array:
        """Return where the rays of pixels (n, 2) cut the plane at z = 1 of the camera's frame, (n, 2)."""
        import cv2

        found = cv2.undistortPoints(pixels.reshape(-1, 1, 2).astype(np.float64), self.K, self.D)
        return np.asarray(found, np.float64).reshape(-1, 2)


def load_camera(path: Path) -> Camera:
    """Read a camera's file.

    Raises:
        ConfigError: It cannot be read, or does not describe a camera.
    """
    return read_section(path, "camera", Camera)


def save_camera(path: Path, camera: Camera) -> None:
    """Write a camera's file."""
    write_text(path, yaml.safe_dump(camera.model_dump(mode="json"), sort_keys=False))


def looking_at(position: Array, target: Array) -> Pose:
    """Return the pose of a camera at a position (3,) that looks at a target (3,), upright, in the base frame [m]."""
    forward = (target - position) / np.linalg.norm(target - position)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    return Pose(position, np.column_stack((right, np.cross(forward, right), forward)))


def pinhole(width: int, height: int, vertical_field_rad: float, pose: Pose | None = None) -> Camera:
    """Return a camera without distortion, from its vertical field of view [rad]."""
    focal = height / 2.0 / np.tan(vertical_field_rad / 2.0)
    x, y = (width - 1) / 2.0, (height - 1) / 2.0
    matrix = ((focal, 0.0, x), (0.0, focal, y), (0.0, 0.0, 1.0))
    return Camera(width=width, height=height, matrix=matrix, pose=None if pose is None else CameraPose.of(pose))
