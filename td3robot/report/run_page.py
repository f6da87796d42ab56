"""The page of one training run."""

import base64
import platform
from typing import Any

import numpy as np

from td3robot.config import DISTURBANCES
from td3robot.report.blocks import (
    ATTENTION,
    BAD,
    GOOD,
    NEUTRAL,
    Badge,
    Facts,
    Film,
    Fold,
    Link,
    Page,
    Section,
    Table,
    Text,
    Tile,
    Verdict,
)
from td3robot.report.curves import curves
from td3robot.report.figures import Subject, interventions_table
from td3robot.report.run import FILMS, Run, evaluations
from td3robot.report.words import (
    NONE,
    counted,
    flat,
    interval,
    listed,
    name_of,
    number,
    percent,
    plain,
    resume_command,
    sentence_case,
    succeeded,
)

# A film above this is named and not taken into the page [bytes].
LARGEST_FILM = 24 * 2**20


def run_page(run: Run) -> Page:
    """Lay out one run, its verdict first."""
    sections = [
        Section("What was asked", asked(run)), _missing(run), *curves([run]), _evaluations(run), _guard(run),
        _film(run), _details(run),
    ]  # fmt: skip
    return Page(
        "Training run", heading(run), verdict(run), tiles(run), [each for each in sections if each], str(run.path)
    )


def heading(run: Run) -> str:
    """Return a title of what a run trains."""
    environment = run.config.get("environment", {})
    if environment.get("kind") != "robot":
        return f"{environment['id']} with TD3" if "id" in environment else run.title
    robot = environment["robot"]
    return (
        f"{sentence_case(environment['task']['name'])} with a {name_of(robot['arm'])} and a {name_of(robot['gripper'])}"
    )


def verdict(run: Run) -> Verdict:
    """Return a sentence on how well the best policy does."""
    done = _progress(run)
    if run.best is None:
        return Verdict(ATTENTION, "Not evaluated", f"{done} No evaluation has told yet how well the policy does.")
    rate, at = run.best.get("success_rate"), f"at step {number(run.best['step'], 7)}"
    if rate is None:
        told = f"The best policy, {at}, has a mean return of {number(run.best['mean_return'], 4)}"
        return Verdict(NEUTRAL, "Trained", f"{told} over {counted(run.best['episodes'], 'episode')}. {done}")
    level = GOOD if rate >= 0.9 else ATTENTION if rate >= 0.5 else BAD
    word = {GOOD: "Succeeds", ATTENTION: "Partly", BAD: "Fails"}[level]
    count = run.best["episodes"]
    told = (
        f"The best policy, {at}, succeeded in {round(rate * count)} of {count} evaluation episodes (95 % interval "
        f"{interval(run.best.get('success_ci95'))})."
    )
    return Verdict(level, word, f"{told} {done}")


def subject(run: Run) -> Subject:
    """Return what can be compared of a run: the figures of its best policy."""
    return Subject(run.title, run.best or {})


def tiles(run: Run) -> list[Tile]:
    """Return the largest figures."""
    found = []
    if run.best is not None:
        if run.best.get("success_rate") is not None:
            about = f"{interval(run.best.get('success_ci95'))} (95 %)"
            found.append(Tile("Success of the best policy", percent(run.best["success_rate"]), about))
        else:
            found.append(Tile("Mean return of the best policy", number(run.best["mean_return"], 4)))
        if (away := run.best.get("mean_final_distance_m")) is not None:
            found.append(Tile("From the goal at the end", number(1e3 * away, unit="mm"), "mean of the best policy"))
    if run.step is not None:
        asked_for = run.asked_steps
        detail = "all that were asked for" if run.step == asked_for else f"of {number(asked_for, 7)}"
        found.append(Tile("Environment steps", number(run.step, 7), detail if asked_for else ""))
    if speeds := run.metrics.get("steps_per_second"):
        found.append(Tile("Training speed", number(float(np.median([v for _, v in speeds]))), "steps a second, median"))
    if run.config:
        found.append(Tile("Seed", str(run.config["seed"])))
    return found


def asked(run: Run) -> list[Any]:
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
            (
                "Domain randomization",
                disturbance(
                    environment["disturbance"],
                    training["undisturbed_share"],
                    training.get("undisturbed_by_part", False),
                ),
            ),
            ("Tool speed limit", f"{1e3 * environment['guard']['max_tcp_speed_m_s']:g} mm/s"),
        ]
    else:
        pairs.append(("Environment", environment["id"]))
    drop = ""
    if step := agent.get("learning_rate_drop_step"):
        drop = f"; times {agent['learning_rate_drop']:g} after {step:,} steps"
    pairs += [
        ("Length", f"{training['steps']:,} steps in {counted(training['environments'], 'environment')}"),
        ("Algorithm", f"{name_of(agent['kind'])}, {agent['updates_per_step']:g} updates a step, batches of "
                      f"{agent['batch_size']}, discount {agent['gamma']:g}"),
        ("Networks", f"actor {plain(agent['actor_hidden'])}; critics {plain(agent['critic_hidden'])}"),
        ("Learning rates", f"actor {agent['actor_learning_rate']:g}, critics {agent['critic_learning_rate']:g}{drop}"),
        ("Seed", str(config["seed"])),
        *(("Changed", _changed(change)) for change in run.changes),
    ]  # fmt: skip
    whole = Facts([(name, plain(value)) for name, value in flat(config).items()])
    return [Facts(pairs), Fold("The whole configuration", [whole])]


