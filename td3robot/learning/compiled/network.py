"""Forward and backward pass of multilayer perceptrons, compiled.

Values are stored feature by feature: of (features, batch) numbers, the first ``batch`` are the first feature of each
transition. So bias, ReLU and layer norm run along the batch, in vector registers, and similar networks are stacked.
Every array is flat, so that one compiled program serves networks of any size.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.learning.compiled import fold, jit
from td3robot.learning.compiled.blas import Blas, Flat, product

Table = NDArray[np.int64]
# Columns of a table with one row per linear layer.
INPUTS, OUTPUTS, WEIGHT, BIAS, GAIN, SHIFT, UNITS = range(7)
EPSILON = np.float32(1e-5)  # that of torch.nn.LayerNorm
ZERO, ONE = np.float32(0.0), np.float32(1.0)


class Network(NamedTuple):
    """Networks that are alike in a flat array, as in :class:`~td3robot.learning.compiled.storage.NetworkLayout`.

    ``table`` is the layout's; ``copies`` is how many of the networks are meant, from the first on. A network that is
    not ``learned`` only passes a gradient on to its input.
    """

    table: Table
    copies: int
    learned: bool


class Trace(NamedTuple):
    """What a forward pass keeps for the backward pass; (copies * units * batch,) each unless noted.

    ``hidden`` has the outputs of each ReLU, ``normal`` the normalised values before layer norm's gain, ``spread`` the
    inverse deviation of each transition, (copies * layers * batch,), ``slope`` the loss's gradient before each ReLU;
    ``mean`` and ``mixed`` (batch,) are space for means over features.
    """

    hidden: Flat
    normal: Flat
    spread: Flat
    slope: Flat
    mean: Flat
    mixed: Flat


@fold
def units(values: Flat, network: Network, layer: int, copy: int, batch: int) -> Flat:
    """Return a trace's values of a hidden layer, from one network on."""
    before, features = network.table[layer, UNITS], network.table[layer, OUTPUTS]
    return values[(before * network.copies + copy * features) * batch :]


@fold
def rectify(z: Flat, features: int, batch: int, bias: Flat) -> None:
    """Add the bias to z (features, batch) and apply ReLU, in place."""
    for i in range(features):
        row, b = z[i * batch : (i + 1) * batch], bias[i]
        for j in range(batch):
            value = row[j] + b
            row[j] = ZERO if value < ZERO else value  # NaN stays, as in torch


@fold
def normalize_and_rectify(
    z: Flat, features: int, batch: int, bias: Flat, gain: Flat, shift: Flat, normal: Flat, spread: Flat, mean: Flat
) -> None:
    """Add the bias to z (features, batch), normalise each column, scale, shift, and apply ReLU, in place.

    Ba, Kiros and Hinton, "Layer Normalization", 2016, equations 2 and 4; the variance is that over n, as in torch.
    """
    share = np.float32(1.0 / features)
    mean[:] = ZERO
    spread[:] = ZERO
    for i in range(features):
        row, b = z[i * batch : (i + 1) * batch], bias[i]
        for j in range(batch):
            row[j] += b
            mean[j] += row[j]
    for j in range(batch):
        mean[j] *= share
    for i in range(features):
        row = z[i * batch : (i + 1) * batch]
        for j in range(batch):
            row[j] -= mean[j]
            spread[j] += row[j] * row[j]
    for j in range(batch):
        spread[j] = ONE / np.sqrt(spread[j] * share + EPSILON)
    for i in range(features):
        row, out = z[i * batch : (i + 1) * batch], normal[i * batch : (i + 1) * batch]
        g, s = gain[i], shift[i]
        for j in range(batch):
            out[j] = row[j] * spread[j]
            value = out[j] * g + s
            row[j] = ZERO if value < ZERO else value


@fold
def activate(flat: Flat, network: Network, layer: int, copy: int, trace: Trace, batch: int) -> None:
    """Turn a hidden layer's products into the outputs of its ReLU, in place."""
    table, features = network.table, network.table[layer, OUTPUTS]
    z = units(trace.hidden, network, layer, copy, batch)
    bias = flat[table[layer, BIAS] + copy * features :]
    if table[layer, GAIN] < 0:
        rectify(z, features, batch, bias)
        return
    gain, shift = flat[table[layer, GAIN] + copy * features :], flat[table[layer, SHIFT] + copy * features :]
    normal = units(trace.normal, network, layer, copy, batch)
    spread = trace.spread[(layer * network.copies + copy) * batch :][:batch]
    normalize_and_rectify(z, features, batch, bias, gain, shift, normal, spread, trace.mean)


@jit
def forward(blas: Blas, flat: Flat, network: Network, x: Flat, batch: int, trace: Trace, output: Flat) -> None:
    """Compute the networks' outputs for x (inputs, batch), before any tanh, into output (copies * outputs, batch)."""
    table, copies = network.table, network.copies
    for layer in range(table.shape[0]):
        inputs, outputs, last = table[layer, INPUTS], table[layer, OUTPUTS], layer == table.shape[0] - 1
        for copy in range(copies):
            weight = flat[table[layer, WEIGHT] + copy * inputs * outputs :]
            below = x if layer == 0 else units(trace.hidden, network, layer - 1, copy, batch)
            z = output[copy * outputs * batch :] if last else units(trace.hidden, network, layer, copy, batch)
            if layer > 0:
                product(blas, outputs, batch, inputs, weight, False, below, False, z)
            elif copy == 0:  # all networks see the same input: one product for all
                product(blas, copies * outputs, batch, inputs, weight, False, below, False, z)
            if last:
                for i in range(outputs):
                    z[i * batch : (i + 1) * batch] += flat[table[layer, BIAS] + copy * outputs + i]
            else:
                activate(flat, network, layer, copy, trace, batch)


