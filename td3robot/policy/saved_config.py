"""The configuration that a checkpoint was saved with, as this version reads it.

Apart from ``checkpoint.py``, so that a policy loads without the classes of configurations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td3robot.config import DisturbanceConfig, RunConfig, parse_config
from td3robot.config.durations import in_seconds
from td3robot.config.plain import parse_plain
from td3robot.errors import CheckpointError
from td3robot.policy.contract import COVERING

# Settings that were added with a second choice, and the value that every earlier run had.
ONLY_CHOICES = {"agent.kind": "td3", "training.learner": "auto"}


@dataclass(frozen=True, slots=True)
class SavedConfig:
    """A checkpoint's configuration: its file, for errors, and the file's text."""

    file: Path
    text: str

    def run(self, overrides: Iterable[str] = ()) -> RunConfig:
        """Return the checked configuration, with ``section.key=value`` overrides.

        Raises:
            ConfigError: An override, or the configuration itself, is not valid in this version.
        """
        return parse_config(self.text, str(self.file), overrides)

    def values(self) -> dict[str, Any]:
        """Return the plain values, unchecked.

        Raises:
            CheckpointError: It is not YAML, or not a mapping.
        """
        try:
            values = parse_plain(self.text)
        except ValueError as error:
            raise CheckpointError(f"{self.file} {error}") from None
        if not isinstance(values, dict):
            raise CheckpointError(f"{self.file} holds no configuration; restore the checkpoint from a copy")
        return values

    def settings_in_steps(self) -> list[str]:
        """Return the settings, by dotted name, that were saved in control periods and are in seconds now."""
        return in_seconds(self.values())

    def newer_settings(self, config: RunConfig) -> dict[str, Any]:
        """Return the settings that did not exist when this was saved, by dotted name, with their present values.

        Those whose default is what used to be the only choice (:data:`ONLY_CHOICES`) are left out.

        Args:
            config: The result of :meth:`run`.
        """
        saved = self.values()
        in_seconds(saved)
        added = _added(saved, config.model_dump(mode="json"))
        return {name: value for name, value in added.items() if ONLY_CHOICES.get(name) != value}


def drawn_disturbance(text: str) -> DisturbanceConfig:
    """Return the disturbances that a run's training drew, as far as terms of a contract may differ by them.

    Those that this version cannot read count as not drawn.

    Args:
        text: The run's configuration.
    """
    try:
        drawn = parse_plain(text)["environment"]["disturbance"]
        return DisturbanceConfig(**{name: drawn[name] for name in COVERING if name in drawn})
    except (KeyError, TypeError, ValueError):
        return DisturbanceConfig()


def _added(saved: Mapping[str, Any], present: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return what ``present`` has and ``saved`` lacks, by dotted name."""
    added: dict[str, Any] = {}
    for name, value in present.items():
        if name not in saved:
            added[prefix + name] = value
        elif isinstance(value, dict) and isinstance(saved[name], dict):
            added |= _added(saved[name], value, f"{prefix}{name}.")
    return added
