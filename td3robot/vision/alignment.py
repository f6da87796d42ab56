"""The pose of an object at which its printed tags look most like what the camera sees.

A tag of 25 pixels has corners that no detector finds to better than half a pixel. All its edges together place it to a
few hundredths: from a first guess, Gauss and Newton's method moves the pose until all visible faces match the print
(Lucas and Kanade 1981; Baker and Matthews 2004). Brightness and contrast of each face are free, and samples
that do not fit, such as a finger in front, count little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import rotation_matrix
from td3robot.state import Array, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.residuals import blur_kernel, compare, slopes, view_of
from td3robot.vision.tags import BITS, MARGIN_BITS, Image, Tag, tag_image

# Samples along one bit of a tag, those within this distance of its centre [bits], and the print's pixels along a bit.
SAMPLES, REACH_BITS, FINE = 2, 4.3, 4
MOST_BLUR = 15  # how far it reaches on a print, at most [pixels of the print]
# What a sensor's pixels and the samples between them blur anyway, what a lens may add, and how much that changes
# from one picture to the next [pixels].
SENSOR_PX, LENSES_PX, LENS_STEP_PX = 0.45, (0.3, 0.6, 0.9, 1.2), 0.2
# Blur of the picture for the first steps, which get there from further away [pixels], and how many steps each takes.
COARSE_PX, COARSE_STEPS, FINE_STEPS = 1.2, 4, 6
# A step below this ends a fit [m, rad]; the next would be far smaller.
ARRIVED = 4e-5
# A face is used if it looks at the camera at least this much (cosine), and is at least this alike.
LEAST_COSINE, LEAST_ALIKE = 0.15, 0.6
# How a pose may move: where it lies, along the table and about the vertical; else, in all directions.
LYING, FREE = (0, 1, 5), (0, 1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Print:
    """What is printed on a face.

    Attributes:
        points_m: Samples (n, 3) in the object's frame [m].
        pixels: Where they are in ``image``, x and y, (n,) each.
        image: The print, sharp, with :data:`FINE` pixels to a bit.
        centre_m: (3,) the face's centre [m].
        bit_m: (2, 3) one bit to the right, and one down.
        normal: (3,) out of the face.
    """

    points_m: Array
    pixels: tuple[NDArray[np.float32], NDArray[np.float32]]
    image: NDArray[np.float32]
    centre_m: Array
    bit_m: Array
    normal: Array


class _Level(NamedTuple):
    """The picture around an object at one blur, its gradients along x and y, and the pixel at its corner."""

    image: NDArray[np.float32]
    dx: NDArray[np.float32]
    dy: NDArray[np.float32]
    corner: Array


class _Scene(NamedTuple):
    """What does not change during the steps of a fit."""

    camera: Camera
    place: Pose
    faces: dict[int, Print]
    movable: Sequence[int]
    level: _Level


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of an alignment.

    Attributes:
        pose: The object's, in the base frame.
        alike: How alike the faces used are to their print, by tag: 1 is the same, 0 is unrelated.
        mismatch: Mean square of what does not fit, in units of a face's variance.
        deviation: (6,) standard deviations that noise gives the pose [m, rad]; 0 for what could not move.
        lens_px: The blur of the lens that it was compared with [pixels].
    """

    pose: Pose
    alike: dict[int, float]
    mismatch: float
    deviation: Array
    lens_px: float


def prints(tags: Sequence[Tag]) -> dict[int, Print]:
    """Return what is printed on each tag."""
    whole = BITS + 2 * MARGIN_BITS
    steps = (np.arange(whole * SAMPLES) + 0.5) / SAMPLES - whole / 2
    x, y = (part.ravel() for part in np.meshgrid(*[steps[np.abs(steps) < REACH_BITS]] * 2))
    pixels = tuple(((part + whole / 2) * FINE - 0.5).astype(np.float32) for part in (x, y))
    found = {}
    for tag in tags:
        bit_m = tag.size_m / BITS * np.array([tag.rotation[:, 0], -tag.rotation[:, 1]])
        points = tag.centre_m + np.column_stack((x, y)) @ bit_m
        image = tag_image(tag.id, FINE).astype(np.float32) / 255.0
        found[tag.id] = Print(points, (pixels[0], pixels[1]), image, tag.centre_m, bit_m, tag.rotation[:, 2])
    return found


def _levels(
    camera: Camera, place: Pose, faces: dict[int, Print], used: list[int], pose: Pose, blur_px: float
) -> dict[int, Array]:
    """Return the brightness (n,) of each face's samples, as blurred in the picture [pixels]."""
    found = {}
    for tag in used:
        face = faces[tag]
        ends = face.centre_m + np.array([np.zeros(3), *face.bit_m])
        view = view_of(ends, pose, place)
        assert view is not None  # it faces the camera
        across = (view.seen[1:] - view.seen[0]).T * camera.K[[0, 1], [0, 1]][:, None]  # pixels for bits right and down
        blur = blur_kernel(across / FINE, blur_px, MOST_BLUR)
        blurred = cv2.filter2D(face.image, -1, blur, borderType=cv2.BORDER_REPLICATE)
        found[tag] = cv2.remap(blurred, *face.pixels, cv2.INTER_LINEAR).ravel().astype(np.float64)
    return found


