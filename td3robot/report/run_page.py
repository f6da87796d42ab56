"""The page of one training run."""

import base64
import platform
from typing import Any

import numpy as np

from td3robot.config.disturbance import DisturbanceConfig, level_name
from td3robot.envs.trust import trust_option
from td3robot.format import (
    NONE,
    change_text,
    counted,
    failures,
    flat,
    interval,
    name_of,
    number,
    percent,
    plain,
    resume_command,
    sentence_case,
    succeeded,
)
from td3robot.metrics import evaluations
from td3robot.report.figures import Subject, interventions_table
from td3robot.report.html import (
    ATTENTION,
    BAD,
    GOOD,
    NEUTRAL,
    Badge,
    Cell,
    Facts,
    Film,
    Fold,
    Page,
    Section,
    Table,
    Text,
    Tile,
    Verdict,
)
from td3robot.report.plots import chart_sections
from td3robot.report.run import FILMS, Run

# A larger film is named and not taken into the page [bytes].
LARGEST_FILM = 24 * 2**20
BEST = (
    "The best policy is the latest one that none before it beats, in success or else in return, by more than the 95 % "
    "intervals allow for chance. Where no success is reported, it is the one with the highest return."
)


def run_page(run: Run) -> Page:
    """Lay out one run, its verdict first."""
    missing = [Text(sentence, "warning") for sentence in run.missing]
    sections = [
        Section("What was asked", _configuration(run)), Section("What is missing", missing), *chart_sections([run.log]),
        Section("Evaluations", _evaluations(run)), Section("Guard interventions of the best policy", _guard(run)),
        Section("Film", _films(run)), Section("Environment and versions", _details(run)),
    ]  # fmt: skip
    shown = [section for section in sections if section.blocks]
    return Page("Training run", heading(run), verdict(run), tiles(run), shown, str(run.path))


def heading(run: Run) -> str:
    """Return a title of what a run trains."""
    environment = run.config.get("environment", {})
    if environment.get("kind") != "robot":
        agent = name_of(run.config.get("agent", {}).get("kind", "td3"))
        return f"{environment['id']} with {agent}" if "id" in environment else run.title
    robot, task = environment["robot"], sentence_case(environment["task"]["name"])
    return f"{task} with a {name_of(robot['arm'])} and a {name_of(robot['gripper'])}"


def verdict(run: Run) -> Verdict:
    """Return a sentence on how well the best policy does."""
    done = _progress(run)
    if run.best is None:
        return Verdict(ATTENTION, "Not evaluated", f"{done} No evaluation has told yet how well the policy does.")
    best, rate = f"The best policy, at step {number(run.best['step'], 7)}", run.best.get("success_rate")
    count = run.best["episodes"]
    if rate is None:
        summary = f"{best}, has a mean return of {number(run.best['mean_return'], 4)} over {counted(count, 'episode')}."
        return Verdict(NEUTRAL, "Trained", f"{summary} {done}")
    level, word = (GOOD, "Succeeds") if rate >= 0.9 else (ATTENTION, "Partly") if rate >= 0.5 else (BAD, "Fails")
    sure = f"95 % interval {interval(run.best.get('success_ci95'))}"
    summary = f"{best}, succeeded in {round(rate * count)} of {count} evaluation episodes ({sure})."
    return Verdict(level, word, f"{summary} {done}")


def subject(run: Run) -> Subject:
    """Return what can be compared of a run: the figures of its best policy."""
    return Subject(run.title, run.best or {})


def tiles(run: Run) -> list[Tile]:
    """Return the largest figures."""
    found, best = [], run.best or {}
    if best.get("success_rate") is not None:
        sure = f"{interval(best.get('success_ci95'))} (95 %)"
        found.append(Tile("Success of the best policy", percent(best["success_rate"]), sure))
    elif best:
        found.append(Tile("Mean return of the best policy", number(best["mean_return"], 4)))
    if (away := best.get("mean_final_distance_m")) is not None:
        found.append(Tile("From the goal at the end", number(away, unit="mm", scale=1e3), "mean of the best policy"))
    if run.step is not None:
        detail = "all that were asked for" if run.step == run.planned_steps else f"of {number(run.planned_steps, 7)}"
        found.append(Tile("Environment steps", number(run.step, 7), detail if run.planned_steps else ""))
    if speeds := run.log.get("steps_per_second"):
        found.append(Tile("Training speed", number(float(np.median([v for _, v in speeds]))), "steps a second, median"))
    if run.config:
        found.append(Tile("Seed", str(run.config["seed"])))
    return found


