"""A camera's lens from views of the printed board: focal lengths, principal point, distortion, and whether to trust it.

Zhang, "A flexible new technique for camera calibration" (2000), as OpenCV computes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from td3robot.errors import CameraError
from td3robot.state import Array
from td3robot.vision.camera import Camera, pinhole
from td3robot.vision.target import Points

# A calibration needs this many views, this many of them tilted by so much [rad], and corners in this share
# of the frame.
LEAST_VIEWS, LEAST_TILTED, TILTED_RAD, LEAST_COVERAGE = 10, 4, 0.26, 0.6
# With this much, further views change little: a live calibration ends.
ENOUGH_VIEWS, ENOUGH_TILTED, ENOUGH_COVERAGE = 20, 6, 0.75
# The frame's cells, along its width and height, of which some corner should be in each.
GRID = (6, 4)
# Root mean square of what does not fit, as a share of the frame's width, and how far the board may be from flat [m].
MOST_MISFIT_SHARE, MOST_BEND_M = 0.8 / 1280, 0.001
# A bend counts if it is this many of its standard deviations.
SIGNIFICANT = 5.0
# A view that fits this many times worse than most, and not to this [pixels], is left out, up to this share of them.
OUTLIER, OUTLIER_PX, OUTLIERS = 3.0, 0.5, 0.2
# The third coefficient of radial distortion is used if it makes the misfit less than this share.
THIRD_PAYS = 0.8
# The board rests if its corners move less than this between two frames [pixels]; a view is new if they moved by this
# share of the frame's width since every other.
REST_PX, NEW_SHARE = 1.0, 0.05
# A first guess of a camera's field of view, by which views are judged while they are taken [rad].
USUAL_FIELD_RAD = 0.7
MOST_VIEWS, SMALLEST_PX = 60, 64


@dataclass(frozen=True, slots=True)
class Lens:
    """A calibrated lens.

    Attributes:
        camera: The camera, without a pose.
        misfit_px: What does not fit, root mean square [pixels].
        view_misfits_px: The same for each view, those left out included.
        left_out: The views that did not fit and were left out, counted from 0.
        coverage: Share of the frame's cells with corners.
        tilted: How many views are tilted enough.
        bend_m: How far the board is from flat [m].
    """

    camera: Camera
    misfit_px: float
    view_misfits_px: tuple[float, ...]
    left_out: tuple[int, ...]
    coverage: float
    tilted: int
    bend_m: float


class ViewCollector:
    """Choose views from frames: those in which the board rests and shows something new.

    Args:
        width, height: Size of the frames [pixels].

    Raises:
        CameraError: They are too small.

    Attributes:
        views: What was chosen.
    """

    def __init__(self, width: int, height: int) -> None:
        if min(width, height) < SMALLEST_PX:
            raise CameraError(
                f"a picture of {width}x{height} pixels is too small (at least {SMALLEST_PX} on an edge); set a larger "
                "resolution"
            )
        self.width, self.height = width, height
        self.views: list[Points] = []
        self._before: Points | None = None
        self._usual = pinhole(width, height, USUAL_FIELD_RAD)

    def offer(self, found: Points | None, moves: bool = True) -> bool:
        """Take a frame's view if it is new, and at rest among frames that follow each other; return whether it was."""
        before, self._before = self._before, found
        if found is None or len(self.views) >= MOST_VIEWS:
            return False
        if moves and (before is None or _moved_px(before, found) > REST_PX):
            return False
        if any(_moved_px(view, found) < NEW_SHARE * self.width for view in self.views):
            return False
        self.views.append(found)
        return True

    @property
    def coverage(self) -> float:
        """The share of the frame's cells with corners."""
        return coverage(self.views, self.width, self.height)

    @property
    def tilted(self) -> int:
        """How many views are tilted, as well as it can be told without a calibration."""
        return sum(tilt(view, self._usual) > TILTED_RAD for view in self.views)

    @property
    def is_enough(self) -> bool:
        """Whether further views would change little."""
        return len(self.views) >= MOST_VIEWS or (
            len(self.views) >= ENOUGH_VIEWS and self.tilted >= ENOUGH_TILTED and self.coverage >= ENOUGH_COVERAGE
        )

    def advice(self) -> str:
        """Return in words what the next view should show."""
        if self.coverage < ENOUGH_COVERAGE:
            return f"show the board {_emptiest(self.views, self.width, self.height)} of the picture"
        if self.tilted < ENOUGH_TILTED:
            return "tilt the board by about 30 degrees, each time to another side"
        return "show the board nearer, further away and elsewhere"


