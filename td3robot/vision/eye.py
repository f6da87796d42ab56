"""Finds objects with tags in a picture: which tags are detected, and at which pose the object looks like that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import acos

import cv2
import numpy as np

from td3robot.errors import CameraError
from td3robot.geometry import about_vertical, yaw
from td3robot.state import Array, Pose
from td3robot.vision.alignment import FREE, LYING, Fit, align, fit_corners, prints
from td3robot.vision.camera import Camera
from td3robot.vision.frames import exposure_fault
from td3robot.vision.tags import Image, Tag, Tags, family

# Corners of one object fit together this well [pixels]; those of a tag are found to about one.
FITTING_PX = 3.0
# The best face has to look like its print at least this much, and of what was compared, at most this may not
# fit: less without a table to help.
LEAST_ALIKE, MOST_MISMATCH, LIFTED_MISMATCH = 0.85, 0.035, 0.02
# A pose that noise alone lets vary by more than this is none [m].
MOST_DEVIATION_M = 0.0025
# An object lies if its free pose is as near to lying as this, beside three standard deviations [m, rad].
LYING_M, LYING_RAD = 0.006, 0.06
# Of two poses with as many faces alike, one that is upright is likelier than one tilted by this [rad].
TILTED_RAD = 0.6
# No object is this far below the table [m]: its tags have another size, or the camera another lens or place.
BELOW_M = 0.010
# Sizes that a print is compared at, in one of so many pictures of an object that lies. Its size is told if the right
# one leaves this share of the mismatch of the wanted one, and of a free pose, and differs by more than this.
SCALES, SCALE_EVERY = (0.95, 0.97, 0.985, 1.0, 1.015, 1.03, 1.05), 300
SCALE_OF_LAID, SCALE_OF_LOOSE, SCALE_OFF = 0.75, 0.9, 0.012
# Tags of the table are seen this near to where the camera's file puts them [pixels].
MOVED_PX = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """An object that was found.

    Attributes:
        pose: In the arm's base frame.
        is_lying: Whether it lies on the table.
        tags: The tags that it was found by.
        mismatch: What of them does not fit, as a share of their contrast.
    """

    pose: Pose
    is_lying: bool
    tags: tuple[int, ...]
    mismatch: float


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen in one picture.

    Attributes:
        objects: The objects found, by name.
        lost: Why each of the others was not, in a sentence.
        corners: Pixels (4, 2) of every detected tag.
    """

    objects: dict[str, Seen] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    corners: dict[int, Array] = field(default_factory=dict)