@fold
def sum_rows(values: Flat, rows: int, batch: int, sums: Flat) -> None:
    """Sum each row of values (rows, batch) into sums (rows,)."""
    for i in range(rows):
        total = ZERO
        row = values[i * batch : (i + 1) * batch]
        for j in range(batch):
            total += row[j]
        sums[i] = total


@fold
def cut(slope: Flat, hidden: Flat, size: int) -> None:
    """Propagate a gradient back through a ReLU, in place: none passes where its output was zero."""
    for i in range(size):
        slope[i] = ZERO if hidden[i] <= ZERO else slope[i]


@fold
def cut_and_denormalize(
    slope: Flat,
    features: int,
    batch: int,
    hidden: Flat,
    gain: Flat,
    normal: Flat,
    spread: Flat,
    mean: Flat,
    mixed: Flat,
    gain_slope: Flat,
    shift_slope: Flat,
) -> None:
    """Propagate the gradient (features, batch) back through a ReLU and the layer norm before it, in place.

    With d the gradient with respect to the normalised value n, and means over features, the gradient before
    normalisation is ``spread * (d - mean(d) - n * mean(d * n))``; those for gain and shift are sums over the batch.
    """
    share = np.float32(1.0 / features)
    mean[:] = ZERO
    mixed[:] = ZERO
    for i in range(features):
        row, value = slope[i * batch : (i + 1) * batch], hidden[i * batch : (i + 1) * batch]
        n, g = normal[i * batch : (i + 1) * batch], gain[i]
        for_gain, for_shift = ZERO, ZERO
        for j in range(batch):
            d = ZERO if value[j] <= ZERO else row[j]
            for_gain += d * n[j]
            for_shift += d
            row[j] = d * g
            mean[j] += row[j]
            mixed[j] += row[j] * n[j]
        gain_slope[i] = for_gain
        shift_slope[i] = for_shift
    for j in range(batch):
        mean[j] *= share
        mixed[j] *= share
    for i in range(features):
        row, n = slope[i * batch : (i + 1) * batch], normal[i * batch : (i + 1) * batch]
        for j in range(batch):
            row[j] = spread[j] * (row[j] - mean[j] - n[j] * mixed[j])


@fold
def deactivate(flat: Flat, network: Network, layer: int, copy: int, trace: Trace, batch: int, gradient: Flat) -> None:
    """Propagate the gradient after a hidden layer back to its products, in place."""
    table, features = network.table, network.table[layer, OUTPUTS]
    slope = units(trace.slope, network, layer, copy, batch)
    hidden = units(trace.hidden, network, layer, copy, batch)
    if table[layer, GAIN] < 0:
        cut(slope, hidden, features * batch)
        return
    normal = units(trace.normal, network, layer, copy, batch)
    spread = trace.spread[(layer * network.copies + copy) * batch :][:batch]
    gain, shift = table[layer, GAIN] + copy * features, table[layer, SHIFT] + copy * features
    cut_and_denormalize(
        slope, features, batch, hidden, flat[gain:], normal, spread, trace.mean, trace.mixed,
        gradient[gain:], gradient[shift:],
    )  # fmt: skip


@jit
def backward(
    blas: Blas,
    flat: Flat,
    network: Network,
    x: Flat,
    batch: int,
    trace: Trace,
    output_slope: Flat,
    gradient: Flat,
    x_slope: Flat,
) -> None:
    """Propagate the gradient of the outputs back through the networks, after :func:`forward` with the same arguments.

    ``output_slope`` is the loss's gradient for each output (copies * outputs, batch). A learned network gets the
    gradient of each weight in ``gradient``, which is laid out like ``flat``; one that is not learned gets the gradient
    of x in ``x_slope`` (inputs, batch), and leaves meaningless values in ``gradient``.
    """
    table, copies, learned = network.table, network.copies, network.learned
    last = table.shape[0] - 1
    for layer in range(last, -1, -1):
        inputs, outputs = table[layer, INPUTS], table[layer, OUTPUTS]
        for copy in range(copies):
            if layer == last:
                slope = output_slope[copy * outputs * batch :]
            else:
                slope = units(trace.slope, network, layer, copy, batch)
                deactivate(flat, network, layer, copy, trace, batch, gradient)
            place = table[layer, WEIGHT] + copy * inputs * outputs
            if learned:
                sum_rows(slope, outputs, batch, gradient[table[layer, BIAS] + copy * outputs :])
            if learned and layer > 0:
                hidden = units(trace.hidden, network, layer - 1, copy, batch)
                product(blas, outputs, inputs, batch, slope, False, hidden, True, gradient[place:])
            if layer > 0:
                below = units(trace.slope, network, layer - 1, copy, batch)
                product(blas, inputs, batch, outputs, flat[place:], True, slope, False, below)
        if layer == 0 and learned:  # one product for all networks
            gradients = gradient[table[layer, WEIGHT] :]
            product(blas, copies * outputs, inputs, batch, trace.slope, False, x, True, gradients)
        elif layer == 0:
            product(blas, inputs, batch, outputs, flat[table[layer, WEIGHT] :], True, trace.slope, False, x_slope)
