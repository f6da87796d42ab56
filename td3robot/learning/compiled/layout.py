"""The layout of all weights in flat arrays that networks, optimizers and compiled code share."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]
Flat = NDArray[np.float32]
Span = tuple[int, tuple[int, ...]]  # where a parameter begins, and its shape

# Columns of a table with one row per linear layer.
INPUTS, OUTPUTS, WEIGHT, BIAS, GAIN, SHIFT, UNITS = range(7)
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
