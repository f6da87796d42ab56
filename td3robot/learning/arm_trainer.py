"""Going on with a training on an arm that keeps its own time: whatever takes long waits for the end of an episode."""

import gc
from typing import Any

from td3robot.learning.metrics import MetricsWriter
from td3robot.learning.trainer import Trainer
from td3robot.policy import checkpoint


class ArmTrainer(Trainer):
    """A trainer with one environment, on an arm; it evaluates in simulation.

    In a control period nothing happens but choosing an action and stepping. Updates that an episode owes, rows of
    metrics, evaluations and checkpoints come after it, while the arm rests. An episode that was in progress when a run
    was saved is not played again: nobody knows what became of the arm.
    """

    _writer: MetricsWriter | None = None
    _reported = 0
    _waited = True

    @property
    def environment(self) -> Any:
        """The one on the arm: a ``RobotEnv``."""
        environments: Any = self.collector.environments
        return environments.environments[0].unwrapped

    def train(self) -> None:
        """Train as ever, with garbage collected between episodes alone: it takes longer than a control period."""
        gc.disable()
        try:
            super().train()
        finally:
            gc.enable()

    def save(self, strict: bool = False) -> None:
        """Save the whole run, the arm being at rest."""
        self.environment.robot.stop()
        super().save(strict)

    def _resume_episodes(self, saved: checkpoint.Checkpoint) -> None:
        self._reported = self.step
        self.collector.begin_after([max(saved.document("counters")["episodes"])])

    def _iterate(self) -> None:
        if self._waited:  # since the arm came to its start
            self.collector.observe(0, self.environment.resume())
            self._waited = False
        observations = self.collector.observations
        self.agent.normalizer.update(observations)
        actions = self.exploration.perturb(self.agent.select_action(observations), self.step)
        self.collector.start(actions)
        self._stopwatch.timed("simulation", self.collector.finish)
        self.step += 1
        self._finished += self.collector.commit(self.replay, self._between_episodes)

    def _between_episodes(self) -> None:
        """Do what is owed, the arm being at rest; it goes to its next start afterwards."""
        self._stopwatch.timed("learner", self._update_agent, self.step)
        if self._writer is not None:
            super()._report(self._writer)
        self._reported = self.step
        gc.collect()

    def _report(self, writer: MetricsWriter) -> None:
        self._writer = writer

    def _crossed(self, every: int) -> bool:
        return self.step // every > self._reported // every
