"""Summaries of runs and checkpoints, read without verifying their files, which may be gigabytes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from td3robot.config import parse_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.metrics import EVALUATIONS, METRICS
from td3robot.policy.checkpoint import CONFIG, MANIFEST, find
from td3robot.policy.documents import read_document


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory or a checkpoint: it has a log, a configuration or a manifest."""
    files = (METRICS, EVALUATIONS, MANIFEST, CONFIG)
    return any((path / name).is_file() for name in files) or any(path.glob(f"*-*/{MANIFEST}"))


def runs_below(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every run directory below a folder, and every checkpoint outside a run, with its summary."""
    for place, folders, files in os.walk(folder):
        path = Path(place)
        folders.sort()
        try:
            has_checkpoint = MANIFEST not in files and find(path).parent == path
        except CheckpointError:
            has_checkpoint = False
        if has_checkpoint or MANIFEST in files:
            folders.clear()
            yield path, summary(path)


def summary(path: Path) -> dict[str, Any]:
    """Return ``name``, ``title``, ``step``, ``success_rate``, ``episodes`` and ``resumable``; None means unknown.

    Args:
        path: A run directory or a checkpoint. For a run, step and ``resumable`` come from its last checkpoint, and
            success from its best.
    """
    best, last = find(path), find(path, ("last", "best"))
    evaluation = _document(best, "evaluation") or {}
    counters = _document(last, "counters") or {}
    try:
        config = parse_config((best / CONFIG).read_text(encoding="utf-8"), str(best / CONFIG))
        about: dict[str, Any] = {"name": config.name, "title": config.environment.title}
    except (ConfigError, OSError, UnicodeDecodeError):
        about = {"name": None, "title": None}
    return about | {
        "step": counters.get("step"),
        "success_rate": evaluation.get("success_rate"),
        "episodes": evaluation.get("episodes"),
        "resumable": (last / "replay.safetensors").is_file(),
    }


def _document(path: Path, name: str) -> dict[str, Any] | None:
    try:
        values: dict[str, Any] | None = read_document(path / f"{name}.json")
    except CheckpointError:
        return None
    return values
