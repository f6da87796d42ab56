"""The manifest of a checkpoint: its files with their SHA-256, and what made it."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from td3robot import locks
from td3robot.errors import CheckpointError
from td3robot.policy.documents import read_json, require_document, short

FORMAT = "td3robot-checkpoint"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
LONGEST_NAME = 100  # of a file name


def verified_manifest(path: Path) -> dict[str, Any]:
    """Return a checkpoint's manifest after verifying every file that it names.

    Raises:
        CheckpointError: It is missing, damaged, foreign, or of another format.
    """
    if not path.is_dir():
        raise CheckpointError(f"there is no checkpoint directory {path}")
    if not (path / MANIFEST).is_file():
        raise CheckpointError(f"{path} is not a td3robot checkpoint: it has no {MANIFEST}")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a td3robot checkpoint: its {MANIFEST} says so")
    saved = manifest.get("version")
    if saved != FORMAT_VERSION or isinstance(saved, bool):
        raise CheckpointError(
            f"{path} has checkpoint format {short(saved)} and this td3robot reads format {FORMAT_VERSION}; "
            "install the td3robot it was made with, or a newer one"
        )
    require_document(path / MANIFEST, manifest)
    for name, entry in manifest["files"].items():
        _verify(path, name, entry["sha256"], entry["bytes"])
    return manifest


def _verify(path: Path, name: str, digest: str, size: int) -> None:
    if Path(name).name != name or len(name) > LONGEST_NAME:
        raise CheckpointError(
            f"{path}: {MANIFEST} names {short(name)}, which is outside the checkpoint; nothing was loaded"
        )
    if not (path / name).is_file():
        raise CheckpointError(f"{path} is not whole: {name} is missing; restore the checkpoint from a copy")
    try:
        whole = (path / name).stat().st_size == size and sha256(path / name) == digest
    except OSError as error:
        raise CheckpointError(f"{path / name} cannot be read: {error.strerror or error}") from None
    if not whole:
        raise CheckpointError(f"{path} is damaged: {name} is not what was saved; restore the checkpoint from a copy")


def held(path: Path) -> int | None:
    """Return a descriptor of a checkpoint with a lock that deletion respects, or None if it cannot be opened."""
    try:
        descriptor = locks.open_directory(path)
    except OSError:
        return None
    with suppress(OSError):  # some network disks have no locks
        locks.lock(descriptor, shared=True)
    return descriptor


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
