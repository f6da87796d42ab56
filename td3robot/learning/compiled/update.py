"""TD3's update and Adam's steps, compiled: all updates of a round in one call.

Names and order are those of the reference, :meth:`td3robot.learning.td3.TD3.update`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.learning.compiled import entry, fold, jit
from td3robot.learning.compiled.blas import Blas, Flat
from td3robot.learning.compiled.network import ONE, ZERO, Network, Trace, backward, forward

METRICS = ("critic_loss", "Q1_mean", "target_Q_mean", "actor_loss")
# torch.optim.Adam's defaults.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
BLOCK = 4096  # numbers at a time: the weights, moments and targets of a block stay in the cache


class Memory(NamedTuple):
    """Everything that an update changes: flat arrays with the same layout of actor and critics, actor first.

    ``weights``, ``targets``, ``gradient``, Adam's ``first`` and ``second`` moments are (weights,); the actor's
    ``average`` is (weights of the actor,), or empty.
    """

    weights: Flat
    targets: Flat
    average: Flat
    gradient: Flat
    first: Flat
    second: Flat


class Networks(NamedTuple):
    """Actor and critics, and Q1 alone, through which the actor learns; the actor spans start to split."""

    actor: Network
    critics: Network
    Q1: Network
    start: int
    split: int
    stop: int


class Settings(NamedTuple):
    """Hyperparameters, and how observations are scaled: ``shift`` and ``scale`` are (observation,)."""

    rate: float
    tau: np.float32
    average_tau: np.float32
    policy_noise: np.float32
    noise_clip: np.float32
    policy_freq: int
    shift: Flat
    scale: Flat
    clip: np.float32
    imitation: np.float32


class Draws(NamedTuple):
    """Random draws: rows of the replay (updates, batch), and standard normals (updates, batch, action)."""

    rows: NDArray[np.int64]
    noise: Flat


class Scratch(NamedTuple):
    """Space for one update, flat, feature by feature.

    ``x`` and ``next_x`` (observation + action, batch) are the critics' inputs, and their first rows the actors', which
    leave out what only the critics see;
    ``x_slope`` is the gradient of ``x``. ``reward``, ``discount`` and ``target`` are (batch,), ``action`` and
    ``action_slope`` (action, batch), ``value`` and ``value_slope`` (2, batch). ``guide_action`` (action, batch)
    are the guide's, and ``guide_value`` (batch,) is what Q1 thinks of them.
    """

    x: Flat
    next_x: Flat
    x_slope: Flat
    action: Flat
    action_slope: Flat
    reward: Flat
    discount: Flat
    value: Flat
    value_slope: Flat
    target: Flat
    guide_action: Flat
    guide_value: Flat
    trace: Trace
    actor_trace: Trace


@jit
def clamp(value: np.float32, bound: np.float32) -> np.float32:
    """Clamp a value to ``bound`` on both sides; NaN stays."""
    if value > bound:
        return bound
    if value < -bound:
        return -bound
    return value


@fold
def gather(rows: Flat, chosen: NDArray[np.int64], settings: Settings, scratch: Scratch) -> None:
    """Read the chosen rows of the replay, as :class:`~td3robot.learning.replay.ReplayBuffer` packs them."""
    s, batch = settings.shift.size, chosen.size
    a = scratch.x.size // batch - s
    shift, scale, clip = settings.shift, settings.scale, settings.clip
    for b in range(batch):
        row = rows[chosen[b]]
        for i in range(s):
            scratch.x[i * batch + b] = clamp((row[i] - shift[i]) * scale[i], clip)
            scratch.next_x[i * batch + b] = clamp((row[s + a + 1 + i] - shift[i]) * scale[i], clip)
        for i in range(a):
            scratch.x[(s + i) * batch + b] = row[s + i]
            if settings.imitation > ZERO:
                scratch.guide_action[i * batch + b] = row[2 * s + a + 3 + i]
        scratch.reward[b] = row[s + a]
        scratch.discount[b] = row[2 * s + a + 2] * (ONE - row[2 * s + a + 1])


@fold
def find_target(
    blas: Blas, memory: Memory, networks: Networks, settings: Settings, noise: Flat, scratch: Scratch
) -> None:
    """Compute the critics' target for each transition: target policy smoothing, clipped double Q-learning."""
    batch, actions = noise.shape
    next_action = scratch.next_x[settings.shift.size * batch :]
    forward(blas, memory.targets, networks.actor, scratch.next_x, batch, scratch.actor_trace, scratch.action)
    for i in range(actions):
        for b in range(batch):
            smoothing = clamp(noise[b, i] * settings.policy_noise, settings.noise_clip)
            next_action[i * batch + b] = clamp(np.tanh(scratch.action[i * batch + b]) + smoothing, ONE)
    forward(blas, memory.targets, networks.critics, scratch.next_x, batch, scratch.trace, scratch.value)
    for b in range(batch):
        Q1, Q2 = scratch.value[b], scratch.value[batch + b]
        target_Q = Q1 if Q1 < Q2 or Q1 != Q1 else Q2  # NaN stays, as of torch.min
        scratch.target[b] = scratch.reward[b] + scratch.discount[b] * target_Q