def fit_corners(
    camera: Camera, place: Pose, points_m: Array, normalized: Array, pose: Pose, movable: Sequence[int], steps: int = 10
) -> tuple[Pose, float]:
    """Move a pose until points are seen where they were found.

    Args:
        camera: The lens.
        place: The camera's pose in the base frame.
        points_m: (n, 3) in the object's frame.
        normalized: (n, 2) where they were found, without lens, at a distance of 1.
        pose: The first guess, in the base frame.
        movable: :data:`LYING` or :data:`FREE`.
        steps: The most steps.

    Returns:
        The pose, and the root mean square of the remaining error [pixels].
    """
    axes, ones, zeros = np.array(movable), np.ones(len(points_m)), np.zeros(len(points_m))
    for _ in range(steps):
        view = view_of(points_m, pose, place)
        if view is None:
            return pose, np.inf
        error = (normalized - view.seen).T.ravel()
        across = slopes(*view, place.rotation, axes, ones, zeros)
        down = slopes(*view, place.rotation, axes, zeros, ones)
        J = np.concatenate((across, down), axis=1).T
        step = np.asarray(np.linalg.solve(J.T @ J + 1e-12 * np.eye(len(axes)), J.T @ error), np.float64)
        step *= min(1.0, 0.5 / max(float(np.abs(step[-1:]).max()), 1e-9))
        pose = _moved(pose, step, movable)
        if float(np.abs(step).max()) < ARRIVED:
            break
    view = view_of(points_m, pose, place)
    if view is None:
        return pose, np.inf
    return pose, float(np.sqrt(np.mean(np.sum((normalized - view.seen) ** 2, axis=1)))) * float(camera.K[0, 0])


def align(
    camera: Camera,
    place: Pose,
    faces: dict[int, Print],
    known: Sequence[int],
    grey: Image,
    pose: Pose,
    movable: Sequence[int],
    lens_px: float | None = None,
    is_sure: bool = False,
) -> Fit | None:
    """Move a pose until the visible faces look like their print, or return None if they do not.

    Args:
        camera: The lens.
        place: The camera's pose in the base frame.
        faces: What is printed on the object, by tag.
        known: The tags that were detected; the others count once they look like their print.
        grey: (height, width) the picture.
        pose: The first guess, within about a bit of a tag.
        movable: :data:`LYING` or :data:`FREE`.
        lens_px: Blur of the lens, if it is about known [pixels]; the first guess must be near then.
        is_sure: Whether to keep that blur.
    """
    window = _window(camera, place, faces, _facing(faces, pose, place), pose, grey)
    if window is None:
        return None
    scene = _Scene(camera, place, faces, movable, _blurred(grey, window, 0.0))
    if lens_px is None:
        coarse = scene._replace(level=_blurred(grey, window, COARSE_PX))
        found = _descend(coarse, list(known), pose, float(np.hypot(COARSE_PX, LENSES_PX[1])), COARSE_STEPS)
        if found is None:
            return None
        pose = found.pose
    lens = LENSES_PX[1] if lens_px is None else lens_px
    if is_sure:
        return _descend(scene, _alike(scene, pose, lens), pose, lens, 2 * FINE_STEPS)
    found = _descend(scene, _alike(scene, pose, lens), pose, lens, FINE_STEPS)
    if found is None:
        return None
    used = _alike(scene, found.pose, lens)
    lenses = LENSES_PX if lens_px is None else (max(lens - LENS_STEP_PX, 0.1), lens, lens + LENS_STEP_PX)
    tried = [fit for blur in lenses if (fit := _descend(scene, used, found.pose, blur, 0)) is not None]
    return _descend(scene, used, found.pose, _sharpest(tried), FINE_STEPS) if len(tried) > 2 else None


def _sharpest(tried: Sequence[Fit]) -> float:
    """Return the blur of a lens with the least mismatch, by the parabola through the three least of some fits."""
    near = sorted(sorted(tried, key=lambda fit: fit.mismatch)[:3], key=lambda fit: fit.lens_px)
    a, b, _ = np.polyfit([fit.lens_px for fit in near], [fit.mismatch for fit in near], 2)
    best = -b / (2.0 * a) if a > 0.0 else min(tried, key=lambda fit: fit.mismatch).lens_px
    return float(np.clip(best, near[0].lens_px, near[-1].lens_px))


