"""Resuming a training on an arm that runs in real time: whatever takes long waits for the end of an episode."""

import gc
from contextlib import ExitStack
from typing import Any

from td3robot.learning.metrics import MetricsWriter
from td3robot.learning.trainer import Trainer
from td3robot.policy import checkpoint


class ArmTrainer(Trainer):
    """A trainer with one environment, on an arm; it evaluates in simulation.

    A control period only chooses an action and steps. The updates due for an episode, rows of metrics, evaluations and
    checkpoints come after it, while the arm rests. An episode that was in progress when a run was saved is not
    replayed: where the arm has been since is unknown.
    """

    closing: ExitStack | None = None  # what else ends with the trainer, once the arm rests
    can_be_given_up = False  # the arm is moving
    _writer: MetricsWriter | None = None
    _reported = 0
    _waited = True

    @property
    def environment(self) -> Any:
        """The one on the arm: a ``RobotEnv``."""
        environments: Any = self.collector.environments
        return environments.environments[0].unwrapped

    def train(self) -> None:
        """Train as in simulation, collecting garbage only between episodes: that takes longer than a control period."""
        gc.disable()
        try:
            super().train()
        finally:
            gc.enable()

    def close(self) -> None:
        """Let go of the arm, and of what was to end with it."""
        super().close()
        if self.closing is not None:
            self.closing.close()

    def save(self, strict: bool = False) -> None:
        """Save the whole run, the arm being at rest."""
        self.environment.robot.stop()
        super().save(strict)

    def _resume_episodes(self, saved: checkpoint.Checkpoint) -> None:
        self._reported = self.step
        self.actions = None
        self.collector.begin_after([max(saved.document("counters")["episodes"])])

    def _iterate(self) -> None:
        if self._waited:  # since the arm came to its start
            self.collector.observe(0, self.environment.resume())
            self._waited = False
        observations = self.collector.observations
        self.agent.normalizer.update(observations)
        actions = self.exploration.perturb(self.agent.select_action(observations), self.step)
        self.collector.start(actions)
        self._stopwatch.timed("simulation", self.collector.finish, False)
        self.step += 1
        if finished := self.collector.commit(self.replay):
            self.window.finished += finished
            self._between_episodes()
            self.collector.begin_next()

    def _between_episodes(self) -> None:
        """Do the updates and reports that are due, while the arm rests before it moves to its next start."""
        self._stopwatch.timed("learner", self._update_agent, self.step)
        if self._writer is not None:
            super()._report(self._writer)
        self._reported = self.step
        gc.collect()

    def _report(self, writer: MetricsWriter) -> None:
        self._writer = writer

    def _crossed(self, every: int) -> bool:
        return self.step // every > self._reported // every
