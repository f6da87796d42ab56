"""The page of one session: a deployment or a rehearsal."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from td3robot.deploy.recorded import EVALUATION
from td3robot.format import (
    ENDED_BY,
    NONE,
    capital,
    counted,
    duration,
    failure_kind,
    flat,
    guard_reason,
    interval,
    joint_name,
    name_of,
    number,
    percent,
    plain,
    sentence_case,
)
from td3robot.report import plots
from td3robot.report.figures import Subject, comparison_table, differences, interventions_table
from td3robot.report.html import (
    ATTENTION,
    BAD,
    GOOD,
    NEUTRAL,
    Badge,
    Cell,
    Facts,
    Fold,
    Page,
    Plot,
    Plots,
    Section,
    Sentences,
    Table,
    Text,
    Tile,
    Verdict,
)
from td3robot.report.session import PARTS, REHEARSAL, SHADOW, Episode, Session
from td3robot.robots.guard import REASONS
from td3robot.statistics import Sample

MODES = {
    "check": "Check: go or no-go, nothing moves",
    "shadow": "Shadow: decides, sends nothing",
    "confirm": "Confirm: moves while a key allows it",
    "run": "Run: whole episodes on the arm",
    REHEARSAL: "Rehearsal on a simulated controller",
    EVALUATION: "Evaluation: whole episodes in simulation",
}
LEVELS = {"go": GOOD, "attention": ATTENTION, "no-go": BAD}
# Endings before an episode's own end.
STOPS = ("operator", "fault", "cut off")
# How each posture of a control period is drawn: colour, width and dash.
STYLES = {"wished": ("--c5", 1.5, "dot"), "guarded": ("--c2", 1.5, "dash"), "sent": ("--c1", 2.0, "solid"),
          "measured": ("--c3", 2.0, "solid")}  # fmt: skip
# What figures are of, as a sentence names them.
SIMULATED, REAL, PLAIN = "the simulated controller", "the arm", "plain simulation"
SUBJECTS = {REHEARSAL: SIMULATED, EVALUATION: PLAIN}
TITLES = {REHEARSAL: "Rehearsal", EVALUATION: "Evaluation"}
TRACKING = (
    "Wished is what the policy asks for, guarded what the guard makes of it, sent what went to the arm, measured where "
    "the arm was. The way to the next start, between two episodes, is not drawn."
)
# Times of a control period: title, attribute of a summary, caption.
TIMES = (
    ("Time to decide", "decide_ms", "From an observation to the command that was sent: policy, action, guard."),
    ("Age of the measured state", "state_age_ms", "How old the state was when the command was sent."),
    ("Time between two commands", "", "Time between two commands; its spread is the jitter of the control loop."),
)


def session_page(session: Session) -> Page:
    """Lay out one session, its verdict first."""
    sections = [
        Section("The check before moving", _check(session)), Section("Episodes", _episodes(session)),
        Section("Beside plain simulation", _beside_simulation(session)), Section("Joint tracking", _joints(session)),
        Section("Latency and jitter", _latency(session)), Section("Guard interventions", _guard(session)),
        Section("Tracker", [] if session.tracker is None else session.tracker.blocks()),
        Section("Faults and the operator", _events(session)), Section("What this is about", _details(session)),
    ]  # fmt: skip
    title = f"{TITLES.get(session.mode, 'Deployment')} of {session.policy}"
    shown = [section for section in sections if section.blocks]
    kicker = MODES.get(session.mode, session.mode)
    return Page(kicker, title, verdict(session), _tiles(session), shown, str(session.path))


def verdict(session: Session) -> Verdict:
    """Return the outcome in one sentence."""
    figures, check = session.figures(), session.check
    if check is not None and not check.get("go", True) and not session.episodes:
        return Verdict(BAD, "No-go", _objection(check))
    if session.mode == "check":
        return Verdict(GOOD, "Go", "The check found nothing against moving; nothing was moved.")
    if figures is None:
        return Verdict(ATTENTION, "Not begun", "The session ended before its first episode.")
    summary = _success(session, figures)
    if session.mode == REHEARSAL and figures.get("faults") and session.whole:
        count = counted(len(figures["faults"]), "fault")
        return Verdict(
            ATTENTION, "With faults", f"{summary}; {count} came up, listed below with what the operator read."
        )
    if session.fault is not None:
        return Verdict(BAD, "Fault", f"{summary}; a fault stopped the arm: {session.fault}")
    if session.mode == "confirm" and session.report is not None and session.report.get("not_passed", "") is None:
        moved = f"The arm moved for {figures['steps']:,} control periods, a key press at a time."
        return Verdict(GOOD, "Passed", moved)
    if session.stopped_by == "operator":
        return Verdict(ATTENTION, "Stopped", f"{summary}; the operator stopped the arm.")
    if not session.whole:
        return Verdict(
            ATTENTION, "Cut off", f"{summary}; the record breaks off, so the program was ended from outside."
        )
    if session.mode == SHADOW:
        return Verdict(GOOD, "Passed", f"The policy decided in {figures['steps']:,} control periods; nothing was sent.")
    level = GOOD if figures["success_rate"] == 1.0 else ATTENTION if figures["success_rate"] else BAD
    word = {GOOD: "Passed", ATTENTION: "Partly", BAD: "Missed"}[level]
    return Verdict(level, word, f"{summary}, and no fault came up.")


def subjects(session: Session) -> list[Subject]:
    """Return what can be compared of a session: itself, and the plain simulation of a rehearsal."""
    figures = session.figures()
    found = [] if figures is None else [Subject(SUBJECTS.get(session.mode, REAL), figures)]
    if session.report is not None and isinstance(simulated := session.report.get("simulation"), dict):
        found.append(Subject(PLAIN, simulated))
    return found


def _success(session: Session, figures: dict[str, Any]) -> str:
    if session.mode == SHADOW:
        return f"The policy decided in {figures['steps']:,} control periods"
    count, rate = figures["episodes"], figures["success_rate"]
    if rate is None:
        return counted(count, "episode")
    sure = f"95 % interval {interval(figures['success_ci95'])}"
    return f"{round(rate * count):,} of {counted(count, 'episode')} succeeded ({sure})"


def _objection(check: dict[str, Any]) -> str:
    for finding in check["findings"]:
        if finding["verdict"] == "no-go":
            return f"{finding['name']}: found {finding['found']}, expected {finding['expected']}. {finding['advice']}"
    return "The check says no-go."


def _tiles(session: Session) -> list[Tile]:
    figures = session.figures()
    tiles = []
    if figures is not None:
        if session.mode != SHADOW:
            sure = f"{interval(figures['success_ci95'])} (95 %)"
            tiles.append(Tile("Success", percent(figures["success_rate"]), sure))
        changed = figures["guard_interventions"].get("any", 0.0)
        tiles += [
            Tile("From the goal at the end", number(figures["mean_final_distance_m"], unit="mm", scale=1e3), "mean"),
            Tile("Changed by the guard", percent(changed), "of periods"),
            Tile("Missed ticks", f"{figures['missed_ticks']:,}", f"of {figures['steps']:,} control periods"),
        ]
    speed = session.about.get("speed", (session.report or {}).get("speed"))
    if speed is not None:
        tiles.append(Tile("Speed", percent(float(speed)), "of that in training"))
    took = Tile("Took", duration(session.seconds), session.began) if session.seconds else Tile("Began", session.began)
    return [*tiles, took]


def _check(session: Session) -> list[Any]:
    if session.check is None:
        return []
    findings = session.check["findings"]
    headers, wide = ["Looked at", "Verdict", "Found", "Expected", "What to do"], [0, 2, 3, 4]
    rows: list[list[Cell]] = [
        [
            sentence_case(each["name"]), Badge(each["verdict"], LEVELS.get(each["verdict"], NEUTRAL)),
            plain(each["found"]), plain(each["expected"]), plain(each["advice"]),
        ]
        for each in findings
    ]  # fmt: skip
    serious = [row for row, each in zip(rows, findings, strict=True) if each["verdict"] != "go"]
    all_go = Text(f"All {counted(len(findings), 'finding')} are go.")
    title = f"All findings ({len(findings) - len(serious)} of {len(findings)} are go)"
    return [Table(headers, serious, wide) if serious else all_go, Fold(title, [Table(headers, rows, wide)])]


def _episodes(session: Session) -> list[Any]:
    if not session.episodes:
        return []
    blocks: list[Any] = []
    if len(session.goals) > 2 and session.mode != SHADOW:
        blocks.append(_distances(session))
    rows: list[list[Cell]] = [
        [
            "shadow" if each.mode == SHADOW else f"{each.number}",
            _outcome(each),
            number(each.distance_m, unit="mm", scale=1e3),
            duration(each.seconds),
            f"{each.steps:,}",
            f"{each.changed:,}",
            f"{each.missed:,}",
            number(each.tracking_mrad, unit="mrad"),
            _ending(each),
        ]
        for each in session.episodes
    ]
    headers = ["Episode", "Outcome", "From the goal", "Time", "Periods", "Changed by the guard", "Missed ticks",
               "Largest tracking error", "Ended by"]  # fmt: skip
    table = Table(headers, rows, [8])
    if session.episodes_left_out:
        note = f"{session.episodes_left_out:,} more episodes are not listed; the first ones and those that failed are."
        return [*blocks, Fold(f"The first {len(rows)} episodes", [table]), Text(note, "note")]
    return [*blocks, table if len(rows) <= 12 else Fold(f"All {len(rows)} episodes", [table])]


def _ending(episode: Episode) -> str:
    why = episode.fault or (failure_kind(episode.failure) if episode.failure else "")
    return ENDED_BY.get(episode.ended, episode.ended) + (f": {why}" if why else "")


def _outcome(episode: Episode) -> Badge:
    if episode.mode == SHADOW:
        return Badge("nothing sent", NEUTRAL)
    if episode.success:
        return Badge("success", GOOD)
    if episode.fault is not None:
        return Badge("stopped", BAD)
    return Badge("stopped", ATTENTION) if episode.ended in STOPS else Badge("missed", BAD)


def _distances(session: Session) -> Plot:
    times, _, high = session.goals.points()
    kinds = [("success", "--good", "circle", high[:, 0]), ("missed", "--bad", "x", high[:, 1])]
    traces = [
        plots.dots(times, 1e3 * values, name, paint, symbol, 9)
        for name, paint, symbol, values in kinds
        if np.isfinite(values).any()
    ]
    figure = plots.figure(
        traces, "episode", "from the goal (mm)", height=260, legend=True, y_axis={"rangemode": "tozero"},
        x_axis={"dtick": 1} if len(session.goals) <= 20 else {},
    )  # fmt: skip
    caption = f"How far from its goal each episode ended. {session.goals.left_out('episode')}"
    return Plot("Distance from the goal at the end", figure, caption.strip())


def _beside_simulation(session: Session) -> list[Any]:
    sides = subjects(session)
    if session.mode != REHEARSAL or len(sides) < 2:
        return []
    about = "The same episodes, through the real driver against a simulated controller and in plain simulation."
    return [Text(about), Sentences(differences(sides)), comparison_table(sides), *_wire(session.report or {})]


def _wire(report: dict[str, Any]) -> list[Any]:
    """Compare what was seen at the simulated controller's wire with the guard's limits."""
    wire, limits = report.get("wire"), report.get("limits")
    if not isinstance(wire, dict) or not isinstance(limits, dict) or not isinstance(wire.get("targets"), dict):
        return []
    names = {"tcp_speed_m_s": ("Tool speed", "m/s"), "joint_speed_rad_s": ("Joint speed", "rad/s"),
             "joint_acceleration_rad_s2": ("Joint acceleration", "rad/s²")}  # fmt: skip
    sides = (wire["targets"], wire.get("measured", {}), limits)
    rows = [
        [title, *(number(side.get(key), unit=unit) for side in sides)]
        for key, (title, unit) in names.items()
        if key in limits
    ]
    about = "Largest values seen by the simulated controller, the travels between episodes included."
    return [Text(about), Table(["", "Of the targets", "Of the arm", "The guard's limit"], rows, [0])]


def _joints(session: Session) -> list[Any]:
    curves, names = session.joints, [joint_name(name) for name in session.joint_names]
    if not session.joint_count or len(curves) < 2:
        return []
    angles = joint_plots(curves, names, [(name, *STYLES[name]) for name in PARTS])
    errors = joint_differences(curves, names, len(PARTS), "error (mrad)")
    together = Plot(
        "Measured minus sent, one control period later", errors,
        "A servo follows its target with a lag, so the error grows with speed and goes to zero at rest.", "time",
    )  # fmt: skip
    legend = [(name, STYLES[name][0]) for name in PARTS]
    return [Plots(angles, legend, f"{TRACKING} {curves.left_out('control period')}".strip()), together]


def joint_plots(
    curves: plots.LongCurves, names: Sequence[str], parts: Sequence[tuple[str, str, float, str]]
) -> list[Plot]:
    """Draw the angles of each joint over time.

    Args:
        curves: Of every part, one channel for each joint [rad].
        names: The joints' names.
        parts: Name, colour, width and dash of each part.
    """
    found = []
    for joint, name in enumerate(names):
        traces = []
        for part, (title, paint, width, dash) in enumerate(parts):
            times, values = curves.curve(part * len(names) + joint)
            traces.append(plots.line(times, np.degrees(values), title, paint, width=width, dash=dash))
        found.append(Plot(name, plots.figure(traces, "time (s)", "angle (°)", height=240, legend=False), group="time"))
    return found


def joint_differences(curves: plots.LongCurves, names: Sequence[str], part: int, axis: str) -> dict[str, Any]:
    """Draw one part of each joint over time [mrad], all joints in one plot; arguments as in :func:`joint_plots`."""
    traces = []
    for joint, name in enumerate(names):
        times, values = curves.curve(part * len(names) + joint)
        traces.append(plots.line(times, 1e3 * values, name, plots.color(joint), width=1.5))
    return plots.figure(traces, "time (s)", axis)


def _latency(session: Session) -> list[Any]:
    shown = [summary for mode, summary in session.summaries.items() if mode != SHADOW or session.mode != REHEARSAL]
    if not shown:
        return []
    every: list[tuple[str, str, Sample]] = [
        (title, caption, getattr(shown[-1], key) if key else session.interval_ms) for title, key, caption in TIMES
    ]
    samples = [sample for sample in every if sample[2].count]
    rows, pictures = [], []
    for index, (title, caption, values) in enumerate(samples):
        found = values.percentiles() or {}
        rows.append([title, *(number(found[name], unit="ms") for name in ("p50", "p99", "max"))])
        bars = plots.histogram(values.values(), title, plots.color(index))
        figure = plots.figure([bars], "ms", "control periods", height=240, more={"bargap": 0.0})
        pictures.append(Plot(title, figure, caption))
    if not samples:
        return []
    table = Table(["", "Median", "99th percentile", "Longest"], rows)
    thinned = max(values.every for _, _, values in samples)
    note = f"Medians and percentiles are of every {thinned}th control period; longest of all."
    return [table, Plots(pictures), *_latency_curves(session), *([Text(note, "note")] if thinned > 1 else [])]


def _latency_curves(session: Session) -> list[Plot]:
    if len(session.latency) < 2:
        return []
    traces = []
    for channel, (title, _, _) in enumerate(TIMES):
        times, values = session.latency.curve(channel)
        if np.isfinite(values).any():
            traces.append(plots.line(times, values, title.lower(), plots.color(channel), width=1.5))
    figure = plots.figure(traces, "time (s)", "ms", y_axis={"rangemode": "tozero"})
    return [Plot("Over time", figure, session.latency.left_out("control period"), "time")]


def _guard(session: Session) -> list[Any]:
    figures = session.figures()
    if figures is None:
        return []
    table = interventions_table(figures)
    if table is not None and not figures["guard_interventions"].get("any"):
        return [Text("The guard changed nothing that the policy asked for.")]
    blocks: list[Any] = [] if table is None else [table]
    if len(session.guard):
        blocks.append(_guard_plot(session))
    return blocks or [Text("The guard changed nothing.")]


def _guard_plot(session: Session) -> Plot:
    times, low, _ = session.guard.points()
    present = [n for n in range(len(REASONS)) if np.isfinite(low[:, n]).any()]
    labels = [capital(guard_reason(REASONS[n])) for n in present]
    traces = []
    for row, (reason, name) in enumerate(zip(present, labels, strict=True)):
        here = times[np.isfinite(low[:, reason])]
        traces.append(plots.dots(here, np.full(len(here), float(row)), name, plots.color(reason), "square", 7))
    axis = {
        "tickvals": list(range(len(present))), "ticktext": labels, "range": [-0.6, len(present) - 0.4],
        "title": {"text": ""}, "automargin": True,
    }  # fmt: skip
    figure = plots.figure(
        traces, "time (s)", "", height=120 + 40 * len(present), legend=False, y_axis=axis,
        x_axis={"range": [0.0, session.seconds]},
    )  # fmt: skip
    caption = "Each mark is a control period in which the guard changed what the policy asked for."
    return Plot("When", figure, f"{caption} {session.guard.left_out('change')}".strip(), "time")


def _events(session: Session) -> list[Any]:
    blocks: list[Any] = []
    if override := session.about.get("override"):
        blocks.append(Text(f"A missing stage was overridden, for the reason: {override}", "warning"))
    rows: list[list[Cell]] = [
        [f"{event.at_s:.2f} s", Badge(event.what, BAD if event.is_fault else NEUTRAL), event.text]
        for event in session.events
    ]
    nothing = Text("No fault came up, and the operator stopped nothing.")
    blocks.append(Table(["After", "Who or what", "What happened"], rows, [2]) if rows else nothing)
    recovered = (session.report or {}).get("faults")
    if isinstance(recovered, list) and recovered:
        found = [
            [
                f"{fault['episode'] + 1}",
                plain(fault["said"]),
                number(fault.get("rest_after_telling_s"), unit="ms", scale=1e3),
            ]
            for fault in recovered
        ]
        blocks.append(Table(["Episode", "What the operator read", "At rest after that"], found, [1]))
    return blocks


def _details(session: Session) -> list[Any]:
    robot, about = session.robot, session.about
    pairs = [
        ("Policy", str(about.get("checkpoint") or session.policy)),
        ("Policy's digest", str(about.get("digest", NONE))[:16]),
        ("Arm", name_of(str(robot["arm"])) if "arm" in robot else NONE),
        ("Gripper", name_of(str(robot["gripper"])) if "gripper" in robot else NONE),
        ("Control rate", number(robot.get("control_rate_hz"), unit="Hz")),
        ("Began", session.began or NONE),
        ("Record", str(session.path)),
        ("Recorded by", f"td3robot {about['td3robot']}" if "td3robot" in about else NONE),
        ("Lines", ", ".join(f"{count:,} {kind}" for kind, count in session.counts.most_common())),
    ]
    blocks: list[Any] = [Facts([pair for pair in pairs if pair[1] != NONE])]
    if session.report_error:
        blocks.insert(0, Text(session.report_error, "warning"))
    elif session.report is None:
        missing = "There is no report.json beside the record; every figure here was computed from the record alone."
        blocks.insert(0, Text(missing + " Return and tool speed are not in a record.", "note"))
    for title, values in (
        ("What the robot reports about itself", session.facts),
        ("What the driver measured of itself", (session.report or {}).get("driver") or {}),
        ("The cell", about.get("cell", {})),
        ("The policy's contract", about.get("contract", {})),
    ):
        if values:
            rows = [(name, plain(value)) for name, value in flat(values).items()]
            blocks.append(Fold(title, [Facts(rows)]))
    return blocks
