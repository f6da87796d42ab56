"""Hindsight experience replay beside Stable-Baselines3's, on the same goal environment with sparse rewards.

Each training has the same sizes, rates, steps and updates; ``her`` and ``sb3`` store four goals more for each step, and
``plain`` none. Success is to be within the tolerance of the goal at the end of an episode, over the same episodes.

Example: python benchmarks/hindsight.py td3robot/UR5eReach-v0 --steps 20000 --seeds 1 2 3 (extra bench)
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
from policies import command

import td3robot

GOALS, HIDDEN, BATCH, GAMMA, NOISE, RATE, RANDOM = 4, 256, 256, 0.95, 0.1, 1e-3, 1_000
EPISODES, SEED = 100, 12345


def success(released: str, act: Callable[[dict[str, Any]], Any]) -> float:
    """Play a policy, and return the share of episodes that end within the tolerance."""
    environment, ends = gymnasium.make(released, goal_env=True), 0
    for episode in range(EPISODES):
        observation, _ = environment.reset(seed=SEED + episode)
        over, reward = False, -1.0
        while not over:
            observation, reward, terminated, truncated, _ = environment.step(act(observation))
            over = terminated or truncated
        ends += reward == 0.0
    return ends / EPISODES


def ours(released: str, steps: int, seed: int, goals: int) -> tuple[float, float]:
    """Train with td3robot, and return success and seconds."""
    settings = [
        f"environment.id={released}", "environment.kwargs={goal_env: true}", f"agent.hidden=[{HIDDEN},{HIDDEN}]",
        f"agent.batch_size={BATCH}", f"agent.gamma={GAMMA}", f"agent.exploration_noise={NOISE}",
        f"agent.learning_rate={RATE}", "agent.normalize_observations=true", f"agent.hindsight_goals={goals}",
        f"agent.replay_capacity={steps * (1 + goals)}", "training.threads=1", "training.environments=1",
        f"training.random_steps={RANDOM}", f"training.evaluate_every={steps}", "training.evaluation_episodes=1",
        f"training.checkpoint_every={steps}",
    ]  # fmt: skip
    changes = [word for setting in settings for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trained = command(
            "train", "gym_pendulum", "--seed", str(seed), "--steps", str(steps), "--out", str(run), *changes
        )
        policy = td3robot.load_policy(run)
    space = gymnasium.make(released, goal_env=True).observation_space
    return success(released, lambda seen: policy.act(gymnasium.spaces.flatten(space, seen))), trained["seconds"]


def sb3(released: str, steps: int, seed: int) -> tuple[float, float]:
    """Train with Stable-Baselines3, and return success and seconds."""
    import torch
    from stable_baselines3 import TD3, HerReplayBuffer
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    environment = gymnasium.make(released, goal_env=True)
    size = environment.action_space.shape[0]  # type: ignore[index]
    model = TD3(
        "MultiInputPolicy", environment, seed=seed, gamma=GAMMA, batch_size=BATCH, learning_rate=RATE,
        learning_starts=RANDOM, buffer_size=steps, action_noise=NormalActionNoise(np.zeros(size), np.full(size, NOISE)),
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]}, replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": GOALS, "goal_selection_strategy": "future"}, device="cpu",
    )  # fmt: skip
    began = perf_counter()
    model.learn(steps)
    seconds = perf_counter() - began
    return success(released, lambda seen: model.predict(seen, deterministic=True)[0]), seconds


def main() -> None:
    """Train and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("released")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--learners", nargs="+", default=["her", "sb3", "plain"], choices=["her", "sb3", "plain"])
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for seed in options.seeds:
        for learner in options.learners:
            if learner == "sb3":
                share, seconds = sb3(options.released, options.steps, seed)
            else:
                share, seconds = ours(options.released, options.steps, seed, GOALS if learner == "her" else 0)
            row = {"id": options.released, "steps": options.steps, "learner": learner, "seed": seed}
            print(json.dumps(row | {"success": share, "seconds": round(seconds)}), flush=True)


if __name__ == "__main__":
    main()
