"""Flat arrays of an agent's weights, targets and Adam states; its torch modules and optimizers are views of them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from td3robot.learning.compiled.blas import Flat
from td3robot.learning.compiled.network import BIAS, GAIN, INPUTS, OUTPUTS, SHIFT, UNITS, WEIGHT, Network, Table
from td3robot.learning.compiled.update import Memory, Networks
from td3robot.learning.td3 import TD3

Span = tuple[int, tuple[int, ...]]  # where a parameter begins, and its shape
ABSENT = -1


class NetworkLayout:
    """The layout of one multilayer perceptron, or of several alike, in a flat array.

    Networks that are alike (two critics) are interleaved layer by layer: the first's weights, then the second's. So the
    first layers of both, which see the same input, are one matrix and take one product.

    Args:
        sizes: Width of the input, of each hidden layer, and of the output.
        layer_norm: Whether layer normalization follows each hidden layer.
        copies: How many networks there are.
        start: Where the first begins.

    Attributes:
        table: One row per linear layer, (layers, 7): its widths; where the first network's weight (outputs, inputs),
            bias, and layer norm's gain and shift begin (``ABSENT`` without); and the hidden units before it.
        stop: Where the last network ends.
    """

    def __init__(self, sizes: Sequence[int], layer_norm: bool, copies: int, start: int) -> None:
        self.copies, self.start, self.stop = copies, start, start
        self.table: Table = np.full((len(sizes) - 1, 7), ABSENT, np.int64)
        self.units, self.widest = sum(sizes[1:-1]), max(sizes)
        self._spans: list[list[Span]] = [[] for _ in range(copies)]
        for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
            row = self.table[layer]
            row[[INPUTS, OUTPUTS, UNITS]] = inputs, outputs, sum(sizes[1 : layer + 1])
            row[WEIGHT] = self._place(outputs, inputs)
            row[BIAS] = self._place(outputs)
            if layer_norm and layer < len(self.table) - 1:
                row[GAIN] = self._place(outputs)
                row[SHIFT] = self._place(outputs)

    def spans(self, copy: int) -> list[Span]:
        """Return the span of each parameter of one network, in the order of ``Module.parameters()``."""
        return self._spans[copy]

    def _place(self, *shape: int) -> int:
        """Reserve a place for one parameter of every network, and return the first network's."""
        first, size = self.stop, int(np.prod(shape))
        for spans in self._spans:
            spans.append((self.stop, shape))
            self.stop += size
        return first


class Storage:
    """Take over an agent's tensors: afterwards, torch and compiled code read and write the same numbers.

    So checkpoints, play and the reference update do not notice.

    Args:
        agent: Its parameters become views; so do its optimizers' states.

    Attributes:
        memory, networks: Arguments of the compiled code.
    """

    def __init__(self, agent: TD3) -> None:
        config, actions = agent.config, agent.action_size
        self.actor = NetworkLayout([agent.observation_size, *config.hidden, actions], config.layer_norm, 1, 0)
        critic = [agent.input_size + actions, *config.hidden, 1]
        self.critics = NetworkLayout(critic, config.layer_norm, 2, self.actor.stop)
        stop, averaged = self.critics.stop, self.actor.stop if agent.averages else 0
        weights, targets, average, gradient, first, second = (
            np.zeros(size, np.float32) for size in (stop, stop, averaged, stop, stop, stop)
        )
        self.memory = Memory(weights, targets, average, gradient, first, second)
        self.networks = Networks(
            Network(self.actor.table, 1, True), Network(self.critics.table, 2, True),
            Network(self.critics.table, 1, False), 0, self.actor.stop, stop,
        )  # fmt: skip
        self._agent = agent
        self._steps: dict[str, Flat] = {}
        self._states: list[tuple[dict[Tensor, dict[str, Tensor]], Tensor, dict[str, Tensor]]] = []
        self.adopt()

    def adopt(self) -> None:
        """Take over the current tensors that are not views yet: those of a checkpoint just loaded."""
        if self._states and all(states.get(key) is state for states, key, state in self._states):
            return
        self._states = []
        for name, spans in self._trained():
            _take_over(getattr(self._agent, name), self.memory.weights, spans)
            _take_over(getattr(self._agent, f"{name}_target"), self.memory.targets, spans)
            self._adopt_optimizer(name, spans)
        if self._agent.averages:
            _take_over(self._agent.actor_average, self.memory.average, self.actor.spans(0))

    def steps(self, name: str) -> int:
        """Return how many steps the optimizer of ``actor``, ``Q1`` or ``Q2`` took."""
        return int(self._steps[name][0])

    def set_steps(self, name: str, count: int) -> None:
        """Record how many steps an optimizer took."""
        self._steps[name][:] = count

    def _trained(self) -> Iterator[tuple[str, list[Span]]]:
        yield "actor", self.actor.spans(0)
        yield "Q1", self.critics.spans(0)
        yield "Q2", self.critics.spans(1)

    def _adopt_optimizer(self, name: str, spans: list[Span]) -> None:
        """Make Adam's states views; an optimizer that never took a step has none, which means zeros."""
        optimizer: torch.optim.Adam = getattr(self._agent, f"{name}_optimizer")
        self._steps[name] = np.zeros(len(spans), np.float32)
        steps = torch.from_numpy(self._steps[name])
        for index, (parameter, span) in enumerate(zip(getattr(self._agent, name).parameters(), spans, strict=True)):
            before = optimizer.state.get(parameter, {})
            views = {
                "step": steps[index],
                "exp_avg": _view(self.memory.first, span),
                "exp_avg_sq": _view(self.memory.second, span),
            }
            for key, view in views.items():
                view.copy_(before.get(key, torch.zeros(())))
            optimizer.state[parameter] = views
            self._states.append((optimizer.state, parameter, views))


def _take_over(network: nn.Module, flat: Flat, spans: list[Span]) -> None:
    """Make a network's parameters views of a flat array, keeping their values."""
    for parameter, span in zip(network.parameters(), spans, strict=True):
        view = _view(flat, span)
        view.copy_(parameter.data)
        parameter.data = view


def _view(flat: Flat, span: Span) -> Tensor:
    start, shape = span
    return torch.from_numpy(flat[start : start + int(np.prod(shape))].reshape(shape))
