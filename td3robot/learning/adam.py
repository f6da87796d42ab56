"""Adam, without PyTorch's compiler of models, which is never used here."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer


def adam(parameters: Iterator[nn.Parameter], learning_rate: float) -> torch.optim.Adam:
    """Return Adam over some parameters, fused.

    PyTorch imports its compiler with the first optimizer, only to exempt ``add_param_group`` from being compiled: 1.2 s
    of CPU time and 67 MB (torch 2.13). Where the method counts as exempted already, it does not. A PyTorch that
    does this otherwise just imports it.
    """
    method = getattr(Optimizer.add_param_group, "__wrapped__", None)
    if method is not None and not hasattr(method, "__dynamo_disable"):
        method.__dynamo_disable = method
    return torch.optim.Adam(parameters, learning_rate, fused=True)
