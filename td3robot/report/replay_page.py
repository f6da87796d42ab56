"""The page of a replay."""

from typing import Any

import numpy as np

from td3robot.report import plots
from td3robot.report.blocks import NEUTRAL, Badge, Facts, Link, Page, Plot, Plots, Section, Table, Text, Tile, Verdict
from td3robot.report.replay import Gap, Replay, policy_of
from td3robot.report.session_page import decimated
from td3robot.report.words import joint_name, name_of, number

ABOUT = (
    "The simulated arm got exactly what was sent to the recorded one, and began each episode where that one stood. "
    "Objects are not part of it, nor are the ways between episodes."
)


def replay_page(replay: Replay, gap: Gap) -> Page:
    """Lay out the gap between a record and its replay."""
    figures = gap.to_json()
    robot = replay.config
    facts = [
        ("Record", str(replay.path)), ("Arm", name_of(robot.arm)), ("Gripper", name_of(robot.gripper)),
        ("Periods", f"{figures['periods']:,}"), ("Simulation", f"MuJoCo, {robot.physics_rate_hz:g} steps a second"),
    ]  # fmt: skip
    sections = [_table(figures), _curves(gap), Section("What this is about", [Facts(facts)])]
    return Page(
        "Replay in simulation", f"Replay of {policy_of(replay)}", _verdict(figures), _tiles(figures), sections,
        str(replay.path),
    )  # fmt: skip


def in_words(figures: dict[str, Any]) -> str:
    """Return a sentence on how far the simulated arm was from the measured one."""
    return (
        f"the simulated joints were {_angle(figures['rms_rad'])} from the measured ones (rms of the worst joint), "
        f"{_angle(figures['max_rad'])} at most; the tool {number(1e3 * figures['tool_rms_m'], unit='mm')} rms, "
        f"{number(1e3 * figures['tool_max_m'], unit='mm')} at most"
    )


def _verdict(figures: dict[str, Any]) -> Verdict:
    told = in_words(figures)
    return Verdict(NEUTRAL, "Replayed", f"{told[0].upper()}{told[1:]}.")


def _tiles(figures: dict[str, Any]) -> list[Tile]:
    at_end = figures["at_end_rad"]
    return [
        Tile("Gap of the worst joint", number(1e3 * figures["rms_rad"], unit="mrad"), "rms"),
        Tile("Largest gap", number(1e3 * figures["max_rad"], unit="mrad"), "of any joint"),
        Tile(
            "At the end of episodes", number(None if at_end is None else 1e3 * at_end, unit="mrad"), "worst joint, rms"
        ),
        Tile("Gap of the tool", number(1e3 * figures["tool_rms_m"], unit="mm"), "rms"),
        Tile("Largest gap of the tool", number(1e3 * figures["tool_max_m"], unit="mm")),
    ]


def _table(figures: dict[str, Any]) -> Section:
    rows: list[list[str | Badge | Link]] = [
        [
            joint_name(name),
            *(number(scale * each[key], unit=unit) for key in ("rms_rad", "max_rad") for scale, unit in UNITS),
        ]
        for name, each in figures["joints"].items()
    ]
    return Section(
        "Simulated against measured joints",
        [Text(ABOUT), Table(["Joint", "Gap, rms", "in degrees", "Largest gap", "in degrees"], rows)],
    )


def _curves(gap: Gap) -> Section:
    count, pictures, differences = len(gap.names), [], []
    for joint, name in enumerate(gap.names):
        traces = []
        for part, (label, paint, dash) in enumerate(LINES):
            times, values = gap.joints.curve(part * count + joint)
            traces.append(plots.line(times, np.degrees(values), label, paint, dash=dash))
        figure = plots.figure(traces, "time (s)", "angle (°)", height=240, legend=False)
        pictures.append(Plot(joint_name(name), figure, group="time"))
        times, values = gap.joints.curve(2 * count + joint)
        differences.append(plots.line(times, 1e3 * values, joint_name(name), plots.color(joint), width=1.5))
    times, values = gap.tool.curve(0)
    tool = plots.figure(
        [plots.line(times, 1e3 * values, "tool", "--c1")], "time (s)", "distance (mm)", height=260,
        y_axis={"rangemode": "tozero"},
    )  # fmt: skip
    left_out = decimated(gap.joints.rows_per_point, "control period").strip()
    legend = [(label, paint) for label, paint, _ in LINES]
    return Section(
        "Over time",
        [
            Plot("Simulated minus measured", plots.figure(differences, "time (s)", "gap (mrad)"), left_out, "time"),
            Plot("Between the two tool centre points", tool, "", "time"),
            Plots(pictures, legend),
        ],
    )


def _angle(radians: float) -> str:
    return f"{number(1e3 * radians, unit='mrad')} ({number(float(np.degrees(radians)), 2, '°')})"


UNITS = ((1e3, "mrad"), (180.0 / np.pi, "°"))
LINES = (("measured", "--c3", "solid"), ("simulated", "--c2", "dash"))
