"""Resumes a training on arms that run in real time: whatever takes long waits until they rest between episodes."""

from collections.abc import Iterator

import numpy as np

from td3robot import seeding
from td3robot.config import RunConfig
from td3robot.errors import TrainingDivergedError
from td3robot.learning.agent import Agent
from td3robot.learning.arms import ArmEpisode, Arms, EpisodeOrder
from td3robot.learning.collector import CollectedSteps, Episode, Experience
from td3robot.learning.exploration import Exploration
from td3robot.learning.guide import Guide
from td3robot.learning.trainer import Trainer
from td3robot.policy.checkpoint import Checkpoint
from td3robot.policy.contract import Contract
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.policy import Policy


class ArmCollector(Experience):
    """Have arms play one episode each, at the same time.

    Args:
        arms: The arms that play.
        config: The run's configuration.
        guide: As in :class:`~td3robot.learning.collector.Experience`.
    """

    def __init__(self, arms: Arms, config: RunConfig, guide: Guide | None = None) -> None:
        super().__init__(arms.facts, config.seed, config.agent.n_step, config.agent.gamma, guide)
        self.arms = arms
        self._agent = config.agent
        self._next = 0

    def close(self) -> None:
        """Release the arms."""
        self.arms.close()

    def begin_after(self, episode: int) -> None:
        """Number every arm's episodes from the one after this."""
        self._next = episode + 1
        nothing = np.zeros(0 if self.facts.observation_layout is None else self.facts.observation_layout.size)
        self._episodes = [Episode(episode, nothing.astype(np.float32)) for _ in range(self.facts.count)]

    def play(self, policy: Policy, left: int) -> dict[int, ArmEpisode]:
        """Have every arm that takes part play its next episode.

        Args:
            policy: The policy that acts, perturbed by exploration.
            left: Steps that all arms together may take.
        """
        taking_part = list(self.arms.processes)
        limits = {index: (left + place) // len(taking_part) for place, index in enumerate(reversed(taking_part))}
        orders = {
            index: EpisodeOrder(
                policy, self._exploration(index), self._next, self._seed_of(index, self._next), limits[index]
            )
            for index in taking_part
            if limits[index] > 0
        }
        played = self.arms.play(orders)
        self._next += 1
        return played

    def taken(self, played: dict[int, ArmEpisode]) -> Iterator[CollectedSteps]:
        """Yield the steps of what :meth:`play` returned, arm by arm."""
        for index, part in played.items():
            if part.observation is not None:
                self._episodes[index] = episode = Episode(self._next - 1, part.observation)
                yield self._taken([(episode, step) for step in part.steps])

    def _exploration(self, index: int) -> Exploration:
        """Return an exploration with the episode's own generator: no arm waits for another one's draws."""
        rng = seeding.generator(self._seed, seeding.Stream.EXPLORATION, index, self._next)
        exploration: Exploration = self._agent.make_exploration(rng)
        return exploration


class ArmTrainer(Trainer):
    """A trainer on one or several arms; it evaluates in simulation.

    Every arm plays one episode with the same policy. Then all of them rest while the due updates, rows of metrics,
    evaluations and checkpoints follow. An episode that was in progress when a run was saved is not replayed: nobody
    knows where the arm has been since.
    """

    collector: ArmCollector
    can_be_given_up = False  # the arms are moving

    def request_stop(self) -> None:
        """Stop all arms after this control period, then save."""
        super().request_stop()
        self.collector.arms.stop()

    def _resume_episodes(self, saved: Checkpoint) -> None:
        self.actions = None
        self.collector.begin_after(max(saved.document("counters")["episodes"], default=-1))

    def _iterate(self) -> None:
        self.require_finite()
        policy, left = exploring_policy(self.agent, self.contract), self.config.training.steps - self.step
        played = self._stopwatch.timed("simulation", self.collector.play, policy, left)
        for part in played.values():
            if part.steps and part.observation is not None:
                seen = [part.observation, *(step.observation for step in part.steps[:-1])]
                self.agent.normalizer.update(np.stack(seen))
        for taken in self.collector.taken(played):
            self._store(taken)
        self.step += sum(len(part.steps) for part in played.values())
        if not self.collector.arms.processes:
            raise self.collector.arms.ended[-1][1]
        self._stopwatch.timed("learner", self._update_agent, self.step)


def exploring_policy(agent: Agent, contract: Contract) -> Policy:
    """Return the policy that exploration perturbs, without torch.

    Raises:
        TrainingDivergedError: Its numbers are too large for any policy.
    """
    actor = {name: tensor.detach().cpu().numpy().copy() for name, tensor in agent.tensors()["actor"].items()}
    try:
        return Policy(actor, ObservationScaling.from_moments(agent.normalizer.state()), contract)
    except ValueError as error:
        raise TrainingDivergedError(f"the policy cannot act any more: {error}") from None
