"""The sheets to print: nets of objects with tags, tags for the table, and the board for calibrating a camera.

One page is A4, drawn in millimetres from its lower left corner, with a ruler that shows whether it was printed at true
size.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from td3robot.atomic import Replacement
from td3robot.state import Array
from td3robot.vision.tags import (
    BITS,
    BOARD_SQUARE_M,
    BOARD_SQUARES,
    MARGIN_BITS,
    Image,
    Tag,
    TaggedObject,
    Tags,
    charuco_board,
    tag_image,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A4, upright [mm]; what printers leave white around it, and what title and ruler need below.
PAGE_MM, EDGE_MM, FOOT_MM = (210.0, 297.0), 8.0, 30.0
RULER_MM, INCH_MM = 100, 25.4
# Pixels to a bit of a tag, so many that a viewer that smooths them does not move an edge.
PIXELS = 32
# Where each face of a net is, in the object's own edges from the middle of the top, and how its tag is turned there, in
# quarters of a turn to the left: every side face folds down at the top's edge, and its tag stands upright then.
NET = {"+z": (0, 0, 0), "+x": (1, 0, 1), "+y": (0, 1, 2), "-x": (-1, 0, 3), "-y": (0, -1, 0)}


def save_sheets(path: Path, tags: Tags, table_ids: Sequence[int] = ()) -> int:
    """Write the sheets of all tags as one PDF, and return how many pages it has.

    Args:
        path: The file.
        tags: Which tags there are.
        table_ids: Tags for the table.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    replacement, count = Replacement(path), 0
    try:
        with PdfPages(replacement.temporary) as document:
            for page in pages(tags, table_ids):
                document.savefig(page)
                count += 1
        replacement.commit()
    finally:
        replacement.discard()
    return count


def pages(tags: Tags, table_ids: Sequence[int] = ()) -> "Iterator[Figure]":
    """Yield every page: the objects' nets, the table's tags, and the board."""
    for name, item in tags.objects.items():
        yield from _object_pages(name, item)
    yield from _table_pages(table_ids, 1e3 * tags.table_tag_m)
    yield _board_page()


def _page(title: str) -> "tuple[Figure, Axes]":
    """Return an empty page with title and ruler, whose axes are in millimetres."""
    from matplotlib.figure import Figure

    width, height = PAGE_MM
    figure = Figure(figsize=(width / INCH_MM, height / INCH_MM))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal", autoscale_on=False)
    axes.axis("off")
    left, low = (width - RULER_MM) / 2, EDGE_MM + 4
    axes.plot([left, left + RULER_MM], [low, low], "k", linewidth=0.6)
    for tick in range(0, RULER_MM + 1, 5):
        axes.plot([left + tick] * 2, [low, low + (4 if tick % 10 == 0 else 2)], "k", linewidth=0.6)
        if tick % 20 == 0:
            axes.text(left + tick, low + 5, str(tick), ha="center", fontsize=6)
    note = "Print at 100 %, without fitting to the page. If the ruler is not 100 mm long, write its length over 100"
    axes.text(width / 2, low + 13, title, ha="center", fontsize=9, weight="bold")
    axes.text(width / 2, low + 9, f"{note} as scale into the tags file.", ha="center", fontsize=6)
    return figure, axes


def _object_pages(name: str, item: TaggedObject) -> "Iterator[Figure]":
    """Yield the net of an object, or its faces on pages of their own if that does not fit a page."""
    x, y, z = (1e3 * edge for edge in item.size_m)
    title = f"{name}: {x:g} x {y:g} x {z:g} mm, tags {item.ids[0]} to {item.ids[-1]}"
    centre = np.array([PAGE_MM[0] / 2, (PAGE_MM[1] + FOOT_MM) / 2])
    if x + 2 * z <= PAGE_MM[0] - 2 * EDGE_MM and y + 2 * z <= PAGE_MM[1] - FOOT_MM - 2 * EDGE_MM:
        figure, axes = _page(f"{title}; cut outside, fold the inner lines down")
        for tag in item.tags():
            _face(axes, tag, (x, y, z), centre)
        yield figure
        return
    for tag in item.tags():
        figure, axes = _page(f"{title}: {tag.name}, tag {tag.id}; glue it on the middle of the face")
        _tag(axes, tag.id, centre, 1e3 * tag.size_m, 0)
        yield figure


