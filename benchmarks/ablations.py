"""Train the grasp task without one part at a time, and play each policy with everything in place.

Every line is one training with one seed: without each reward term, without the guard (but with it when played), without
practice, and so on; each is played undisturbed and under ``real``. The command line cannot leave out a guard; this can.

Example: python benchmarks/ablations.py --steps 80000 --only guard approach
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig, load_config
from td3robot.envs.playing import Evaluation, evaluate
from td3robot.learning.benchmark import OpenGuard
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import find, load_policy
from td3robot.tasks.grasp import GraspRewards

CONFIG = Path(__file__).parent.parent / "configs" / "ur5e_grasp.yaml"
TERMS = tuple(GraspRewards.model_fields)


class Silent:
    """A listener that says nothing."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Ignore."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Ignore."""


def changes(only: list[str] | None, joint_way: bool) -> Iterator[tuple[str, list[str]]]:
    """Name every ablation, with its overrides of the training; ``joint_way`` has a reward of its own."""
    known = {"nothing": [], "guard": []}
    known["practice"] = ["environment.task.practice_share=0"]
    known["random actions"] = ["agent.random_share=0"]
    known["keeping random actions"] = ["agent.random_action_steps=1"]
    known["response"] = ["environment.action.response_s=0"]
    known |= {
        f"reward {term}": [f"environment.task.rewards.{term}=0"]
        for term in TERMS
        if term != "joint_progress" or joint_way
    }
    for name, overrides in known.items():
        if not only or name in only or name.removeprefix("reward ") in only:
            yield name, overrides


def main() -> None:
    """Print one JSON line for each ablation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--set", nargs="*", default=[], dest="overrides")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep = arguments.keep or Path(tempfile.mkdtemp())
    fixed = [*arguments.overrides, f"seed={arguments.seed}"]
    fixed += [f"training.steps={arguments.steps}"] if arguments.steps else []
    joint_way = load_config(arguments.config, fixed).environment.task.joint_way
    for name, overrides in changes(arguments.only, joint_way):
        # To get at the guards, and to have them rule.
        here = ["training.overlap=false", "training.vectorized=false"] if name == "guard" else []
        config = load_config(arguments.config, [*fixed, *overrides, *here])
        run = keep / name.replace(" ", "-")
        trainer = make_trainer(config, run, Silent())
        if name == "guard":
            for environment in trainer.collector.environments.environments:
                guard = environment.unwrapped.guard
                opened = OpenGuard(environment.unwrapped.robot.spec, guard.config, guard.kinematics)
                opened.resume(guard.plan)  # its episode has begun
                environment.unwrapped.guard = opened
        trainer.train()
        trainer.close()
        policy = load_policy(find(run))
        line = {"without": name, "steps": config.training.steps, "best_step": trainer.evaluations.best_step}
        kept = [change for change in overrides if change.startswith("environment.action.")]
        whole = load_config(arguments.config, [*fixed, *kept]).environment
        assert isinstance(whole, RobotEnvironmentConfig)
        for level in ("off", "real"):
            played = make_robot_env(RobotEnvironmentConfig(**whole.model_dump() | {"disturbance": level}))
            figures = evaluate(played, policy.act, arguments.episodes, seed=12345)
            line |= {f"success_{level}": figures.success_rate, f"tcp_speed_{level}": figures.max_tcp_speed_m_s}
            line |= {f"interventions_{level}": (figures.guard_interventions or {}).get("any")}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
