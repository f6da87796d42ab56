"""Training in simulation: environments step in parallel, and every step resumes exactly."""

import numpy as np
from numpy.typing import NDArray

from td3robot.learning.collector import Collector
from td3robot.learning.divergence import require_finite_actions
from td3robot.learning.trainer import Trainer
from td3robot.policy import checkpoint


class SimulationTrainer(Trainer):
    """A trainer whose environments wait for it: it learns while they step, or between steps.

    Actions are chosen before the environments step, and nothing else in an iteration happens before they have stepped.
    A fault leaves a state that resumes with these very actions.
    """

    collector: Collector

    def _resume_episodes(self, saved: checkpoint.Checkpoint) -> None:
        episodes = saved.document("counters")["episodes"]
        if dropped := self.collector.load_state(saved.arrays("episodes"), episodes):
            self.listener.message(
                f"{len(dropped)} of {len(episodes)} unfinished episodes did not repeat, and were dropped (the "
                "environment is not deterministic after a reset or was changed, or this is another machine or version)"
            )

    def _iterate(self) -> None:
        """Step every environment once and do the updates that are due."""
        if self.actions is None:
            self.actions = self._choose()
        with self.interruptible():
            self.collector.start(self.actions)
        if self.config.training.overlap:
            self._stopwatch.timed("learner", self._update_agent, self.step)
        with self.interruptible():
            self._stopwatch.timed("simulation", self.collector.finish)
        self.window.finished += self.collector.commit(self.replay)
        self.actions = None
        self.step += self.collector.facts.count
        if not self.config.training.overlap:
            self._stopwatch.timed("learner", self._update_agent, self.step)

    def _choose(self) -> NDArray[np.float32]:
        """Choose the next action of every environment."""
        observations = self.collector.observations
        self.agent.normalizer.update(observations)
        if self.step < self.config.training.random_steps and not self.warm:
            return self.exploration.uniform(len(observations), self.agent.action_size)
        wished = self.agent.select_action(observations)
        require_finite_actions(wished, self.step, self.run_directory)
        return self.exploration.perturb(wished, self.step)