def _alike(scene: _Scene, pose: Pose, lens_px: float) -> list[int]:
    """Return the tags of the visible faces that look like their print."""
    found = _descend(scene, _facing(scene.faces, pose, scene.place), pose, lens_px, 0)
    return [] if found is None else [tag for tag, alike in found.alike.items() if alike >= LEAST_ALIKE]


def _descend(scene: _Scene, used: list[int], pose: Pose, lens_px: float, steps: int) -> Fit | None:
    """Take some steps with some faces, and return where they end."""
    if not used:
        return None
    levels = _levels(scene.camera, scene.place, scene.faces, used, pose, float(np.hypot(SENSOR_PX, lens_px)))
    for _ in range(steps):
        result = _step(scene, levels, pose, lens_px)
        if result is None:
            return None
        pose = _moved(pose, result[0], scene.movable)
        if float(np.abs(result[0]).max()) < ARRIVED:
            break
    result = _step(scene, levels, pose, lens_px)
    return None if result is None else result[1]


def _facing(faces: dict[int, Print], pose: Pose, place: Pose) -> list[int]:
    """Return the tags whose faces look at the camera."""
    found = []
    for tag, face in faces.items():
        way = place.position - (pose.position + pose.rotation @ face.centre_m)
        if float(way @ (pose.rotation @ face.normal)) > LEAST_COSINE * float(np.linalg.norm(way)):
            found.append(tag)
    return found


def _window(
    camera: Camera, place: Pose, faces: dict[int, Print], used: list[int], pose: Pose, grey: Image
) -> tuple[int, int, int, int] | None:
    """Return left, top, right and bottom of the part of the picture with some faces; None if there is none."""
    if not used:
        return None
    points = np.concatenate([faces[tag].points_m for tag in used])
    inside = (points @ pose.rotation.T + pose.position - place.position) @ place.rotation
    if inside[:, 2].min() <= 0.01:
        return None
    pixels = camera.project(inside)
    low, high = pixels.min(axis=0), pixels.max(axis=0)
    reach = 8.0 + 0.25 * (high - low)
    left, top = np.maximum(np.floor(low - reach), 0).astype(int)
    right, bottom = np.minimum(np.ceil(high + reach), [grey.shape[1], grey.shape[0]]).astype(int)
    return (left, top, right, bottom) if right - left > 8 and bottom - top > 8 else None


def _blurred(grey: Image, window: tuple[int, int, int, int], blur: float) -> _Level:
    left, top, right, bottom = window
    image = grey[top:bottom, left:right].astype(np.float32)
    if blur:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), blur), np.float32)
    dx = np.asarray(cv2.Scharr(image, cv2.CV_32F, 1, 0, scale=1 / 32), np.float32)
    dy = np.asarray(cv2.Scharr(image, cv2.CV_32F, 0, 1, scale=1 / 32), np.float32)
    return _Level(image, dx, dy, np.array([left, top], np.float64))


def _step(scene: _Scene, levels: dict[int, Array], pose: Pose, lens_px: float) -> tuple[Array, Fit] | None:
    """Compute the next step (k,), and how well the faces fit where they are now."""
    camera, place, faces, movable, level = scene
    used = list(levels)
    view = view_of(np.concatenate([faces[tag].points_m for tag in used]), pose, place)
    if view is None:
        return None
    x, y = (_distorted(camera, view.seen) - level.corner).T.astype(np.float32)
    image, dx, dy = (cv2.remap(part, x, y, cv2.INTER_LINEAR).ravel().astype(np.float64) for part in level[:3])
    J = slopes(*view, place.rotation, np.array(movable), dx * camera.K[0, 0], dy * camera.K[1, 1])
    normal, right = np.zeros((len(movable),) * 2), np.zeros(len(movable))
    alike: dict[int, float] = {}
    total = weights = 0.0
    start = 0
    for tag in used:
        end = start + len(levels[tag])
        squares, weight, alike[tag] = compare(image[start:end], levels[tag], J[:, start:end], normal, right)
        total, weights, start = total + squares, weights + weight, end
    try:
        covariance = np.linalg.inv(normal + 1e-9 * np.diag(np.diag(normal)) + 1e-12 * np.eye(len(normal)))
    except np.linalg.LinAlgError:
        return None
    mismatch = total / weights
    deviation = np.zeros(6)
    deviation[list(movable)] = np.sqrt(np.maximum(np.diag(covariance), 0.0) * mismatch)
    return covariance @ right, Fit(pose, alike, mismatch, deviation, lens_px)


def _distorted(camera: Camera, seen: Array) -> Array:
    if not np.any(camera.D):
        return seen * camera.K[[0, 1], [0, 1]] + camera.K[:2, 2]
    return camera.project(np.column_stack((seen, np.ones(len(seen)))))


def _moved(pose: Pose, step: Array, movable: Sequence[int]) -> Pose:
    whole = np.zeros(6)
    whole[list(movable)] = step
    return Pose(pose.position + whole[:3], rotation_matrix(whole[3:]) @ pose.rotation)
