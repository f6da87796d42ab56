"""The training loop, and the training in simulation, which resumes exactly."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from td3robot import atomic, seeding
from td3robot.config import RunConfig
from td3robot.envs.playing import Evaluation
from td3robot.envs.trust import trust_option
from td3robot.errors import CheckpointError, EnvironmentFaultError, Td3RobotError, TrainingDivergedError
from td3robot.learning.agent import make_agent
from td3robot.learning.collector import CollectedSteps, Collector, Experience
from td3robot.learning.evaluations import Evaluations
from td3robot.learning.evaluator import Evaluator
from td3robot.learning.exploration import Exploration
from td3robot.learning.guide import make_guide
from td3robot.learning.learner import Learner, make_learner
from td3robot.learning.metrics import MetricsWriter, Stopwatch, Window
from td3robot.learning.replay import ReplayBuffer
from td3robot.learning.run_directory import RunLock, RunMovedError, describe_run, with_traceback
from td3robot.learning.snapshot import restore, run_contents, to_torch
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.policy.checkpoint_writer import publish, set_aside_later, withdraw
from td3robot.policy.contract import Contract
from td3robot.policy.observation_scaling import PRIVILEGED

KEPT = 2  # of the newest checkpoints; each holds the replay buffer
DROPPED_SHARE = 0.2  # of the learning rate, after agent.learning_rate_drop_step
# Q values beyond the largest possible return by this factor are no longer an estimate. Critics that have not learned
# yet are off by less: their outputs are about as large as their observations.
DIVERGED = 1e4


class Listener(Protocol):
    """Report the progress of a training: the command line's progress bar, for example."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Report the steps taken so far."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Report an evaluation."""

    def message(self, text: str) -> None:
        """Report anything else that the user should know."""


class AbandonedStepError(BaseException):
    """An environment's step or an evaluation was abandoned; not an ``Exception``, which an environment might catch."""