def _changed(change: dict[str, Any]) -> str:
    settings = [f"{name} from {plain(old)} to {plain(new)}" for name, (old, new) in change["settings"].items()]
    return f"at step {change['step']:,}: {listed(settings)} ({change['why']})"


def disturbance(values: dict[str, Any], undisturbed: float, by_part: bool) -> str:
    """Name a level of disturbance."""
    part = ", by arm, gripper and camera" if by_part else ""
    for name, level in DISTURBANCES.items():
        if level.model_dump(mode="json") == values:
            calm = undisturbed and name != "off"
            return f"{name}; {percent(undisturbed)} of the environments without{part}" if calm else name
    return "as configured"


def _missing(run: Run) -> Section | None:
    return Section("What is missing", [Text(sentence, "warning") for sentence in run.missing]) if run.missing else None


def _evaluations(run: Run) -> Section | None:
    found = evaluations(run)
    if not found:
        return None
    rated = any("success_rate" in row for row in found)
    headers = ["Step", *(["Successful episodes, with 95 % interval"] if rated else []), "Mean return",
               "From the goal at the end", "Fastest tool motion", "Fastest joint motion", ""]  # fmt: skip
    best = None if run.best is None else run.best["step"]
    rows: list[list[str | Badge | Link]] = []
    for row in found:
        away, tool = row.get("mean_final_distance_m"), row.get("max_tcp_speed_m_s")
        rows.append(
            [
                f"{row['step']:,}",
                *([succeeded(row)] if rated else []),
                number(row.get("mean_return"), 4),
                number(None if away is None else 1e3 * away, unit="mm"),
                number(None if tool is None else 1e3 * tool, unit="mm/s"),
                number(row.get("max_joint_speed_rad_s"), unit="rad/s"),
                Badge("best, kept", GOOD) if row["step"] == best else "",
            ]
        )
    empty = [n for n in range(len(headers)) if all(row[n] == NONE for row in rows)]
    kept = [n for n in range(len(headers)) if n not in empty]
    table = Table([headers[n] for n in kept], [[row[n] for n in kept] for row in rows])
    blocks: list[Any] = [table if len(rows) <= 25 else Fold(f"All {len(rows)} evaluations", [table])]
    about = (
        "The best policy is the latest one that none before it beats, in success or else in return, by more than the "
        "95 % intervals allow for chance. Where no success is reported, it is the one with the highest return."
    )
    blocks.append(Text(about, "note"))
    return Section("Evaluations", blocks)


def _guard(run: Run) -> Section | None:
    table = interventions_table(run.best or {})
    if table is None:
        return None
    about = f"The best policy, at step {number((run.best or {})['step'], 7)}, without exploration:"
    if not (run.best or {})["guard_interventions"].get("any"):
        return Section("Guard interventions of the best policy", [Text(f"{about} none.")])
    return Section("Guard interventions of the best policy", [Text(about), table])


def _film(run: Run) -> Section | None:
    blocks: list[Any] = []
    for film in run.films:
        size = film.stat().st_size
        if size > LARGEST_FILM:
            blocks.append(
                Text(f"{film.name} is too large for this page ({size / 2**20:.0f} MB); it is beside it.", "note")
            )
            continue
        content = base64.b64encode(film.read_bytes()).decode("ascii")
        blocks.append(Film(f"data:{FILMS[film.suffix.lower()]};base64,{content}", film.name))
    return Section("Film", blocks) if blocks else None


def _details(run: Run) -> Section:
    resume = "no, it was saved for play only"
    if run.resumable:
        resume = f"yes: {resume_command(run.path, run.step, run.asked_steps)}"
    pairs = [
        ("Folder", str(run.path)),
        ("Checkpoints", ", ".join(f"{name} ({size / 2**20:.1f} MB)" for name, size in run.checkpoints) or "none"),
        ("Can be resumed", resume),
        ("Updates", NONE if run.updates is None else f"{run.updates:,}"),
        ("Made with", ", ".join(f"{name} {version}" for name, version in run.made_with.items())),
        ("Report made on", f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}"),
    ]
    return Section("Environment and versions", [Facts([pair for pair in pairs if pair[1] not in ("", NONE)])])


def _progress(run: Run) -> str:
    if run.step is None:
        logged = max((step for values in run.metrics.values() for step, _ in values), default=None)
        return "" if logged is None else f"It is logged up to step {number(logged, 7)}."
    asked_for = run.asked_steps
    if asked_for is None or run.step >= asked_for:
        return f"Trained for {number(run.step, 7)} steps."
    return f"Trained for {number(run.step, 7)} of {number(asked_for, 7)} steps."
