"""Where a camera in the cell is, from tags on the table whose centres were touched with the tool."""

from collections.abc import Mapping
from typing import NamedTuple

import cv2
import numpy as np
from scipy.optimize import least_squares

from td3robot.errors import CameraError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.state import Array, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.hand_eye import (
    MOST_MISFIT_PX,
    HandEye,
    Residual,
    covariance_of,
    deviations,
    nearest_rotation,
    require_agreement,
    require_known,
)
from td3robot.vision.tags import CORNERS

# Tags that have to be touched, and how far the nearest of them has to be from the line through the others [m].
LEAST_TAGS, LEAST_SPREAD_M = 3, 0.03
# How well a tag's centre is touched [m], and its corners are seen [pixels]: standard deviations.
TOUCH_M, CORNER_PX = 0.0005, 0.3


class _Scene(NamedTuple):
    """What is fitted: the camera's pose, the table's rotation, and of each tag the centre and its turn on the table."""

    camera: Pose
    table: Array
    centres: Array
    turns: Array

    def changed(self, change: Array) -> "_Scene":
        """Return the scene after a change (8 + 4 k,)."""
        own = change[8:].reshape(-1, 4)
        return _Scene(
            Pose(self.camera.position + change[3:6], self.camera.rotation @ rotation_matrix(change[:3])),
            self.table @ rotation_matrix([*change[6:8], 0.0]),
            self.centres + own[:, :3],
            self.turns + own[:, 3],
        )


def solve_touched(touched: Mapping[int, Array], corners: Mapping[int, Array], size_m: float, camera: Camera) -> HandEye:
    """Compute where a camera is from table tags that were touched, each to about half a millimetre.

    The tags lie flat on one table, turned any way.

    Args:
        touched: Where each tag's centre is (3,) in the base frame, by its number [m].
        corners: Where its corners are seen (4, 2) [pixels].
        size_m: Edge of the tags' black border.
        camera: The lens.

    Raises:
        CameraError: The tags do not tell, or disagree; says which, and what to do.
    """
    tags = sorted(touched)
    _require_tags(tags, touched, corners)
    centres = np.array([touched[tag] for tag in tags])
    pixels = np.array([corners[tag] for tag in tags])
    start = _first_guess(centres, pixels, size_m, camera)

    def _misfit(change: Array) -> Array:
        scene = start.changed(change)
        seen = camera.project((_corners(scene, size_m) - scene.camera.position) @ scene.camera.rotation)
        return np.concatenate(
            [(seen - pixels.reshape(-1, 2)).ravel() / CORNER_PX, (scene.centres - centres).ravel() / TOUCH_M]
        )

    found = least_squares(_misfit, np.zeros(8 + 4 * len(tags)), loss="soft_l1", x_scale="jac")
    scene = start.changed(found.x)
    away = np.linalg.norm(scene.centres - centres, axis=1).tolist()
    residuals = tuple(Residual(f"tag {tag}", distance, 0.0) for tag, distance in zip(tags, away, strict=True))
    middle = scene.centres.mean(axis=0)
    inside = (middle - scene.camera.position) @ scene.camera.rotation
    known = deviations(covariance_of(found.jac)[:6, :6], scene.camera.rotation, inside)
    result = HandEye("base", scene.camera, Pose(middle, scene.table), residuals, *known)
    require_agreement(result)
    _require_lens(_misfit(found.x)[: pixels.size] * CORNER_PX)
    require_known(result)
    return result


def missed_m(found: HandEye, camera: Camera, touched: Array, corners: Array) -> float:
    """Return how far a touched centre (3,) [m] is from where the camera sees the tag on the table [m]."""
    middle = camera.normalized(corners).mean(axis=0)
    ray = found.pose.rotation @ np.append(middle, 1.0)
    normal = found.target.rotation[:, 2]
    along = normal @ (touched - found.pose.position) / (normal @ ray)
    return float(np.linalg.norm(found.pose.position + along * ray - touched))


def _require_tags(tags: list[int], touched: Mapping[int, Array], corners: Mapping[int, Array]) -> None:
    if hidden := [tag for tag in tags if tag not in corners]:
        raise CameraError(f"tag {hidden[0]} was touched, and the camera does not see it; move the arm out of the way")
    if len(tags) < LEAST_TAGS:
        raise CameraError(f"{len(tags)} tags were touched, and at least {LEAST_TAGS} are needed; touch more")
    centres = np.array([touched[tag] for tag in tags])
    spread = np.linalg.svd(centres - centres.mean(axis=0), compute_uv=False)
    if spread[1] < LEAST_SPREAD_M:
        raise CameraError(
            f"the touched tags lie on one line (within {1e3 * spread[1]:.0f} mm, at least {1e3 * LEAST_SPREAD_M:g} are "
            "needed); touch one beside it"
        )


def _require_lens(misfits: Array) -> None:
    misfit = float(np.sqrt(np.mean(misfits**2)))
    if misfit > MOST_MISFIT_PX:
        raise CameraError(
            f"the tags' corners are {misfit:.1f} pixels from where the touched places put them (limit "
            f"{MOST_MISFIT_PX:g}); check the tags' size, the ruler on their sheet, and that the lens is this camera's"
        )


def _first_guess(centres: Array, pixels: Array, size_m: float, camera: Camera) -> _Scene:
    """Return the scene by each tag's own pose, and the plane through the touched points."""
    table = np.linalg.svd(centres - centres.mean(axis=0))[2].T
    if table[2, 2] < 0.0:
        table[:, 2] *= -1.0
    table[:, 1] = np.cross(table[:, 2], table[:, 0])
    square = np.pad(np.array(CORNERS) * size_m / 2, ((0, 0), (0, 1)))
    seen = [cv2.solvePnP(square, each, camera.K, camera.D, flags=cv2.SOLVEPNP_IPPE_SQUARE) for each in pixels]
    inside = np.array([np.ravel(shift) for _, _, shift in seen])
    both = (centres - centres.mean(axis=0)).T @ (inside - inside.mean(axis=0))
    rotation = nearest_rotation(both)
    pose = Pose(centres.mean(axis=0) - rotation @ inside.mean(axis=0), rotation)
    turns = [float(np.arctan2(*(table.T @ rotation @ cv2.Rodrigues(turn)[0][:, 0])[[1, 0]])) for _, turn, _ in seen]
    return _Scene(pose, table, centres, np.array(turns))


def _corners(scene: _Scene, size_m: float) -> Array:
    """Return the corners of all tags (4 k, 3) in the base frame [m]."""
    square = np.pad(np.array(CORNERS) * size_m / 2, ((0, 0), (0, 1)))
    return np.concatenate(
        [
            centre + square @ (scene.table @ about_vertical(turn)).T
            for centre, turn in zip(scene.centres, scene.turns.tolist(), strict=True)
        ]
    )
