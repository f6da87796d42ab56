"""Commands that calibrate a camera: its lens, and where it is in the arm's base frame or on the flange."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td3robot.cli.options import ARM, App, Json, Records
from td3robot.cli.terminal import print_json, signals_call, stderr
from td3robot.cli.vision import CAMERA_FILE, TAGS_FILE, live_page
from td3robot.errors import CameraError, ConfigError, choose, require_extra

if TYPE_CHECKING:
    from td3robot.vision.camera import Camera
    from td3robot.vision.frames import FrameSource
    from td3robot.vision.intrinsics import Lens, ViewCollector
    from td3robot.vision.recording import Solved
    from td3robot.vision.tags import Image

MODES = ("touch", "carry", "wrist")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
# Length of the ruler on a sheet, as it should be [mm], and what a printer may make of it.
RULER_MM, RULER_RANGE_MM = 100.0, (80.0, 125.0)

Ruler = Annotated[
    float | None,
    typer.Option(metavar="MM", help="Measured length of the 100 mm ruler on the board's sheet; asked if not given."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    calibrate = App(
        help="Calibrate a camera: its lens, and its place in the cell.",
        epilog="Example: td3robot calibrate camera --camera 0",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    calibrate.command("camera", epilog="Example: td3robot calibrate camera --camera 0 --show")(camera)
    example = "Example: td3robot calibrate hand-eye --robot cell.yaml --mode touch"
    calibrate.command("hand-eye", epilog=example)(hand_eye)
    app.add_typer(calibrate, name="calibrate", rich_help_panel=ARM)


def camera(
    source: Annotated[
        str, typer.Option("--camera", metavar="0|FILE|URL|FOLDER", help="A camera's number, a video, or pictures.")
    ] = "0",
    out: Annotated[Path, typer.Option(help="The camera's file to write.")] = CAMERA_FILE,
    show: Annotated[bool, typer.Option("--show", help="Show the frames in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Calibrate a camera's lens from views of the printed board. Takes views by itself; Ctrl-C ends that."""
    require_extra("vision", "calibrating a camera", "cv2")
    from td3robot.vision.camera import LensFigures, save_camera
    from td3robot.vision.intrinsics import calibrate_lens

    if out.exists():
        raise ConfigError(f"{out} exists; move it, or choose another name with --out")
    views = _views(source, show)
    lens = calibrate_lens(views.views, views.width, views.height)
    figures = LensFigures(
        date=date.today().isoformat(), source=source, views=len(views.views) - len(lens.left_out),
        misfit_px=round(lens.misfit_px, 4), coverage=round(lens.coverage, 3),
    )  # fmt: skip
    save_camera(out, lens.camera.model_copy(update={"lens": figures}))
    if as_json:
        print_json(figures.model_dump() | {"matrix": lens.camera.matrix, "distortion": lens.camera.distortion})
    _say_lens(lens, figures.views, out)