def coverage(views: Sequence[Points], width: int, height: int) -> float:
    """Return the share of the frame's cells with corners."""
    return float(np.mean(cells(views, width, height) > 0))


def cells(views: Sequence[Points], width: int, height: int) -> Array:
    """Return how many corners are in each of the frame's cells, rows from the top, (4, 6)."""
    columns, rows = GRID
    found = np.zeros((rows, columns))
    for view in views:
        column, row = (view.pixels / (width, height) * GRID).astype(int).T
        np.add.at(found, (row.clip(0, rows - 1), column.clip(0, columns - 1)), 1)
    return found


def tilt(view: Points, camera: Camera) -> float:
    """Return the angle between the board and the plane of the picture [rad]; parallel ones hide the focal length."""
    return float(np.arccos(min(1.0, abs(view.pose_in(camera).rotation[2, 2]))))


def calibrate_lens(views: Sequence[Points], width: int, height: int) -> Lens:
    """Compute a lens from views of the board.

    Args:
        views: What was seen of the board.
        width: Of the frames [pixels].
        height: Of the frames [pixels].

    Raises:
        CameraError: The views do not tell, or do not fit; says why and what to do.
    """
    _require_views(views, width, height)
    misfits = _fit(views, width, height)[2]
    most = max(OUTLIER_PX, OUTLIER * float(np.median(misfits)))
    bad = [number for number, misfit in enumerate(misfits) if misfit > most]
    used = [view for number, view in enumerate(views) if number not in bad]
    if len(used) < LEAST_VIEWS or len(bad) > OUTLIERS * len(views):
        bad, used = [], list(views)
    camera, misfit, _, deviation = _fit(used, width, height)
    share = coverage(used, width, height)
    tilted = sum(tilt(view, camera) > TILTED_RAD for view in used)
    if tilted < LEAST_TILTED:
        raise CameraError(
            f"only {tilted} of {len(used)} views are tilted by more than {np.degrees(TILTED_RAD):.0f} degrees (at "
            f"least {LEAST_TILTED} are needed), so the focal length cannot be told from the distance; tilt the board "
            "to every side"
        )
    bend = _bend(used, camera)
    if bend > MOST_BEND_M:
        raise CameraError(
            f"the board is not flat: it bends by {1e3 * bend:.1f} mm (limit {1e3 * MOST_BEND_M:g}); glue it on a flat "
            "plate, and take the views again"
        )
    if misfit > (limit := MOST_MISFIT_SHARE * width):
        worst = int(np.argmax(misfits))
        raise CameraError(
            f"the views fit one lens to {misfit:.2f} pixels only (limit {limit:.2g}), the worst, view "
            f"{worst + 1}, to {misfits[worst]:.1f}; hold the board still, add light, switch autofocus and zoom off, "
            "and take the views again"
        )
    if deviation > 0.01:
        raise CameraError(
            f"the focal length is known to {100 * deviation:.1f} % only (limit 1 %); show the board larger, and "
            "tilted by 30 degrees to every side"
        )
    return Lens(camera, misfit, tuple(misfits), tuple(bad), share, tilted, bend)


def _require_views(views: Sequence[Points], width: int, height: int) -> None:
    if len(views) < LEAST_VIEWS:
        raise CameraError(
            f"{len(views)} different views of the board were found, and a calibration needs at least {LEAST_VIEWS}; "
            "show it whole, at rest, each time elsewhere and tilted to another side"
        )
    if (share := coverage(views, width, height)) < LEAST_COVERAGE:
        raise CameraError(
            f"the views cover {100 * share:.0f} % of the picture (at least {100 * LEAST_COVERAGE:.0f} % are needed), "
            "and where nothing was seen the lens is a guess; show the board "
            f"{_emptiest(views, width, height)} of the picture"
        )


def _fit(views: Sequence[Points], width: int, height: int) -> tuple[Camera, float, list[float], float]:
    """Return the camera, its misfit, that of each view, and the focal length's relative standard deviation."""
    two = _fit_with(views, width, height, cv2.CALIB_FIX_K3)
    three = _fit_with(views, width, height, 0)
    return three if three[1] < THIRD_PAYS * two[1] else two


