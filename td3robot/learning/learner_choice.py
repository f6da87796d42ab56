"""Chooses the learner of a run: the fastest that does its agent's updates, or the one that its configuration names."""

from collections.abc import Callable
from contextlib import suppress

import torch

from td3robot.config import AgentConfig, TrainingConfig
from td3robot.learning.agent import Agent
from td3robot.learning.learner import Learner, LearnerUnavailableError, ReferenceLearner
from td3robot.learning.verification import DifferentUpdatesError, require_same_updates

Report = Callable[[str], None]


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
