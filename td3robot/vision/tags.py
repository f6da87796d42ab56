"""Which tags are where: on the five visible faces of an object, on the table, and on a calibration board.

All are of the family AprilTag 36h11. Object frames have their origin in the centre; +z is up where the object lies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field, model_validator

from td3robot.atomic import write_text
from td3robot.config.loading import read_section
from td3robot.config.section import Section, Vector3
from td3robot.geometry import about_vertical
from td3robot.state import Array

if TYPE_CHECKING:
    import cv2

Image = NDArray[np.uint8]

# The family has this many tags, each of 8 x 8 bits with its black border; a white margin of one bit is around it.
FAMILY, TAGS, BITS, MARGIN_BITS = "DICT_APRILTAG_36h11", 587, 8, 1
# A tag's edge as a share of the shorter edge of its face; with its margin, it just fills the face.
SHARE = BITS / (BITS + 2 * MARGIN_BITS)
# Larger tags do not fit a sheet, and of smaller ones few cameras see the bits [m].
LARGEST_TAG_M, SMALLEST_TAG_M = 0.15, 0.01
# First tag of the table and of the board; objects count from 0, five each.
TABLE_FIRST, BOARD_FIRST = 300, 400
# Faces in the order of their tags: the direction out of each, and the one that is up on it.
FACES = {
    "+z": ((0, 0, 1), (0, 1, 0)),
    "+x": ((1, 0, 0), (0, 0, 1)),
    "+y": ((0, 1, 0), (0, 0, 1)),
    "-x": ((-1, 0, 0), (0, 0, 1)),
    "-y": ((0, -1, 0), (0, 0, 1)),
}
# The ChArUco board for calibrating a camera: squares along its length and width, their edge and that of its tags [m].
BOARD_SQUARES, BOARD_SQUARE_M, BOARD_TAG_M = (7, 5), 0.035, 0.026
# A corner of a tag from its centre, in half edges along right and up; OpenCV's order.
CORNERS = ((-1, 1), (1, 1), (1, -1), (-1, -1))

TagId = Annotated[int, Field(ge=0, lt=TAGS)]


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and its place in the frame of what it is on.

    Attributes:
        id: Its number in the family.
        name: Where it is, for messages.
        size_m: Edge of its black border [m].
        centre_m: (3,) its centre [m].
        rotation: (3, 3) columns: right and up on the printed tag, and out of the surface.
    """

    id: int
    name: str
    size_m: float
    centre_m: Array
    rotation: Array

    @property
    def corners_m(self) -> Array:
        """Its corners (4, 3) [m]: top left, top right, bottom right, bottom left, as OpenCV orders them."""
        return self.centre_m + self.size_m / 2 * np.array(CORNERS) @ self.rotation[:, :2].T


class TaggedObject(Section):
    """A box with a tag on each of its five visible faces.

    Attributes:
        size_m: Full extents along its own axes [m].
        first_id: Tag of its top; the next four are on +x, +y, -x and -y.
    """

    size_m: Vector3 = (0.04, 0.04, 0.04)
    first_id: Annotated[int, Field(ge=0, le=TAGS - len(FACES))] = 0

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        low, high = SMALLEST_TAG_M / SHARE, 1.0
        if not low <= min(self.size_m) <= max(self.size_m) <= high:
            raise ValueError(
                f"size_m {list(self.size_m)} has an edge outside of {low:g} to {high:g} m; a smaller face has no room "
                "for a tag that a camera can read"
            )
        return self

    @property
    def ids(self) -> range:
        """The ids of its tags."""
        return range(self.first_id, self.first_id + len(FACES))

    def tags(self, scale: float = 1.0) -> tuple[Tag, ...]:
        """Return its tags; ``scale`` is the true size of their print over the wanted one."""
        half = np.array(self.size_m) / 2
        found = []
        for tag_id, (name, (out, up)) in zip(self.ids, FACES.items(), strict=True):
            rotation = np.column_stack((np.cross(up, out), up, out)).astype(float)
            width, height = 2 * np.abs(rotation[:, :2].T @ half)
            size = min(SHARE * min(width, height), LARGEST_TAG_M)
            found.append(Tag(tag_id, f"face {name}", size * scale, half * np.array(out), rotation))
        return tuple(found)


