"""Training in simulation: environments step in parallel, and every step resumes exactly."""

import numpy as np
from numpy.typing import NDArray

from td3robot.learning.collector import Collector
from td3robot.learning.divergence import require_finite_actions
from td3robot.learning.trainer import Trainer
from td3robot.policy import checkpoint


class SimulationTrainer(Trainer):
    """A trainer whose environments wait for it: it learns while they step, or between steps.

    If it learns while they step, the next actions are chosen and the next step begins as soon as the environments have
    stepped, and the transitions are stored meanwhile: the environments set the pace. Where something else comes between
    two steps (a row of metrics, an evaluation, a checkpoint, the end), the transitions are stored first. The results do
    not depend on it. A fault or a stop leaves a state that resumes with the actions chosen last.
    """

    collector: Collector
    _stepping = False

    def _resume_episodes(self, saved: checkpoint.Checkpoint) -> None:
        episodes = saved.document("counters")["episodes"]
        if dropped := self.collector.load_state(saved.arrays("episodes"), episodes):
            self.listener.message(
                f"{len(dropped)} of {len(episodes)} unfinished episodes did not repeat, and were dropped (the "
                "environment is not deterministic after a reset or was changed, or this is another machine or version)"
            )

    def _iterate(self) -> None:
        """Step every environment once and do the updates that are due."""
        training = self.config.training
        if not self._stepping:
            self._start()
        if training.overlap:
            self._stopwatch.timed("learner", self._update_agent, self.step)
        with self.interruptible():
            finished = self._stopwatch.timed("simulation", self.collector.finish)
        taken = self.collector.advance(finished)
        self.step += self.collector.facts.count
        self.actions, self._stepping = None, False
        try:
            if training.overlap and not self._pauses():
                self._start()
        finally:
            self.window.finished += self.collector.commit(taken, self.replay)
        if not training.overlap:
            self._stopwatch.timed("learner", self._update_agent, self.step)

    def _start(self) -> None:
        """Make every environment begin to step, with the actions that a saved run had chosen, or else with new ones."""
        if self.actions is None:
            self.actions = self._choose()
        with self.interruptible():
            self.collector.start(self.actions)
        self._stepping = True

    def _choose(self) -> NDArray[np.float32]:
        """Choose the next action of every environment."""
        observations = self.collector.observations
        self.agent.normalizer.update(observations)
        if self.step < self.config.training.random_steps and not self.warm:
            return self.exploration.uniform(len(observations), self.agent.action_size)
        actions = self.agent.explore(observations, self.exploration)
        require_finite_actions(actions, self.step, self.run_directory)
        return actions