def _configuration(run: Run) -> list[Any]:
    """Say what was asked for, and fold the whole configuration."""
    config = run.config
    if not config:
        return [Text("No checkpoint could be read, so the configuration is not known.", "warning")]
    environment, agent, training = config["environment"], config["agent"], config["training"]
    pairs = [("Run", config["name"])]
    if environment["kind"] == "robot":
        robot = environment["robot"]
        pairs += [
            ("Task", f"{environment['task']['name']}, {environment['episode_s']:g} s an episode"),
            ("Robot", f"{name_of(robot['arm'])} with a {name_of(robot['gripper'])}, in {name_of(robot['backend'])}"),
            ("Actions", f"{name_of(environment['action']['kind'])}, {robot['control_rate_hz']:g} times a second"),
            ("Domain randomization", _disturbance(environment["disturbance"], training)),
            ("Tool speed limit", f"{1e3 * environment['guard']['max_tcp_speed_m_s']:g} mm/s"),
        ]
    else:
        pairs.append(("Environment", environment["id"]))
    drop = ""
    if step := agent.get("learning_rate_drop_step"):
        drop = f"; a fifth after {step:,} steps"
    pairs += [
        ("Length", f"{training['steps']:,} steps in {counted(training['environments'], 'environment')}"),
        ("Algorithm", f"{name_of(agent['kind'])}, {agent['updates_per_step']:g} updates a step, batches of "
                      f"{agent['batch_size']}, discount {agent['gamma']:g}"),
        ("Networks", plain(agent.get("hidden", "in the whole configuration"))),
        ("Learning rate", f"{plain(agent.get('learning_rate', 'in the whole configuration'))}{drop}"),
        ("Seed", str(config["seed"])),
        *(("Changed", change_text(each)) for each in run.changes),
    ]  # fmt: skip
    whole = Facts([(name, plain(value)) for name, value in flat(config).items()])
    return [Facts(pairs), Fold("The whole configuration", [whole])]


def _disturbance(values: dict[str, Any], training: dict[str, Any]) -> str:
    """Write a level of domain randomization, and the share of environments without it."""
    name = level_name(DisturbanceConfig.model_validate(values))
    undisturbed = training.get("undisturbed_share")
    if name in (None, "off") or not undisturbed:
        return name or "as configured"
    return f"{name}; {percent(undisturbed)} of the environments without, by arm, gripper and camera"


def _evaluations(run: Run) -> list[Any]:
    found = evaluations(run.log)
    if not found:
        return []
    best = None if run.best is None else run.best["step"]
    columns: dict[str, list[Cell]] = {
        "Step": [f"{row['step']:,}" for row in found],
        "Successful episodes, with 95 % interval": [succeeded(row) for row in found],
        "Mean return": [number(row.get("mean_return"), 4) for row in found],
        "From the goal at the end": [number(row.get("mean_final_distance_m"), unit="mm", scale=1e3) for row in found],
        "Fastest tool motion": [number(row.get("max_tcp_speed_m_s"), unit="mm/s", scale=1e3) for row in found],
        "Fastest joint motion": [number(row.get("max_joint_speed_rad_s"), unit="rad/s") for row in found],
        "": [Badge("best, kept", GOOD) if row["step"] == best else "" for row in found],
    }
    known = {title: cells for title, cells in columns.items() if set(cells) != {NONE}}
    table = Table(list(known), list(zip(*known.values(), strict=True)))
    blocks: list[Any] = [table if len(found) <= 25 else Fold(f"All {len(found)} evaluations", [table])]
    if (why := failures(run.best or {})) != NONE:
        blocks.append(Text(f"Episodes in which the best policy failed, by their end: {why}."))
    return [*blocks, Text(BEST, "note")]


def _guard(run: Run) -> list[Any]:
    best = run.best or {}
    table = interventions_table(best)
    if table is None:
        return []
    about = f"The best policy, at step {number(best['step'], 7)}, without exploration:"
    return [Text(about), table] if best["guard_interventions"].get("any") else [Text(f"{about} none.")]


def _films(run: Run) -> list[Any]:
    blocks: list[Any] = []
    for film in run.films:
        size = film.stat().st_size
        if size > LARGEST_FILM:
            too_large = f"{film.name} is too large for this page ({size / 2**20:.0f} MB); it is beside it."
            blocks.append(Text(too_large, "note"))
            continue
        content = base64.b64encode(film.read_bytes()).decode("ascii")
        blocks.append(Film(f"data:{FILMS[film.suffix.lower()]};base64,{content}", film.name))
    return blocks


def _details(run: Run) -> list[Any]:
    resume = "no, it was saved for play only"
    if run.resumable:
        trust = trust_option(run.config.get("environment", {}).get("id"))
        resume = f"yes: {resume_command(run.path, run.step, run.planned_steps)}{trust}"
    pairs = [
        ("Folder", str(run.path)),
        ("Checkpoints", ", ".join(f"{name} ({size / 2**20:.1f} MB)" for name, size in run.checkpoints) or "none"),
        ("Can be resumed", resume),
        ("Updates", NONE if run.updates is None else f"{run.updates:,}"),
        ("Made with", ", ".join(f"{name} {version}" for name, version in run.made_with.items())),
        ("Report made on", f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}"),
    ]
    return [Facts([pair for pair in pairs if pair[1] not in ("", NONE)])]


def _progress(run: Run) -> str:
    if run.step is None:
        logged = max((step for points in run.log.values() for step, _ in points), default=None)
        return "" if logged is None else f"It is logged up to step {number(logged, 7)}."
    wanted = run.planned_steps
    of = "" if wanted is None or run.step >= wanted else f" of {number(wanted, 7)}"
    return f"Trained for {number(run.step, 7)}{of} steps."
