"""Learner updates a second beside Stable-Baselines3 at the same sizes, in turn, so that the ratio holds."""

import json
from statistics import median
from time import perf_counter

import gymnasium
import numpy as np
import torch
from stable_baselines3 import TD3 as PeerTD3  # noqa: N811

from td3robot.config import AgentConfig
from td3robot.learning.replay import ReplayBuffer
from td3robot.learning.td3 import TD3

OBSERVATION, ACTION, WIDTH, BATCH, UPDATES, PASSES = 20, 7, 256, 256, 300, 5


class Nothing(gymnasium.Env):
    """An environment that is never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Give zeros."""
        return np.zeros(OBSERVATION, np.float32), {}


def main() -> None:
    """Time both in turn and print medians and the median ratio."""
    rng = np.random.default_rng(0)
    agent = TD3(
        OBSERVATION, ACTION, AgentConfig(actor_hidden=(WIDTH,) * 2, critic_hidden=(WIDTH,) * 2, device="cpu"), 0
    )
    replay = ReplayBuffer(10_000, OBSERVATION, ACTION)
    peer = PeerTD3("MlpPolicy", Nothing(), policy_kwargs={"net_arch": [WIDTH] * 2}, buffer_size=10_000, device="cpu")
    peer.set_logger(_silent_logger())
    for _ in range(10_000):
        observation, following = rng.standard_normal((2, OBSERVATION)).astype(np.float32)
        action = rng.uniform(-1, 1, ACTION).astype(np.float32)
        replay.add(observation, action, 0.0, following, False, 0.99)
        peer.replay_buffer.add(observation[None], following[None], action[None], np.zeros(1), np.zeros(1), [{}])

    def ours() -> None:
        for _ in range(UPDATES):
            agent.update(replay.sample(BATCH, rng, agent.device))

    def theirs() -> None:
        peer.train(gradient_steps=UPDATES, batch_size=BATCH)

    ours(), theirs()
    rates: dict[str, list[float]] = {"td3robot": [], "stable_baselines3": []}
    for _ in range(PASSES):
        for name, run in (("td3robot", ours), ("stable_baselines3", theirs)):
            start = perf_counter()
            run()
            rates[name].append(UPDATES / (perf_counter() - start))
    ratios = [a / b for a, b in zip(rates["td3robot"], rates["stable_baselines3"], strict=True)]
    figures = {name: median(values) for name, values in rates.items()}
    print(json.dumps(figures | {"ratio": median(ratios), "threads": torch.get_num_threads()}))


def _silent_logger() -> object:
    from stable_baselines3.common.logger import configure

    return configure(None, [])


if __name__ == "__main__":
    main()