def _face(axes: "Axes", tag: Tag, size_mm: tuple[float, float, float], centre: Array) -> None:
    """Draw one face of a net: its tag, its outline to fold or cut, and what it is called."""
    x, y, z = size_mm
    name = tag.name.removeprefix("face ")
    across, along, quarters = NET[name]
    width, height = (z if across else x), (z if along else y)
    place = centre + np.array([across * (x + z) / 2, along * (y + z) / 2])
    _tag(axes, tag.id, place, 1e3 * tag.size_m, quarters)
    corner = place - np.array([width / 2, height / 2])
    _outline(axes, corner, width, height)
    outside = place + np.array([across * (width / 2 + 3), along * (height / 2 + 3)])
    if name != "+z":
        axes.text(outside[0], outside[1], name, ha="center", va="center", fontsize=6)


def _table_pages(ids: Sequence[int], size_mm: float) -> "Iterator[Figure]":
    whole = size_mm * (BITS + 2 * MARGIN_BITS) / BITS + 6
    columns = max(1, int((PAGE_MM[0] - 2 * EDGE_MM) // whole))
    rows = max(1, int((PAGE_MM[1] - FOOT_MM - 2 * EDGE_MM) // whole))
    for start in range(0, len(ids), columns * rows):
        figure, axes = _page(f"Tags of {size_mm:g} mm for the table; lay them flat, and measure where they are")
        for place, tag in enumerate(ids[start : start + columns * rows]):
            column, row = place % columns, place // columns
            x = PAGE_MM[0] / 2 + (column - (columns - 1) / 2) * whole
            y = PAGE_MM[1] - EDGE_MM - (row + 0.5) * whole
            _tag(axes, tag, np.array([x, y]), size_mm, 0)
            _outline(axes, np.array([x, y]) - (whole - 6) / 2, whole - 6, whole - 6)
            axes.text(x, y - whole / 2 + 1, f"tag {tag}", ha="center", va="center", fontsize=6)
        yield figure


def _board_page() -> "Figure":
    """Return the page of the board, which lies on its side."""
    columns, rows = BOARD_SQUARES
    square = 1e3 * BOARD_SQUARE_M
    figure, axes = _page(f"Board: {columns} x {rows} squares of {square:g} mm; glue it on something flat and stiff")
    image = np.rot90(np.asarray(charuco_board().generateImage((columns * 350, rows * 350)), np.uint8))
    width, height = rows * square, columns * square
    left, low = (PAGE_MM[0] - width) / 2, FOOT_MM + (PAGE_MM[1] - FOOT_MM - height) / 2
    _image(axes, image, left, low, width, height)
    return figure


def _tag(axes: "Axes", tag: int, centre: Array, size_mm: float, quarters: int) -> None:
    """Draw a tag with its margin, turned to the left by some quarters."""
    whole = size_mm * (BITS + 2 * MARGIN_BITS) / BITS
    x, y = centre - whole / 2
    _image(axes, np.rot90(tag_image(tag, PIXELS), quarters), float(x), float(y), whole, whole)


def _image(axes: "Axes", image: Image, x: float, y: float, width: float, height: float) -> None:
    extent = (x, x + width, y, y + height)
    axes.imshow(
        image, cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="none", aspect="auto", origin="upper"
    )


def _outline(axes: "Axes", corner: Array, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    place = (float(corner[0]), float(corner[1]))
    axes.add_patch(Rectangle(place, width, height, fill=False, edgecolor="0.6", linewidth=0.4))