class TagEye:
    """Find objects by their tags.

    Args:
        camera: The lens, and its pose in the base frame unless the table has tags.
        tags: Which tags are where.
        rest_m: Height of each object's centre where it lies [m], by name.
        title: Names the camera's file in messages.

    Raises:
        CameraError: Nothing tells where the camera is, or an object has no tags.
    """

    def __init__(
        self, camera: Camera, tags: Tags, rest_m: Mapping[str, float], title: str = "the camera's file"
    ) -> None:
        if camera.pose is None and not tags.table:
            raise CameraError(
                f"{title} has no pose, and no tag lies on the table; calibrate the camera against the arm, or lay "
                "tags on the table and write their places into the tags file"
            )
        if camera.pose is not None and camera.pose.mount != "base" and not tags.table:
            raise CameraError(
                f"{title} is of a camera on the flange, whose place only tags on the table can tell; write their "
                "places into the tags file, or mount the camera in the cell"
            )
        if missing := [name for name in rest_m if name not in tags.objects]:
            raise CameraError(
                f"the tags file has no object {missing[0]!r} (it has: {', '.join(tags.objects)}); print tags for it "
                "with td3robot tags, or give the file that names it"
            )
        self.camera, self.rest_m = camera, dict(rest_m)
        self._tags, self._title = tags, title
        self._places = {name: tags.of_object(name) for name in rest_m}
        self._prints = {name: prints(placed) for name, placed in self._places.items()}
        self._table = tags.of_table()
        self._lens_px: float | None = None
        self._laid_looks: dict[str, int] = {}
        self._scales: dict[str, float] = {}
        self._detector = cv2.aruco.ArucoDetector(family(), cv2.aruco.DetectorParameters())

    def look(self, image: Image) -> Sight:
        """Find every object in a picture (height, width, 3) or (height, width)."""
        if (fault := exposure_fault(image)) is not None:
            return Sight(lost=dict.fromkeys(self.rest_m, fault))
        grey = image if image.ndim == 2 else np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)
        corners, twice = self._detect(grey)
        sight = Sight(corners=corners)
        place = self._place(corners, grey)
        for name, placed in self._places.items():
            own = [tag for tag in placed if tag.id in corners]
            doubled = [tag.id for tag in placed if tag.id in twice]
            found: Seen | str
            if doubled:
                found = (
                    f"tag {doubled[0]} of {name!r} is seen twice; give the second object tags of its own, with another "
                    "first_id"
                )
            elif isinstance(place, str):
                found = place
            elif not own:
                found = f"no tag of {name!r} is in sight"
            else:
                found = self._find(name, own, corners, grey, place)
            if isinstance(found, Seen):
                sight.objects[name] = found
            else:
                sight.lost[name] = found
        return sight

    def _detect(self, grey: Image) -> tuple[dict[int, Array], set[int]]:
        """Return the corners (4, 2) of every tag, and the tags that are there more than once."""
        found: dict[int, Array] = {}
        twice: set[int] = set()
        corners, ids, _ = self._detector.detectMarkers(grey)
        for number, pixels in zip(() if ids is None else np.ravel(ids), corners, strict=True):
            tag = int(number)
            if tag in found:
                twice.add(tag)
            found[tag] = np.asarray(pixels, np.float64).reshape(4, 2)
        return found, twice

    def _place(self, corners: dict[int, Array], grey: Image) -> Pose | str:
        """Return the camera's pose in the base frame, or why it is not known."""
        seen = [tag for tag in self._table if tag.id in corners]
        if self.camera.pose is not None and self.camera.pose.mount == "base":
            place = self.camera.pose.pose
            if seen:
                points = np.concatenate([tag.corners_m for tag in seen])
                wanted = self.camera.project((points - place.position) @ place.rotation)
                away = np.linalg.norm(np.concatenate([corners[tag.id] for tag in seen]) - wanted, axis=1)
                if (off := float(np.median(away))) > MOVED_PX:
                    return (
                        f"the table's tags are {off:.0f} pixels from where {self._title} puts them (limit "
                        f"{MOVED_PX:g}); the camera was moved, or the file is of another one: calibrate it again"
                    )
            return place
        if not seen:
            return "no tag of the table is in sight, which would tell where the camera is"
        return self._located(seen, corners, grey)

    def _located(self, seen: Sequence[Tag], corners: dict[int, Array], grey: Image) -> Pose | str:
        points = np.concatenate([tag.corners_m for tag in seen])
        pixels = np.concatenate([corners[tag.id] for tag in seen])
        done, turn, shift = cv2.solvePnP(points, pixels, self.camera.K, self.camera.D, flags=cv2.SOLVEPNP_SQPNP)
        if not done:
            return "the table's tags do not tell where the camera is"
        base = Pose(np.ravel(shift).astype(np.float64), np.asarray(cv2.Rodrigues(turn)[0], np.float64))
        known = [tag.id for tag in seen]
        fit = align(self.camera, Pose(np.zeros(3), np.eye(3)), prints(seen), known, grey, base, FREE)
        if fit is None or not _is_good(fit) or float(np.linalg.norm(fit.deviation[:3])) > MOST_DEVIATION_M:
            return "the table's tags are seen too poorly to tell where the camera is; are they hidden or blurred?"
        turned = fit.pose.rotation.T
        return Pose(-turned @ fit.pose.position, turned)

    def _find(self, name: str, own: Sequence[Tag], corners: dict[int, Array], grey: Image, place: Pose) -> Seen | str:
        """Return an object's pose, or why it is not known."""
        points = np.concatenate([tag.corners_m for tag in own])
        normalized = self.camera.normalized(np.concatenate([corners[tag.id] for tag in own]))
        guesses = self._guesses(own, corners, place)
        free = sorted((self._fitted(place, points, normalized, guess, FREE) for guess in guesses), key=lambda it: it[1])
        if not free or free[0][1] > FITTING_PX:
            return self._unfitting(name, own, corners, place)
        lying = min(
            (self._fitted(place, points, normalized, self._laid(name, guess), LYING) for guess, _ in free),
            key=lambda it: it[1],
        )
        faces, known = self._prints[name], [tag.id for tag in own]
        starts: list[Pose] = [guess for guess, error in free[:2] if error <= FITTING_PX]
        fits: list[Fit] = []
        if lying[1] <= 2 * FITTING_PX:
            laid = self._aligned(name, place, known, grey, lying[0], LYING)
            if laid is not None and _is_good(laid):
                loose = align(self.camera, place, faces, known, grey, laid.pose, FREE, laid.lens_px, True)
                loose = loose if loose is not None and _is_good(loose) else None
                if (fault := self._scale_fault(name, laid, loose, grey, place)) is not None:
                    return fault
                if loose is None or self._lies(name, loose, laid):
                    return _seen(laid, True)
                fits.append(loose)
        for start in starts:
            fit = self._aligned(name, place, known, grey, start, FREE)
            fits += [] if fit is None else [fit]
            if fit is not None and _is_good(fit) and len(fit.alike) > 1:
                break  # from the other side, fewer faces would look like their print
        return self._judged(name, fits, place)

    def _fitted(
        self, place: Pose, points: Array, normalized: Array, guess: Pose, movable: Sequence[int]
    ) -> tuple[Pose, float]:
        return fit_corners(self.camera, place, points, normalized, guess, movable)

    def _aligned(
        self, name: str, place: Pose, known: Sequence[int], grey: Image, start: Pose, movable: Sequence[int]
    ) -> Fit | None:
        """Align with the blur of the last picture, which is quicker, or else from the beginning."""
        fit: Fit | None = None
        if self._lens_px is not None:
            sure = movable is LYING  # the table helps more than the blur harms
            fit = align(self.camera, place, self._prints[name], known, grey, start, movable, self._lens_px, sure)
        if fit is None or not _is_good(fit):
            fit = align(self.camera, place, self._prints[name], known, grey, start, movable)
        if fit is not None and _is_good(fit):
            self._lens_px = fit.lens_px
        return fit

    def _judged(self, name: str, fits: Sequence[Fit], place: Pose) -> Seen | str:
        """Return the best of some free poses, or why it is none."""
        good = [fit for fit in fits if _is_good(fit)]
        if not good:
            return f"the tags of {name!r} are seen too poorly for a pose; are they hidden, blurred or too small?"
        best = max(good, key=lambda fit: sum(fit.alike.values()) - _tilt(fit.pose) / TILTED_RAD)
        if len(best.alike) == 1:
            return f"of {name!r}, which does not lie, only one face is seen: too little for its distance and tilt"
        low = float(best.pose.position[2]) - self.rest_m[name]
        if low < -BELOW_M - 3.0 * float(best.deviation[2]):
            ray = best.pose.position - place.position
            scale = (self.rest_m[name] - float(place.position[2])) / float(ray[2])
            return (
                f"{name!r} would be {-1e3 * low:.0f} mm below where it lies: its tags look {100 * scale:.0f} % as "
                "large as they should; measure the ruler on their sheet and set scale in the tags file, check size_m, "
                "or calibrate the camera again"
            )
        if best.mismatch > LIFTED_MISMATCH or float(np.linalg.norm(best.deviation[:3])) > MOST_DEVIATION_M:
            return f"the tags of {name!r} are seen too poorly for a pose; are they hidden, blurred or too small?"
        return _seen(best, False)

    def _guesses(self, own: Sequence[Tag], corners: dict[int, Array], place: Pose) -> list[Pose]:
        """Return first guesses of an object's pose, two for each tag: a small square is seen alike from two sides."""
        found = []
        for tag in own:
            half = tag.size_m / 2
            square = np.array([[-half, half, 0.0], [half, half, 0.0], [half, -half, 0.0], [-half, -half, 0.0]])
            flag = cv2.SOLVEPNP_IPPE_SQUARE
            _, turns, shifts, _ = cv2.solvePnPGeneric(square, corners[tag.id], self.camera.K, self.camera.D, flags=flag)
            for turn, shift in zip(turns, shifts, strict=True):
                inside = np.asarray(cv2.Rodrigues(turn)[0], np.float64) @ tag.rotation.T
                centre = np.ravel(shift) - inside @ tag.centre_m
                found.append(Pose(place.position + place.rotation @ centre, place.rotation @ inside))
        return found

    def _laid(self, name: str, pose: Pose) -> Pose:
        """Return the pose of an object that lies, nearest to another one along the table."""
        x, y, _ = pose.position
        return Pose(np.array([x, y, self.rest_m[name]]), about_vertical(yaw(pose.rotation)))

    def _scale_fault(self, name: str, laid: Fit, loose: Fit | None, grey: Image, place: Pose) -> str | None:
        """Return what is wrong with the size of an object's print; an object that lies shows it."""
        self._laid_looks[name] = self._laid_looks.get(name, 0) + 1
        if self._laid_looks[name] % SCALE_EVERY == 1:
            self._scales[name] = self._scale(name, laid, laid if loose is None else loose, grey, place)
        if abs(self._scales[name] - 1.0) < SCALE_OFF:
            return None
        return (
            f"the tags of {name!r} look {100 * self._scales[name]:.0f} % as large as the tags file says, on an object "
            f"that lies; measure the ruler on their sheet, and set scale to {self._scales[name] * self._tags.scale:.2f}"
        )

    def _scale(self, name: str, laid: Fit, loose: Fit, grey: Image, place: Pose) -> float:
        """Return the size at which a print fits an object that lies; 1 if others do not fit clearly better."""
        mismatch = {scale: self._scaled_mismatch(name, laid, grey, place, scale) for scale in SCALES}
        best = min(SCALES, key=lambda scale: mismatch[scale])
        if mismatch[best] > min(SCALE_OF_LAID * mismatch[1.0], SCALE_OF_LOOSE * loose.mismatch):
            return 1.0
        near = sorted(sorted(SCALES, key=lambda scale: mismatch[scale])[:3])
        a, b, _ = np.polyfit(near, [mismatch[scale] for scale in near], 2)
        return float(np.clip(-b / (2.0 * a), near[0], near[-1])) if a > 0.0 else best

    def _scaled_mismatch(self, name: str, laid: Fit, grey: Image, place: Pose, scale: float) -> float:
        faces = prints(self._tags.objects[name].tags(self._tags.scale * scale))
        fit = align(self.camera, place, faces, tuple(laid.alike), grey, laid.pose, LYING)
        return 1.0 if fit is None or len(fit.alike) < len(laid.alike) else fit.mismatch

    def _lies(self, name: str, loose: Fit, laid: Fit) -> bool:
        """Whether a free pose differs from the lying one by no more than noise and calibration."""
        if loose.pose.position[2] < self.rest_m[name]:  # through the table: it lies, and is not seen well
            return True
        away = float(np.linalg.norm(loose.pose.position - laid.pose.position))
        noise, turning = float(np.linalg.norm(loose.deviation[:3])), float(np.linalg.norm(loose.deviation[3:]))
        return away <= LYING_M + 3.0 * noise and _tilt(loose.pose) <= LYING_RAD + 3.0 * turning

    def _unfitting(self, name: str, own: Sequence[Tag], corners: dict[int, Array], place: Pose) -> str:
        """Return why corners are not those of one object: a tag that is turned on its face, or something else."""
        for tag in own if len(own) > 1 else ():
            for quarters in (2, 1, 3):
                turned = corners | {tag.id: np.roll(corners[tag.id], quarters, axis=0)}
                points = np.concatenate([each.corners_m for each in own])
                normalized = self.camera.normalized(np.concatenate([turned[each.id] for each in own]))
                guesses = self._guesses(own, turned, place)
                if min(self._fitted(place, points, normalized, guess, FREE)[1] for guess in guesses) < FITTING_PX:
                    return (
                        f"tag {tag.id} on {tag.name} of {name!r} is turned by {90 * (quarters % 4):d} degrees; glue it "
                        "as the printed net shows it"
                    )
        size = " x ".join(f"{1e3 * edge:g}" for edge in self._tags.objects[name].size_m)
        return (
            f"the tags of {name!r} are not where one object of {size} mm has them; check size_m, and that no other "
            "object has the same tags"
        )


def _is_good(fit: Fit) -> bool:
    return max(fit.alike.values(), default=0.0) >= LEAST_ALIKE and fit.mismatch <= MOST_MISMATCH


def _tilt(pose: Pose) -> float:
    """Return how far an object is from upright [rad]."""
    return acos(float(np.clip(pose.rotation[2, 2], -1.0, 1.0)))


def _seen(fit: Fit, is_lying: bool) -> Seen:
    return Seen(fit.pose, is_lying, tuple(fit.alike), fit.mismatch)
