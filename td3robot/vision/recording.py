"""A calibration's pictures with the tool's poses, in a folder, and the camera's place that follows from them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import Field

from td3robot.atomic import write_text
from td3robot.config.loading import read_section
from td3robot.config.section import Section, Vector3
from td3robot.errors import CameraError
from td3robot.geometry import compose, quaternion, rotation_of
from td3robot.state import Array, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.hand_eye import HandEye, Sighting, solve
from td3robot.vision.tags import Image, Tags
from td3robot.vision.target import Target, find_tags
from td3robot.vision.touched import LEAST_TAGS, missed_m, solve_touched

Mode = Literal["touch", "carry", "wrist"]
FILE = "poses.json"


class RecordedPose(Section):
    """A pose of the tool, and the picture that belongs to it.

    Attributes:
        image: Name of the picture in the folder.
        position_m: The tool centre point in the base frame [m].
        quaternion_wxyz: Its rotation.
        tag: The tag that it touches, or None.
    """

    image: Annotated[str, Field(pattern=r"^[^/\\]+$")]
    position_m: Vector3
    quaternion_wxyz: tuple[float, float, float, float]
    tag: int | None = None

    @property
    def tool(self) -> Pose:
        """The tool's pose in the base frame."""
        return Pose(np.array(self.position_m), rotation_of(self.quaternion_wxyz))


class Recording(Section):
    """What a calibration recorded.

    Attributes:
        mode: ``touch`` (tags on the table are touched), ``carry`` (the gripper carries the target before a camera in
            the cell) or ``wrist`` (a camera on the flange looks at a target in the cell).
        tcp_offset_m: From the flange to the tool centre point, along the flange's z axis.
        tip_m: From the tool centre point to what touches, along the same axis.
        poses: The poses. The last one checks the others, of ``touch`` only a fourth one and later.
    """

    mode: Mode
    tcp_offset_m: float
    tip_m: float = 0.0
    poses: tuple[RecordedPose, ...] = ()

    def with_pose(self, image: str, tool: Pose, tag: int | None = None) -> "Recording":
        """Return the recording with one more pose."""
        x, y, z = tool.position.tolist()
        w, i, j, k = quaternion(tool.rotation).tolist()
        pose = RecordedPose(image=image, position_m=(x, y, z), quaternion_wxyz=(w, i, j, k), tag=tag)
        return self.model_copy(update={"poses": (*self.poses, pose)})


@dataclass(frozen=True, slots=True)
class Solved:
    """A camera's place, checked.

    Attributes:
        found: The calibration.
        check: Which pose or tag checked it, or None.
        check_m: How far that is from where the calibration puts it [m], or None.
    """

    found: HandEye
    check: str | None = None
    check_m: float | None = None


def save_recording(folder: Path, recording: Recording) -> None:
    """Write a recording's poses into its folder."""
    write_text(folder / FILE, recording.model_dump_json(indent=1) + "\n")


def load_recording(folder: Path) -> Recording:
    """Read the poses of a recording.

    Raises:
        ConfigError: They cannot be read.
    """
    return read_section(folder / FILE, "recording", Recording)


def save_image(folder: Path, name: str, image: Image) -> None:
    """Write a picture (height, width, 3) without loss.

    Raises:
        CameraError: It cannot be written.
    """
    if not cv2.imwrite(str(folder / name), image):
        raise CameraError(f"the picture {folder / name} cannot be written; is there room, and may you write there?")


def load_image(path: Path, camera: Camera) -> Image:
    """Read a picture (height, width, 3).

    Raises:
        CameraError: It cannot be read, or is not of the camera's size.
    """
    image = cv2.imread(str(path))
    if image is None:
        raise CameraError(f"{path} cannot be read as a picture; is it there, and whole?")
    height, width = image.shape[:2]
    if (width, height) != (camera.width, camera.height):
        raise CameraError(
            f"{path} has {width}x{height} pixels, and the camera was calibrated at {camera.width}x{camera.height}; "
            "take the pictures at that resolution, or calibrate the camera again at this one"
        )
    return np.asarray(image, np.uint8)


def solve_recording(
    folder: Path, camera: Camera, target: Target, tags: Tags, leave_out: Collection[int] = ()
) -> Solved:
    """Compute a camera's place from a recording.

    Args:
        folder: Where it is.
        camera: The lens.
        target: What the pictures of ``carry`` and ``wrist`` show.
        tags: The size of the tags that ``touch`` touched.
        leave_out: Poses (counted from 1) or tags not to use.

    Raises:
        CameraError: The recording does not tell it; says why, and what to do.
        ConfigError: It cannot be read.
    """
    recording = load_recording(folder)
    if recording.mode == "touch":
        return _solve_touched(folder, recording, camera, tags, leave_out)
    sightings = list[Sighting]()
    offset = Pose(np.array([0.0, 0.0, -recording.tcp_offset_m]), np.eye(3))
    for number, pose in enumerate(recording.poses, start=1):
        seen = None if number in leave_out else target.find(load_image(folder / pose.image, camera))
        if seen is not None:
            sightings.append(Sighting(f"pose {number}", compose(pose.tool, offset), seen))
    if not sightings:
        raise CameraError(
            f"{target.title} is seen in none of the {len(recording.poses)} pictures of {folder}; is it in view, and is "
            "it this target?"
        )
    found = solve(sightings[:-1], camera, "base" if recording.mode == "carry" else "flange")
    last = sightings[-1]
    return Solved(found, last.name, found.residual(camera, last).distance_m)


def _solve_touched(
    folder: Path, recording: Recording, camera: Camera, tags: Tags, leave_out: Collection[int]
) -> Solved:
    corners = dict[int, Array]()
    for name in dict.fromkeys(pose.image for pose in recording.poses):
        corners |= find_tags(load_image(folder / name, camera))
    touched = {
        pose.tag: pose.tool.position + recording.tip_m * pose.tool.rotation[:, 2]
        for pose in recording.poses
        if pose.tag is not None and pose.tag not in leave_out
    }
    check = list(touched)[-1] if len(touched) > LEAST_TAGS else None
    used = {tag: place for tag, place in touched.items() if tag != check}
    found = solve_touched(used, corners, tags.table_tag_m * tags.scale, camera)
    if check is None or check not in corners:
        return Solved(found)
    return Solved(found, f"tag {check}", missed_m(found, camera, touched[check], corners[check]))
