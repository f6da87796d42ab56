"""Writes checkpoints: each is written completely under a temporary name, flushed to disk, and renamed.

So anything with a checkpoint's name is complete.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from td3robot import atomic, locks
from td3robot.errors import CheckpointError
from td3robot.policy.checkpoint import CONFIG, Arrays, of_kind, step_of
from td3robot.policy.manifest import FORMAT, FORMAT_VERSION, MANIFEST, sha256


@dataclass(frozen=True)
class CheckpointData:
    """The contents of a checkpoint.

    Attributes:
        config: The resolved configuration as YAML text.
        documents: Plain values by name; each becomes ``<name>.json``.
        arrays: Groups of arrays by name; each becomes ``<name>.safetensors``.
    """

    config: str
    documents: Mapping[str, Any]
    arrays: Mapping[str, Arrays]


def write(path: Path, contents: CheckpointData) -> None:
    """Write a checkpoint under a temporary name, flush it, and rename it to ``path``.

    Raises:
        CheckpointError: It could not be written; then there is nothing at ``path``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.Replacement(path, durable=True) as temporary:
            temporary.mkdir()
            (temporary / CONFIG).write_text(contents.config, encoding="utf-8")
            for name, document in contents.documents.items():
                _write_json(temporary / f"{name}.json", document)
            for name, arrays in contents.arrays.items():
                _write_arrays(temporary / f"{name}.safetensors", arrays)
            _write_json(temporary / MANIFEST, _manifest_of(temporary))
    except (OSError, SafetensorError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(f"checkpoint {path} could not be saved: {reason}") from None


def publish(run: Path, kind: str, step: int, contents: CheckpointData, keep: int = 1) -> Path:
    """Write ``<run>/<kind>-<step>``, then delete all checkpoints of that kind but the newest ``keep``.

    Those of later steps are from before the run went back, and are deleted, too.

    Raises:
        CheckpointError: It could not be written; the older ones are still there.
    """
    path = run / f"{kind}-{step:09d}"
    write(path, contents)
    there = of_kind(run, kind)
    kept = sorted(step_of(each) for each in there if step_of(each) <= step)[-keep:]
    for each in there:
        if step_of(each) not in kept:
            _delete(each)
    return path


def set_aside_later(run: Path, kind: str, step: int) -> list[Path]:
    """Rename a run's checkpoints of a kind beyond the step that it went back to, and return their new paths."""
    places = []
    for path in of_kind(run, kind):
        if step_of(path) > step:
            names = (run / f"set-aside-{path.name}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
            places.append(path.rename(next(name for name in names if not name.exists())))
    return places


def withdraw(run: Path, kind: str, step: int) -> None:
    """Delete a run's checkpoint of a kind and step, if there is one."""
    for path in of_kind(run, kind):
        if step_of(path) == step:
            _delete(path)


def _delete(path: Path) -> None:
    """Rename a checkpoint, then delete it: an interrupted deletion leaves a temporary name.

    One that is being read stays; the next save deletes it.
    """
    try:
        descriptor = locks.open_directory(path)
    except OSError:
        return
    try:
        with suppress(OSError):
            locks.lock(descriptor)
            atomic.delete(path.rename(atomic.temporary_path(path)))
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _manifest_of(directory: Path) -> dict[str, Any]:
    """Return the manifest of the files in a directory."""
    files = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in sorted(directory.iterdir())}
    versions = {name: version(name) for name in ("td3robot", "torch", "numpy", "mujoco", "gymnasium")}
    return {"format": FORMAT, "version": FORMAT_VERSION, "made_with": versions, "files": files}


def _write_json(path: Path, document: Any) -> None:
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    path.write_text(text, encoding="utf-8")


def _write_arrays(path: Path, arrays: Arrays) -> None:
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    path.chmod(0o644)  # safetensors makes it readable for the owner only
