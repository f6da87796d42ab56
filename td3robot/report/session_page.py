"""The page of one session: a deployment or a rehearsal."""

from typing import Any

import numpy as np

from td3robot.report import plots
from td3robot.report.blocks import (
    ATTENTION,
    BAD,
    GOOD,
    NEUTRAL,
    Badge,
    Facts,
    Fold,
    Link,
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
from td3robot.report.figures import Subject, comparison_table, differences, interventions_table
from td3robot.report.session import PARTS, REHEARSAL, SHADOW, Episode, Session
from td3robot.report.words import (
    NONE,
    REASONS,
    counted,
    duration,
    flat,
    interval,
    joint_name,
    name_of,
    number,
    percent,
    plain,
    sentence_case,
)
from td3robot.robots.guard import REASONS as GUARD_REASONS

MODES = {
    "check": "Check: go or no-go, nothing moves",
    "shadow": "Shadow: decides, sends nothing",
    "confirm": "Confirm: moves while a key allows it",
    "run": "Run: whole episodes on the arm",
    REHEARSAL: "Rehearsal on a simulated controller",
}
LEVELS = {"go": GOOD, "attention": ATTENTION, "no-go": BAD}
ENDS = {"time": "ran its full time", "operator": "stopped by the operator", "fault": "stopped by a fault"}
# Endings before an episode's own end.
STOPS = ("operator", "fault", "cut off")
STYLES = {"wished": ("--c5", 1.5, "dot"), "guarded": ("--c2", 1.5, "dash"), "sent": ("--c1", 2.0, "solid"),
          "measured": ("--c3", 2.0, "solid")}  # fmt: skip
# What figures are of, as a sentence names them.
STOOD_IN, REAL, PLAIN = "the simulated controller", "the arm", "plain simulation"


def session_page(session: Session) -> Page:
    """Lay out one session, its verdict first."""
    sections = [
        _check(session), _episodes(session), _beside_simulation(session), _joints(session), _latency(session),
        _guard(session), _events(session), _details(session),
    ]  # fmt: skip
    rehearsal = session.mode == REHEARSAL
    return Page(
        MODES.get(session.mode, session.mode),
        f"{'Rehearsal' if rehearsal else 'Deployment'} of {session.policy}",
        verdict(session),
        _tiles(session),
        [section for section in sections if section is not None],
        str(session.path),
    )


def verdict(session: Session) -> Verdict:
    """Return the outcome in one sentence."""
    figures, check = session.figures(), session.check
    if check is not None and not check.get("go", True) and not session.episodes:
        return Verdict(BAD, "No-go", _objection(check))
    if session.mode == "check":
        return Verdict(GOOD, "Go", "The check found nothing against moving; nothing was moved.")
    if figures is None:
        return Verdict(ATTENTION, "Not begun", "The session ended before its first episode.")
    told = _success(session, figures)
    if session.mode == REHEARSAL and figures.get("faults") and session.whole:
        count = counted(len(figures["faults"]), "fault")
        return Verdict(ATTENTION, "With faults", f"{told}; {count} came up, listed below with what the operator read.")
    if session.fault is not None:
        return Verdict(BAD, "Fault", f"{told}; a fault stopped the arm: {session.fault}")
    if session.mode == "confirm" and session.report is not None and session.report.get("not_passed", "") is None:
        return Verdict(
            GOOD, "Passed", f"The arm moved for {figures['steps']:,} control periods, a key press at a time."
        )
    if session.stopped_by == "operator":
        return Verdict(ATTENTION, "Stopped", f"{told}; the operator stopped the arm.")
    if not session.whole:
        return Verdict(ATTENTION, "Cut off", f"{told}; the record breaks off, so the program was ended from outside.")
    if session.mode == SHADOW:
        return Verdict(GOOD, "Passed", f"The policy decided in {figures['steps']:,} control periods; nothing was sent.")
    level = GOOD if figures["success_rate"] == 1.0 else ATTENTION if figures["success_rate"] else BAD
    word = {GOOD: "Passed", ATTENTION: "Partly", BAD: "Missed"}[level]
    return Verdict(level, word, f"{told}, and no fault came up.")


def subjects(session: Session) -> list[Subject]:
    """Return what can be compared of a session: itself, and the plain simulation of a rehearsal."""
    figures = session.figures()
    found = [] if figures is None else [Subject(STOOD_IN if session.mode == REHEARSAL else REAL, figures)]
    if session.report is not None and isinstance(simulated := session.report.get("simulation"), dict):
        found.append(Subject(PLAIN, simulated))
    return found


def _success(session: Session, figures: dict[str, Any]) -> str:
    if session.mode == SHADOW:
        return f"The policy decided in {figures['steps']:,} control periods"
    count, rate = figures["episodes"], figures["success_rate"]
    if rate is None:
        return counted(count, "episode")
    noun = "episode" if count == 1 else "episodes"
    return f"{round(rate * count):,} of {count:,} {noun} succeeded (95 % interval {interval(figures['success_ci95'])})"


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
            tiles.append(
                Tile("Success", percent(figures["success_rate"]), interval(figures["success_ci95"]) + " (95 %)")
            )
        away = figures["mean_final_distance_m"]
        tiles.append(Tile("From the goal at the end", number(None if away is None else 1e3 * away, unit="mm"), "mean"))
        tiles.append(
            Tile("Changed by the guard", percent(figures["guard_interventions"].get("any", 0.0)), "of periods")
        )
        tiles.append(Tile("Missed ticks", f"{figures['missed_ticks']:,}", f"of {figures['steps']:,} control periods"))
    speed = session.about.get("speed", (session.report or {}).get("speed"))
    if speed is not None:
        tiles.append(Tile("Speed", percent(float(speed)), "of that in training"))
    took = Tile("Took", duration(session.seconds), session.began) if session.seconds else Tile("Began", session.began)
    return [*tiles, took]


def _check(session: Session) -> Section | None:
    if session.check is None:
        return None
    findings = session.check["findings"]
    rows: list[list[str | Badge | Link]] = [
        [
            sentence_case(each["name"]), Badge(each["verdict"], LEVELS.get(each["verdict"], NEUTRAL)),
            plain(each["found"]), plain(each["expected"]), plain(each["advice"]),
        ]
        for each in findings
    ]  # fmt: skip
    table = Table(["Looked at", "Verdict", "Found", "Expected", "What to do"], rows, [0, 2, 3, 4])
    serious = [row for row, each in zip(rows, findings, strict=True) if each["verdict"] != "go"]
    passed = len(findings) - len(serious)
    first: Any = Text(f"All {counted(len(findings), 'finding')} are go.")
    if serious:
        first = Table(table.headers, serious, table.wide)
    return Section(
        "The check before moving", [first, Fold(f"All findings ({passed} of {len(findings)} are go)", [table])]
    )


def _episodes(session: Session) -> Section | None:
    if not session.episodes:
        return None
    blocks: list[Any] = []
    if len(session.goals) > 2 and session.mode != SHADOW:
        blocks.append(_distances(session))
    rows: list[list[str | Badge | Link]] = []
    for each in session.episodes:
        ended = ENDS.get(each.ended, each.ended) + (f": {each.fault}" if each.fault else "")
        away = None if each.distance_m is None else 1e3 * each.distance_m
        rows.append(
            [
                "shadow" if each.mode == SHADOW else f"{each.number}",
                _outcome(each),
                number(away, unit="mm"),
                duration(each.seconds),
                f"{each.steps:,}",
                f"{each.changed:,}",
                f"{each.missed:,}",
                number(each.tracking_mrad, unit="mrad"),
                ended,
            ]
        )
    headers = ["Episode", "Outcome", "From the goal", "Time", "Periods", "Changed by the guard", "Missed ticks",
               "Largest tracking error", "How it ended"]  # fmt: skip
    table = Table(headers, rows, [8])
    if session.episodes_left_out:
        note = f"{session.episodes_left_out:,} more episodes are not listed; the first ones and those that failed are."
        blocks += [Fold(f"The first {len(rows)} episodes", [table]), Text(note, "note")]
    else:
        blocks.append(table if len(rows) <= 12 else Fold(f"All {len(rows)} episodes", [table]))
    return Section("Episodes", blocks)


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
    traces = []
    for channel, (name, paint, symbol) in enumerate([("success", "--good", "circle"), ("missed", "--bad", "x")]):
        values = 1e3 * high[:, channel]
        if np.isfinite(values).any():
            traces.append(plots.dots(times, values, name, paint, symbol, 9))
    axis = {"dtick": 1} if len(session.goals) <= 20 else {}
    figure = plots.figure(
        traces, "episode", "from the goal (mm)", height=260, legend=True, x_axis=axis, y_axis={"rangemode": "tozero"}
    )
    caption = "How far from its goal each episode ended." + decimated(session.goals.rows_per_point, "episode")
    return Plot("Distance from the goal at the end", figure, caption)


def _beside_simulation(session: Session) -> Section | None:
    if session.mode != REHEARSAL:
        return None
    sides = subjects(session)
    if len(sides) < 2:
        return None
    blocks: list[Any] = [
        Text("The same episodes, through the real driver against a simulated controller and in plain simulation."),
        Sentences(differences(sides)), comparison_table(sides), *_wire(session.report or {}),
    ]  # fmt: skip
    return Section("Beside plain simulation", blocks)


def _wire(report: dict[str, Any]) -> list[Any]:
    """Compare what was seen at the simulated controller's wire with the guard's limits."""
    wire, limits = report.get("wire"), report.get("limits")
    if not isinstance(wire, dict) or not isinstance(limits, dict) or not isinstance(wire.get("targets"), dict):
        return []
    names = {"tcp_speed_m_s": ("Tool speed", "m/s"), "joint_speed_rad_s": ("Joint speed", "rad/s"),
             "joint_acceleration_rad_s2": ("Joint acceleration", "rad/s²")}  # fmt: skip
    arm = wire.get("measured", {})
    rows: list[list[str | Badge | Link]] = [
        [
            title,
            number(wire["targets"].get(key), unit=unit),
            number(arm.get(key), unit=unit),
            number(limits[key], unit=unit),
        ]
        for key, (title, unit) in names.items()
        if key in limits
    ]
    about = "Largest values seen by the simulated controller, the travels between episodes included."
    return [Text(about), Table(["", "Of the targets", "Of the arm", "The guard's limit"], rows, [0])]


def _joints(session: Session) -> Section | None:
    if not session.joint_count or len(session.joints) < 2:
        return None
    count, names = session.joint_count, session.joint_names
    gaps, errors = [], []
    for joint, name in enumerate(names):
        traces = []
        for part, label in enumerate(PARTS):
            paint, width, dash = STYLES[label]
            times, values = session.joints.curve(part * count + joint)
            traces.append(plots.line(times, np.degrees(values), label, paint, width=width, dash=dash))
        figure = plots.figure(traces, "time (s)", "angle (°)", height=240, legend=False)
        gaps.append(Plot(joint_name(name), figure, group="time"))
        times, values = session.joints.curve(len(PARTS) * count + joint)
        errors.append(plots.line(times, 1e3 * values, joint_name(name), plots.color(joint), width=1.5))
    together = Plot(
        "Measured minus sent, one control period later",
        plots.figure(errors, "time (s)", "error (mrad)"),
        "A servo follows its target with a lag, so the error grows with speed and goes to zero at rest.",
        "time",
    )
    legend = [(label, STYLES[label][0]) for label in PARTS]
    caption = (
        "Wished is what the policy asks for, guarded what the guard makes of it, sent what went to the arm, measured "
        "where the arm was. The way to the next start, between two episodes, is not drawn."
        + decimated(session.joints.rows_per_point, "control period")
    )
    return Section("Joint tracking", [Plots(gaps, legend, caption), together])


def _latency(session: Session) -> Section | None:
    samples: list[tuple[str, str, Any, str]] = []
    shown = [summary for mode, summary in session.summaries.items() if mode != SHADOW or session.mode != REHEARSAL]
    if not shown:
        return None
    times = (
        ("Time to decide", "decide_ms", "From an observation to the command that was sent: policy, action, guard."),
        ("Age of the measured state", "state_age_ms", "How old the state was when the command was sent."),
    )
    for title, key, caption in times:
        values = getattr(shown[-1], key)
        if values.count:
            samples.append((title, caption, values, plots.color(len(samples))))
    if session.interval_ms.count:
        about = "Time between two commands; its spread is the jitter of the control loop."
        samples.append(("Time between two commands", about, session.interval_ms, plots.color(len(samples))))
    if not samples:
        return None
    rows: list[list[str | Badge | Link]] = []
    pictures = []
    for title, caption, values, paint in samples:
        found = values.percentiles()
        rows.append([title, *(number(found[name], unit="ms") for name in ("p50", "p99", "max"))])
        bars = plots.histogram(values.values(), title, paint)
        figure = plots.figure([bars], "ms", "control periods", height=240, more={"bargap": 0.0})
        pictures.append(Plot(title, figure, caption))
    thinned = max(values.every for _, _, values, _ in samples)
    notes = [Text(f"Medians and percentiles are of every {thinned}th control period; longest of all.", "note")]
    late = _late(session)
    return Section(
        "Latency and jitter",
        [
            Table(["", "Median", "99th percentile", "Longest"], rows),
            Plots(pictures),
            *late,
            *(notes if thinned > 1 else []),
        ],
    )


def _late(session: Session) -> list[Any]:
    """Draw the latencies over time."""
    if len(session.latency) < 2:
        return []
    names = ("time to decide", "age of the measured state", "time between two commands")
    traces = []
    for channel, name in enumerate(names):
        times, values = session.latency.curve(channel)
        if np.isfinite(values).any():
            traces.append(plots.line(times, values, name, plots.color(channel), width=1.5))
    figure = plots.figure(traces, "time (s)", "ms", y_axis={"rangemode": "tozero"})
    return [Plot("Over time", figure, decimated(session.latency.rows_per_point, "control period").strip(), "time")]


def _guard(session: Session) -> Section | None:
    figures = session.figures()
    if figures is None:
        return None
    table = interventions_table(figures)
    blocks: list[Any] = [] if table is None else [table]
    if table is not None and not figures["guard_interventions"].get("any"):
        return Section("Guard interventions", [Text("The guard changed nothing that the policy asked for.")])
    if len(session.guard):
        times, low, _ = session.guard.points()
        present = [n for n in range(len(GUARD_REASONS)) if np.isfinite(low[:, n]).any()]
        traces = []
        for row, reason in enumerate(present):
            here = np.isfinite(low[:, reason])
            name = REASONS.get(GUARD_REASONS[reason], GUARD_REASONS[reason])
            traces.append(
                plots.dots(times[here], np.full(here.sum(), float(row)), name, plots.color(reason), "square", 7)
            )
        labels = [REASONS.get(GUARD_REASONS[n], GUARD_REASONS[n]) for n in present]
        axis = {
            "tickvals": list(range(len(present))), "ticktext": labels, "range": [-0.6, len(present) - 0.4],
            "title": {"text": ""}, "automargin": True,
        }  # fmt: skip
        figure = plots.figure(
            traces, "time (s)", "", height=120 + 40 * len(present), legend=False, y_axis=axis,
            x_axis={"range": [0.0, session.seconds]},
        )  # fmt: skip
        caption = "Each mark is a control period in which the guard changed what the policy asked for."
        blocks.append(Plot("When", figure, caption + decimated(session.guard.rows_per_point, "change"), "time"))
    elif not blocks:
        blocks.append(Text("The guard changed nothing."))
    return Section("Guard interventions", blocks)


def _events(session: Session) -> Section:
    rows: list[list[str | Badge | Link]] = [
        [f"{event.at_s:.2f} s", Badge(event.what, BAD if event.is_fault else NEUTRAL), event.text]
        for event in session.events
    ]
    blocks: list[Any] = []
    if override := session.about.get("override"):
        blocks.append(Text(f"A missing rung was overridden, for the reason: {override}", "warning"))
    if rows:
        blocks.append(Table(["After", "Who or what", "What happened"], rows, [2]))
    else:
        blocks.append(Text("No fault came up, and the operator stopped nothing."))
    recovered = (session.report or {}).get("faults")
    if isinstance(recovered, list) and recovered:
        found: list[list[str | Badge | Link]] = [
            [f"{fault['episode'] + 1}", plain(fault["said"]), _rest_ms(fault)] for fault in recovered
        ]
        blocks.append(Table(["Episode", "What the operator read", "At rest after that"], found, [1]))
    return Section("Faults and the operator", blocks)


def _rest_ms(fault: dict[str, Any]) -> str:
    seconds = fault.get("rest_after_telling_s")
    return NONE if seconds is None else number(1e3 * seconds, unit="ms")


def _details(session: Session) -> Section:
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
    return Section("What this is about", blocks)


def decimated(rows: int, noun: str) -> str:
    """Return a sentence if each point of a curve stands for several rows, or an empty text if not."""
    if rows == 1:
        return ""
    return f" Each point stands for {rows:,} {noun}s in a row: their smallest and largest values are drawn."
