"""The tables of docs/rehearsal.md in one go: policy step, rehearsals beside simulation, fault drills. As Markdown.

Usage: python benchmarks/rehearse.py [CHECKPOINT ...] [--episodes 50] [--host 127.0.0.3] [--drills 3] [--rtde-rate 125]

A rehearsal is in real time: 50 reach episodes take about eight minutes, 50 grasps about nine, and the drills about one
and a half minutes a round. Run it while the machine does nothing else.
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median

from drills import DRILLS, Outcome, Scene
from timing import policy_step_ms

from td3robot.cli.rehearsal import clock_text
from td3robot.cli.terminal import stderr
from td3robot.deploy.loaded_policy import open_checkpoint
from td3robot.deploy.rehearsal import Plan, Rehearsal
from td3robot.report.figures import ROWS

ROOT = Path(__file__).resolve().parent.parent


def rehearse(path: Path, arguments: argparse.Namespace, records: Path) -> None:
    """Print one policy's figures."""
    loaded = open_checkpoint(path)
    step = policy_step_ms(loaded.policy, loaded.environment)
    plan = Plan(loaded, arguments.episodes, host=arguments.host, records=records, stream_hz=arguments.rtde_rate)
    report = Rehearsal(plan, stderr.say).run()
    print(f"\n### {loaded.name}, {arguments.episodes} episodes, streamed at {arguments.rtde_rate} Hz\n")
    print("| | stand-in, real client | plain simulation |\n|---|---|---|")
    for row in ROWS:
        print(f"| {row.title} | {row.text(report['arm'])} | {row.text(report['simulation'])} |")
    print(
        f"\nPolicy step (layout, normaliser, actor, action, guard): p50 {step['p50']:.3f} ms, p99 {step['p99']:.3f} ms."
    )
    print("\n| driver | ms |\n|---|---|")
    for name, value in report["driver"].items():
        print(f"| {name} | {value:.3f} |")
    print("\n| at the wire | targets | measured | limit |\n|---|---|---|---|")
    for name, limit in report["limits"].items():
        wire = report["wire"]
        print(f"| {name} | {wire['targets'][name]:.3f} | {wire['measured'][name]:.3f} | {limit:.3f} |")
    print(f"\n{clock_text(report['standin_clock'])}")


def drill(rounds: int, host: str, records: Path) -> None:
    """Print the fault table: medians and worst of some rounds."""
    found: dict[str, list[Outcome]] = {}
    scene = Scene(host, records)
    try:
        for number in range(rounds):
            for item in DRILLS:
                stderr.say(f"round {number + 1} of {rounds}: {item.name}")
                found.setdefault(item.name, []).append(scene.perform(item))
    finally:
        scene.close()
    print(f"\n### Faults, {rounds} rounds: median (worst)\n")
    print("| fault | what the operator reads | told after | at rest after |\n|---|---|---|---|")
    for name, outcomes in found.items():
        said = outcomes[0].said or "nothing: the arm goes on"
        print(
            f"| {name} | {said} | {seconds([o.told_s for o in outcomes])} | {seconds([o.rest_s for o in outcomes])} |"
        )


def seconds(values: list[float | None]) -> str:
    """Write median and worst in ms; a hyphen where there is nothing."""
    known = [value for value in values if value is not None]
    return f"{1e3 * median(known):.0f} ({1e3 * max(known):.0f}) ms" if known else "-"


def main() -> None:
    """Measure everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    released = [path for path in (ROOT / "checkpoints").glob("ur5e_*") if path.is_dir()]
    parser.add_argument("checkpoints", nargs="*", type=Path, default=sorted(released, reverse=True))
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--drills", type=int, default=3, help="rounds of the fault table; 0 leaves it out")
    parser.add_argument("--host", default="127.0.0.3")
    parser.add_argument("--rtde-rate", type=int, default=125, choices=(125, 500))
    arguments = parser.parse_args()
    load = os.getloadavg()
    print(f"Load of the machine before: {load[0]:.1f} on {os.cpu_count()} cores.")
    with tempfile.TemporaryDirectory() as folder:
        for path in arguments.checkpoints:
            rehearse(path, arguments, Path(folder))
        if arguments.drills:
            drill(arguments.drills, arguments.host, Path(folder))


if __name__ == "__main__":
    main()