def _fit_with(views: Sequence[Points], width: int, height: int, flags: int) -> tuple[Camera, float, list[float], float]:
    points = [view.points_m.astype(np.float32) for view in views]
    pixels = [view.pixels.astype(np.float32) for view in views]
    start, none = np.asarray(pinhole(width, height, USUAL_FIELD_RAD).K), np.zeros(5)
    try:
        misfit, K, D, _, _, deviations, _, each = cv2.calibrateCameraExtended(
            points, pixels, (width, height), start, none, flags=flags | cv2.CALIB_USE_INTRINSIC_GUESS
        )
        (fx, _, cx), (_, fy, cy), _ = K.tolist()
        matrix = ((fx, 0.0, cx), (0.0, fy, cy), (0.0, 0.0, 1.0))
        camera = Camera(width=width, height=height, matrix=matrix, distortion=tuple(np.ravel(D).tolist()))
    except (cv2.error, ValueError):
        raise CameraError(
            "no lens fits the views; are they all of one camera at one zoom and of the board that td3robot tags prints?"
        ) from None
    return camera, float(misfit), np.ravel(each).tolist(), float(np.max(np.ravel(deviations)[:2] / (fx, fy)))


def _bend(views: Sequence[Points], camera: Camera) -> float:
    """Return how far the board is from flat [m], as far as the views tell: one step of Gauss and Newton's method.

    Poses, lens and three curvatures of the board move together, since each may look like the other.
    """
    size = float(max(np.ptp(np.concatenate([view.points_m for view in views]), axis=0)))
    errors, shared, own = list[Array](), list[Array](), list[Array]()
    for view in views:
        pose = view.pose_in(camera)
        turn, shift = cv2.Rodrigues(pose.rotation)[0], pose.position
        seen, slopes = cv2.projectPoints(view.points_m, turn, shift, camera.K, camera.D)
        J = np.asarray(slopes, np.float64)
        error: Array = (view.pixels - seen.reshape(-1, 2)).ravel().astype(np.float64)
        errors.append(error)
        curved = []
        for height in _curves(view.points_m, size).T:
            raised = view.points_m + 1e-4 * np.column_stack((np.zeros((len(height), 2)), height))
            moved = cv2.projectPoints(raised, turn, shift, camera.K, camera.D)[0]
            curved.append((moved - seen).ravel() / 1e-4)
        shared.append(np.column_stack((np.array(curved).T, J[:, 6:])))
        own.append(J[:, :6])
    # What a view's own pose explains is taken out of it; the rest is shared.
    rows, rest = list[Array](), list[Array]()
    for misfit, common, pose_part in zip(errors, shared, own, strict=True):
        base = np.linalg.qr(pose_part)[0]
        rows.append(common - base @ (base.T @ common))
        rest.append(misfit - base @ (base.T @ misfit))
    A, b = np.concatenate(rows), np.concatenate(rest)
    scale = np.linalg.norm(A, axis=0) + 1e-12
    found = np.linalg.lstsq(A / scale, b, rcond=1e-9)[0]
    variance = float(np.mean((b - A / scale @ found) ** 2))
    deviation = np.sqrt(variance * np.diag(np.linalg.pinv((A / scale).T @ (A / scale)))[:3]) / scale[:3]
    curvature = found[:3] / scale[:3]
    if np.abs(curvature / np.maximum(deviation, 1e-12)).max() < SIGNIFICANT:
        return 0.0
    return _depth(curvature, views, size)


def _curves(points: Array, size: float) -> Array:
    """Return three curved surfaces over the board's points (n, 3): their heights (n, 3)."""
    x, y = points[:, :2].T / size
    return np.column_stack((x * x, x * y, y * y))


def _depth(curvature: Array, views: Sequence[Points], size: float) -> float:
    """Return the largest distance of a curved board from the plane through it [m]."""
    points = np.concatenate([view.points_m for view in views])
    height = _curves(points, size) @ curvature
    plane = np.column_stack((points[:, :2], np.ones(len(points))))
    return float(np.ptp(height - plane @ np.linalg.lstsq(plane, height, rcond=None)[0]))


def _moved_px(before: Points, now: Points) -> float:
    """Return how far the points that both have moved [pixels]; infinite if they have few in common."""
    _, a, b = np.intersect1d(before.ids, now.ids, return_indices=True)
    if len(a) < len(now.ids) / 2:
        return np.inf
    return float(np.mean(np.linalg.norm(before.pixels[a] - now.pixels[b], axis=1)))


def _emptiest(views: Sequence[Points], width: int, height: int) -> str:
    """Return in words the part of the frame with the fewest covered cells."""
    empty = cells(views, width, height) == 0
    rows, columns = empty.shape
    parts = {
        "at the top left": empty[: rows // 2, : columns // 2],
        "at the top right": empty[: rows // 2, columns // 2 :],
        "at the bottom left": empty[rows // 2 :, : columns // 2],
        "at the bottom right": empty[rows // 2 :, columns // 2 :],
    }
    return max(parts, key=lambda name: int(parts[name].sum()))
