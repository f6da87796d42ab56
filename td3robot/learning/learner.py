"""Learners, which do an agent's updates, and the choice of one: the reference, or faster code that was verified.

Before a run uses a faster learner, both do some updates on copies of the agent, each from the same state and on the
same random transitions. They may differ by rounding, about 3e-6 of what an update changes. Anything more means that the
algorithm, a network, a loss, an optimizer or a metric was changed without its faster form.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from td3robot.config import AgentConfig, TrainingConfig
from td3robot.errors import ConfigError
from td3robot.learning.agent import Agent, Groups
from td3robot.learning.replay import ReplayBuffer, Transition

Metrics = dict[str, Tensor]
Report = Callable[[str], None]

# Largest difference between two roundings, as a share of what an update changes: in the median update, in all but one,
# and in that one. In a few, one ReLU falls to the other side: on some processors, that was a twentieth.
USUAL, SELDOM, ONCE = 3e-5, 1e-2, 0.1
ROUNDING = 6e-8  # of a number in single precision, relative
SMALLEST_BATCH = 64  # in a smaller one, what is rare (noise that is clipped) may not occur
# What a learner raises for an agent whose networks or attributes are no longer those that it was written for.
MISFITS = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


class LearnerUnavailableError(ConfigError):
    """The learner asked for is not available here."""


class DifferentUpdatesError(LearnerUnavailableError):
    """A faster learner does other updates than its agent."""


class Learner(ABC):
    """Update an agent in place from a replay buffer.

    Args:
        agent: The agent that learns.
        threads: Threads of the matrix products.
        report: Called with what the user should know.

    Attributes:
        name: Its name in ``training.learner``.
        threads: How many threads its matrix products use.
    """

    name: ClassVar[str]
    threads: int

    def __init__(self, agent: Agent, threads: int, report: Report = print) -> None:
        self._agent, self.threads = agent, threads

    @abstractmethod
    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do ``count`` updates, and return the metrics of those that updated the actor, scalars by name.

        Args:
            replay: The buffer to sample from.
            rng: Draws the transitions.
            count: How many updates.
        """


class ReferenceLearner(Learner):
    """Call :meth:`Agent.update` for each batch."""

    name = "reference"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent, torch.get_num_threads())

    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do updates one by one; what those without an actor's update measured is left out, as by every learner."""
        agent, found = self._agent, []
        for _ in range(count):
            metrics = agent.update(replay.sample(agent.config.batch_size, rng, agent.device))
            if "actor_loss" in metrics:
                found.append(metrics)
        return found


def draw(agent: Agent, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], Tensor]:
    """Draw what the reference would draw for some updates, in the same order.

    Returns:
        The transitions' indices (count, batch), and normally distributed noise (count, batch, action).
    """
    batch = agent.config.batch_size
    noise = torch.empty(count, batch, agent.action_size)
    for each in noise:
        torch.randn(each.shape, generator=agent.generator, out=each)
    return np.stack([replay.draw(batch, rng) for _ in range(count)]), noise


def make_learner(agent: Agent, training: TrainingConfig, before: str | None, report: Report) -> Learner:
    """Return the learner that ``training.learner`` asks for; one that is faster than the reference is verified first.

    Args:
        agent: The agent that learns.
        training: Has the choice, and the number of threads for the compiled learner's products.
        before: The learner that a resumed run was saved with; ``auto`` if saved by a version with only the reference.
        report: Called when a learner is compiled, is not available (with the reason), or resumes inexactly.

    Raises:
        DifferentUpdatesError: The configuration names a learner that does other updates than the agent.
        LearnerUnavailableError: A new run asks for a learner that is not available.
    """
    learner = _chosen(agent, training, before is not None, report)
    if before is not None and learner.name != (before := "reference" if before == "auto" else before):
        report(
            f"the {learner.name} learner continues what the {before} learner began: the same updates, but rounded "
            "differently, so this resume is not exact"
        )
    return learner


def import_early(config: AgentConfig, training: TrainingConfig, device: torch.device) -> None:
    """Import what :func:`make_learner` may need for an agent, while waiting for something else."""
    agent: type[Agent] = config.agent_class()
    if training.learner != "reference":
        with suppress(LearnerUnavailableError):  # make_learner says why
            agent.fast_learner(device.type)


