"""Where a camera is relative to an arm: from poses of the tool and what was seen of a target, or from touched tags.

The camera stands in the cell and the gripper carries the target, or the camera is on the flange and the target lies in
the cell. Either way, a point p of the target is seen at ``X^-1 M_i Y p``: X is the camera's pose on its mount, Y the
target's pose on the other side, and M_i the other side's pose on the mount's in pose i of the arm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from td3robot.errors import CameraError
from td3robot.geometry import angle_of, compose, inverse, rotation_matrix, rotation_vector
from td3robot.state import Array, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.target import Points

Mount = Literal["base", "flange"]
# Poses that are needed, and how far they have to turn about a second axis, root mean square over all pairs [rad].
LEAST_POSES, LEAST_TURN_RAD = 5, 0.1
# A pose disagrees if it is off by this many times the median, and by this [m]; all may be off by this, rms [m].
OUTLIER, OUTLIER_M, MOST_RESIDUAL_M = 4.0, 0.003, 0.004
# A target that looks larger or smaller by this share was printed so; a lens whose focal length is off by this share, or
# its radial distortion by this, is another one. Each counts if it is this many of its standard deviations.
MOST_SCALE, MOST_FOCAL, MOST_BENT, SIGNIFICANT = 0.01, 0.03, 0.05, 4.0
# A target's points fit its own pose to this [pixels], unless the lens is another one.
MOST_MISFIT_PX = 1.5
# Errors larger than this count less while fitting [pixels].
ROBUST_PX = 1.0
# Standard deviation of a normal distribution over its median absolute deviation.
NORMAL = 1.4826
# How well it has to be known where something that is seen is, and how the camera is turned: deviations [m, rad].
MOST_DEVIATION_M, MOST_DEVIATION_RAD = 0.004, 0.012


@dataclass(frozen=True, slots=True)
class Sighting:
    """One pose of the arm, and what the camera saw.

    Attributes:
        name: Names it in messages.
        flange: The flange's pose in the base frame.
        seen: The target's points.
    """

    name: str
    flange: Pose
    seen: Points


@dataclass(frozen=True, slots=True)
class Residual:
    """How far one pose or tag is from where all together put it.

    Attributes:
        name: Which one.
        distance_m: Across the line of sight, at the target's distance [m].
        angle_rad: The target's rotation [rad]; 0 for a tag that was touched.
    """

    name: str
    distance_m: float
    angle_rad: float


@dataclass(frozen=True, slots=True)
class HandEye:
    """Where a camera is.

    Attributes:
        mount: What the pose is relative to.
        pose: The camera's, on its mount.
        target: The target's pose on the other side: on the flange, or in the base frame.
        residuals: One for each pose.
        deviation_m: Standard deviation of what the camera sees where the target was.
        deviation_rad: Standard deviation of the camera's rotation.
    """

    mount: Mount
    pose: Pose
    target: Pose
    residuals: tuple[Residual, ...]
    deviation_m: float
    deviation_rad: float

    @property
    def residual_m(self) -> float:
        """Root mean square of the residuals' distances [m]."""
        return float(np.sqrt(np.mean([residual.distance_m**2 for residual in self.residuals])))

    @property
    def residual_rad(self) -> float:
        """Root mean square of the residuals' angles [rad]."""
        return float(np.sqrt(np.mean([residual.angle_rad**2 for residual in self.residuals])))

    def residual(self, camera: Camera, sighting: Sighting) -> Residual:
        """Return how far a pose, perhaps one that was not used, is from where this calibration puts it."""
        return _residual(camera, sighting, _seen_pose(self.mount, self.pose, sighting, self.target))


def solve(sightings: Sequence[Sighting], camera: Camera, mount: Mount) -> HandEye:
    """Compute where a camera is from poses of the arm.

    Args:
        sightings: The poses.
        camera: The lens.
        mount: ``base`` if the camera stands in the cell and the flange carries the target; ``flange`` if the camera is
            on the flange and the target lies in the cell.

    Raises:
        CameraError: The poses do not tell, or disagree; says which, and what to do.
    """
    _require_turns(sightings)
    _require_lens(sightings, camera)
    start = _first_guess(sightings, camera, mount)
    found = _found(sightings, camera, mount, _refine(sightings, camera, mount, *start))
    require_agreement(found)
    _require_sizes(_refine(sightings, camera, mount, found.pose, found.target, sizes=True))
    require_known(found)
    return found


def require_known(found: HandEye) -> None:
    """Refuse a calibration that leaves the camera's place open.

    Raises:
        CameraError: Naming how far.
    """
    if found.deviation_m > MOST_DEVIATION_M or found.deviation_rad > MOST_DEVIATION_RAD:
        raise CameraError(
            f"what the camera sees is known to {1e3 * found.deviation_m:.1f} mm and "
            f"{np.degrees(found.deviation_rad):.2f} degrees only (limits {1e3 * MOST_DEVIATION_M:g} mm and "
            f"{np.degrees(MOST_DEVIATION_RAD):.1f} degrees); add poses that turn further, or tags further apart"
        )


