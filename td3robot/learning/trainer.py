"""The training loop, and its exact resume from a checkpoint."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.config import RunConfig, to_yaml
from td3robot.envs.playing import Evaluation, evaluate
from td3robot.errors import CheckpointError, Td3RobotError, TrainingDivergedError
from td3robot.learning.agent import make_agent
from td3robot.learning.collector import Collector, FinishedEpisode, StepAverages
from td3robot.learning.environments import Environments
from td3robot.learning.exploration import GaussianExploration
from td3robot.learning.metrics import MetricsWriter
from td3robot.learning.replay import ReplayBuffer
from td3robot.policy import checkpoint
from td3robot.policy.contract import Contract

Environment = gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]


class Listener(Protocol):
    """What reports the progress of a training: the command line's progress bar, for example."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Report the steps taken so far."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Report an evaluation."""

    def message(self, text: str) -> None:
        """Report anything else that the user should know."""


class Trainer:
    """Train one agent on some environments, into one run directory.

    Args:
        config: The whole run.
        environments: ``config.training.environments`` of them, alike.
        evaluation_environment: One more, used for nothing else.
        contract: What the policy is trained for.
        run: Directory for checkpoints and metrics.
        listener: Reports the progress.
    """

    def __init__(
        self,
        config: RunConfig,
        environments: Environments,
        evaluation_environment: Environment,
        contract: Contract,
        run: Path,
        listener: Listener,
    ) -> None:
        self.config, self.contract, self.run_directory, self.listener = config, contract, run, listener
        self.evaluation_environment = evaluation_environment
        sizes = contract.observation.size, contract.action.size
        agent, seed = config.agent, config.seed
        if config.training.torch_threads:
            torch.set_num_threads(config.training.torch_threads)
        self.agent = make_agent(*sizes, agent, seeding.integer(seed, seeding.Stream.AGENT))
        self.replay = ReplayBuffer(agent.replay_capacity, *sizes)
        self.exploration = GaussianExploration(
            agent.exploration_noise,
            agent.random_share,
            agent.random_share_steps,
            agent.random_action_steps,
            agent.greedy_share,
            seeding.generator(seed, seeding.Stream.EXPLORATION),
        )
        self.replay_rng = seeding.generator(seed, seeding.Stream.REPLAY)
        self.collector = Collector(environments, seed, agent.n_step, agent.gamma)
        self.step = 0
        self.best: Evaluation | None = None
        self.best_step = 0
        self.warm = False
        self.stop_requested = False
        self._finished: list[FinishedEpisode] = []
        self._losses: list[dict[str, torch.Tensor]] = []
        self._stopwatch = Stopwatch()

    def train(self) -> None:
        """Run until ``config.training.steps``, or until ``stop_requested`` is set, and save.

        Raises:
            Td3RobotError: An environment or robot failed; what was learned so far is saved first.
            TrainingDivergedError: A loss is no longer finite; the last checkpoint is left as it is.
            CheckpointError: The last save failed.
        """
        self.run_directory.mkdir(parents=True, exist_ok=True)
        with (
            checkpoint.locked(self.run_directory),
            MetricsWriter(self.run_directory, self.step, self.listener.message) as writer,
        ):
            checkpoint.clean(self.run_directory)
            try:
                while self.step < self.config.training.steps and not self.stop_requested:
                    self._iterate()
                    self._report(writer)
            except TrainingDivergedError:
                raise
            except Td3RobotError:
                self.save()
                raise
            self.save(strict=True)

    def save(self, strict: bool = False) -> None:
        """Save the whole run as it stands; a failure is reported, and the previous checkpoint stays.

        Raises:
            CheckpointError: It could not be saved, and ``strict`` says that this is an error.
        """
        self._require_finite_agent()
        try:
            checkpoint.publish(self.run_directory, "last", self.step, self._contents())
        except CheckpointError as error:
            unsaved = f"{error}; the previous checkpoint is untouched"
            if strict:
                raise CheckpointError(unsaved) from None
            self.listener.message(unsaved)

    def close(self) -> None:
        """Close the environments."""
        self.collector.environments.close()
        self.evaluation_environment.close()

    def _require_finite_agent(self) -> None:
        groups = self.agent.tensors()
        groups["normalizer"] = _to_torch(self.agent.normalizer.state())
        for name, tensors in groups.items():
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
                raise TrainingDivergedError(
                    f"{name} is no longer finite at step {self.step}: the learner diverged, and nothing of it was "
                    "saved; go back with --resume, or lower the learning rates"
                )

    def resume(self, saved: checkpoint.Checkpoint) -> None:
        """Restore a saved run, so that training continues exactly as it would have without the interruption.

        Raises:
            CheckpointError: The checkpoint was saved for play only, or does not fit this configuration.
        """
        if not saved.has("replay"):
            raise CheckpointError(
                f"{saved.path} was saved for play only: it has no replay buffer to resume from; "
                "resume from the run's last-* checkpoint"
            )
        counters = saved.document("counters")
        self.agent.load_tensors({name: _to_torch(saved.arrays(name)) for name in self.agent.tensors()})
        self.agent.normalizer.load_state(saved.arrays("normalizer"))
        self.agent.generator.set_state(torch.from_numpy(saved.arrays("torch_generator")["state"]))
        self.agent.updates = counters["updates"]
        self.replay.load_state(saved.arrays("replay"), counters["replay"])
        random_states = saved.document("random")
        seeding.restore(self.exploration.rng, random_states["exploration"])
        self.exploration.load_state(saved.arrays("exploration"))
        seeding.restore(self.replay_rng, random_states["replay"])
        self.step = counters["step"]
        self.warm = counters["warm_start"]
        evaluation = saved.document("evaluation")
        if evaluation is not None:
            self.best, self.best_step = Evaluation(**evaluation), counters["evaluated_step"]
        self._resume_episodes(saved)

    def _resume_episodes(self, saved: checkpoint.Checkpoint) -> None:
        episodes = saved.document("counters")["episodes"]
        for index in self.collector.load_state(saved.arrays("episodes"), episodes):
            self.listener.message(
                f"environment {index} did not repeat its unfinished episode (it is not deterministic after a "
                "reset, or this is another machine or version), so that episode was dropped"
            )

    def start_from(self, saved: checkpoint.Checkpoint) -> None:
        """Start with another run's networks and normaliser; its policy explores in place of uniformly random actions.

        Raises:
            ContractError: Its observations or actions differ, naming the field.
            CheckpointError: It lacks its critics, its networks have other sizes, or only one of the two runs scales
                observations.
        """
        trained_for = saved.contract()
        self.contract.observation.require_same(trained_for.observation, "observation")
        self.contract.action.require_same(trained_for.action, "action")
        for name in self.agent.trained:
            if not saved.has(name):
                raise CheckpointError(
                    f"{saved.path} lacks {name}, without which training cannot go on from it; "
                    "use a checkpoint that this version has saved"
                )
        normalizer = saved.arrays("normalizer")
        was_scaled, scaled = bool(normalizer["enabled"][0]), self.agent.normalizer.enabled
        if was_scaled != scaled:
            raise CheckpointError(
                f"{saved.path} was trained with agent.normalize_observations {str(was_scaled).lower()}, and this "
                f"run sets it to {str(scaled).lower()}; set it alike"
            )
        networks = {name: saved.arrays(name) for name in self.agent.trained} | {"actor": saved.actor()}
        self.agent.start_from({name: _to_torch(arrays) for name, arrays in networks.items()})
        self.agent.normalizer.load_state(normalizer)
        self.warm = True

    def _iterate(self) -> None:
        """Step every environment once and do the updates that are due."""
        training = self.config.training
        count = self.collector.environments.facts.count
        observations = self.collector.observations
        self.agent.normalizer.update(observations)
        if self.step < training.random_steps and not self.warm:
            actions = self.exploration.uniform(count, self.agent.action_size)
        else:
            actions = self.exploration.perturb(self.agent.select_action(observations), self.step)

        self.collector.start(actions)
        if training.overlap:
            self._stopwatch.timed("learner", self._update_agent, self.step)
        self._stopwatch.timed("simulation", self.collector.finish)
        self._finished += self.collector.commit(self.replay)
        self.step += count
        if not training.overlap:
            self._stopwatch.timed("learner", self._update_agent, self.step)

    def _update_agent(self, step: int) -> None:
        """Do the updates that ``updates_per_step`` calls for up to a step count."""
        learning_steps = step - self.config.training.random_steps
        if learning_steps <= 0 or self.replay.size < self.config.agent.batch_size:
            return
        due = int(learning_steps * self.config.agent.updates_per_step)
        while self.agent.updates < due:
            batch = self.replay.sample(self.config.agent.batch_size, self.replay_rng, self.agent.device)
            metrics = self.agent.update(batch)
            if "actor_loss" in metrics:
                self._losses.append(metrics)

    def _report(self, writer: MetricsWriter) -> None:
        training = self.config.training
        if self._crossed(training.log_every):
            row = self._row()
            writer.add("metrics", row)
            self._require_converging(row)
            self.listener.progress(self.step, row["steps_per_second"])
        if self._crossed(training.evaluate_every):
            self._stopwatch.timed("evaluation", self._evaluate, writer)
        if self._crossed(training.checkpoint_every):
            self._stopwatch.timed("saving", self.save)

    def _require_converging(self, row: dict[str, float]) -> None:
        for name, value in row.items():
            if not np.isfinite(value):
                raise TrainingDivergedError(
                    f"{name} is {value} at step {self.step}: the learner diverged, and nothing of it was saved; "
                    "go back with --resume, or lower the learning rates"
                )

    def _crossed(self, every: int) -> bool:
        before = self.step - self.collector.environments.facts.count
        return self.step // every > before // every

    def _evaluate(self, writer: MetricsWriter) -> None:
        evaluation = evaluate(
            self.evaluation_environment,
            lambda observation: self.agent.select_action(observation[None], play=True)[0],
            self.config.training.evaluation_episodes,
            self.config.seed,
            seeding.Stream.SELECTION_EPISODES,
        )
        figures = evaluation.to_json()
        row = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        writer.add("evaluations", {"step": self.step} | row)
        self.listener.evaluated(self.step, evaluation)
        if self.best is None or evaluation.is_better_than(self.best):
            self.best, self.best_step = evaluation, self.step
            try:
                checkpoint.publish(self.run_directory, "best", self.step, self._play_contents(evaluation))
            except CheckpointError as error:
                self.listener.message(f"{error}; the previous best policy is untouched")

    def _row(self) -> dict[str, float]:
        means, steps = self.collector.averages.means(), self.collector.averages.steps
        self.collector.averages = StepAverages(means)
        losses, self._losses = self._losses, []
        finished, self._finished = self._finished, []
        seconds = self._stopwatch.read()
        row: dict[str, float] = {
            "step": self.step,
            "updates": self.agent.updates,
            "steps_per_second": steps / seconds["all"],
        }
        row |= {f"time/{name}": seconds[name] / seconds["all"] for name in seconds if name != "all"}
        if finished:
            row["episode/return"] = float(np.mean([episode.total_reward for episode in finished]))
            row["episode/steps"] = float(np.mean([episode.steps for episode in finished]))
            if finished[0].success is not None:
                row["episode/success"] = float(np.mean([bool(episode.success) for episode in finished]))
        for name in losses[0] if losses else ():
            row[f"learner/{name}"] = float(torch.stack([loss[name] for loss in losses]).mean())
        return row | means

    def _play_contents(self, evaluation: Evaluation) -> checkpoint.Contents:
        return checkpoint.Contents(
            config=to_yaml(self.config),
            documents=self._documents(evaluation, self.step),
            arrays={name: _to_numpy(group) for name, group in self.agent.play_tensors().items()}
            | {"normalizer": self.agent.normalizer.state()},
        )

    def _documents(self, evaluation: Evaluation | None, evaluated_step: int) -> dict[str, Any]:
        return {
            "contract": dict(self.contract.terms),
            "evaluation": evaluation.to_json() if evaluation else None,
            "counters": {
                "step": self.step,
                "updates": self.agent.updates,
                "evaluated_step": evaluated_step,
                "warm_start": self.warm,
            },
        }

    def _contents(self) -> checkpoint.Contents:
        rows, replay_counters = self.replay.state()
        episodes, episode_indices = self.collector.state()
        documents = self._documents(self.best, self.best_step)
        documents["counters"] |= {
            "replay": replay_counters,
            "episodes": episode_indices,
        }
        documents["random"] = {
            "exploration": seeding.state(self.exploration.rng),
            "replay": seeding.state(self.replay_rng),
        }
        arrays = {name: _to_numpy(group) for name, group in self.agent.tensors().items()}
        arrays |= {
            "normalizer": self.agent.normalizer.state(),
            "exploration": self.exploration.state(),
            "torch_generator": {"state": self.agent.generator.get_state().numpy()},
            "replay": rows,
            "episodes": episodes,
        }
        return checkpoint.Contents(to_yaml(self.config), documents, arrays)


class Stopwatch:
    """Wall time by activity since the last reading; for environments in another process, the time spent waiting."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._since = perf_counter()

    def timed(self, name: str, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function, and add the time it takes to ``name``."""
        start = perf_counter()
        try:
            function(*arguments)
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + perf_counter() - start

    def read(self) -> dict[str, float]:
        """Return the seconds since the last reading by name, with ``other`` and ``all``, and start again."""
        now = perf_counter()
        spent = {name: self._spent.get(name, 0.0) for name in ("simulation", "learner", "evaluation", "saving")}
        whole = now - self._since
        spent |= {"other": whole - sum(spent.values()), "all": whole}
        self._spent, self._since = {}, now
        return spent


def _to_numpy(tensors: dict[str, torch.Tensor]) -> checkpoint.Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def _to_torch(arrays: checkpoint.Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