class Trainer(ABC):
    """Train one agent in one run directory; subclasses define where its experience comes from.

    Args:
        config: The whole run.
        collector: Collects the experience.
        evaluator: Evaluates the policy.
        contract: What the policy is trained for.
        run: Directory for checkpoints and metrics.
        listener: Reports the progress.
        lock: Lock of the run directory, if already held; it is closed with the training.

    Attributes:
        stop_requested: Whether to save and stop after this step.
        closing: What else to close with the trainer, once the environments are closed.
        actions: Actions that were chosen and not yet carried out; None if there are none.
        evaluations: The evaluation in progress, and the best one.
        window: The data of the next row of metrics.
        learned_by: The learner that a resumed run was saved with; None in a new run.
        changes: Settings that were changed when the run was resumed; see :mod:`td3robot.learning.run_directory`.
    """

    can_be_given_up: ClassVar[bool] = True  # a step, while it runs

    def __init__(
        self,
        config: RunConfig,
        collector: Experience,
        evaluator: Evaluator,
        contract: Contract,
        run: Path,
        listener: Listener,
        lock: RunLock | None = None,
    ) -> None:
        self._lock = lock
        self.config, self.run_directory, self.listener = config, run, listener
        self.evaluations, self.contract = Evaluations(evaluator), contract
        sizes = contract.observation.size, contract.action.size
        agent, seed = config.agent, config.seed
        privileged = collector.facts.privileged_size
        torch.set_num_threads(config.training.threads)
        self.agent = make_agent(*sizes, agent, seeding.integer(seed, seeding.Stream.AGENT), privileged)
        sizes = self.agent.input_size, self.agent.action_size
        self.replay = ReplayBuffer(agent.replay_capacity, *sizes, agent.imitates)
        self.exploration: Exploration = agent.make_exploration(seeding.generator(seed, seeding.Stream.EXPLORATION))
        self.replay_rng = seeding.generator(seed, seeding.Stream.REPLAY)
        self.collector = collector
        self.step = 0
        self.warm = False
        self.stop_requested = False
        self.closing = ExitStack()
        self.changes: list[dict[str, Any]] = []
        self.learner: Learner | None = None
        self.learned_by: str | None = None
        self.actions: NDArray[np.float32] | None = None
        self.window = Window()
        self._stopwatch = Stopwatch()
        self._timed_from = self._reported = self._saved_step = -1
        self._in_environment = False

    def train(self) -> None:
        """Train until ``config.training.steps``, or until ``stop_requested`` is set, and save.

        Raises:
            Td3RobotError: An environment or robot failed; what was learned so far is saved first.
            TrainingDivergedError: A loss is no longer finite; the last checkpoint is left as it is.
            CheckpointError: The last save failed, or the run directory was renamed or deleted.
        """
        self.run_directory.mkdir(parents=True, exist_ok=True)
        self._choose_learner()
        self._lock = self._lock or RunLock(self.run_directory)
        atomic.delete_leftovers(self.run_directory)  # before the loggers, which write there by themselves
        evaluated_until = self.evaluations.first_open(self.step) - 1
        metrics = MetricsWriter(self.run_directory, self.step, self.listener.message, self.config, evaluated_until)
        with self._lock, metrics as writer:
            for place in set_aside_later(self.run_directory, "last", self.step):
                self.listener.message(f"a checkpoint of a later step than this run resumes from is kept as {place}")
            if self.step != self.evaluations.best_step:  # best by an evaluation at the end, which a longer run lacks
                withdraw(self.run_directory, "best", self.step)
            describe_run(self.run_directory, self.config, self.changes, self.listener.message)
            self._timed_from = self._reported = self.step
            try:
                self._run(writer)
            except TrainingDivergedError:
                raise
            except RunMovedError:
                self._save_where_it_is_now()
                raise
            except Td3RobotError as error:
                self.save()
                raise with_traceback(self.run_directory, error) from None
            self.save(strict=True)
            self._evaluate_end(writer)

    def _run(self, writer: MetricsWriter) -> None:
        """Iterate; an abandoned step ends the run as a stop does."""
        try:
            self.evaluations.begin_again()
            self._evaluate(writer)
            while not self._over:
                self.require_in_place()
                self._iterate()
                self._report(writer)
            if not self.stop_requested:
                self._evaluate(writer, patient=True)
        except AbandonedStepError:
            self.listener.message(f"an environment did not end its step, which was given up at step {self.step}")

    def request_stop(self) -> None:
        """Save and stop after this step; if called again, abandon a step or an evaluation that does not end.

        Raises:
            AbandonedStepError: Raised here, in the middle of the environment's code; for signal handlers.
        """
        again, self.stop_requested = self.stop_requested, True
        if again and self._in_environment:
            self._in_environment = False
            raise AbandonedStepError

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let :meth:`request_stop` abandon what an environment does inside this context."""
        self._in_environment = self.can_be_given_up
        try:
            yield
        finally:
            self._in_environment = False

    def save(self, strict: bool = False) -> None:
        """Save the whole run as it stands; a failure is reported, and the previous checkpoint stays.

        Raises:
            TrainingDivergedError: The learner diverged; nothing is saved.
            RunMovedError: The run directory was renamed or deleted.
            CheckpointError: It could not be saved, and ``strict`` is set.
        """
        if self.step == self._saved_step:
            return
        self._require_converging(self.window.figures())
        self.require_finite()
        self.require_in_place()
        try:
            publish(self.run_directory, "last", self.step, run_contents(self), keep=KEPT)
            self._saved_step = self.step
        except CheckpointError as error:
            unsaved = f"{error}; the previous checkpoint is untouched"
            if strict:
                raise CheckpointError(unsaved) from None
            self.listener.message(unsaved)

    def require_in_place(self) -> None:
        """Require that the run directory is where it was.

        Raises:
            RunMovedError: It was renamed or deleted.
        """
        if self._lock is not None:
            self._lock.require_in_place()

    def _save_where_it_is_now(self) -> None:
        """Save the run in its renamed directory, if that is known."""
        place = self._lock.moved_to() if self._lock is not None else None
        if place is not None:
            self._lock, self.run_directory = None, place
            self.save()

    def close(self) -> None:
        """Close the environments, or release the arms; then close what ends with them."""
        with self.closing:
            for each in (self.collector, self.evaluations.evaluator):
                try:
                    each.close()
                except EnvironmentFaultError as error:
                    self.listener.message(str(error))

    def _choose_learner(self) -> None:
        """Make the learner, and record which it is, so that a resumed run uses the same."""
        training = self.config.training
        self.learner = make_learner(self.agent, training, self.learned_by, self.listener.message)
        training = training.model_copy(update={"learner": self.learner.name})
        self.config = self.config.model_copy(update={"training": training})

    def resume(self, saved: Checkpoint) -> None:
        """Restore a saved run, so that training continues exactly as without the interruption.

        Raises:
            CheckpointError: The checkpoint was saved for play only, or does not fit this configuration.
        """
        if not saved.has("replay"):
            raise CheckpointError(
                f"{saved.path} was saved for play: it has no replay buffer to resume from; "
                "resume from the run's last-* checkpoint"
            )
        restore(self, saved)
        self._resume_episodes(saved)
        if saved.path.resolve().parent == self.run_directory.resolve():
            self._saved_step = self.step

    def start_from(self, saved: Checkpoint) -> None:
        """Start with another run's networks and normaliser; its policy replaces uniformly random exploration.

        Raises:
            ContractError: Its observations or actions differ, naming the field.
            CheckpointError: It lacks its critics, its networks have other sizes, or only one of the two runs scales
                observations.
        """
        agent, trained_for = self.config.agent, saved.contract()
        self.contract.observation.require_same(trained_for.observation, "observation")
        self.contract.action.require_same(trained_for.action, "action")
        for name in agent.trained:
            if not saved.has(name):
                raise CheckpointError(
                    f"{saved.path} lacks {name}, without which no run can start from it; "
                    "use a checkpoint that this version has saved"
                )
        normalizer, asymmetric = saved.training_normalizer(), saved.has(PRIVILEGED)
        if asymmetric != agent.is_asymmetric:
            raise CheckpointError(
                f"{saved.path} was trained with agent.asymmetric_critic {str(asymmetric).lower()}, and this run sets "
                f"it to {str(agent.is_asymmetric).lower()}; set it alike"
            )
        was_scaled, scaled = bool(normalizer["enabled"][0]), self.agent.normalizer.enabled
        if was_scaled != scaled:
            raise CheckpointError(
                f"{saved.path} was trained with agent.normalize_observations {str(was_scaled).lower()}, and this "
                f"run sets it to {str(scaled).lower()}; set it alike"
            )
        networks = {name: saved.arrays(name) for name in agent.trained} | {"actor": saved.actor()}
        self.agent.start_from({name: to_torch(arrays) for name, arrays in networks.items()})
        self.agent.normalizer.load_state(normalizer)
        self.warm = True

    @abstractmethod
    def _iterate(self) -> None:
        """Collect some steps and do the updates that are due."""

    @abstractmethod
    def _resume_episodes(self, saved: Checkpoint) -> None:
        """Continue the episodes that were in progress, or begin the next ones."""

    def _store(self, taken: CollectedSteps) -> None:
        """Remember steps."""
        self.replay.add(taken.transitions)
        self.window.add(taken)

    def _update_agent(self, step: int) -> None:
        """Do the updates due by ``updates_per_step`` up to a step count."""
        due, agent = self.config.updates_due(step), self.config.agent
        if not due or self.replay.size < agent.batch_size:
            return
        dropped = 0 < agent.learning_rate_drop_step < step
        self.agent.learning_rate_share = DROPPED_SHARE if dropped else 1.0
        if self.learner is not None and self.agent.updates < due:
            self.window.losses += self.learner.learn(self.replay, self.replay_rng, due - self.agent.updates)

    @property
    def _over(self) -> bool:
        """Whether the run ends with this step."""
        return self.stop_requested or self.step >= self.config.training.steps

    def _pauses(self) -> bool:
        """Whether something comes between this step and the next: the end, or what :meth:`_report` does at times."""
        training = self.config.training
        every = training.log_every, training.evaluate_every, training.checkpoint_every
        return self._over or any(map(self._crossed, every))

    def _report(self, writer: MetricsWriter) -> None:
        training = self.config.training
        if self._crossed(training.log_every):
            row = self._row()
            writer.add("metrics", row)
            self._require_converging(row)
            self.listener.progress(self.step, row["steps_per_second"])
        self.evaluations.due |= self._crossed(training.evaluate_every)
        saving = self._crossed(training.checkpoint_every) and self.step < training.steps  # the end is saved anyway
        self._evaluate(writer, patient=saving and not self.evaluations.due)
        if saving:
            self._stopwatch.timed("saving", self.save)
        self._reported = self.step

    def _evaluate(self, writer: MetricsWriter, patient: bool = False) -> None:
        """Advance the evaluations; a stop requested meanwhile leaves them to the resumed run."""
        before = self.evaluations.running
        self._stopwatch.timed("evaluation", self.evaluations.advance, self, writer, patient)
        if self.evaluations.running is not before:
            self._saved_step = -1

    def _evaluate_end(self, writer: MetricsWriter) -> None:
        """Evaluate the policy at the end, if none was due; a longer run lacks this evaluation, so it is not saved."""
        if self.stop_requested or self.evaluations.last_step == self.step:
            return
        self.evaluations.due = True
        try:
            self.evaluations.advance(self, writer, patient=True)
        except AbandonedStepError:
            self.listener.message(f"the evaluation of step {self.step} was given up")
        except Td3RobotError as error:
            raise with_traceback(self.run_directory, error) from None

    def require_finite(self) -> None:
        """Require that every learned number is finite.

        Raises:
            TrainingDivergedError: Naming the first network or optimizer with one that is not.
        """
        scaling = {name: torch.from_numpy(values) for name, values in self.agent.normalizer.state().items()}
        for name, tensors in (self.agent.tensors() | {"normalizer": scaling}).items():
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
                raise self.diverged(f"{name} is no longer finite")

    def _require_converging(self, figures: Mapping[str, float]) -> None:
        """Raise if the learner's figures are not finite, or its Q values far beyond any possible return."""
        largest_return = 1.0 + self.replay.largest_reward / (1.0 - self.config.agent.gamma)
        for name, value in figures.items():
            if name.startswith("learner/") and not np.isfinite(value):
                raise self.diverged(f"{name} is {value}")
            if name == "learner/Q1_mean" and abs(value) > DIVERGED * largest_return:
                raise self.diverged(f"{name} is {value:.3g}, and rewards allow no return above {largest_return:.3g},")

    def diverged(self, what: str) -> TrainingDivergedError:
        """Return the error that says what diverged, and what to do."""
        slower = "--set agent.learning_rate=..."
        try:
            good = find(self.run_directory, ("last",))
        except CheckpointError:
            advice = f"begin again with a lower learning rate ({slower})"
        else:
            trust = trust_option(getattr(self.config.environment, "id", None))
            advice = (
                f"{good.name} is from before; resume it with a lower learning rate: td3robot train --resume "
                f'{self.run_directory} {slower} --changed "it diverged"{trust}'
            )
        return TrainingDivergedError(
            f"{what} at step {self.step}: the learner diverged, and nothing of that was saved; {advice}"
        )

    def _crossed(self, every: int) -> bool:
        """Whether a multiple of ``every`` steps was passed since the last report."""
        return self.step // every > self._reported // every

    def _row(self) -> dict[str, float]:
        window, self.window = self.window, self.window.following()
        seconds = self._stopwatch.read()
        row: dict[str, float] = {
            "step": self.step,
            "updates": self.agent.updates,
            "steps_per_second": (self.step - self._timed_from) / seconds["all"],
        }
        self._timed_from = self.step
        row |= {f"time/{name}": seconds[name] / seconds["all"] for name in seconds if name != "all"}
        return row | window.figures()


class SimulationTrainer(Trainer):
    """A trainer whose environments wait for it: it learns while they step, or between steps.

    If it learns while they step, the next actions are chosen and the next step begins as soon as the environments have
    stepped, and the transitions are stored meanwhile: the environments set the pace. Where something else comes between
    two steps (a row of metrics, an evaluation, a checkpoint, the end), the transitions are stored first. The results do
    not depend on it. A fault or a stop leaves a state that resumes with the actions chosen last.
    """

    collector: Collector
    _stepping = False

    def __init__(self, config: RunConfig, collector: Collector, *others: Any, **more: Any) -> None:
        super().__init__(config, collector, *others, **more)
        self._guide = make_guide(config, self.contract.observation)

    def _resume_episodes(self, saved: Checkpoint) -> None:
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
            self._store(taken)
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
            actions = self.exploration.uniform(len(observations), self.agent.action_size)
        else:
            actions = self.agent.explore(observations, self.exploration)
        if not np.isfinite(actions).all():  # the environment would be blamed for the consequences
            raise self.diverged("the policy's action is no longer finite")
        if self._guide is not None:
            self._guide.replace(actions, observations, self.exploration.rng)
        return actions
