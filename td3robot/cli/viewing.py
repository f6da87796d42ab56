"""The command that shows a run, a policy, a record or an arm in the browser."""

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from td3robot.cli.options import LOOK, EpisodeSeed
from td3robot.cli.terminal import stderr
from td3robot.errors import ConfigError, choose, require_extra
from td3robot.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    from td3robot.view.show import Page
    from td3robot.view.source import Source

PAGES = ("viser", "swift")
EVERYWHERE = "0.0.0.0"


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(rich_help_panel=LOOK, epilog="Example: td3robot view ur5e_reach")(view)


def view(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A run (even during training), a checkpoint, a released policy's name, a record (even while it is "
            "written), a cell's file, or a configuration.",
        ),
    ],
    page: Annotated[
        str, typer.Option("--with", help="viser, or swift (one tab, sliders that move the arm).")
    ] = "viser",
    open_tab: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
    port: Annotated[
        int | None,
        typer.Option(min=1024, max=65535, help="Port of viser's page; by default the first free one from 8080."),
    ] = None,
    allow_network: Annotated[
        bool,
        typer.Option("--allow-network", help="Let other computers see the page; anyone there can press its buttons."),
    ] = False,
    seed: EpisodeSeed = 12345,
    is_beside: Annotated[bool, typer.Option("--beside", hidden=True)] = False,
) -> None:
    """Watch a run, a policy, a record or an arm in the browser. Ctrl-C ends it."""
    if page not in PAGES:
        raise ConfigError(choose("page", page, PAGES))
    if page == "swift" and (allow_network or port is not None):
        raise ConfigError("Swift's page is for this computer alone, on ports of its own; use --with viser")
    from td3robot.view.targets import open_target
    from td3robot.view.viewer_process import parent_ended

    over = parent_ended() if is_beside else lambda: False
    show(lambda: open_target(target, seed, is_beside), page, open_tab, port, allow_network, over)


def show(
    opened: Callable[[], "Source"],
    page: str = "viser",
    open_tab: bool = True,
    port: int | None = None,
    allow_network: bool = False,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Show a source in the browser until Ctrl-C.

    Args:
        opened: Opens the source.
        page: One of :data:`PAGES`.
        open_tab: Whether to open a browser.
        port: Port of viser's page; None uses the first free one from 8080.
        allow_network: Whether other computers may see it.
        over: Whether to end.

    Raises:
        Td3RobotError: The page or its port is not available, or there is nothing to see.
    """
    from td3robot.view.show import Show
    from td3robot.view.viewer_process import forwarding_line, lower_priority, open_browser

    lower_priority()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # otherwise, a shell's background programs ignore it
    host, found = EVERYWHERE if allow_network else LOOPBACK, 0
    if page == "viser":
        require_viser()
        found = free_port(host, port)
    try:
        with closing(opened()) as source, closing(_page(page, source, host, found)) as shown:
            stderr.say(forwarding_line(shown.url, shown.ports))
            if open_tab and (sentence := open_browser(shown.url)) is not None:
                stderr.say(f"view: {sentence}")
            Show(source, shown).run(over)
    except KeyboardInterrupt:
        stderr.print("view: ended")


def require_viser() -> None:
    """Require that viser and mjviser are installed.

    Raises:
        MissingExtraError: They are not; says how to install them.
    """
    require_extra("view", "looking at an arm in the browser", "viser", "mjviser")


@contextmanager
def viewer_beside(wanted: bool) -> Iterator[Callable[[Path], None]]:
    """Yield a function that shows a run or a record in a separate process until the block ends, or does nothing.

    Raises:
        MissingExtraError: The viewer is wanted but not available.
    """
    if not wanted:
        yield lambda target: None
        return
    require_viser()
    from td3robot.view.viewer_process import ViewerProcess

    with ViewerProcess(lambda sentence: stderr.say(f"td3robot: {sentence}")) as viewer:
        yield viewer.start


def _page(name: str, source: "Source", host: str, port: int) -> "Page":
    if name == "swift":
        from td3robot.view.swift_page import SwiftPage

        return SwiftPage(source)
    from td3robot.view.viser_page import ViserPage

    return ViserPage(source, host, port)
