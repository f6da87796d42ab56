"""The actions of another program: a tanh, scaled and shifted to its environment's range.

Such a program shows its critics those actions; here actions lie in [-1, 1]. The actor is the same except for what
follows its tanh. In a critic, the first layer's columns for the action are scaled, and Adam's moments with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from td3robot.errors import CheckpointError

MOMENTS = ("exp_avg", "exp_avg_sq")
# Names under which other programs keep the range of actions beside an actor's layers.
SCALES, BIASES = ("action_scale", "max_action"), ("action_bias",)
Tensors = dict[str, Tensor]
Bounds = tuple[NDArray[np.floating], NDArray[np.floating]]


@dataclass(frozen=True, slots=True)
class ActionRange:
    """An action of the older program is ``scale * a + bias``, for ``a`` in [-1, 1].

    Attributes:
        scale, bias: (action,).
    """

    scale: Tensor
    bias: Tensor

    @classmethod
    def of(cls, a_max: float, size: int) -> "ActionRange":
        """Return the range [-a_max, a_max].

        Raises:
            CheckpointError: That is not a range.
        """
        if not (np.isfinite(a_max) and a_max > 0.0):
            raise CheckpointError(f"--a-max {a_max:g} is no largest action; give a positive number")
        return cls(torch.full((size,), float(a_max), dtype=torch.float64), torch.zeros(size, dtype=torch.float64))

    def apply(self, weights: Tensors, moments: Tensors) -> bool:
        """Convert a critic in place to take actions in [-1, 1]; return whether Adam's moments could be converted.

        ``W (s a + b) + c = (W s) a + (W b + c)``. The gradient with respect to ``W s`` is that for ``W`` divided by
        ``s``.
        """
        columns = weights["net.0.weight"][:, -len(self.scale) :]
        shift = columns.double() @ self.bias
        columns.copy_(columns.double() * self.scale)
        weights["net.0.bias"] += shift
        for key, power in zip(MOMENTS, (1, 2), strict=True) if moments else ():
            columns = moments[f"net.0.weight.{key}"][:, -len(self.scale) :]
            columns.copy_(columns.double() / self.scale**power)
        return not (moments and self.bias.any())

    def undo(self, weights: Tensors, moments: Tensors) -> None:
        """Convert a critic in place from actions in [-1, 1] to those of this range, which has no bias."""
        ActionRange(1.0 / self.scale, self.bias).apply(weights, moments)


def taken_range(
    actor: dict[str, Any], size: int, a_max: float | None, environment: Bounds | None
) -> tuple[ActionRange, list[str]]:
    """Return the action range of an older program, and remove the tensors that state it from its actor's.

    Args:
        actor: The actor's file.
        size: Size of an action.
        a_max: The user's value.
        environment: The environment's own lowest and highest action.

    Returns:
        The range, and what the user should know about it.

    Raises:
        CheckpointError: No source states it, or two disagree.
    """
    scale, bias = (_surplus(actor, names, size) for names in (SCALES, BIASES))
    if scale is not None:
        found = ActionRange(scale, torch.zeros(size, dtype=torch.float64) if bias is None else bias)
        if a_max is not None and not torch.allclose(scale, torch.tensor(a_max, dtype=torch.float64)):
            raise CheckpointError(
                f"--a-max is {a_max:g}, and the actor's file says {scale.tolist()}; leave --a-max out"
            )
    elif a_max is not None:
        found = ActionRange.of(a_max, size)
    elif environment is None or is_unit(*environment):
        found = ActionRange.of(1.0, size)
    else:
        low, high = (bound.tolist() for bound in environment)
        raise CheckpointError(
            f"the environment's own actions go from {low} to {high}, and the files do not say which actions their "
            "critics were shown; add --a-max with the largest action of the program that made them"
        )
    if environment is None or is_unit(*environment):
        return found, []
    low, high = (torch.as_tensor(bound, dtype=torch.float64) for bound in environment)
    if torch.allclose(found.bias - found.scale, low) and torch.allclose(found.bias + found.scale, high):
        return found, []
    first, last = (found.bias - found.scale).tolist(), (found.bias + found.scale).tolist()
    return found, [
        f"the older program acted from {first} to {last}, and "
        f"here the policy's actions go from {low.tolist()} to {high.tolist()}, as the environment's do"
    ]


def _surplus(actor: dict[str, Any], names: Sequence[str], size: int) -> Tensor | None:
    """Remove a tensor beside the layers from an actor's file, and return it as (action,)."""
    found = [key for key in actor if key.rpartition(".")[2] in names]
    if not found:
        return None
    try:
        value = torch.as_tensor(actor.pop(found[0]), dtype=torch.float64).reshape(-1).expand(size).clone()
    except (RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"the actor's {found[0]} is not of {size} actions: {error}") from None
    if not torch.isfinite(value).all() or (names == SCALES and (value <= 0.0).any()):
        raise CheckpointError(f"the actor's {found[0]} is {value.tolist()}, which is no range of actions")
    return value


def is_unit(low: NDArray[np.floating], high: NDArray[np.floating]) -> bool:
    """Whether actions lie in [-1, 1]."""
    return bool(np.allclose(low, -1.0) and np.allclose(high, 1.0))
