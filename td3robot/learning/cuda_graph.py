"""The reference's update on a GPU, captured once as a CUDA graph and replayed: no interpreter between its kernels."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from td3robot.learning.agent import Agent
from td3robot.learning.learner import Learner, LearnerUnavailableError, Metrics, draw
from td3robot.learning.replay import Batch, ReplayBuffer, row_widths
from td3robot.learning.td3 import OPTIMIZERS, TD3

UPDATES_PER_COPY = 8  # whose transitions travel to the GPU together, while it does those before
# Kernels choose their algorithms and take their working memory when they first run, which a capture must not see.
WARM_UPS = 3
Program = Callable[[], Metrics]


class CudaGraphLearner(Learner):
    """Replay :meth:`TD3.learn` on the GPU, captured with and without the actor's update.

    A graph reads and writes the same memory each time, so transitions and noise are copied to where it reads them, and
    the learning rates are tensors. Small networks on a GPU wait for the interpreter to start their kernels; a graph
    starts them all at once. The graph keeps to the optimizers' tensors that were there when it was captured, so nothing
    may be loaded into the agent afterwards.

    Args:
        agent: The agent that learns, on a CUDA device.
        threads, report: Not used.

    Raises:
        LearnerUnavailableError: The agent is not TD3.
    """

    name = "cuda_graph"

    def __init__(self, agent: Agent, threads: int = 1, report: Callable[[str], None] = print) -> None:
        if not isinstance(agent, TD3):
            raise LearnerUnavailableError(f"CUDA graphs are captured of TD3 only, not of {type(agent).__name__}")
        super().__init__(agent, 1)
        self._agent: TD3 = agent
        self._sizes = agent.input_size, agent.action_size
        batch = agent.config.batch_size
        self._rows = torch.zeros(batch, sum(row_widths(*self._sizes, agent.config.imitates)), device=agent.device)
        self._noise = torch.zeros(batch, agent.action_size, device=agent.device)
        for name in OPTIMIZERS:
            group = getattr(agent, name).param_groups[0]
            group["lr"] = torch.tensor(group["lr"], device=agent.device)
            group["capturable"] = agent.device.type == "cuda"
        self._warm_up()
        self._programs = {with_actor: self._capture(with_actor) for with_actor in (False, True)}

    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do updates, and return the metrics of those that updated the actor."""
        found: list[Metrics] = []
        while count > 0:
            for rows, noise in zip(*self._fetch(replay, rng, min(count, UPDATES_PER_COPY)), strict=True):
                with_actor = self._agent.begin_update()
                self._rows.copy_(rows)
                self._noise.copy_(noise)
                metrics = self._programs[with_actor]()
                if with_actor:
                    found.append({name: value.clone() for name, value in metrics.items()})
            count -= UPDATES_PER_COPY
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
        """Do the reference's update on the graph's own memory."""
        return self._agent.learn(Batch.of(self._rows, *self._sizes), self._noise, with_actor)

    def _warm_up(self) -> None:
        """Run the update on zeros, on a stream of its own as capturing requires, and undo what it learned."""
        before = {name: {key: value.clone() for key, value in group.items()} for name, group in self._tensors()}
        self._run_aside(lambda: [self._update(with_actor) for _ in range(WARM_UPS) for with_actor in (False, True)])
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

    def _capture(self, with_actor: bool) -> Program:
        """Capture an update, without running it, and return what replays it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            metrics = self._update(with_actor)

        def replay() -> Metrics:
            """Run what was captured."""
            graph.replay()
            return metrics

        return replay
