"""Whole trainings beside the TD3 of Stable-Baselines3 and SBX: the same environments, to the same success, in turn.

Every learner trains on a released id with practice starts, with the sizes, rates and schedule of the id's
configuration, as far as it has them. Evaluations are of the same episodes, off the clock. A success counts from the
moment at which its policy was trained. Clocks start once the environments have; how long that took is told beside.
Each training is a process of its own.

SBX (``pip install sbx-rl``) belongs into an environment of its own, with this project and its extra ``bench``.

Example: python benchmarks/peers.py ur5e_reach_quick --success 0.95 0.99 --seeds 0 1 2
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
from learner import peer_policy
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from td3robot import seeding
from td3robot.config import RunConfig, load_config
from td3robot.envs.playing import Evaluation, evaluate
from td3robot.learning.evaluations import Begun
from td3robot.learning.runs import make_trainer
from td3robot.learning.snapshot import play_contents
from td3robot.learning.trainer import DROPPED_SHARE, Trainer
from td3robot.policy.policy import Policy

IDS = {"ur5e_reach_quick": "td3robot/UR5eReach-v0", "ur5e_grasp_quick": "td3robot/UR5eGrasp-v1"}
PACKAGES = {"td3robot": "td3robot", "sb3": "stable_baselines3", "sbx": "sbx"}
TITLES = {"td3robot": "td3robot", "sb3": "Stable-Baselines3", "sbx": "SBX"}
EPISODES = 50  # of an evaluation
EPISODE_SEEDS = seeding.Stream.SELECTION_EPISODES
EVERY = {"ur5e_reach_quick": 3_000, "ur5e_grasp_quick": 5_000}  # steps between evaluations


class Curve:
    """The successes of one training, with the seconds it had taken by then; over once all wanted are reached.

    Attributes:
        start_s: Seconds to make the learner and to start its environments.
    """

    def __init__(self, wanted: list[float]) -> None:
        self.wanted, self.points = max(wanted), []
        self.began, self.start_s, self.excluded = perf_counter(), 0.0, 0.0

    def begin(self) -> None:
        """Start the clock: the environments wait for their first step."""
        self.start_s = round(perf_counter() - self.began, 1)
        self.began = perf_counter()

    def now(self) -> float:
        """Return the seconds of training so far."""
        return perf_counter() - self.began - self.excluded

    def add(self, step: int, seconds: float, figures: Evaluation) -> bool:
        """Add the evaluation of the policy trained after so many seconds, and return whether it is the last one."""
        self.points.append((step, round(seconds, 1), figures.success_rate))
        print(json.dumps(self.points[-1]), file=sys.stderr, flush=True)
        return (figures.success_rate or 0.0) >= self.wanted


class Silent:
    """A listener that says nothing."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Ignore."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Ignore."""


class Watch(Silent):
    """Keep this project's policies as they are trained, every so many steps.

    Attributes:
        trained: Step, seconds of training and policy of each.
    """

    def __init__(self, curve: Curve, every: int) -> None:
        self.curve, self.every, self.trained = curve, every, list[tuple[int, float, Policy]]()
        self.trainer: Trainer | None = None

    def progress(self, step: int, steps_per_second: float) -> None:
        """Keep the policy if it is time."""
        if self.trainer is not None and step // self.every > len(self.trained):
            policy = Begun.of(step, play_contents(self.trainer), self.trainer.contract).policy
            self.trained.append((step, self.curve.now(), policy))


def train_here(config: RunConfig, released: str, curve: Curve) -> None:
    """Train with this project's trainer, and evaluate afterwards: its environments step on while it learns."""
    training = config.training
    never = training.model_copy(update={"evaluate_every": training.steps + 1, "evaluators": 0})
    with tempfile.TemporaryDirectory() as run:
        watch = Watch(curve, training.evaluate_every)
        trainer = make_trainer(config.model_copy(update={"training": never}), Path(run) / "run", watch)
        watch.trainer = trainer
        curve.begin()
        try:
            trainer.train()
        finally:
            trainer.close()
    tried = gymnasium.make(released)
    for step, seconds, policy in watch.trained:
        figures = evaluate(tried, policy.act, training.evaluation_episodes, config.seed, EPISODE_SEEDS)
        if curve.add(step, seconds, figures):
            return


