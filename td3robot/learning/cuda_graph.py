"""TD3's update on a GPU, recorded once as a CUDA graph and replayed: no interpreter between its kernels."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from td3robot.learning.agent import Agent
from td3robot.learning.learner import Learner, LearnerUnavailableError, Metrics, draw
from td3robot.learning.replay import Batch, ReplayBuffer, row_widths
from td3robot.learning.td3 import OPTIMIZERS, TD3

MOST = 8  # updates whose transitions travel to the GPU together, while it does those before
# Kernels choose their algorithms and take their working memory when they first run, which a recording must not see.
REHEARSALS = 3
Program = Callable[[], Metrics]


class CudaGraphLearner(Learner):
    """Replay an agent's update on the GPU: the steps of :meth:`TD3.learn`, side by side where they allow it.

    A graph reads and writes the same memory each time, so transitions and noise are copied to where it reads them, and
    the learning rates are tensors. Small networks on a GPU wait for the interpreter to start their kernels; a graph
    starts them all at once, and runs what was recorded on several streams side by side. The graph keeps to the
    optimizers' tensors that were there when it was recorded, so nothing may be loaded into the agent afterwards.

    Args:
        agent: The agent that learns, on a CUDA device.

    Raises:
        LearnerUnavailableError: The agent is not TD3.
    """

    name = "cuda_graph"

    def __init__(self, agent: Agent, threads: int = 1, report: Callable[[str], None] = print) -> None:
        if not isinstance(agent, TD3):
            raise LearnerUnavailableError(f"CUDA graphs are recorded of TD3 only, not of {type(agent).__name__}")
        super().__init__(agent, 1)
        self._agent: TD3 = agent
        self._sizes = agent.observation_size, agent.action_size
        batch = agent.config.batch_size
        self._rows = torch.zeros(batch, sum(row_widths(*self._sizes)), device=agent.device)
        self._noise = torch.zeros(batch, agent.action_size, device=agent.device)
        self._streams: dict[int, torch.cuda.Stream] = {}
        for name in OPTIMIZERS:
            group = getattr(agent, name).param_groups[0]
            group["lr"] = torch.tensor(group["lr"], device=agent.device)
            group["capturable"] = agent.device.type == "cuda"
        self._rehearse()
        self._programs = {with_actor: self._record(with_actor) for with_actor in (False, True)}

    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do updates, and return the metrics of those that updated the actor."""
        found: list[Metrics] = []
        while count > 0:
            for rows, noise in zip(*self._fetch(replay, rng, min(count, MOST)), strict=True):
                with_actor = self._agent.begin_update()
                self._rows.copy_(rows)
                self._noise.copy_(noise)
                metrics = self._programs[with_actor]()
                if with_actor:
                    found.append({name: value.clone() for name, value in metrics.items()})
            count -= MOST
        return found

    def _fetch(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Return the rows (count, batch, width), observations normalised, and the noise of some updates."""
        agent = self._agent
        chosen, noise = draw(agent, replay, rng, count)
        rows = self._sent(torch.from_numpy(replay.rows.take(chosen.ravel(), axis=0)))
        batch = Batch.of(rows, *self._sizes)
        batch.observation.copy_(agent.normalizer(batch.observation))
        batch.next_observation.copy_(agent.normalizer(batch.next_observation))
        return rows.view(count, -1, rows.shape[1]), self._sent(noise)

    def _sent(self, values: Tensor) -> Tensor:
        """Return values on the GPU, without waiting for what it does."""
        return values.pin_memory().to(self._agent.device, non_blocking=True)

    def _update(self, with_actor: bool) -> Metrics:
        """Do :meth:`TD3.learn`.

        What one stream makes and another reads is referenced to the end, so nobody reuses its memory too early.
        """
        agent, batch = self._agent, Batch.of(self._rows, *self._sizes)
        with self._branch(1):
            Q1 = agent.Q1(batch.observation, batch.action)
        with self._branch(2):
            Q2 = agent.Q2(batch.observation, batch.action)
        next_action = agent.target_action(batch, self._noise)
        with torch.no_grad():
            with self._branch(3):
                target_Q2 = agent.Q2_target(batch.next_observation, next_action)
            target_Q1 = agent.Q1_target(batch.next_observation, next_action)
        self._join(3)
        target_Q = agent.td_target(batch, target_Q1, target_Q2)
        with self._branch(1):
            loss1 = agent.learn_critic(agent.Q1_optimizer, Q1, target_Q)
        with self._branch(2):
            loss2 = agent.learn_critic(agent.Q2_optimizer, Q2, target_Q)
        self._join(1)
        actor_loss = {"actor_loss": agent.learn_actor(batch)} if with_actor else {}
        self._join(2)
        if with_actor:
            agent.update_targets()
        means = {"Q1_mean": Q1.detach().mean(), "target_Q_mean": target_Q.mean()}
        return {"critic_loss": loss1 + loss2} | means | actor_loss

    def _branch(self, number: int) -> AbstractContextManager[object]:
        """Return the context of a stream that begins after what this one has been given."""
        if number not in self._streams:
            self._streams[number] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._streams[number].wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._streams[number])

    def _join(self, number: int) -> None:
        """Let this stream wait for what another one has been given."""
        torch.cuda.current_stream().wait_stream(self._streams[number])

    def _rehearse(self) -> None:
        """Run the update on zeros, on a stream of its own as recording requires, and undo what it learned."""
        before = {name: {key: value.clone() for key, value in group.items()} for name, group in self._tensors()}
        self._run_aside(lambda: [self._update(with_actor) for _ in range(REHEARSALS) for with_actor in (False, True)])
        with torch.no_grad():
            for name, group in self._tensors():
                for key, value in group.items():
                    saved = before[name].get(key)  # an optimizer that has not learned yet has none
                    value.zero_() if saved is None else value.copy_(saved)

    def _tensors(self) -> list[tuple[str, dict[str, Tensor]]]:
        return list(self._agent.tensors().items())

    @staticmethod
    def _run_aside(program: Callable[[], object]) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            program()
        torch.cuda.current_stream().wait_stream(stream)

    def _record(self, with_actor: bool) -> Program:
        """Record an update, without running it, and return what replays it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            metrics = self._update(with_actor)

        def replay() -> Metrics:
            """Run what was recorded."""
            graph.replay()
            return metrics

        return replay
