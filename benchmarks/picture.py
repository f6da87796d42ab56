"""Draw a picture of docs/results.md: three moments of an episode of a released policy, and its training curve.

Usage: python benchmarks/picture.py CHECKPOINT RUN OUT.png
"""

import csv
import sys
from pathlib import Path

from matplotlib.figure import Figure

from td3robot import load_policy
from td3robot.build import make_environment
from td3robot.policy.checkpoint import Checkpoint, find

SEED = 5


def main() -> None:
    """Play one episode and draw."""
    checkpoint, run, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    policy = load_policy(checkpoint)
    config = Checkpoint(find(checkpoint)).config().environment
    environment = make_environment(config, "rgb_array")
    observation, _ = environment.reset(seed=SEED)
    frames, step, truncated = [environment.render()], 0, False
    while not truncated:
        observation, _, _, truncated, _ = environment.step(policy.act(observation))
        step += 1
        if step == 60 or truncated:
            frames.append(environment.render())
    environment.close()

    figure = Figure(figsize=(15, 3.4), layout="constrained")
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.05])
    for panel, frame, title in zip(
        axes, frames, ("start", "after 3 s", f"end, after {config.episode_s:g} s"), strict=False
    ):
        panel.imshow(frame[40:440, 60:600])
        panel.set_title(title)
        panel.axis("off")
    with (run / "evaluations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    axes[3].plot([int(row["step"]) / 1000 for row in rows], [100 * float(row["success_rate"]) for row in rows], "o-")
    axes[3].set(title="success in evaluation [%]", xlabel="environment steps [thousand]", ylim=(0, 103))
    axes[3].grid(alpha=0.3)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=80)


if __name__ == "__main__":
    main()