class TableTag(Section):
    """A tag that lies on the table.

    Attributes:
        id: Its number.
        position_m: Its centre in the arm's base frame [m].
        yaw_rad: Direction of its right edge about the vertical [rad].
    """

    id: TagId
    position_m: Vector3
    yaw_rad: Annotated[float, Field(ge=-7.0, le=7.0)] = 0.0


class Tags(Section):
    """All tags of a cell.

    Attributes:
        scale: True length of the printed ruler over what is written on it.
        objects: Objects with tags, by the names that the task has for them.
        table_tag_m: Edge of the table's tags [m].
        table: The tags that lie on the table.
    """

    scale: Annotated[float, Field(ge=0.8, le=1.25)] = 1.0
    objects: dict[str, TaggedObject] = Field(default_factory=lambda: {"object": TaggedObject()})
    table_tag_m: Annotated[float, Field(ge=SMALLEST_TAG_M, le=LARGEST_TAG_M)] = 0.064
    table: tuple[TableTag, ...] = ()

    @model_validator(mode="after")
    def _each_tag_once(self) -> Self:
        owners: dict[int, str] = dict.fromkeys(board_ids(), "the board")
        for owner, ids in self._owned():
            for tag_id in ids:
                if tag_id in owners:
                    raise ValueError(
                        f"tag {tag_id} is on {owner} and on {owners[tag_id]}; give each its own, with another first_id"
                    )
                owners[tag_id] = owner
        return self

    def _owned(self) -> "Iterator[tuple[str, range]]":
        yield from ((repr(name), item.ids) for name, item in self.objects.items())
        yield from ((f"the table at {list(tag.position_m)}", range(tag.id, tag.id + 1)) for tag in self.table)

    def of_object(self, name: str) -> tuple[Tag, ...]:
        """Return the tags of an object, in its frame."""
        return self.objects[name].tags(self.scale)

    def rest_m(self, table_m: float) -> dict[str, float]:
        """Return the height of each object's centre where it lies on a table whose top is at a height [m], by name."""
        return {name: table_m + item.size_m[2] / 2 for name, item in self.objects.items()}

    def of_table(self) -> tuple[Tag, ...]:
        """Return the tags on the table, in the arm's base frame."""
        size = self.table_tag_m * self.scale
        return tuple(
            Tag(tag.id, "the table", size, np.array(tag.position_m), about_vertical(tag.yaw_rad)) for tag in self.table
        )


def load_tags(path: Path) -> Tags:
    """Read a tags file.

    Raises:
        ConfigError: It cannot be read, or does not describe tags.
    """
    return read_section(path, "tags file", Tags)


def save_tags(path: Path, tags: Tags) -> None:
    """Write a tags file."""
    write_text(path, yaml.safe_dump(tags.model_dump(mode="json"), sort_keys=False))


def family() -> "cv2.aruco.Dictionary":
    """Return the family of tags, for OpenCV."""
    import cv2

    return cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, FAMILY))


def tag_image(tag_id: int, pixels_per_bit: int = 16) -> Image:
    """Draw a tag with its white margin, (n, n) in grey: the middle 8 of 10 bits are the tag."""
    import cv2

    image = cv2.aruco.generateImageMarker(family(), tag_id, BITS * pixels_per_bit, None, 1)
    return np.pad(image, MARGIN_BITS * pixels_per_bit, constant_values=255).astype(np.uint8)


def board_ids() -> range:
    """Return the ids of the board's tags."""
    return range(BOARD_FIRST, BOARD_FIRST + BOARD_SQUARES[0] * BOARD_SQUARES[1] // 2)


def charuco_board(scale: float = 1.0) -> "cv2.aruco.CharucoBoard":
    """Return the board, for OpenCV; ``scale`` is the true size of its print over the wanted one."""
    import cv2

    lengths = BOARD_SQUARE_M * scale, BOARD_TAG_M * scale
    return cv2.aruco.CharucoBoard(BOARD_SQUARES, *lengths, family(), np.array(board_ids()))
