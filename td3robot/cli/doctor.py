"""Checks what this computer can do for td3robot, and how to get what is missing.

Nothing is changed, and nothing is sent except to open a connection.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import webbrowser
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from td3robot.cli.deployment import show_findings
from td3robot.cli.options import LOOK, Json
from td3robot.cli.terminal import print_json, stderr
from td3robot.processes import start_python
from td3robot.requirements import NOT_ON_A_ROBOT, extras, has, impossible, installed, required
from td3robot.robots.physical import ATTENTION, OPTIONAL, Check
from td3robot.robots.simulated.drawing_library import drawing_fault

OLDEST, TOO_NEW = (3, 11), (3, 14)
# A full replay buffer of a grasp run takes about 0.1 GB per checkpoint, and a run keeps its last and its best [GB].
ENOUGH_GB = 2.0
# How long a controller on the network may take to answer [s].
ANSWER_S = 2.0
# How long loading a rendering library may take [s].
RENDERING_S = 30.0
DRAW = """
import mujoco
context = mujoco.GLContext(64, 64)
context.make_current()
from OpenGL import GL
print(GL.glGetString(GL.GL_RENDERER).decode())
"""


NAME = "doctor"


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(NAME, epilog="Example: td3robot doctor --robot cell.yaml", rich_help_panel=LOOK)(doctor)


def doctor(
    robot: Annotated[Path | None, typer.Option(help="A cell whose controller must be reachable.")] = None,
    as_json: Json = False,
) -> None:
    """Check this computer: versions, extras, rendering, network, disk."""
    with stderr.status("looking at this computer"):
        check = examine(robot)
    if as_json:
        print_json({"ok": check.go, "findings": check.to_json()["findings"]})
    else:
        show_findings(check.to_json()["findings"])
        stderr.print("td3robot can run here" if check.go else "td3robot cannot run here; see no-go above")
    if not check.go:
        raise typer.Exit(1)


def examine(cell: Path | None) -> Check:
    """Check this computer, and a cell's controller if a cell is given.

    Raises:
        ConfigError: The cell cannot be read.
    """
    check = Check()
    _python(check)
    _packages(check)
    _extras(check)
    _plugins(check)
    _drawing_library(check)
    _rendering(check)
    _browser(check)
    _realtime(check)
    _ports(check)
    if cell is not None:
        _network(check, cell)
    _disk(check)
    return check


def _python(check: Check) -> None:
    here = sys.version_info[:2]
    good = OLDEST <= here < TOO_NEW
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    check.add("Python", "3.11 to 3.13", found, good, "make a virtual environment with another Python")


def _packages(check: Check) -> None:
    """Compare the installed packages with td3robot's basic requirements."""
    lacking = [needed for needed in required() if not installed(needed)]
    missing = [str(needed) for needed in lacking if needed.name not in NOT_ON_A_ROBOT]
    to_learn = [str(needed) for needed in lacking if needed.name in NOT_ON_A_ROBOT]
    names = ("td3robot", "torch", "mujoco", "gymnasium", "numpy")
    found = ", ".join(f"{name} {version(name)}" for name in names if has(name))
    check.add(
        "packages", "all that are required", f"missing: {', '.join(missing)}" if missing else found, not missing,
        f"pip install {' '.join(repr(needed) for needed in missing)}",
    )  # fmt: skip
    check.add(
        "packages to train and report", "unless this only drives a robot",
        f"missing: {', '.join(to_learn)}" if to_learn else "installed", not to_learn,
        f"pip install {' '.join(repr(needed) for needed in to_learn)}", ATTENTION,
    )  # fmt: skip


def _extras(check: Check) -> None:
    for extra in (extra for extra in extras() if extra not in ("test", "dev", "docs")):
        missing = [needed.name for needed in required(extra) if not installed(needed)]
        found = f"not installed: {', '.join(missing)}" if missing else "installed"
        advice = f"pip install 'td3robot[{extra}]'"
        if (reason := impossible(extra)) is not None:
            missing, found, advice = [extra], "not for this platform", f"it needs {reason}"
        check.add(f"extra {extra}", "if you need it", found, not missing, advice, OPTIONAL)