def hand_eye(
    mode: Annotated[
        str, typer.Option(help="touch: tags on the table; carry: a target in the gripper; wrist: camera on the flange.")
    ] = "touch",
    robot: Annotated[
        Path | None, typer.Option("--robot", help="The cell: a file, or a name from td3robot list.")
    ] = None,
    calibration: Annotated[
        Path, typer.Option(help="The camera's file; the camera's place is written into it.")
    ] = CAMERA_FILE,
    source: Annotated[
        str | None, typer.Option("--camera", metavar="0|URL", help="The camera; by default that of its file.")
    ] = None,
    tags_file: Annotated[Path, typer.Option("--tags", help="The tags file.")] = TAGS_FILE,
    target: Annotated[str, typer.Option(metavar="board|table|OBJECT", help="What carry and wrist look at.")] = "board",
    ruler: Ruler = None,
    tip: Annotated[
        float, typer.Option(metavar="MM", help="touch: from the tool centre point to what touches the tags.")
    ] = 0.0,
    poses: Annotated[int, typer.Option(min=6, max=40, help="carry, wrist: how many poses.")] = 12,
    speed: Annotated[float, typer.Option(help="carry, wrist: factor on all speed and acceleration limits.")] = 0.1,
    folder: Annotated[Path, typer.Option(help="Where to record pictures and poses.")] = Path("hand_eye"),
    recorded: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Solve what is recorded there; needs no arm and no camera.")
    ] = None,
    leave_out: Annotated[list[int] | None, typer.Option(metavar="N", help="A pose or tag not to use.")] = None,
    records: Records = Path("records"),
    as_json: Json = False,
) -> None:
    """Find where a camera is relative to the arm. Asks before every motion; touch moves nothing."""
    require_extra("vision", "calibrating a camera", "cv2")
    from td3robot.vision.camera import load_camera, save_camera
    from td3robot.vision.recording import load_recording, solve_recording
    from td3robot.vision.tags import Tags, load_tags
    from td3robot.vision.target import target_of

    if mode not in MODES:
        raise ConfigError(choose("mode", mode, MODES))
    lens = load_camera(calibration)
    known = load_tags(tags_file) if tags_file.exists() or tags_file != TAGS_FILE else Tags()
    mode = mode if recorded is None else load_recording(recorded).mode
    looked_at = target_of(target, known, _scale(ruler) if target == "board" and mode != "touch" else 1.0)
    if recorded is None:
        if robot is None:
            raise ConfigError("--robot is missing: the cell's file; or give --recorded FOLDER, which needs no arm")
        _record(robot, mode, lens, calibration, source, looked_at, tip, poses, speed, folder, records)
    solved = solve_recording(recorded or folder, lens, looked_at, known, leave_out or ())
    pose = _camera_pose(mode, solved)
    save_camera(calibration, lens.model_copy(update={"pose": pose}))
    if as_json:
        print_json(pose.model_dump())
    _say_place(solved, calibration)


def _views(source: str, show: bool) -> "ViewCollector":
    """Collect views of the board from pictures in a folder, a video, or a live camera until there are enough."""
    from td3robot.vision.frames import is_live
    from td3robot.vision.intrinsics import ViewCollector
    from td3robot.vision.target import BoardTarget

    target, collector = BoardTarget(), None
    with ExitStack() as stack:
        shown = stack.enter_context(live_page()).show if show else None
        ended: list[bool] = []
        stack.enter_context(signals_call(lambda: ended.append(True)))
        for image in _images(source, stack):
            height, width = image.shape[:2]
            collector = collector or ViewCollector(width, height)
            if (width, height) != (collector.width, collector.height):
                raise CameraError(
                    f"{source} has pictures of {width}x{height} and of {collector.width}x{collector.height} pixels; a "
                    "lens is calibrated at one resolution"
                )
            found = target.find(image)
            if collector.offer(found, moves=not Path(source).is_dir()):
                stderr.say(
                    f"view {len(collector.views)}: the board was seen in {100 * collector.coverage:.0f} % of the "
                    f"picture, and tilted {collector.tilted} times; {collector.advice()}"
                )
            if shown is not None:
                shown(_drawn(image, collector))
            if ended or (is_live(source) and collector.is_enough):
                break
    if collector is None:
        raise CameraError(f"{source} has no picture (of {', '.join(PICTURES)}); give a camera, a video or a folder")
    return collector


def _images(source: str, stack: ExitStack) -> "Iterator[Image]":
    """Yield the pictures of a folder, or the frames of a camera or video."""
    import cv2
    import numpy as np

    from td3robot.vision.frames import FrameSource

    if not Path(source).is_dir():
        for frame in stack.enter_context(FrameSource(source)):
            yield frame.image
        return
    for path in sorted(path for path in Path(source).iterdir() if path.suffix.lower() in PICTURES):
        image = cv2.imread(str(path))
        if image is None:
            raise CameraError(f"{path} cannot be read as a picture; is it whole?")
        yield np.asarray(image, np.uint8)


def _drawn(image: "Image", collector: "ViewCollector") -> "Image":
    """Return a picture with the corners of all views, and what the next one should show."""
    import cv2
    import numpy as np

    picture = image.copy()
    for view in collector.views:
        for x, y in np.rint(view.pixels).astype(int).tolist():
            cv2.circle(picture, (x, y), 2, (80, 200, 60), -1)
    text = f"{len(collector.views)} views, {100 * collector.coverage:.0f} % covered; {collector.advice()}"
    for colour, thick in (((255, 255, 255), 3), ((60, 160, 20), 1)):
        cv2.putText(picture, text, (10, 22), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, thick, cv2.LINE_AA)
    return picture


