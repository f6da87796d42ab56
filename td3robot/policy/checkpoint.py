"""Checkpoints on disk: a directory of safetensors, JSON and YAML files, and a manifest with their SHA-256.

Loading runs no code. No torch here: play needs none.
"""

import os
import re
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from td3robot import catalog
from td3robot.errors import CheckpointError
from td3robot.format import is_plain
from td3robot.policy.contract import Contract
from td3robot.policy.documents import read_document, short
from td3robot.policy.manifest import MANIFEST as MANIFEST
from td3robot.policy.manifest import held, verified_manifest
from td3robot.policy.observation_scaling import (
    NORMALIZER,
    PRIVILEGED,
    Moments,
    ObservationScaling,
    joined,
    require_moments,
)
from td3robot.policy.policy import Policy

if TYPE_CHECKING:
    from td3robot.config import RunConfig
    from td3robot.policy.saved_config import SavedConfig

CONFIG = "config.yaml"
KINDS = ("best", "last")
READINGS = 10  # attempts to read a run whose training keeps replacing its checkpoint

Arrays = dict[str, NDArray[Any]]


class Checkpoint:
    """A checkpoint directory with a verified manifest; no training deletes it while this object exists.

    Raises:
        CheckpointError: It is missing, damaged, foreign, or of a newer format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if (descriptor := held(path)) is not None:
            weakref.finalize(self, os.close, descriptor)
        try:
            self.manifest = verified_manifest(path)
        except CheckpointError as error:
            raise CheckpointError(f"{error}{_older_whole(path)}") from None

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(entry["bytes"] for entry in self.manifest["files"].values())

    def has(self, name: str) -> bool:
        """Whether the checkpoint has arrays or a document of this name."""
        return f"{name}.safetensors" in self.manifest["files"] or f"{name}.json" in self.manifest["files"]

    def arrays(self, name: str) -> Arrays:
        """Read ``<name>.safetensors``.

        Raises:
            CheckpointError: It is not part of the checkpoint, is not safetensors, or has a number that is not finite.
        """
        path = self._file(f"{name}.safetensors")
        try:
            arrays = dict(load_file(path))
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            why = short(" ".join(str(error).split()))[1:-1]
            raise CheckpointError(f"{path} is not a safetensors file ({why}); nothing was loaded") from None
        for key, array in arrays.items():
            if not is_plain(key):
                raise CheckpointError(f"{path} names a tensor {short(key)}; restore the checkpoint from a copy")
            if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
                value = array[~finite].flat[0]
                raise CheckpointError(f"{path}: {short(key)[1:-1]} holds {value}; restore the checkpoint from a copy")
        return arrays

    def document(self, name: str) -> Any:
        """Read ``<name>.json`` as plain values, validated by its model.

        Raises:
            CheckpointError: It is not part of the checkpoint, is not JSON, or lacks what its readers expect.
        """
        return read_document(self._file(f"{name}.json"))

    def config(self, overrides: Iterable[str] = ()) -> "RunConfig":
        """Read the resolved configuration, with ``section.key=value`` overrides.

        Raises:
            ConfigError: An override, or the configuration itself, is not valid in this version.
        """
        return self.saved_config.run(overrides)

    @property
    def saved_config(self) -> "SavedConfig":
        """The configuration as it was saved."""
        from td3robot.policy.saved_config import SavedConfig  # a policy loads without what it imports

        return SavedConfig(self.path / CONFIG, self._config_text())

    def _config_text(self) -> str:
        path = self._file(CONFIG)
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise CheckpointError(f"{path} is not UTF-8; restore the checkpoint from a copy") from None

    def _config_if_readable(self) -> str:
        try:
            return self._config_text()
        except CheckpointError:
            return ""

    def contract(self) -> Contract:
        """Read the contract."""
        return Contract(self.document("contract"))

    def actor(self) -> Arrays:
        """Read the actor for play: its running average, if the run keeps one beside it; see :meth:`arrays`."""
        return self.arrays("actor_average" if self._averages() else "actor")

    def _averages(self) -> bool:
        """Whether this has the actor's average beside the actor, or must have: its run keeps one and can be resumed."""
        if self.has("actor_average") or not self.has("replay"):
            return self.has("actor_average")
        agent = self.saved_config.values().get("agent")
        tau = agent.get("average_tau", 1.0) if isinstance(agent, dict) else 1.0
        return isinstance(tau, float) and tau < 1.0

    def normalizer(self) -> Moments:
        """Read the normaliser.

        Raises:
            CheckpointError: It is not valid, or is for observations other than the contract's.
        """
        moments, size = self._moments(NORMALIZER), self.contract().observation.size
        if len(moments["mean"]) != size:
            raise CheckpointError(
                f"{self.path}: the normaliser is for {len(moments['mean'])} numbers and the contract's observation has "
                f"{size}; the checkpoint's parts do not belong together"
            )
        return moments

    def training_normalizer(self) -> Moments:
        """Read the normaliser of the critics' input: the observation, then what only critics see, if they do."""
        moments = self.normalizer()
        return joined(moments, self._moments(PRIVILEGED)) if self.has(PRIVILEGED) else moments

    @property
    def privileged_size(self) -> int:
        """How many numbers beside the observation only the critics see."""
        return len(self._moments(PRIVILEGED)["mean"]) if self.has(PRIVILEGED) else 0

    def _moments(self, name: str) -> Moments:
        moments = self.arrays(name)
        try:
            require_moments(moments)
        except ValueError as error:
            raise CheckpointError(f"{self.path}: its {name} is none ({error})") from None
        return moments

    def policy(self) -> Policy:
        """Load the actor, its scaling and the contract, for play.

        Raises:
            CheckpointError: They do not match.
        """
        contract = self.contract()
        scaling = ObservationScaling.from_moments(self.normalizer())
        try:
            policy = Policy(self.actor(), scaling, contract, self._config_if_readable(), catalog.shown(self.path))
            shape = policy.act(np.zeros(contract.observation.size, np.float32)).shape
        except (KeyError, IndexError, ValueError) as error:
            raise CheckpointError(f"{self.path}: its actor is none for this contract ({error})") from None
        if shape != (contract.action.size,):
            raise CheckpointError(
                f"{self.path}: the actor gives {shape[0]} numbers and the contract wants {contract.action.size}; "
                "the checkpoint's parts do not belong together"
            )
        return policy

    def _file(self, name: str) -> Path:
        if name not in self.manifest["files"]:
            raise CheckpointError(f"{self.path} holds no {name}; it was saved for play, or by other software")
        return self.path / name


