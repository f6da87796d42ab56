"""Train the reach task from nothing over several seeds and both action kinds, and evaluate each on fresh goals."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parent.parent
CONFIGS = {"tcp_delta": "configs/ur5e_reach.yaml", "joint_delta": "configs/ur5e_reach_joint.yaml"}


def command(*arguments: str) -> dict:
    """Run td3robot and read its JSON."""
    output = subprocess.run(
        [sys.executable, "-m", "td3robot", *arguments, "--json"], check=True, capture_output=True, cwd=ROOT
    ).stdout
    return json.loads(output)


def main() -> None:
    """Print one JSON line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=sorted(CONFIGS), default=list(CONFIGS))
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="directory to keep the runs in")
    arguments = parser.parse_args()
    keep = arguments.keep or Path(tempfile.mkdtemp())
    for kind in arguments.kinds:
        for seed in range(arguments.seeds):
            run = keep / f"{kind}-{seed}"
            start = perf_counter()
            trained = command("train", CONFIGS[kind], "--seed", str(seed), "--out", str(run))
            wall = perf_counter() - start
            figures = command("eval", str(run), "--episodes", str(arguments.episodes))
            print(
                json.dumps(
                    {
                        "kind": kind,
                        "seed": seed,
                        "steps": trained["step"],
                        "best_step": trained["best_step"],
                        "train_s": round(trained["seconds"], 1),
                        "command_s": round(wall, 1),
                        **figures,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
