"""TD3's update compiled by numba: the same numbers as :meth:`td3robot.learning.td3.TD3.update`, up to rounding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from td3robot.jit import cache_folder, compiled

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reordered, and a product and a sum rounded once; NaN and infinity keep their meaning.
_SEMANTICS = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "nogil": True}


def jit(function: Function) -> Function:
    """Compile a function that only compiled code calls."""
    return compiled(function, None, **_SEMANTICS, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def fold(function: Function) -> Function:
    """Compile a function inlined at its only call site, which takes less compile time."""
    return compiled(function, None, **_SEMANTICS, inline="always")


def entry(function: Function) -> Function:
    """Compile a function that Python calls, caching the result on disk if possible."""
    return compiled(function, learner_cache(), **_SEMANTICS)


def learner_cache() -> Path | None:
    """Return the folder for what is compiled of these sources, or None if it cannot be written."""
    return cache_folder("learner", Path(__file__).parent.glob("*.py"))