def _say_lens(lens: "Lens", used: int, out: Path) -> None:
    left_out = "".join(f", view {number + 1} left out" for number in lens.left_out)
    stderr.say(
        f"wrote {out}: {used} views{left_out}; the lens fits them to {lens.misfit_px:.2f} pixels (the worst view to "
        f"{max(lens.view_misfits_px):.2f}); the board was seen in {100 * lens.coverage:.0f} % of the picture"
    )
    stderr.say(f"next: td3robot calibrate hand-eye --robot CELL --calibration {out} --mode touch, carry or wrist")


def _scale(ruler_mm: float | None) -> float:
    """Return the size of the board's print over the wanted one, from the ruler on its sheet."""
    if ruler_mm is None:
        if not sys.stdin.isatty():
            raise ConfigError("--ruler is missing: the measured length of the 100 mm ruler on the board's sheet")
        ruler_mm = typer.prompt("How long is the 100 mm ruler on the board's sheet, as measured [mm]?", type=float)
    low, high = RULER_RANGE_MM
    if not low <= ruler_mm <= high:
        raise ConfigError(f"--ruler {ruler_mm:g} is outside [{low:g}, {high:g}] mm; measure the 100 mm ruler")
    return ruler_mm / RULER_MM


def _record(
    robot: Path, mode: str, lens: "Camera", calibration: Path, source: str | None, looked_at: Any,
    tip_mm: float, poses: int, speed: float, folder: Path, records: Path,
) -> None:  # fmt: skip
    """Record a calibration with an arm and a live camera."""
    from td3robot.deploy.hand_eye import HandEyeRequest, record
    from td3robot.deploy.operator import present_operator
    from td3robot.robots.cells import load_cell
    from td3robot.vision.frames import FrameSource

    source = source or (lens.lens.source if lens.lens is not None else "0")
    cell = load_cell(robot)
    request = HandEyeRequest(cell, mode, folder, records, speed, poses, tip_mm / 1e3)  # type: ignore[arg-type]
    with FrameSource(source, lens, str(calibration)) as frames, present_operator() as operator:
        if not frames.is_live:
            raise ConfigError(f"--camera {source} is no live camera; give its number or address")
        record(request, lambda: _now(frames), looked_at, operator)


def _now(frames: "FrameSource") -> "Image":
    """Return a frame that was exposed after this call."""
    from time import time

    asked, number = time(), 0
    while (frame := frames.read(number)) is not None:
        if frame.exposed_at > asked:
            return frame.image
        number = frame.number
    raise CameraError(f"{frames} ended")


def _camera_pose(mode: str, solved: "Solved") -> Any:
    """Return the section of a camera's place with its figures."""
    import numpy as np

    from td3robot.vision.camera import CameraPose, PoseFigures

    found = solved.found
    figures = PoseFigures(
        date=date.today().isoformat(), mode=mode, used=len(found.residuals),
        residual_mm=round(1e3 * found.residual_m, 3), residual_deg=round(float(np.degrees(found.residual_rad)), 3),
        deviation_mm=round(1e3 * found.deviation_m, 3),
        check_mm=None if solved.check_m is None else round(1e3 * solved.check_m, 3),
    )  # fmt: skip
    return CameraPose.of(found.pose, found.mount).model_copy(update={"figures": figures})


def _say_place(solved: "Solved", calibration: Path) -> None:
    import numpy as np

    found = solved.found
    for residual in found.residuals:
        stderr.say(
            f"  {residual.name}: {1e3 * residual.distance_m:.1f} mm, {np.degrees(residual.angle_rad):.2f} degrees off"
        )
    x, y, z = 1e3 * found.pose.position
    stderr.say(
        f"wrote {calibration}: the camera is at ({x:.0f}, {y:.0f}, {z:.0f}) mm on the {found.mount}; residual "
        f"{1e3 * found.residual_m:.1f} mm and {np.degrees(found.residual_rad):.2f} degrees; what it sees is known to "
        f"{1e3 * found.deviation_m:.1f} mm"
    )
    if solved.check_m is not None:
        stderr.say(f"{solved.check}, which was not used, is {1e3 * solved.check_m:.1f} mm off")