def _chosen(agent: Agent, training: TrainingConfig, resumed: bool, report: Report) -> Learner:
    choice = training.learner
    if choice == "reference" or (choice == "auto" and resumed):
        return ReferenceLearner(agent)
    try:
        return _fast(agent, training, report) or ReferenceLearner(agent)
    except DifferentUpdatesError as error:
        if choice != "auto":
            began = ", with which this run would go on as another algorithm" if resumed else ""
            raise DifferentUpdatesError(
                f"training.learner is {choice!r}, and {error}{began}; change that learner alike, or add --set "
                "training.learner=reference"
            ) from None
        report(f"{error}; the reference does the updates, which is slower")
    except LearnerUnavailableError as error:
        if choice != "auto" and not resumed:
            raise
        report(f"{error}; the reference does the updates, which is slower")
    return ReferenceLearner(agent)


def _fast(agent: Agent, training: TrainingConfig, report: Report) -> Learner | None:
    """Return the agent's verified fast learner; None for ``auto`` if it has none."""
    kind, choice, threads = agent.fast_learner(agent.device.type), training.learner, training.threads
    if kind is None and choice == "auto":
        return None
    if kind is None or choice not in ("auto", kind.name):
        raise LearnerUnavailableError(
            f"training.learner is {choice!r}, and {type(agent).__name__} on {agent.device} has no such learner; use "
            "'auto' or 'reference'"
        )
    last_update = int(training.steps * agent.config.updates_per_step)
    require_same_updates(agent, lambda each: kind(each, threads, report), last_update)
    return kind(agent, threads, report)


class _Situation(NamedTuple):
    """When and on what to compare: a count of updates, a share of the learning rates, a typical reward."""

    updates: int
    learning_rate_share: float
    reward: float


def require_same_updates(agent: Agent, make: Callable[[Agent], Learner], last_update: int) -> None:
    """Require that a faster learner does the updates of :meth:`Agent.update`, now and at the end of the run.

    Args:
        agent: The agent; it stays as it is.
        make: Makes the learner for a copy of the agent.
        last_update: How many updates the run has done at its end.

    Raises:
        DifferentUpdatesError: It does others; the sentence names what differs.
        LearnerUnavailableError: There is no such learner here.
    """
    with torch.random.fork_rng(devices=[]):
        reference, copied = _copy(agent), _copy(agent)
    try:
        fast = make(copied)
    except MISFITS as error:
        raise _different(agent, f"its networks or attributes are others ({error})") from error
    for situation in (_Situation(agent.updates, 1.0, 0.1), _Situation(last_update, 0.5, 10.0)):
        _compare(reference, copied, fast, situation)


def _compare(reference: Agent, copied: Agent, fast: Learner, situation: _Situation) -> None:
    """Compare updates, each from the reference's state."""
    replay = _random_replay(reference, situation.reward)
    draws, slow = [np.random.default_rng(1), np.random.default_rng(1)], ReferenceLearner(reference)
    seen: dict[str, list[float]] = defaultdict(list)
    for updates in _counts(reference.config.period, situation.updates):
        before = _cloned(reference.tensors())
        for each in (reference, copied):
            each.updates, each.learning_rate_share = updates, situation.learning_rate_share
        _load(copied, before)
        copied.generator.set_state(reference.generator.get_state())
        wanted = slow.learn(replay, draws[0], 1)
        try:
            found = fast.learn(replay, draws[1], 1)
        except MISFITS as error:
            raise _different(reference, f"its networks or attributes are others ({error})") from error
        for name, share in _differences(before, reference.tensors(), copied.tensors()).items():
            seen[name].append(share)
            if share > ONCE:
                raise _different(reference, f"an update changes {name} differently, by {share:.1g} of the change")
        _require_same_metrics(reference, wanted, found)
    for name, shares in seen.items():
        for share, most in ((median(shares), USUAL), (sorted(shares)[-2:][0], SELDOM)):
            if share > most:
                raise _different(reference, f"an update changes {name} differently, by {share:.1g} of the change")


