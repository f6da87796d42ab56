"""Adam, without loading PyTorch's model compiler, which is never used here."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer


def adam(parameters: Iterator[nn.Parameter], learning_rate: float) -> torch.optim.Adam:
    """Return fused Adam over some parameters.

    PyTorch imports its compiler with the first optimizer, only to exempt ``add_param_group`` from compilation: 1.2 s
    of CPU time and 67 MB (torch 2.13). If the method is already marked as exempt, it does not. A PyTorch that does this
    differently just imports its compiler.
    """
    method = getattr(Optimizer.add_param_group, "__wrapped__", None)
    if method is not None and not hasattr(method, "__dynamo_disable"):
        method.__dynamo_disable = method
    return torch.optim.Adam(parameters, learning_rate, fused=True)