def _plugins(check: Check) -> None:
    """Import what other distributions add: arms, grippers, cells, trackers, tasks, agents."""
    from td3robot.registry import REGISTRIES

    for registry in REGISTRIES:
        len(registry)  # imports everything
    found = [entry.name for registry in REGISTRIES for entry in registry.plugins if entry not in registry.set_aside]
    check.add("plugins", "importable, if there are any", ", ".join(found) or "none", True, "")
    for sentence in (sentence for registry in REGISTRIES for sentence in registry.set_aside.values()):
        check.add("plugin", "importable", "set aside", False, sentence, ATTENTION)


def _drawing_library(check: Check) -> None:
    """Check what ``MUJOCO_GL`` names; if MuJoCo does not start with it, the other checks go on without it."""
    fault = drawing_fault()
    if fault is not None:
        check.add("MUJOCO_GL", "a library that is here, or nothing", fault, False, "unset MUJOCO_GL")
        del os.environ["MUJOCO_GL"]


def _rendering(check: Check) -> None:
    """Try to draw offscreen in a separate process, because a broken driver may end it."""
    found = {kind: _renderer(kind) for kind in ("egl", "osmesa")}
    works = [f"{kind.upper()} ({name})" for kind, name in found.items() if name]
    check.add(
        "rendering", "EGL or OSMesa", ", ".join(works) or "none", bool(works),
        "for films and pictures: apt install libegl1 (or libosmesa6)", ATTENTION,
    )  # fmt: skip


def _renderer(kind: str) -> str | None:
    process = start_python(["-c", DRAW], {"MUJOCO_GL": kind}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        said, _ = process.communicate(timeout=RENDERING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    return said.decode(errors="replace").strip() if process.returncode == 0 else None


def _browser(check: Check) -> None:
    try:
        found = webbrowser.get().name
    except webbrowser.Error:
        found = ""
    check.add(
        "browser", "a browser for the viewer", found or "none that can open a window here", bool(found),
        "install one, or open the address that a viewer prints on another computer (ssh -L)", ATTENTION,
    )  # fmt: skip


def _realtime(check: Check) -> None:
    """Check whether arm drivers may use SCHED_FIFO; requesting it and giving it back changes nothing."""
    kernel = "PREEMPT_RT" if Path("/sys/kernel/realtime").exists() else "no PREEMPT_RT"
    try:
        before, priority = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, before, priority)
        allowed = True
    except (OSError, AttributeError):
        allowed = False
    check.add(
        "real-time scheduling", "allowed", f"{'allowed' if allowed else 'not allowed'}, kernel with {kernel}", allowed,
        "on an arm: add '@realtime - rtprio 99' to /etc/security/limits.conf and your user to the group realtime",
        ATTENTION,
    )  # fmt: skip


def _ports(check: Check) -> None:
    from td3robot.errors import RobotError
    from td3robot.simulators.process import free_host
    from td3robot.simulators.sessions import session_of

    try:
        found, free = f"free on {free_host(session_of('ur5e').ports)}", True
    except RobotError as error:
        found, free = str(error), False
    check.add("ports of a simulated controller", "free on loopback", found, free, "end what listens there", ATTENTION)


def _network(check: Check, cell: Path) -> None:
    from td3robot.robots.cells import load_cell

    for name, (host, port) in load_cell(cell).endpoints().items():
        begin = perf_counter()
        try:
            socket.create_connection((host, port), ANSWER_S).close()
            found, good = f"answers after {1e3 * (perf_counter() - begin):.1f} ms", True
        except OSError as error:
            found, good = f"no answer: {error.strerror or error}", False
        check.add(
            f"{name} at {host}:{port}", "an answer", found, good,
            "check cable, address and netmask; on a UR also remote control, and the services in Settings, Security",
            ATTENTION,
        )  # fmt: skip


def _disk(check: Check) -> None:
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    check.add(
        "disk", f"{ENOUGH_GB:g} GB free here", f"{free_gb:.0f} GB free", free_gb >= ENOUGH_GB, "make room", ATTENTION
    )
