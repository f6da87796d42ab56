"""Compile the inner loops over arrays with numba, and keep the result from one program to the next."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])
Record = TypeVar("Record", bound=tuple[Any, ...])

ROOT = Path(__file__).parent
_njit: Any = numba.njit
_config: Any = config


def kernel(function: Function) -> Function:
    """Compile a function of numbers and arrays at its first call; IEEE arithmetic, in the order written."""
    return compiled(function, KERNELS, error_model="numpy", nogil=True, no_cfunc_wrapper=True)


def formula(function: Function) -> Function:
    """Compile a function that only kernels call: it is part of what they keep, and needs no way in from Python."""
    return compiled(function, None, error_model="numpy", nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def plain(record: Record) -> Record:
    """Return a named tuple as a plain one, which a call of compiled code takes in a third of the time.

    The compiled code makes a named tuple of it again, at no cost: ``n = Numbers(*numbers)``.
    """
    result: Any = tuple(record)
    return result  # type: ignore[no-any-return]


def compiled(function: Function, folder: Path | None, **options: Any) -> Function:
    """Compile a function with numba's options, and cache the result in a folder, or nowhere."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        result: Function = _njit(function, **options, cache=folder is not None)
    finally:
        _config.CACHE_DIR = before
    return result


def cache_home() -> Path:
    """Return where compiled code is cached: ``NUMBA_CACHE_DIR``, or a folder in the user's own cache."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "td3robot"


def cache_folder(name: str, sources: Iterable[Path]) -> Path | None:
    """Return the cache folder of compiled sources and this numba, or None if it cannot be written.

    Numba itself only checks whether the file of the outermost function changed, and would run old code after a change
    in another file.
    """
    content = b"".join(path.read_bytes() for path in sorted(sources))
    digest = hashlib.sha256(content + numba.__version__.encode()).hexdigest()[:16]
    folder = cache_home() / f"{name}-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


# The files with kernels.
SOURCES = (
    "row_math.py",
    "envs/actions.py",
    "envs/batch.py",
    "robots/arms/model.py",
    "robots/simulated/disturbed.py",
    "robots/simulated/mujoco.py",
    "tasks/grasp_formulas.py",
    "tasks/joint_error.py",
    "tasks/place_formulas.py",
    "tasks/shaping.py",
    "tasks/stack.py",
    "vision/residuals.py",
)
KERNELS = cache_folder("kernels", [*ROOT.glob("robots/*.py"), *(ROOT / source for source in SOURCES)])
