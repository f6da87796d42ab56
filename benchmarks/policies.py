"""Train configurations from nothing over several seeds, and play each best policy on fresh episodes.

Example: python benchmarks/policies.py configs/ur5e_grasp_quick.yaml --seeds 0 1 2 --under off real
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def command(*arguments: str) -> dict:
    """Run td3robot and read its JSON."""
    output = subprocess.run(
        [sys.executable, "-m", "td3robot", *arguments, "--json"], check=True, capture_output=True, cwd=ROOT
    ).stdout
    return json.loads(output)


def main() -> None:
    """Print one JSON line for each run and each disturbance level that its policy is played under."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--under", nargs="+", default=["off"], help="disturbance levels to play under")
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="changes of the training")
    parser.add_argument("--keep", type=Path, help="directory to keep the runs in")
    arguments = parser.parse_args()
    keep = arguments.keep or Path(tempfile.mkdtemp())
    changes = [word for override in arguments.overrides for word in ("--set", override)]
    for config in arguments.configs:
        for seed in arguments.seeds:
            run = keep / f"{config.stem}-{seed}"
            trained = command("train", str(config), "--seed", str(seed), "--out", str(run), *changes)
            line = {
                "config": config.stem,
                "seed": seed,
                "steps": trained["step"],
                "best_step": trained["best_step"],
                "train_s": round(trained["seconds"], 1),
            }
            for level in arguments.under:
                played = command(
                    "eval", str(run), "--episodes", str(arguments.episodes),
                    "--set", f"environment.disturbance={level}",
                )  # fmt: skip
                print(json.dumps(line | {"under": level} | played), flush=True)


if __name__ == "__main__":
    main()