@fold
def critics_slope(blas: Blas, memory: Memory, networks: Networks, scratch: Scratch, metrics: Flat) -> None:
    """Compute the gradient of the sum of both critics' mean squared errors with respect to their weights."""
    batch = scratch.target.size
    share = np.float32(1.0 / batch)
    forward(blas, memory.weights, networks.critics, scratch.x, batch, scratch.trace, scratch.value)
    for copy in range(2):
        loss = ZERO
        value, slope = scratch.value[copy * batch :], scratch.value_slope[copy * batch :]
        for b in range(batch):
            error = value[b] - scratch.target[b]
            loss += error * error
            slope[b] = np.float32(2.0) * share * error
        metrics[0] += loss * share
    metrics[1], metrics[2] = scratch.value[:batch].mean(), scratch.target.mean()
    backward(
        blas, memory.weights, networks.critics, scratch.x, batch, scratch.trace, scratch.value_slope,
        memory.gradient, scratch.x_slope,
    )  # fmt: skip


@fold
def actor_slope(
    blas: Blas, memory: Memory, networks: Networks, settings: Settings, scratch: Scratch, metrics: Flat
) -> None:
    """Compute the gradient of -Q1(s, pi(s)) with respect to the actor's weights: the deterministic policy gradient."""
    batch, action = scratch.target.size, scratch.action
    begin = settings.shift.size * batch
    if settings.imitation > ZERO:
        scratch.x[begin : begin + action.size] = scratch.guide_action
        forward(blas, memory.weights, networks.Q1, scratch.x, batch, scratch.trace, scratch.value)
        scratch.guide_value[:] = scratch.value[:batch]
    forward(blas, memory.weights, networks.actor, scratch.x, batch, scratch.actor_trace, action)
    for i in range(action.size):
        action[i] = np.tanh(action[i])
        scratch.x[begin + i] = action[i]
    forward(blas, memory.weights, networks.Q1, scratch.x, batch, scratch.trace, scratch.value)
    metrics[3] = -scratch.value[:batch].mean()
    scratch.value_slope[:batch] = np.float32(-1.0 / batch)
    backward(
        blas, memory.weights, networks.Q1, scratch.x, batch, scratch.trace, scratch.value_slope,
        memory.gradient, scratch.x_slope,
    )  # fmt: skip
    if settings.imitation > ZERO:
        metrics[3] += imitate(settings, scratch, scratch.x_slope[begin:])
    for i in range(action.size):
        scratch.action_slope[i] = scratch.x_slope[begin + i] * (ONE - action[i] * action[i])
    backward(
        blas, memory.weights, networks.actor, scratch.x, batch, scratch.actor_trace, scratch.action_slope,
        memory.gradient, scratch.x_slope,
    )  # fmt: skip


