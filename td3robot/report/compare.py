"""The page of several runs and sessions side by side."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

import numpy as np

from td3robot.format import NONE, counted, flat, listed, plain
from td3robot.metrics import compared_charts
from td3robot.report import plots, run_page, session_page
from td3robot.report.figures import Subject, comparison_table, differences
from td3robot.report.html import (
    ATTENTION,
    NEUTRAL,
    Badge,
    Cell,
    Page,
    Plot,
    Section,
    Sentences,
    Table,
    Text,
    Verdict,
)
from td3robot.report.run import Run
from td3robot.report.session import KINDS, REHEARSAL, Session

Source = Run | Session
# Settings that are listed where they differ.
LISTED = 40


def comparison_page(sources: Sequence[Source]) -> Page:
    """Return a page with several runs and sessions side by side, and their differences in sentences.

    A run without a checkpoint is listed as left out: neither its policy nor its settings are known for certain.
    """
    empty = [source for source in sources if isinstance(source, Run) and not source.checkpoints]
    compared = [source for source in sources if source not in empty]
    subjects = with_unique_names([subject for source in compared for subject in _subjects(source)])
    runs = [source for source in compared if isinstance(source, Run)]
    sections = [
        Section("What differs", _differences(subjects, runs)),
        Section("Figures", [*_rates(subjects), comparison_table(subjects)]),
        *_curves(runs),
        Section("One by one", [_list(sources)]),
    ]
    made_from = ", ".join(str(source.path) for source in sources)
    return Page("Side by side", _title(sources), _verdict(subjects, empty), [], sections, made_from)


def with_unique_names(subjects: Sequence[Subject]) -> list[Subject]:
    """Give each subject a name of its own."""
    names = [subject.name for subject in subjects]
    return [
        replace(subject, name=f"{subject.name} ({index + 1})") if names.count(subject.name) > 1 else subject
        for index, subject in enumerate(subjects)
    ]


def settings_table(runs: Sequence[Run]) -> Table | None:
    """List the settings in which runs differ, each with what it was before it was changed; None where they do not."""
    known = [run for run in runs if run.config]
    settings = [{name: _setting(name, value, run) for name, value in flat(run.config).items()} for run in known]
    names = dict.fromkeys(key for each in settings for key in each if key != "name")
    rows = [[name, *(each.get(name, NONE) for each in settings)] for name in names]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    return Table(["Setting", *_titles(known)], rows[:LISTED], range(len(known) + 1)) if rows else None


def _setting(name: str, value: Any, run: Run) -> str:
    values: list[str] = []
    for change in run.changes:
        since = f"from step {change['step']:,}"
        if name in change["settings"]:
            before, after = change["settings"][name]
            values = [*(values or [plain(before)]), f"{plain(after)} {since}"]
        elif any(name.startswith(f"{section}.") for section in change["settings"]):
            values = [f"{plain(value)} {since}"]
    return ", ".join(values) or plain(value)


def _subjects(source: Source) -> list[Subject]:
    if isinstance(source, Run):
        found = run_page.subject(source)
        return [replace(found, name=f"training {found.name}")]
    first, *rest = session_page.subjects(source) or [Subject("", {})]
    kind = KINDS.get(source.mode, source.mode).lower()
    return [replace(first, name=f"{kind} of {source.policy}" if source.mode == REHEARSAL else kind), *rest]


def _title(sources: Sequence[Source]) -> str:
    runs = sum(isinstance(source, Run) for source in sources)
    counts = [(runs, "run"), (len(sources) - runs, "session")]
    return f"{listed([counted(count, noun) for count, noun in counts if count])} side by side"


def _verdict(subjects: Sequence[Subject], empty: Sequence[Run]) -> Verdict:
    left_out = [f"{run.title} holds no checkpoint that can be read; it is left out of the comparison." for run in empty]
    rated = [subject for subject in subjects if subject.figures.get("success_ci95")]
    summary = "Success rates are not known for two of them, so none is ahead."
    if len(rated) > 1:
        summary = differences(rated)[0]
    return Verdict(ATTENTION if empty else NEUTRAL, "Compared", " ".join([summary, *left_out]))


def _are_repetitions(runs: Sequence[Run]) -> bool:
    return len(runs) > 1 and all(run.config and run.setting() == runs[0].setting() for run in runs)


def _differences(subjects: Sequence[Subject], runs: Sequence[Run]) -> list[Any]:
    sentences = differences(subjects)
    if _are_repetitions(runs):
        sentences.insert(0, _what_differs(runs))
    made = {run.made_with.get("td3robot", "") for run in runs if run.config}
    if len(made) > 1:
        sentences.append(f"They were made with td3robot {listed(sorted(made))}.")
    blocks: list[Any] = [Sentences(sentences or ["No figure that both have differs by more than 5 %."])]
    if len(runs) > 1 and (table := settings_table(runs)) is not None:
        blocks += [Text("Settings that differ:"), table]
    return blocks


def _what_differs(runs: Sequence[Run]) -> str:
    """Return how runs of one setting differ."""
    seeds, lengths = [str(run.config["seed"]) for run in runs], {(run.step, run.planned_steps) for run in runs}
    differing = [f"their seeds ({', '.join(seeds)})"] * (len(set(seeds)) > 1) + ["their lengths"] * (len(lengths) > 1)
    if not differing:
        return "The runs have the same configuration, seed and length."
    return f"The runs differ only in {' and '.join(differing)}."


def _rates(subjects: Sequence[Subject]) -> list[Plot]:
    """Draw success rates with their 95 % intervals."""
    rated = [subject for subject in subjects if subject.figures.get("success_ci95")]
    if len(rated) < 2:
        return []
    traces = []
    for row, subject in enumerate(rated):
        rate = 100 * subject.figures["success_rate"]
        low, high = (100 * side for side in subject.figures["success_ci95"])
        dot = plots.dots(np.array([rate]), np.array([float(row)]), subject.name, plots.color(row), size=11)
        bar = {"type": "data", "symmetric": False, "array": [high - rate], "arrayminus": [rate - low]}
        traces.append(dot | {"error_x": bar | {"color": plots.color(row), "thickness": 2, "width": 6}})
    axis = {
        "tickvals": list(range(len(rated))), "ticktext": [_wrapped(subject.name) for subject in rated],
        "range": [len(rated) - 0.5, -0.5], "automargin": True,
    }  # fmt: skip
    figure = plots.figure(
        traces, "successful episodes", "", height=110 + 48 * len(rated), legend=False, y_axis=axis,
        x_axis={"range": [-2, 103], "ticksuffix": " %"},
    )  # fmt: skip
    return [Plot("Success, with 95 % intervals", figure)]


def _wrapped(name: str, width: int = 26) -> str:
    """Break a long name into lines, as plotly does it; what could be markup there is taken out."""
    return "<br>".join(wrap(plots.label(name), width, break_long_words=False, break_on_hyphens=False))


def _curves(runs: Sequence[Run]) -> list[Section]:
    """Draw median and spread where runs are repetitions, else the curves of each."""
    if len(runs) < 2:
        return []
    logs = [run.log for run in runs]
    if _are_repetitions(runs):
        return plots.chart_sections(logs)
    charts = compared_charts(dict(zip(_titles(runs), logs, strict=True)))
    blocks = [plots.chart_plot(chart, logs, chart.title) for chart in charts]
    return [Section("Learning curves", blocks)] if blocks else []


def _list(sources: Sequence[Source]) -> Table:
    rows: list[list[Cell]] = []
    for source in sources:
        if isinstance(source, Run):
            found, kind = run_page.verdict(source), "Training run"
        else:
            found, kind = session_page.verdict(source), KINDS.get(source.mode, source.mode)
        rows.append([str(source.path), kind, Badge(found.word, found.level), found.sentence])
    return Table(["What", "Kind", "Verdict", "In a sentence"], rows, [0, 3])


def _titles(runs: Sequence[Run]) -> list[str]:
    return [subject.name for subject in with_unique_names([Subject(run.title, {}) for run in runs])]
