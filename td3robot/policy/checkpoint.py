"""Checkpoints on disk: a directory of safetensors, JSON and YAML files under a manifest of their SHA-256.

A checkpoint is written whole under a temporary name, flushed to disk, and renamed; what carries a
checkpoint's name is therefore always whole. Loading runs no code. No torch here: play needs none.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from td3robot.config import RunConfig, parse_config
from td3robot.config.durations import in_seconds
from td3robot.errors import CheckpointError
from td3robot.policy.contract import Contract
from td3robot.policy.observation_scaling import ObservationScaling
from td3robot.policy.policy import Policy

FORMAT = "td3robot-checkpoint"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
CONFIG = "config.yaml"
KINDS = ("best", "last")
# Settings that came with a second choice, and what every run before them was.
ONLY_CHOICES = {"agent.kind": "td3"}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint.

    Attributes:
        config: The resolved configuration as YAML text.
        documents: Plain values by name; each becomes ``<name>.json``.
        arrays: Groups of arrays by name; each becomes ``<name>.safetensors``.
    """

    config: str
    documents: Mapping[str, Any]
    arrays: Mapping[str, Arrays]


class Checkpoint:
    """A checkpoint directory whose manifest has been verified."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = _verified_manifest(path)

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(entry["bytes"] for entry in self.manifest["files"].values())

    def has(self, name: str) -> bool:
        """Whether the checkpoint has arrays or a document of this name."""
        return f"{name}.safetensors" in self.manifest["files"] or f"{name}.json" in self.manifest["files"]

    def arrays(self, name: str) -> Arrays:
        """Read ``<name>.safetensors``.

        Raises:
            CheckpointError: It is not part of the checkpoint, or is not safetensors.
        """
        path = self._file(f"{name}.safetensors")
        try:
            return dict(load_file(path))
        except (SafetensorError, KeyError, ValueError) as error:
            raise CheckpointError(f"{path} is not a safetensors file ({error}); nothing was loaded") from None

    def document(self, name: str) -> Any:
        """Read ``<name>.json``.

        Raises:
            CheckpointError: It is not part of the checkpoint, or is not JSON.
        """
        return _read_json(self._file(f"{name}.json"))

    def config(self, overrides: Iterable[str] = ()) -> RunConfig:
        """Read the resolved configuration, with ``section.key=value`` overrides.

        Raises:
            ConfigError: An override, or the configuration itself, is none of this version's.
        """
        path = self._file(CONFIG)
        return parse_config(path.read_text(encoding="utf-8"), str(path), overrides)

    def settings_in_steps(self) -> list[str]:
        """Return the settings, by dotted name, that this was saved with in control periods and that are seconds now."""
        return in_seconds(self._saved_config())

    def _saved_config(self) -> dict[str, Any]:
        values: dict[str, Any] = yaml.safe_load(self._file(CONFIG).read_text(encoding="utf-8"))
        return values

    def newer_settings(self, config: RunConfig) -> dict[str, Any]:
        """Return the settings that did not exist when this was saved, by dotted name, with their values now.

        Those whose default says what was the only choice then (:data:`ONLY_CHOICES`) are left out.

        Args:
            config: What :meth:`config` returned.
        """
        saved = self._saved_config()
        in_seconds(saved)
        added = _added(saved, config.model_dump(mode="json"))
        return {name: value for name, value in added.items() if ONLY_CHOICES.get(name) != value}

    def contract(self) -> Contract:
        """Read the contract."""
        return Contract(self.document("contract"))

    def actor(self) -> Arrays:
        """Read the actor that plays: its running average, where the run keeps one beside the actor.

        Raises:
            CheckpointError: It is not part of the checkpoint, or is not safetensors.
        """
        return self.arrays("actor_average" if self.has("actor_average") else "actor")

    def policy(self) -> Policy:
        """Load the actor, its scaling and the contract, for play.

        Raises:
            CheckpointError: They do not fit each other.
        """
        contract = self.contract()
        scaling = ObservationScaling.from_moments(self.arrays("normalizer"))
        if len(scaling.shift) != contract.observation.size:
            raise CheckpointError(
                f"{self.path}: the normaliser is for {len(scaling.shift)} numbers and the contract's observation has "
                f"{contract.observation.size}; the checkpoint's parts do not belong together"
            )
        try:
            policy = Policy(self.actor(), scaling, contract)
            shape = policy.act(np.zeros(contract.observation.size, np.float32)).shape
        except (KeyError, IndexError, ValueError) as error:
            raise CheckpointError(f"{self.path}: its actor is none for this contract ({error!r})") from None
        if shape != (contract.action.size,):
            raise CheckpointError(
                f"{self.path}: the actor gives {shape[0]} numbers and the contract wants {contract.action.size}; "
                "the checkpoint's parts do not belong together"
            )
        return policy

    def _file(self, name: str) -> Path:
        if name not in self.manifest["files"]:
            raise CheckpointError(f"{self.path} holds no {name}; it was saved for play only, or by other software")
        return self.path / name


def write(path: Path, contents: Contents) -> None:
    """Write a checkpoint under a temporary name, flush it, and rename it to ``path``.

    Raises:
        CheckpointError: It could not be written; nothing carries the name ``path`` then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _write_text(temporary / CONFIG, contents.config)
        for name, document in contents.documents.items():
            _write_text(temporary / f"{name}.json", json.dumps(document, indent=1, sort_keys=True, allow_nan=False))
        for name, arrays in contents.arrays.items():
            _write_arrays(temporary / f"{name}.safetensors", arrays)
        _write_text(temporary / MANIFEST, json.dumps(_manifest_of(temporary), indent=1, sort_keys=True))
        _flush(temporary)
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
        _flush(path.parent)
    except (OSError, SafetensorError, ValueError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(f"checkpoint {path} could not be saved: {reason}") from None


def publish(run: Path, kind: str, step: int, contents: Contents) -> Path:
    """Write ``<run>/<kind>-<step>`` and then delete the older checkpoints of that kind.

    Raises:
        CheckpointError: It could not be written; the older ones are still there.
    """
    path = run / f"{kind}-{step:09d}"
    if not (path / MANIFEST).is_file():
        write(path, contents)
    for older in _of_kind(run, kind):
        if older != path:
            _delete(older)
    return path


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run directory for one training at a time.

    Raises:
        CheckpointError: Another process trains in it.
    """
    descriptor = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"{run} is in use by another training; wait for it, or stop it with Ctrl-C") from None
        yield
    finally:
        os.close(descriptor)


def clean(run: Path) -> None:
    """Delete what an interrupted save left behind."""
    for kind in KINDS:
        for leftover in run.glob(f".{kind}-*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)


def _delete(path: Path) -> None:
    """Delete a checkpoint, renamed first: a deletion that is cut off leaves a name that :func:`clean` deletes."""
    renamed = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.rename(renamed)
    except OSError:
        return
    shutil.rmtree(renamed, ignore_errors=True)


def find(path: Path, kinds: tuple[str, ...] = KINDS) -> Path:
    """Find the checkpoint meant by ``path``: itself, or the newest of the first kind in a run directory.

    Raises:
        CheckpointError: There is none.
    """
    if (path / MANIFEST).is_file():
        return path
    for kind in kinds:
        for candidate in _of_kind(path, kind):
            return candidate
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint {path}")
    raise CheckpointError(f"{path} is no td3robot checkpoint and holds none: it has no {MANIFEST}")


def newest(path: Path) -> Checkpoint:
    """Open the checkpoint to resume from: the newest whole ``last-*`` of a run directory, or ``path`` itself.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    return Checkpoint(find(path, ("last",)))


def load_policy(path: str | Path) -> Policy:
    """Load the policy of a checkpoint, or the best of a run directory, after verifying its manifest.

    Raises:
        CheckpointError: It is missing, damaged, foreign, or of a newer format.
    """
    return Checkpoint(find(Path(path))).policy()


def _of_kind(run: Path, kind: str) -> list[Path]:
    """List whole checkpoints of a kind, the newest first."""
    found = [path for path in run.glob(f"{kind}-*") if (path / MANIFEST).is_file()]
    return sorted(found, key=lambda path: path.name, reverse=True)


def _verified_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise CheckpointError(f"there is no checkpoint directory {path}")
    if not (path / MANIFEST).is_file():
        raise CheckpointError(f"{path} is no td3robot checkpoint: it has no {MANIFEST}")
    manifest = _read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no td3robot checkpoint: its {MANIFEST} says so")
    saved = manifest.get("version")
    if saved != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has checkpoint format {saved} and this td3robot reads format {FORMAT_VERSION}; "
            "install the td3robot it was made with, or a newer one"
        )
    try:
        entries = [(name, entry["sha256"], int(entry["bytes"])) for name, entry in manifest["files"].items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path}: {MANIFEST} is damaged; restore the checkpoint from a copy") from None
    for name, digest, size in entries:
        _verify(path, name, digest, size)
    return manifest


