"""An environment whose fault is chosen by the variable FAULT: kind, and the step at which it shows, once."""

import os
import sys
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box

LENGTH = 30


class Faulty(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode=None, talks=False):
        self.talks, self.steps = talks, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.state = self.np_random.normal(size=3).astype(np.float32)
        return self.state.copy(), {}

    def step(self, action):
        self.steps, self.count = self.steps + 1, self.count + 1
        if self.talks:
            print("the environment says something")  # noqa: T201
            os.write(1, b"and so does its library\n")
        self.state = (0.9 * self.state + 0.1 * action + 0.1 * self.np_random.normal(size=3)).astype(np.float32)
        kind, _, at = os.environ.get("FAULT", "").partition("@")
        if kind and self.steps == int(at):
            return self.fail(kind)
        return self.state.copy(), float(-np.square(self.state).sum()), False, self.count == LENGTH, {}

    def fail(self, kind):
        if kind == "raise":
            raise ValueError("the simulator lost\nits marbles")
        if kind == "exit":
            sys.exit(3)
        if kind == "hang":
            while True:
                time.sleep(0.05)
        observation = {"shape": self.state[:2], "text": np.array(["a", "b", "c"]), "nan": self.state * np.nan}
        reward = "three" if kind == "reward" else 0.0
        return observation.get(kind, self.state), reward, False, False, {}


gymnasium.register("Faulty-v0", Faulty)
