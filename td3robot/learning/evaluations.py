"""The evaluations of a training, one of which may be in progress while it goes on, and the best policy so far."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from td3robot.envs.playing import Evaluation
from td3robot.errors import CheckpointError
from td3robot.learning.evaluator import Evaluator
from td3robot.learning.metrics import MetricsWriter
from td3robot.learning.snapshot import play_contents
from td3robot.policy.checkpoint import Arrays
from td3robot.policy.checkpoint_writer import CheckpointData, publish
from td3robot.policy.contract import Contract
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.policy import Policy

if TYPE_CHECKING:
    from td3robot.learning.trainer import Trainer

KEPT = 3  # policies that were the best so far, with the best one
PREFIX = "evaluated"  # of the names of what is saved of an evaluation in progress


@dataclass(frozen=True)
class RunningEvaluation:
    """An evaluation in progress: its step, and that step's checkpoint for play and policy."""

    step: int
    contents: CheckpointData
    policy: Policy

    @classmethod
    def of(cls, step: int, contents: CheckpointData, contract: Contract) -> "RunningEvaluation":
        """Return an evaluation of the policy in the contents.

        Raises:
            ValueError: The actor is not a valid policy: a number is not finite, or so large that results might not be.
        """
        scaling = ObservationScaling.from_moments(contents.arrays["normalizer"])
        return cls(step, contents, Policy(contents.arrays["actor"], scaling, contract))


class Evaluations:
    """Evaluate one policy at a time, and keep the best one; the results do not depend on timing.

    The best policy is the latest one that none before it beats, see ``Evaluation.beats``: of policies that differ by no
    more than chance, that which has learned for longest.

    Args:
        evaluator: Plays the episodes.

    Attributes:
        due: Whether this step's policy has yet to be evaluated.
        running: The evaluation in progress.
        figures: Every evaluation so far.
        best, best_step: The best one, and its step.
        last_step: The step of the latest one.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.due = False
        self.running: RunningEvaluation | None = None
        self.figures: list[Evaluation] = []
        self.best: Evaluation | None = None
        self.best_step = self.last_step = 0

    def first_open(self, step: int) -> int:
        """Return the first step whose evaluation is not final, for a run at ``step``."""
        if self.running is not None:
            return self.running.step
        return step if self.due else self.last_step + 1

    def advance(self, trainer: "Trainer", writer: MetricsWriter, patient: bool) -> None:
        """Record the evaluation in progress if it is finished, and begin the one that is due.

        Args:
            trainer: The trainer whose policy is evaluated.
            writer: Receives the figures.
            patient: Whether to wait for the evaluation in progress, and for the one that is due.
        """
        if self.due:
            self._finish(trainer, writer, patient=True)
            if self.running is not None:  # the training is to stop
                return
            self._begin(trainer)
        self._finish(trainer, writer, patient)

    def state(self) -> Arrays:
        """Return what is due and what is in progress as arrays."""
        arrays: Arrays = {"evaluation_due": np.array([self.due]), "evaluation_last_step": np.array([self.last_step])}
        if self.running is None:
            return arrays
        arrays[f"{PREFIX}.step"] = np.array([self.running.step])
        arrays[f"{PREFIX}.updates"] = np.array([self.running.contents.documents["counters"]["updates"]])
        for group, tensors in self.running.contents.arrays.items():
            arrays |= {f"{PREFIX}.{group}.{name}": tensor for name, tensor in tensors.items()}
        return arrays

    def load_state(self, arrays: Arrays, trainer: "Trainer") -> None:
        """Restore what :meth:`state` returned; :meth:`begin_again` restarts what was in progress.

        Raises:
            ValueError: The saved policy is not valid.
        """
        self.due = bool(arrays["evaluation_due"][0])
        if "evaluation_last_step" in arrays:
            self.last_step = int(arrays["evaluation_last_step"][0])
        if f"{PREFIX}.step" not in arrays:
            return
        step, updates = (int(arrays[f"{PREFIX}.{name}"][0]) for name in ("step", "updates"))
        groups: dict[str, Arrays] = {}
        for name, array in arrays.items():
            if name.count(".") > 1 and name.startswith(f"{PREFIX}."):
                _, group, tensor = name.split(".", 2)
                groups.setdefault(group, {})[tensor] = array
        contents = play_contents(trainer)
        counters = contents.documents["counters"] | {"step": step, "updates": updates, "evaluated_step": step}
        documents = {**contents.documents, "counters": counters}
        self.running = RunningEvaluation.of(
            step, replace(contents, documents=documents, arrays=groups), trainer.contract
        )

    def begin_again(self) -> None:
        """Restart what was in progress when the run was saved or stopped; otherwise, prepare the evaluator."""
        self.evaluator.prepare()
        if self.running is not None:
            self.evaluator.start(self.running.policy)

    def _begin(self, trainer: "Trainer") -> None:
        trainer.require_finite()
        try:
            running = RunningEvaluation.of(trainer.step, play_contents(trainer), trainer.contract)
        except ValueError as error:
            raise trainer.diverged(f"the actor is no policy any more ({error})") from None
        self.evaluator.start(running.policy)
        self.running, self.due = running, False

    def _finish(self, trainer: "Trainer", writer: MetricsWriter, patient: bool) -> None:
        """Record the evaluation in progress, if there is one and it is finished."""
        if self.running is None:
            return
        with trainer.interruptible():
            evaluation = self.evaluator.finish(patient, lambda: trainer.stop_requested)
        if evaluation is not None:
            trainer.require_in_place()
            running, self.running = self.running, None
            self._record(trainer, writer, running, evaluation)

    def _record(
        self, trainer: "Trainer", writer: MetricsWriter, running: RunningEvaluation, evaluation: Evaluation
    ) -> None:
        figures = evaluation.to_json()
        row = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        writer.add("evaluations", {"step": running.step} | row)
        trainer.listener.evaluated(running.step, evaluation)
        beaten = any(earlier.beats(evaluation) for earlier in self.figures)
        self.figures.append(evaluation)
        self.last_step = running.step
        if beaten:
            return
        self.best, self.best_step = evaluation, running.step
        contents = replace(running.contents, documents={**running.contents.documents, "evaluation": figures})
        try:
            publish(trainer.run_directory, "best", running.step, contents, keep=KEPT)
        except CheckpointError as error:
            trainer.listener.message(f"{error}; the previous best policy is untouched")