def _verify(path: Path, name: str, digest: str, size: int) -> None:
    if Path(name).name != name:
        raise CheckpointError(f"{path}: {MANIFEST} names {name!r}, which is outside the checkpoint; nothing was loaded")
    if not (path / name).is_file():
        raise CheckpointError(f"{path} is not whole: {name} is missing; restore the checkpoint from a copy")
    if (path / name).stat().st_size != size or _sha256(path / name) != digest:
        raise CheckpointError(f"{path} is damaged: {name} is not what was saved; restore the checkpoint from a copy")


def _manifest_of(directory: Path) -> dict[str, Any]:
    files = {path.name: {"sha256": _sha256(path), "bytes": path.stat().st_size} for path in sorted(directory.iterdir())}
    versions = {name: version(name) for name in ("td3robot", "torch", "numpy", "mujoco", "gymnasium")}
    return {"format": FORMAT, "version": FORMAT_VERSION, "made_with": versions, "files": files}


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _flush(path)


def _write_arrays(path: Path, arrays: Arrays) -> None:
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    path.chmod(0o644)  # safetensors writes for the owner alone
    _flush(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise CheckpointError(f"{path} is not readable JSON; restore the checkpoint from a copy") from None


def _added(saved: Mapping[str, Any], present: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return what ``present`` has and ``saved`` has not, by dotted name."""
    added: dict[str, Any] = {}
    for name, value in present.items():
        if name not in saved:
            added[prefix + name] = value
        elif isinstance(value, dict) and isinstance(saved[name], dict):
            added |= _added(saved[name], value, f"{prefix}{name}.")
    return added