def _found(sightings: Sequence[Sighting], camera: Camera, mount: Mount, fit: "_Fit") -> HandEye:
    residuals = tuple(_residual(camera, each, _seen_pose(mount, fit.X, each, fit.Y)) for each in sightings)
    seen = np.mean([_seen_pose(mount, fit.X, each, fit.Y).position for each in sightings], axis=0)
    known = deviations(fit.covariance[:6, :6], fit.X.rotation, seen)
    return HandEye(mount, fit.X, fit.Y, residuals, *known)


def require_agreement(found: HandEye) -> None:
    """Refuse a calibration in which one pose or tag, or all, disagree.

    Raises:
        CameraError: Naming the worst.
    """
    distances = np.array([residual.distance_m for residual in found.residuals])
    worst, typical = int(distances.argmax()), float(np.median(distances))
    if distances[worst] > max(OUTLIER_M, OUTLIER * typical):
        name = found.residuals[worst].name
        raise CameraError(
            f"{name} disagrees by {1e3 * distances[worst]:.1f} mm (the median is {1e3 * typical:.1f} mm); leave it out "
            f"with --leave-out {name.split()[-1]}, or take it again"
        )
    if found.residual_m > MOST_RESIDUAL_M:
        raise CameraError(
            f"the poses disagree by {1e3 * found.residual_m:.1f} mm (limit {1e3 * MOST_RESIDUAL_M:g}), and no single "
            "one is to blame; is the target fixed, is the lens this camera's, and did the arm rest?"
        )


def _require_turns(sightings: Sequence[Sighting]) -> None:
    if len(sightings) < LEAST_POSES:
        raise CameraError(
            f"the target was seen in {len(sightings)} poses, and at least {LEAST_POSES} are needed; add poses"
        )
    turns = [
        rotation_vector(a.flange.rotation.T @ b.flange.rotation)
        for number, a in enumerate(sightings)
        for b in sightings[number + 1 :]
    ]
    spread = np.linalg.svd(np.array(turns), compute_uv=False) / np.sqrt(len(turns))
    if spread[1] < LEAST_TURN_RAD:
        raise CameraError(
            f"the {len(sightings)} poses turn about one axis only ({np.degrees(spread[0]):.0f} degrees about it, "
            f"{np.degrees(spread[1]):.1f} about any other, at least {np.degrees(LEAST_TURN_RAD):.0f} are needed); add "
            "poses that tilt the tool to other sides"
        )


def _require_lens(sightings: Sequence[Sighting], camera: Camera) -> None:
    misfit = float(np.median([each.seen.misfit_px(camera, each.seen.pose_in(camera)) for each in sightings]))
    if misfit > MOST_MISFIT_PX:
        raise CameraError(
            f"the target fits its own picture to {misfit:.1f} pixels only (limit {MOST_MISFIT_PX:g}); the lens is of "
            "another camera or zoom, or the target is not flat: calibrate the camera again"
        )


def _require_sizes(fit: "_Fit") -> None:
    """Refuse another lens or a print of another size, which the arm's motions tell from each other."""
    scale_deviation, focal_deviation, bent_deviation = np.sqrt(np.diag(fit.covariance)[12:]).tolist()
    if abs(fit.focal - 1.0) > max(MOST_FOCAL, SIGNIFICANT * focal_deviation):
        raise CameraError(
            f"by the arm's motions, the camera's focal length is {100 * fit.focal:.1f} % of what its file says, so the "
            "file is of another camera or zoom; calibrate this one"
        )
    if abs(fit.bent) > max(MOST_BENT, SIGNIFICANT * bent_deviation):
        raise CameraError(
            "by the arm's motions, the lens bends straight lines otherwise than its file says, so the file is of "
            "another camera; calibrate this one"
        )
    if abs(fit.scale - 1.0) > max(MOST_SCALE, SIGNIFICANT * scale_deviation):
        raise CameraError(
            f"by the arm's motions, the target is printed at {100 * fit.scale:.1f} % of the size that it should have; "
            "measure the ruler on its sheet, and give that length"
        )


def _first_guess(sightings: Sequence[Sighting], camera: Camera, mount: Mount) -> tuple[Pose, Pose]:
    """Return X and Y in closed form (Shah, "Solving the robot-world/hand-eye calibration problem", 2013).

    OpenCV 4 has it as ``calibrateRobotWorldHandEye``; OpenCV 5 dropped it.
    """
    ours = [_other_side(mount, each) for each in sightings]
    theirs = [each.seen.pose_in(camera) for each in sightings]
    # M Y = X C: vec(R_M R_Y R_C') is the Kronecker product of R_M and R_C, applied to vec(R_Y).
    total = sum(np.kron(m.rotation, c.rotation) for m, c in zip(ours, theirs, strict=True))
    left, _, right = np.linalg.svd(total)
    Y, X = (
        nearest_rotation(part.reshape(3, 3) * np.sign(np.linalg.det(part.reshape(3, 3))))
        for part in (right[0], left[:, 0])
    )
    A = np.concatenate([np.hstack((m.rotation, -np.eye(3))) for m in ours])
    b = np.concatenate([X @ c.position - m.position for m, c in zip(ours, theirs, strict=True)])
    shifts = np.linalg.lstsq(A, b, rcond=None)[0]
    return Pose(shifts[3:], X), Pose(shifts[:3], Y)