def _copy(agent: Agent) -> Agent:
    """Return an agent in the same state, with batches that are large enough, that has seen random observations."""
    config = agent.config.model_copy(update={"batch_size": max(agent.config.batch_size, SMALLEST_BATCH)})
    more = {"privileged_size": agent.privileged_size} if config.is_asymmetric else {}
    made = type(agent)(agent.observation_size, agent.action_size, config, 0, **more)
    made.load_tensors(agent.tensors())
    made.normalizer.load_state(agent.normalizer.state())
    made.normalizer.update(np.random.default_rng(0).normal(0.5, 2.0, (200, agent.input_size)))
    return made


def _random_replay(agent: Agent, reward: float) -> ReplayBuffer:
    """Return random transitions; a hundredth of the numbers in their observations are far from the others."""
    rng, count = np.random.default_rng(0), 2 * agent.config.batch_size
    replay = ReplayBuffer(count, agent.input_size, agent.action_size, agent.config.imitates)
    seen = rng.normal(size=(count, 2, agent.input_size))
    seen[rng.random(seen.shape) < 0.01] = 20.0
    for observation, following in seen:
        action = rng.uniform(-1.0, 1.0, agent.action_size)
        ends, discount = bool(rng.random() < 0.1), float(rng.uniform(0.8, 1.0))
        guide_action = rng.uniform(-1.0, 1.0, agent.action_size) if agent.config.imitates else ()
        replay.add([Transition(observation, action, reward * rng.normal(), following, ends, discount, guide_action)])
    return replay


def _counts(period: int, first: int) -> range:
    """Return counts of updates before some updates: two periods, or those around the end of a long one."""
    if period > 12:
        first = max(0, (first // period + 1) * period - 12)
    return range(first, first + min(max(2 * period, 4), 24))


@torch.no_grad()
def _load(agent: Agent, groups: Groups) -> None:
    """Write an agent's tensors in place; an optimizer that took no step yet has none, which means zeros."""
    for name, tensors in agent.tensors().items():
        for key, tensor in tensors.items():
            tensor.copy_(groups[name].get(key, torch.zeros(())))


def _cloned(groups: Groups) -> Groups:
    return {name: {key: value.clone() for key, value in tensors.items()} for name, tensors in groups.items()}


def _vectors(groups: Groups) -> dict[str, Tensor]:
    """Return numbers of one meaning as one vector: a network's weights, or an optimizer's moments of one kind."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for name, tensors in groups.items():
        for key, tensor in tensors.items():
            part = f"{name}.{key.rpartition('.')[2]}" if name.endswith("_optimizer") else name
            parts[part].append(tensor.detach().flatten())
    return {name: torch.cat(tensors) for name, tensors in parts.items()}


def _differences(before: Groups, after: Groups, others: Groups) -> dict[str, float]:
    """Return how far two results of an update are apart, beyond rounding, as a share of what it changes."""
    old, mine, theirs = map(_vectors, (before, after, others))
    found = {}
    for name in sorted(mine.keys() | theirs.keys()):
        nothing = torch.zeros_like(mine[name] if name in mine else theirs[name])
        start, one, other = (each.get(name, nothing) for each in (old, mine, theirs))
        change = max(float((one - start).norm()), float((other - start).norm()))
        apart = max(0.0, float((one - other).norm()) - ROUNDING * float(one.norm()))
        found[name] = apart / change if apart > 0.0 else 0.0
    return found


def _require_same_metrics(agent: Agent, wanted: list[Metrics], found: list[Metrics]) -> None:
    if len(wanted) != len(found):
        raise _different(agent, "it updates the actor at other updates")
    for one, other in zip(wanted, found, strict=True):
        if one.keys() != other.keys():
            raise _different(agent, f"its metrics are others ({', '.join(sorted(one.keys() ^ other.keys()))})")
        for name, value in one.items():
            if not torch.isclose(value, other[name].to(value.device), rtol=1e-3, atol=1e-4):
                raise _different(agent, f"its {name} is {float(value):.4g} instead of {float(other[name]):.4g}")


def _different(agent: Agent, what: str) -> DifferentUpdatesError:
    return DifferentUpdatesError(f"{type(agent).__name__} is not what its faster learner was written for: {what}")