def train_peer(package: str, config: RunConfig, released: str, curve: Curve) -> None:
    """Train with a peer's TD3, with observations normalized and the environments in processes of their own."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

    agent, training = config.agent, config.training
    tried = gymnasium.make(released)
    environments = VecNormalize(
        SubprocVecEnv([partial(make_practice, released) for _ in range(training.environments)]), norm_reward=False
    )
    environments.seed(config.seed)
    size = tried.action_space.shape[0]

    def rate(remaining: float) -> float:
        dropped = 0 < agent.learning_rate_drop_step < (1.0 - remaining) * training.steps
        return agent.learning_rate * (DROPPED_SHARE if dropped else 1.0)

    model = import_module(package).TD3(
        "MlpPolicy",
        environments,
        learning_rate=rate,
        buffer_size=agent.replay_capacity,
        learning_starts=training.random_steps,
        batch_size=agent.batch_size,
        tau=agent.tau,
        gamma=agent.gamma,
        n_steps=agent.n_step,
        train_freq=1,
        gradient_steps=max(1, round(agent.updates_per_step * training.environments)),
        action_noise=NormalActionNoise(np.zeros(size), np.full(size, agent.exploration_noise)),
        policy_kwargs=peer_policy(package, agent),
        seed=config.seed,
        device="cpu",
    )

    def act(observation: np.ndarray) -> np.ndarray:
        chosen, _ = model.predict(environments.normalize_obs(observation), deterministic=True)
        return chosen

    class Evaluate(BaseCallback):
        """Evaluate every so many steps, off the clock."""

        due = training.evaluate_every

        def _on_step(self) -> bool:
            if self.num_timesteps < self.due:
                return True
            self.due += training.evaluate_every
            stopped, trained = perf_counter(), curve.now()
            figures = evaluate(tried, act, training.evaluation_episodes, config.seed, EPISODE_SEEDS)
            curve.excluded += perf_counter() - stopped
            return not curve.add(self.num_timesteps, trained, figures)

    environments.get_attr("spec")  # all of them answer
    curve.begin()
    model.learn(training.steps, callback=Evaluate())
    environments.close()


def make_practice(released: str) -> gymnasium.Env:
    """Make a training environment."""
    import torch

    import td3robot  # noqa: F401  # registers the ids

    torch.set_num_threads(1)
    return gymnasium.make(released, practice=True)


def train_one(learner: str, name: str, overrides: list[str], seed: int, wanted: list[float]) -> dict[str, Any]:
    """Train once, in this process, and return its curve, and how long it took to start."""
    evaluations = [f"training.evaluation_episodes={EPISODES}", f"training.evaluate_every={EVERY[name]}"]
    fixed = [*evaluations, f"seed={seed}", *overrides]
    config = load_config(Path(__file__).parent.parent / "configs" / f"{name}.yaml", fixed)
    curve = Curve(wanted)
    if learner == "td3robot":
        train_here(config, IDS[name], curve)
    else:
        train_peer(PACKAGES[learner], config, IDS[name], curve)
    return {"start_s": curve.start_s, "points": curve.points}


def seconds_to(points: list[Any], success: float) -> float | None:
    """Return the seconds after which a curve first has a success."""
    return next((seconds for _, seconds, reached in points if reached >= success), None)


def median_of(seconds: list[float | None]) -> float | None:
    """Return the median, in which a training that does not get there counts as the slowest; None if it is one."""
    middle = median(inf if each is None else each for each in seconds)
    return None if middle == inf else middle


def draw(name: str, curves: dict[str, dict[int, list[Any]]], out: Path) -> None:
    """Draw success over seconds of training, a line for every training."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for number, (learner, of_seeds) in enumerate(curves.items()):
        for points in of_seeds.values():
            _, seconds, successes = zip((0, 0.0, 0.0), *points, strict=True)
            axes.plot(seconds, successes, color=f"C{number}", marker=".", alpha=0.8)
        axes.lines[-1].set_label(TITLES[learner])
    axes.set(xlabel="seconds of training", ylabel="success of 50 episodes", xlim=(0, None), ylim=(0, 1.03))
    axes.set_title(f"{name}, a line for every seed")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(out, dpi=110)


def main() -> None:
    """Train them all in turn, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=IDS)
    parser.add_argument("--learners", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--success", nargs="+", type=float, default=[0.95])
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="of all trainings")
    parser.add_argument("--picture", type=Path, help="where to draw the curves")
    parser.add_argument("--one", action="store_true", help="train once, in this process")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(train_one(given.learners[0], given.name, given.overrides, given.seeds[0], given.success)))
        return
    missing = [learner for learner in given.learners if find_spec(PACKAGES[learner]) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}; leave it out with --learners")
    found: dict[str, Any] = {"load": os.getloadavg()[0]}
    found |= {key: {learner: {} for learner in given.learners} for key in ("start_s", "curves")}
    for seed in given.seeds:  # in turn, so that a busy stretch of the machine meets all
        for learner in given.learners:
            print(f"{learner}, seed {seed}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, given.name, "--one", "--learners", learner, "--seeds", str(seed)]
            command += ["--success", *map(str, given.success), "--set", *given.overrides]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            trained = json.loads(done.stdout.splitlines()[-1])
            found["start_s"][learner][seed], found["curves"][learner][seed] = trained["start_s"], trained["points"]
    for success in given.success:
        reached = {
            learner: [seconds_to(points, success) for points in curves.values()]
            for learner, curves in found["curves"].items()
        }
        found[f"seconds to {success:g}"] = reached | {
            f"median of {learner}": median_of(each) for learner, each in reached.items()
        }
    print(json.dumps(found), flush=True)
    if given.picture is not None:
        draw(given.name, found["curves"], given.picture)


if __name__ == "__main__":
    main()
