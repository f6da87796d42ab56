"""The page of a replay."""

from math import degrees
from typing import Any

from td3robot.format import capital, joint_name, name_of, number
from td3robot.report import plots
from td3robot.report.html import NEUTRAL, Facts, Page, Plot, Plots, Section, Table, Text, Tile, Verdict
from td3robot.report.replay import Gap, Replay
from td3robot.report.session_page import joint_differences, joint_plots

ABOUT = (
    "The simulated arm got exactly what was sent to the recorded one, and began each episode where that one stood. "
    "Objects are not part of it, nor are the ways between episodes."
)
# How the two arms are drawn: name, colour, width and dash.
STYLES = [("measured", "--c3", 2.0, "solid"), ("simulated", "--c2", 2.0, "dash")]
DEGREES = degrees(1.0)  # in a radian


def replay_page(replay: Replay, gap: Gap) -> Page:
    """Lay out the gap between a record and its replay."""
    figures, robot = gap.to_json(), replay.config
    facts = [
        ("Record", str(replay.path)), ("Arm", name_of(robot.arm)), ("Gripper", name_of(robot.gripper)),
        ("Periods", f"{figures['periods']:,}"), ("Simulation", f"MuJoCo, {robot.physics_rate_hz:g} steps a second"),
    ]  # fmt: skip
    sections = [
        Section("Simulated against measured joints", [Text(ABOUT), _table(figures)]),
        Section("Over time", _curves(gap)),
        Section("What this is about", [Facts(facts)]),
    ]
    verdict = Verdict(NEUTRAL, "Replayed", f"{capital(gap_sentence(figures))}.")
    title = f"Replay of {replay.policy}"
    return Page("Replay in simulation", title, verdict, _tiles(figures), sections, str(replay.path))


def gap_sentence(figures: dict[str, Any]) -> str:
    """Return a sentence on how far the simulated arm was from the measured one."""
    return (
        f"the simulated joints were {_angle(figures['rms_rad'])} from the measured ones (rms of the worst joint), "
        f"{_angle(figures['max_rad'])} at most; the tool {number(figures['tool_rms_m'], unit='mm', scale=1e3)} rms, "
        f"{number(figures['tool_max_m'], unit='mm', scale=1e3)} at most"
    )


def _tiles(figures: dict[str, Any]) -> list[Tile]:
    rows = (
        ("Gap of the worst joint", "rms_rad", "mrad", "rms"), ("Largest gap", "max_rad", "mrad", "of any joint"),
        ("At the end of episodes", "at_end_rad", "mrad", "worst joint, rms"),
        ("Gap of the tool", "tool_rms_m", "mm", "rms"), ("Largest gap of the tool", "tool_max_m", "mm", ""),
    )  # fmt: skip
    return [Tile(title, number(figures[key], unit=unit, scale=1e3), detail) for title, key, unit, detail in rows]


def _table(figures: dict[str, Any]) -> Table:
    rows = [
        [
            joint_name(name),
            *(
                number(each[key], unit=unit, scale=scale)
                for key in ("rms_rad", "max_rad")
                for scale, unit in ((1e3, "mrad"), (DEGREES, "°"))
            ),
        ]
        for name, each in figures["joints"].items()
    ]
    return Table(["Joint", "Gap, rms", "in degrees", "Largest gap", "in degrees"], rows)


def _curves(gap: Gap) -> list[Any]:
    names = [joint_name(name) for name in gap.names]
    times, values = gap.tool.curve(0)
    tool = plots.figure(
        [plots.line(times, 1e3 * values, "tool", "--c1")], "time (s)", "distance (mm)", height=260,
        y_axis={"rangemode": "tozero"},
    )  # fmt: skip
    differences = joint_differences(gap.joints, names, 2, "gap (mrad)")
    return [
        Plot("Simulated minus measured", differences, gap.joints.left_out("control period"), "time"),
        Plot("Between the two tool centre points", tool, "", "time"),
        Plots(joint_plots(gap.joints, names, STYLES), [(name, paint) for name, paint, _, _ in STYLES]),
    ]


def _angle(radians: float) -> str:
    return f"{number(radians, unit='mrad', scale=1e3)} ({number(radians, 2, '°', DEGREES)})"
