"""Commands that report on trainings and deployments, and replay records."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from td3robot import catalog
from td3robot.cli.options import LOOK, Json
from td3robot.cli.terminal import error_sentence, print_json, say_error, stderr
from td3robot.cli.viewing import require_viser, show, viewer_beside
from td3robot.errors import ConfigError, require_extra
from td3robot.format import shell


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(rich_help_panel=LOOK, epilog="Example: td3robot report checkpoints/ur5e_reach-20260101-120000")(report)
    app.command(
        rich_help_panel=LOOK, epilog="Example: td3robot replay records/20260101-120000-000000-run-ur5e_reach --fast"
    )(replay)
    app.command(
        rich_help_panel=LOOK, epilog="Example: td3robot dataset records/*-run-ur5e_reach --out ur5e_reach_dataset"
    )(dataset)


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Runs, checkpoints, released policies' names, sessions in records/, or records/ itself for an index.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Output page; by default report.html in the run's or session's folder (for several: here)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is no report.")] = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
) -> None:
    """Write one HTML page about runs and sessions.

    It works offline. Several runs or sessions are shown side by side.
    """
    from td3robot.report.build import make_report

    if out is not None:
        require_page(out)
    with stderr.status("reading"):
        page = make_report([catalog.policy(path) for path in paths], out, force)
    stderr.say(f"report: {page}")
    if open_page:
        from td3robot.view.viewer_process import open_browser

        if (sentence := open_browser(page.resolve().as_uri())) is not None:
            stderr.say(f"report: {sentence}")


def replay(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="A session in records/, or its record.jsonl.")],
    fast: Annotated[bool, typer.Option("--fast", help="Replay as fast as possible, not in real time.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Output page; by default replay.html in the session's folder.")
    ] = None,
    mcap: Annotated[
        Path | None, typer.Option(help="Also write every period to this MCAP file (implies --fast; extra mcap).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is no report.")] = False,
    view: Annotated[
        bool, typer.Option("--view", help="Show both arms in the browser afterwards (implies --fast; extra view).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay a record in simulation and measure the gap; export MCAP."""
    from td3robot.records import RecordError
    from td3robot.report import replay as replaying
    from td3robot.report.html import require_writable, write_page
    from td3robot.report.mcap import McapFile
    from td3robot.report.replay_page import gap_sentence, replay_page
    from td3robot.view.record import Replayed, SimulatedMotion

    if view:
        require_viser()
    again = replaying.Replay(record)
    page = out or again.path.parent / "replay.html"
    require_page(page)
    require_writable(page, force)
    joints = again.robot.spec.arm.joint_names
    gap = replaying.Gap(again)
    simulated = SimulatedMotion(len(joints)) if view else None
    with McapFile(mcap, again.about, joints, again.kinematics.tcp, force) if mcap else nullcontext() as exported:
        frames = again.frames(again.lines() if exported is None else exported.passed(again.lines()))
        for frame in frames if fast or mcap or view else replaying.in_real_time(frames):
            gap.add(frame)
            if exported is not None:
                exported.add_frame(frame)
            if simulated is not None:
                simulated.add(again.about["at"] + frame.at_s, frame.simulated, frame.gripper)
    figures = gap.to_json()
    if not figures["periods"]:
        raise RecordError(f"{again.path} holds no period in which something was sent, so there is nothing to replay")
    write_page(replay_page(again, gap), page, force)
    if as_json:
        print_json({"record": str(again.path)} | figures)
    stderr.say(f"{figures['periods']} periods replayed: {gap_sentence(figures)}")
    for path in (page, mcap):
        if path is not None:
            stderr.say(f"wrote {path}")
    if simulated is not None:
        show(lambda: Replayed(again.path, simulated))


def dataset(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD", help="Sessions in records/: of deploy, rehearse, or eval --records."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the dataset, which must not exist yet.")],
    as_json: Json = False,
) -> None:
    """Write the episodes of records as one LeRobotDataset.

    A frame is a control period. Shadows, and episodes that were stopped, are left out.
    """
    from td3robot.report.dataset import read_dataset
    from td3robot.report.lerobot import write_dataset

    require_extra("lerobot", "writing a dataset for LeRobot", "pyarrow")
    with stderr.status("reading"):
        found = read_dataset(records)
        write_dataset(found, out)
    figures = {"episodes": len(found.episodes), "frames": found.frames, "left_out": found.left_out}
    if as_json:
        print_json({"dataset": str(out)} | figures)
    left = f"; {found.left_out} stopped before their end were left out" if found.left_out else ""
    stderr.say(f"wrote {out}: {len(found.episodes)} episodes, {found.frames:,} frames{left}")


def require_page(out: Path) -> None:
    """Refuse a file name that is not HTML.

    Raises:
        ConfigError: Naming it.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out} is no page; give a name that ends with .html")


def report_at_end(paths: Sequence[Path]) -> None:
    """Write the report of a finished run or session and print its path; a failure is only printed."""
    try:
        from td3robot.report.build import make_report

        page = make_report(paths)
    except KeyboardInterrupt:
        _say_unwritten(paths, "it was interrupted")
    except Exception as error:  # noqa: BLE001  # what was done is done, and its outcome is not the report's to change
        _say_unwritten(paths, str(error) or repr(error))
    else:
        stderr.say(f"report: {page}")


def _say_unwritten(paths: Sequence[Path], reason: str) -> None:
    again = " ".join(map(shell, paths))
    sys.stderr.write(f"td3robot: the report was not written ({reason}); write it with: td3robot report {again}\n")


@contextmanager
def watched_session(watched: bool) -> Iterator[Callable[[Path], None]]:
    """Yield a callback for a session's record: it starts the viewer, if wanted, and a report is written at the end.

    An error that ends the session is told before anything about its report.

    Raises:
        MissingExtraError: It is to be shown, but the viewer is not installed.
    """
    records: list[Path] = []
    try:
        with viewer_beside(watched) as show:

            def begun(record: Path) -> None:
                """Note a record, and show it."""
                records.append(record)
                show(record)

            yield begun
    except Exception as error:
        if not records or (sentence := error_sentence(error)) is None:
            raise
        say_error(sentence)
        raise typer.Exit(2) from None
    finally:
        for record in records:
            report_at_end([record.parent])