def find(path: Path, kinds: tuple[str, ...] = KINDS) -> Path:
    """Return the path of the checkpoint that ``path`` means.

    Args:
        path: A checkpoint, a run directory (for its newest checkpoint of the first kind), or the name of a released
            policy.
        kinds: Which kinds of a run's checkpoints are wanted, the preferred one first.

    Raises:
        CheckpointError: There is none.
    """
    path = catalog.policy(path)
    if (path / MANIFEST).is_file():
        return path
    for kind in kinds:
        for candidate in of_kind(path, kind):
            return candidate
    if not path.exists():
        if "best" not in kinds:  # released policies can't be resumed, so their names are no help
            raise CheckpointError(f"there is no run {path}; td3robot list shows your runs")
        raise CheckpointError(catalog.missing("checkpoint", path, catalog.policies()))
    if (path / CONFIG).is_file():
        raise CheckpointError(
            f"{path} holds no checkpoint yet: its training saves one every training.checkpoint_every steps and when it "
            "is stopped by Ctrl-C; if it was killed before, delete the directory and start again"
        )
    raise CheckpointError(f"{path} is not a td3robot checkpoint and contains none: it has no {MANIFEST}")


def opened(path: Path, kinds: tuple[str, ...] = KINDS) -> Checkpoint:
    """Open the checkpoint that :func:`find` finds; if a training replaces it meanwhile, open the new one.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    for _ in range(READINGS):
        found = find(path, kinds)
        try:
            return Checkpoint(found)
        except CheckpointError:
            if found.exists():
                raise
    return Checkpoint(find(path, kinds))


def newest(path: Path) -> Checkpoint:
    """Open the checkpoint to resume from: the newest complete ``last-*`` of a run directory, or ``path`` itself.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    return opened(path, ("last",))


def load_policy(path: str | Path) -> Policy:
    """Load the policy of a checkpoint, or the best of a run directory, after verifying its manifest.

    Args:
        path: The checkpoint or run directory, or the name of a released policy, for example ``ur5e_reach``.

    Raises:
        CheckpointError: It is missing, damaged, foreign, or of a newer format.
    """
    return opened(Path(path)).policy()


def of_kind(run: Path, kind: str) -> list[Path]:
    """Return the complete checkpoints of a kind, newest first; anything with another name belongs to somebody else."""
    named = (path for path in run.glob(f"{kind}-*") if re.fullmatch(rf"{kind}-[0-9]+", path.name))
    return sorted((path for path in named if (path / MANIFEST).is_file()), key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """Return the step in the name of a run's checkpoint."""
    return int(path.name.rpartition("-")[2])


def _older_whole(path: Path) -> str:
    """Return a clause with the newest complete checkpoint older than a damaged one, of the same run and kind."""
    kind = path.name.rpartition("-")[0]
    for other in of_kind(path.parent, kind) if kind in KINDS and path.name[len(kind) + 1 :].isdecimal() else ():
        if step_of(other) < step_of(path):
            try:
                verified_manifest(other)
            except CheckpointError:
                continue
            return f"; {other} is older, and whole"
    return ""
