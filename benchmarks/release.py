"""Release the best policy of a run: copy it, evaluate it under every disturbance level, and update its card.

Example: python benchmarks/release.py checkpoints/RUN checkpoints/ur5e_grasp

The card is the README of the released policy; its table of figures is replaced, and its text stays as it is. The first
release of a policy takes the card of another one: --card checkpoints/ur5e_grasp/README.md. Without a run, a released
policy is evaluated again, after `real` or the simulation changed: python benchmarks/release.py checkpoints/ur5e_grasp
"""

import argparse
import re
import shutil
from contextlib import closing
from pathlib import Path

from td3robot import seeding
from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, RobotEnvironmentConfig
from td3robot.envs.playing import Evaluation, summarize
from td3robot.envs.rows import play, side_by_side
from td3robot.policy.checkpoint import Checkpoint, find, load_policy
from td3robot.report.picture import plot_run

EPISODES, SEED = 200, 12345
TOGETHER = 20  # environments side by side; the figures do not depend on it
CARD, CURVE = "README.md", "learning_curve.png"
FIGURES = re.compile(r"^\| domain randomization .*?(?=\n\n)", re.MULTILINE | re.DOTALL)


def row(level: str, figures: Evaluation) -> str:
    """Lay out the figures of one disturbance level."""
    assert figures.success_rate is not None
    assert figures.success_ci95 is not None
    assert figures.guard_interventions is not None
    low, high = figures.success_ci95
    reasons = {reason: share for reason, share in figures.guard_interventions.items() if reason != "any"}
    why = ", ".join(f"{reason} {100 * share:.1f} %" for reason, share in sorted(reasons.items(), key=lambda r: -r[1]))
    return (
        f"| {level} | {100 * figures.success_rate:.1f} % ({100 * low:.1f}-{100 * high:.1f}) "
        f"| {1000 * (figures.max_tcp_speed_m_s or 0):.0f} mm/s, {figures.max_joint_speed_rad_s:.2f} rad/s "
        f"| {100 * figures.guard_interventions['any']:.1f} % ({why}) |"
    )


def main() -> None:
    """Copy, evaluate and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--card", type=Path, help="a card to begin with; default: the one that the policy has")
    arguments = parser.parse_args()
    text = (arguments.card or arguments.out / CARD).read_text(encoding="utf-8")
    if arguments.run is not None:
        best = find(arguments.run)
        shutil.rmtree(arguments.out, ignore_errors=True)
        shutil.copytree(best, arguments.out)
        plot_run(arguments.run, arguments.out / CURVE)
    rows = evaluated(arguments.out)
    name, environment = arguments.out.resolve().name, Checkpoint(arguments.out).config().environment
    text = FIGURES.sub("\n".join(rows), re.sub(r"^# .*", f"# {environment.title} (`{name}`)", text, count=1))
    (arguments.out / CARD).write_text(text, encoding="utf-8")
    print("\n".join(rows))


def evaluated(checkpoint: Path) -> list[str]:
    """Evaluate a checkpoint under every level, and lay out the table."""
    saved, policy = Checkpoint(checkpoint), load_policy(checkpoint)
    trained = saved.config().environment
    assert isinstance(trained, RobotEnvironmentConfig)
    rows = [
        f"| domain randomization | success of {EPISODES} (95 % interval) | fastest tool, joint | "
        "steps changed by the guard |",
        "|---|---|---|---|",
    ]
    seeds = [seeding.integer(SEED, seeding.Stream.EVALUATION_EPISODES, number) for number in range(EPISODES)]
    for level in DISTURBANCES:
        config = RobotEnvironmentConfig(**trained.model_dump() | {"disturbance": level})
        with closing(side_by_side([make_robot_env(config) for _ in range(TOGETHER)], threads=2)) as environments:
            played = play(environments, policy.act, enumerate(seeds), lambda number, what: None)
            rows.append(row(level, summarize(list(played))))
    return rows


if __name__ == "__main__":
    main()
