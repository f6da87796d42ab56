"""Commands that see objects with tags: print the tags, and send poses from a camera's frames."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from td3robot.cli.options import ARM, Json
from td3robot.cli.terminal import print_json, signals_call, stderr
from td3robot.errors import ConfigError, Td3RobotError, require_extra

if TYPE_CHECKING:
    from td3robot.vision.eye import Sight
    from td3robot.vision.frames import Frame
    from td3robot.vision.show import LivePage
    from td3robot.vision.tags import Tags
    from td3robot.vision.track import TrackFigures, TrackSettings

SHEETS, TAGS_FILE, CAMERA_FILE = Path("tags.pdf"), Path("tags.yaml"), Path("camera.yaml")
TRACKER = "127.0.0.1:47300"


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(rich_help_panel=ARM, epilog="Example: td3robot tags --object object=40 --table 4")(tags)
    app.command(rich_help_panel=ARM, epilog="Example: td3robot track --camera 0 --show")(track)


def tags(
    out: Annotated[Path, typer.Argument(metavar="FILE.pdf", help="The sheets; a tags file goes beside them.")] = SHEETS,
    objects: Annotated[
        list[str] | None,
        typer.Option(
            "--object", metavar="NAME=MM[xMMxMM]", help="An object's edges [mm], by default object=40; may be repeated."
        ),
    ] = None,
    table: Annotated[int, typer.Option(min=0, max=20, help="How many tags for the table.")] = 4,
    table_mm: Annotated[float, typer.Option(min=10.0, max=150.0, help="Their size [mm].")] = 64.0,
) -> None:
    """Write sheets of tags to print: for objects, table, calibration."""
    require_extra("vision", "drawing tags", "cv2")
    from td3robot.vision.sheet import save_sheets
    from td3robot.vision.tags import TABLE_FIRST, save_tags

    if out.suffix.lower() != ".pdf":
        raise ConfigError(f"sheets are written as .pdf, and {out} is not one")
    described = out.with_suffix(".yaml")
    if described.exists():
        raise ConfigError(f"{described} exists, and may hold what you measured; move it, or choose another name")
    wanted = _tags(objects or ["object=40"], table_mm)
    count = save_sheets(out, wanted, range(TABLE_FIRST, TABLE_FIRST + table))
    save_tags(described, wanted)
    stderr.say(f"wrote {out} ({count} pages; print at 100 %) and {described} (which tag is where)")


def track(
    camera: Annotated[str, typer.Option(metavar="0|FILE|URL", help="The camera's number, a video, or a stream.")] = "0",
    calibration: Annotated[Path, typer.Option(help="The camera's file.")] = CAMERA_FILE,
    tags_file: Annotated[Path, typer.Option("--tags", help="The tags file.")] = TAGS_FILE,
    table: Annotated[float, typer.Option(help="Height of the table top in the arm's base frame [m].")] = 0.0,
    to: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the tracker listens.")] = TRACKER,
    show: Annotated[bool, typer.Option("--show", help="Show the frames in the browser.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of that page; 0 takes a free one.")] = 0,
    as_json: Json = False,
) -> None:
    """Send the poses of objects with tags, as a camera sees them.

    They go to a tracker's port. Ctrl-C ends it.
    """
    require_extra("vision", "seeing tags", "cv2")
    from td3robot.vision.tags import load_tags
    from td3robot.vision.track import TrackSettings

    settings = TrackSettings(camera, calibration, tags_file, load_tags(tags_file).rest_m(table), _address(to))
    figures = _shown(settings, port) if show else _track(settings)
    if figures is None:
        raise Td3RobotError(f"camera {camera} showed fewer than two frames; nothing can be said about it")
    if as_json:
        print_json(asdict(figures))
    else:
        stderr.say(f"the last {figures.frames} frames: {figures}")


def _shown(settings: "TrackSettings", port: int) -> "TrackFigures | None":
    """Track with a page in the browser."""
    from td3robot.vision.show import drawn

    def look(frame: "Frame", sight: "Sight") -> None:
        """Show a frame with what was seen in it."""
        page.show(drawn(frame.image, sight))

    with live_page(port) as page:
        return _track(settings, look)


@contextmanager
def live_page(port: int = 0) -> "Iterator[LivePage]":
    """Open a page of frames in the browser, at a port or at a free one."""
    from td3robot.view.viewer_process import forwarding_line, open_browser
    from td3robot.vision.show import LivePage

    with closing(LivePage(port)) as page:
        stderr.say(forwarding_line(page.url, [page.port]))
        if (problem := open_browser(page.url)) is not None:
            stderr.say(problem)
        yield page


def _track(settings: "TrackSettings", look: "Callable[[Frame, Sight], None] | None" = None) -> "TrackFigures | None":
    """Track until Ctrl-C, and say each second how well."""
    from td3robot.vision.track import track as follow

    ended: list[bool] = []
    with signals_call(lambda: ended.append(True)):
        return follow(settings, lambda figures: stderr.say(str(figures)), look, lambda: bool(ended))


def _tags(objects: list[str], table_mm: float) -> "Tags":
    """Return the tags of objects that were named with their edges [mm], five for each."""
    from pydantic import ValidationError

    from td3robot.config.loading import explain
    from td3robot.vision.tags import FACES, Tags

    values = {}
    for number, text in enumerate(objects):
        name, edges = _object(text)
        values[name] = {"size_m": edges, "first_id": number * len(FACES)}
    try:
        return Tags.model_validate({"objects": values, "table_tag_m": table_mm / 1e3})
    except ValidationError as error:
        raise ConfigError(f"--object: {explain(error, Tags, {'objects': values})}") from None


# An edge of up to this number is one that was meant in metres.
METRE_MM = 1.0


def _object(text: str) -> tuple[str, tuple[float, ...]]:
    """Parse ``NAME=MM`` or ``NAME=MMxMMxMM``; return the name, and three edges [m]."""
    name, _, sizes = text.partition("=")
    try:
        edges = [float(size) / 1e3 for size in sizes.split("x")]
    except ValueError:
        edges = []
    if not name or len(edges) not in (1, 3):
        raise ConfigError(f"--object {text!r} is not of the form object=40 or object=40x60x30 [mm]")
    if max(edges) <= METRE_MM / 1e3:
        raise ConfigError(f"--object {text!r} looks like metres; edges are in millimetres: object=40 has 40 mm")
    return name, tuple(edges * (3 if len(edges) == 1 else 1))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"--to {text!r} is not of the form HOST:PORT, such as {TRACKER}")
    return host, int(port)