def nearest_rotation(matrix: Array) -> Array:
    """Return the rotation (3, 3) most like a matrix (3, 3) (Kabsch 1976)."""
    left, _, right = np.linalg.svd(matrix)
    left[:, 2] *= np.sign(np.linalg.det(left @ right))
    return np.asarray(left @ right, np.float64)


class _Fit(NamedTuple):
    """X, Y, factors on the target's size and the focal length, radial distortion to add, and their covariance."""

    X: Pose
    Y: Pose
    scale: float
    focal: float
    bent: float
    covariance: Array


def _refine(sightings: Sequence[Sighting], camera: Camera, mount: Mount, X: Pose, Y: Pose, sizes: bool = False) -> _Fit:
    """Move X and Y until all points are seen where they should be; with ``sizes``, the rest, too."""
    counts = [len(each.seen.ids) for each in sightings]
    others = [_other_side(mount, each) for each in sightings]
    points = np.concatenate([each.seen.points_m for each in sightings])
    pixels = np.concatenate([each.seen.pixels for each in sightings])
    turns = np.repeat([other.rotation for other in others], counts, axis=0)
    shifts = np.repeat([other.position for other in others], counts, axis=0)

    def _misfit(free: Array) -> Array:
        change = np.append(free, np.zeros(15 - len(free)))
        camera_pose, target = _changed(X, change[:6]), _changed(Y, change[6:12])
        placed = np.exp(change[12]) * points @ target.rotation.T + target.position
        inside = (np.einsum("nij,nj->ni", turns, placed) + shifts - camera_pose.position) @ camera_pose.rotation
        bent = change[14] * np.sum((inside[:, :2] / inside[:, 2:]) ** 2, axis=1)
        inside[:, :2] *= (np.exp(change[13]) * (1.0 + bent))[:, None]
        return np.asarray((camera.project(inside) - pixels).ravel(), np.float64)

    found = least_squares(_misfit, np.zeros(15 if sizes else 12), loss="soft_l1", f_scale=ROBUST_PX, x_scale="jac")
    # Most errors tell how large they are, whatever hid a few corners. Points of one pose share the arm's error, so a
    # pose counts as one point.
    variance = (NORMAL * float(np.median(np.abs(_misfit(found.x))))) ** 2 * float(np.mean(counts))
    covariance = variance * covariance_of(found.jac)
    change = np.append(found.x, np.zeros(15 - len(found.x)))
    scale, focal = np.exp(change[12:14]).tolist()
    return _Fit(_changed(X, change[:6]), _changed(Y, change[6:12]), scale, focal, float(change[14]), covariance)


def covariance_of(J: Array) -> Array:
    """Return ``(J' J)^-1`` (n, n); what nothing tells gets a very large variance."""
    size = np.linalg.norm(J, axis=0) + 1e-12
    values, vectors = np.linalg.eigh((J / size).T @ (J / size))
    covariance: Array = (vectors / np.maximum(values, 1e-10)) @ vectors.T / np.outer(size, size)
    return covariance


def deviations(covariance: Array, rotation: Array, point: Array) -> tuple[float, float]:
    """Return how well a point in the camera's frame is known on its mount [m], and the camera's rotation [rad].

    Args:
        covariance: (6, 6) of the camera's turn in its own frame, and its shift.
        rotation: (3, 3) the camera's.
        point: (3,) in its frame [m].
    """
    x, y, z = point
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    G = np.hstack((-rotation @ cross, np.eye(3)))
    return float(np.sqrt(np.trace(G @ covariance @ G.T))), float(np.sqrt(np.trace(covariance[:3, :3])))


def _changed(pose: Pose, change: Array) -> Pose:
    """Return a pose turned by a rotation vector in its own frame [rad] and moved in its outer one [m]: (6,)."""
    return Pose(pose.position + change[3:], pose.rotation @ rotation_matrix(change[:3]))


def _other_side(mount: Mount, sighting: Sighting) -> Pose:
    """Return the pose of the target's side on the camera's mount."""
    return sighting.flange if mount == "base" else inverse(sighting.flange)


def _seen_pose(mount: Mount, camera_pose: Pose, sighting: Sighting, target: Pose) -> Pose:
    """Return the target's pose in the camera's frame, as a calibration has it."""
    return compose(inverse(camera_pose), compose(_other_side(mount, sighting), target))


def _residual(camera: Camera, sighting: Sighting, wanted: Pose) -> Residual:
    distance = float(np.mean(sighting.seen.points_m @ wanted.rotation.T, axis=0)[2] + wanted.position[2])
    misfit = sighting.seen.misfit_px(camera, wanted) / float(camera.K[0, 0])
    angle = angle_of(sighting.seen.pose_in(camera, wanted).rotation @ wanted.rotation.T)
    return Residual(sighting.name, misfit * distance, angle)