@fold
def imitate(settings: Settings, scratch: Scratch, slope: Flat) -> np.float32:
    """Add the gradient of :meth:`TD3.imitation_loss` to that of the actions (action, batch), and return the loss."""
    batch, loss = scratch.target.size, ZERO
    share = settings.imitation * np.abs(scratch.value[:batch]).mean() / np.float32(batch)
    for i in range(scratch.action.size):
        b = i % batch
        if scratch.guide_value[b] > scratch.value[b]:
            away = scratch.action[i] - scratch.guide_action[i]
            loss += share * away * away
            slope[i] += np.float32(2.0) * share * away
    return loss


@fold
def adam(weights: Flat, gradient: Flat, first: Flat, second: Flat, rate: float, count: int) -> None:
    """Move weights (weights,) by one step, the ``count``-th, counting from 1, at a learning rate.

    Kingma and Ba, "Adam", 2015, Algorithm 1, with the operations grouped as torch groups them; ``first`` and ``second``
    are the running averages of the gradient and of its square.
    """
    size = np.float32(rate / (1.0 - BETA1**count))
    root = np.float32(np.sqrt(1.0 - BETA2**count))
    beta1, beta2, epsilon = np.float32(1.0 - BETA1), np.float32(BETA2), np.float32(EPSILON)
    rest = np.float32(1.0 - BETA2)
    for i in range(weights.size):
        g = gradient[i]
        first[i] += beta1 * (g - first[i])
        second[i] = beta2 * second[i] + rest * g * g
        weights[i] -= size * first[i] / (np.sqrt(second[i]) / root + epsilon)


@fold
def follow(averages: Flat, weights: Flat, share: np.float32) -> None:
    """Move averages (weights,) by a share of the way towards the weights (Polyak averaging)."""
    for i in range(weights.size):
        averages[i] += share * (weights[i] - averages[i])


@jit
def step(
    memory: Memory, start: int, stop: int, rate: float, count: int, tau: np.float32, average_tau: np.float32
) -> None:
    """Do Adam's step for the weights from start to stop, and let targets and average follow by their shares, if any."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        weights = memory.weights[begin:end]
        first, second = memory.first[begin:end], memory.second[begin:end]
        adam(weights, memory.gradient[begin:end], first, second, rate, count)
        if tau > 0.0:
            follow(memory.targets[begin:end], weights, tau)
        if average_tau > 0.0:
            follow(memory.average[begin:end], weights, average_tau)


@entry
def learn(
    blas: Blas,
    rows: Flat,
    draws: Draws,
    memory: Memory,
    networks: Networks,
    settings: Settings,
    counts: NDArray[np.int64],
    scratch: Scratch,
    metrics: Flat,
) -> None:
    """Do as many updates as rows were drawn for.

    Args:
        blas: The result of :func:`~td3robot.learning.compiled.blas.make_blas`.
        rows: The replay buffer (capacity, width).
        draws: Transitions and noise.
        memory: Changed in place.
        networks: Layout of each network in it.
        settings: Hyperparameters.
        counts: Earlier updates, Adam steps of the actor, and Adam steps of the critics (3,).
        scratch: Space for one update.
        metrics: Receives ``METRICS`` of each update (updates, 4).
    """
    for number in range(draws.rows.shape[0]):
        moves = (counts[0] + number + 1) % settings.policy_freq == 0
        metrics[number] = ZERO
        gather(rows, draws.rows[number], settings, scratch)
        find_target(blas, memory, networks, settings, draws.noise[number], scratch)
        critics_slope(blas, memory, networks, scratch, metrics[number])
        tau = settings.tau if moves else ZERO
        counts[2] += 1
        step(memory, networks.split, networks.stop, settings.rate, counts[2], tau, ZERO)
        if moves:
            counts[1] += 1
            actor_slope(blas, memory, networks, settings, scratch, metrics[number])
            step(memory, networks.start, networks.split, settings.rate, counts[1], tau, settings.average_tau)
