"""How the learner is compiled, and where the result is kept from one run to the next."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reordered, and a product and a sum rounded once; NaN and infinity keep their meaning.
_SEMANTICS = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "nogil": True}
_njit: Any = numba.njit
_config: Any = config


def jit(function: Function) -> Function:
    """Compile a function that only compiled code calls."""
    compiled: Function = _njit(function, **_SEMANTICS, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return compiled


def fold(function: Function) -> Function:
    """Compile a function inlined at its only call site, which takes less compile time."""
    compiled: Function = _njit(function, **_SEMANTICS, inline="always")
    return compiled


def entry(function: Function) -> Function:
    """Compile a function that Python calls, caching the result on disk if possible."""
    folder, before = cache_folder(), _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        compiled: Function = _njit(function, **_SEMANTICS, cache=folder is not None)
    finally:
        _config.CACHE_DIR = before
    return compiled


def cache_home() -> Path:
    """Return where compiled code is cached: ``NUMBA_CACHE_DIR``, or a folder in the user's own cache."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "td3robot"


def cache_folder() -> Path | None:
    """Return the folder for these sources and this numba, or None if it cannot be written.

    Numba itself only checks whether the file of the outermost function changed, and would run old code after a change
    in another file.
    """
    content = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    name = hashlib.sha256(content + numba.__version__.encode()).hexdigest()[:16]
    folder = cache_home() / f"learner-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None
