"""The TD3 checkpoints of other programs: which files they have, and what is in them.

Nothing here runs what a file contains: tensors are read by ``torch.load(weights_only=True)``, and of a zip's JSON only
plain values. Layers are matched by order and shape, so their names do not matter.

| program | files |
|---|---|
| older six-file programs | ``<prefix>actor``, ``Q1``, ``Q2``, and an ``_optimizer`` for each |
| TD3's authors (sfujim/TD3) | ``<prefix>_actor``, ``<prefix>_critic`` with both critics, and ``_optimizer`` for each |
| CleanRL | one ``.cleanrl_model``: actor and both critics |
| Stable-Baselines3 | one ``.zip``: networks, targets, optimizers, and settings as JSON |
"""

import json
import pickle
import re
import zipfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from td3robot.errors import CheckpointError

# Networks of a size that this program trains are far smaller [bytes].
LARGEST = 2**31


@dataclass(frozen=True, slots=True)
class Network:
    """What a program saved of a network.

    Attributes:
        source: Where it is from, in messages.
        tensors: Its tensors by their names there, first layer to last, and whatever else was with them.
        optimizer: State dict of its Adam, or None if it was not saved.
        optimizer_source: Where that is from.
    """

    source: str
    tensors: dict[str, Any]
    optimizer: dict[str, Any] | None = None
    optimizer_source: str = ""


@dataclass(frozen=True, slots=True)
class ForeignCheckpoint:
    """A checkpoint of another program.

    Attributes:
        title: Whose it is, as a plural: the beginning of a sentence.
        networks: ``actor``, ``Q1`` and ``Q2``.
        targets: The networks' targets by the same names, if it has them.
        unit_actions: Whether its critics are shown actions in [-1, 1] whatever the environment's are.
        may_be_scaled: Whether the program keeps an observation scaling in another file.
    """

    title: str
    networks: dict[str, Network]
    targets: dict[str, Network] = field(default_factory=dict)
    unit_actions: bool = False
    may_be_scaled: bool = False

    @property
    def hidden(self) -> list[int]:
        """Widths of the actor's hidden layers."""
        shapes = [value.shape for value in self.networks["actor"].tensors.values() if isinstance(value, Tensor)]
        return [shape[0] for shape in shapes if len(shape) == 2][:-1]


def read_foreign(path: str) -> ForeignCheckpoint:
    """Read a checkpoint of another program.

    Args:
        path: A zip, a ``.cleanrl_model``, or what the names of several files begin with.

    Raises:
        CheckpointError: It is not one of the layouts, a file of it is missing, or contains more than tensors.
    """
    file = Path(path)
    if file.is_file():
        if not zipfile.is_zipfile(file) or "policy.pth" not in zipfile.ZipFile(file).namelist():
            return _cleanrl(file)
        return _stable_baselines(file)
    for prefix in (path, f"{path}_"):
        for suffix in ("", ".pth"):
            if Path(f"{prefix}critic{suffix}").is_file():
                return _authors(prefix, suffix)
    return _six_files(path)


def _six_files(prefix: str) -> ForeignCheckpoint:
    names = ("actor", "Q1", "Q2")
    optimizers = _optimizer_files(prefix, names)
    networks = {name: Network(f"{prefix}{name}", _load(Path(f"{prefix}{name}")), *optimizers[name]) for name in names}
    return ForeignCheckpoint("the six files", networks)


def _authors(prefix: str, suffix: str) -> ForeignCheckpoint:
    optimizers = _optimizer_files(prefix, ("actor", "critic"), suffix)
    actor = f"{prefix}actor{suffix}"
    networks = {"actor": Network(actor, _load(Path(actor)), *optimizers["actor"])}
    critic = f"{prefix}critic{suffix}"
    networks |= _critics(Network(critic, _load(Path(critic)), *optimizers["critic"]))
    return ForeignCheckpoint("the authors' files", networks)


def _cleanrl(path: Path) -> ForeignCheckpoint:
    values = _load_any(path, str(path))
    is_tuple = isinstance(values, tuple | list) and len(values) == 3 and all(isinstance(each, dict) for each in values)
    if not is_tuple:
        raise CheckpointError(
            f"{path} is neither a .cleanrl_model, which holds actor and both critics, nor a Stable-Baselines3 .zip; "
            "of several files, give what their names begin with"
        )
    networks = {
        name: Network(f"{path}, {name}", each) for name, each in zip(("actor", "Q1", "Q2"), values, strict=True)
    }
    return ForeignCheckpoint("CleanRL's files", networks)


def _stable_baselines(path: Path) -> ForeignCheckpoint:
    _require_plain_td3(path)
    policy = _member(path, "policy.pth")
    groups: dict[str, dict[str, Any]] = {}
    for key, value in policy.items():
        group, _, name = key.partition(".")
        groups.setdefault(group, {})[name] = value
    expected = {"actor", "critic", "actor_target", "critic_target"}
    if groups.keys() != expected or any(not key.startswith("mu.") for key in groups["actor"]):
        raise CheckpointError(
            f"{path} is not of TD3 with perceptrons: its policy.pth has {', '.join(sorted(groups))}; only a TD3 with "
            "MlpPolicy can be imported"
        )
    optimizers = {name: _member(path, f"{name}.optimizer.pth") for name in ("actor", "critic")}
    found = {
        name: Network(
            f"{path}, {name}", tensors, optimizers.get(name), f"{path}, {name}.optimizer.pth"
        )
        for name, tensors in groups.items()
    }  # fmt: skip
    networks = {"actor": found["actor"], **_critics(found["critic"])}
    targets = {"actor": found["actor_target"], **_critics(found["critic_target"])}
    title = "Stable-Baselines3's files"
    return ForeignCheckpoint(title, networks, targets, unit_actions=True, may_be_scaled=True)


def _require_plain_td3(path: Path) -> None:
    """Refuse settings under which the same weights act otherwise; they are plain values beside pickles in a JSON."""
    with zipfile.ZipFile(path) as file:
        try:
            data = json.loads(_bytes(file, path, "data"))
            options = data["policy_kwargs"]
            activation = str(options.get("activation_fn", "ReLU"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{path} is not a model of Stable-Baselines3: its data is {error!r}") from None
    if "ReLU" not in re.split(r"\W+", activation):
        raise CheckpointError(f"{path} has the activation {activation}; networks with ReLU can be imported, no others")
    if options.get("n_critics", 2) != 2:
        raise CheckpointError(f"{path} has n_critics {options['n_critics']}; TD3 with two critics can be imported")


def _critics(both: Network) -> dict[str, Network]:
    """Return both critics of a network that contains them, one after the other."""
    names = [name for name, value in both.tensors.items() if isinstance(value, Tensor)]
    half = len(names) // 2
    if len(names) != 2 * half or not half:
        raise CheckpointError(f"{both.source} has {len(names)} tensors, which are not two critics'")
    critics = {}
    for name, part in (("Q1", slice(half)), ("Q2", slice(half, None))):
        tensors = {key: both.tensors[key] for key in names[part]}
        optimizer = None if both.optimizer is None else _part_of_adam(both, part)
        critics[name] = Network(f"{both.source} ({name})", tensors, optimizer, f"{both.optimizer_source} ({name})")
    return critics


def _part_of_adam(both: Network, part: slice) -> dict[str, Any]:
    """Return the state dict of an optimizer, for some of its parameters."""
    given = both.optimizer
    assert given is not None
    try:
        order = [index for group in given["param_groups"] for index in group["params"]]
        if len(order) != len([value for value in both.tensors.values() if isinstance(value, Tensor)]):
            raise ValueError(f"it is of {len(order)} parameters")
        state = {index: given["state"][index] for index in order[part] if index in given["state"]}
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{both.optimizer_source} is not the state of an Adam optimizer for both critics: {error}"
        ) from None
    return {"state": state, "param_groups": [{"params": order[part]}]}


def _optimizer_files(
    prefix: str, names: tuple[str, ...], suffix: str = ""
) -> dict[str, tuple[dict[str, Any] | None, str]]:
    """Return each network's optimizer state and where it is from; None for all if no such file exists."""
    paths = {name: Path(f"{prefix}{name}_optimizer{suffix}") for name in names}
    some = any(path.is_file() for path in paths.values())
    return {name: (_load(path) if some else None, str(path)) for name, path in paths.items()}


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing; a six-file checkpoint has <prefix>actor, Q1, Q2 and their _optimizer, and one of "
            "TD3's authors <prefix>_actor, _critic and their _optimizer"
        )
    return _state_dict(_load_any(path, str(path)), str(path))


def _member(path: Path, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(path) as file:
        data = _bytes(file, path, name)
    return _state_dict(_load_any(BytesIO(data), f"{path}, {name}"), f"{path}, {name}")


def _bytes(file: zipfile.ZipFile, path: Path, name: str) -> bytes:
    try:
        if file.getinfo(name).file_size > LARGEST:
            raise CheckpointError(f"{path}: {name} is larger than {LARGEST / 2**30:g} GiB")
        return file.read(name)
    except (KeyError, OSError, RuntimeError, zipfile.BadZipFile, EOFError, NotImplementedError, ValueError) as error:
        raise CheckpointError(f"{path}: {name} cannot be read: {error}") from None


def _state_dict(values: Any, source: str) -> dict[str, Any]:
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise CheckpointError(f"{source} holds a {type(values).__name__}, not a state dict")
    return values


def _load_any(file: Path | BytesIO, source: str) -> Any:
    """Read tensors in plain containers.

    PyTorch's own message is not passed on: it advises to load the file in a way that runs what it contains.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  # torch.load raises anything at all on a foreign file
        _refuse(error, source)


def _refuse(error: Exception, source: str) -> NoReturn:
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    if named is not None:
        reason = f"it names {named[1]}, which would be run; save its state_dict() alone"
    elif isinstance(error, pickle.UnpicklingError):
        reason = "it is damaged, or holds something else; save its state_dict() alone"
    elif isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
    else:
        reason = "it is damaged or another kind of file"
    raise CheckpointError(f"{source} is not a torch.save of plain tensors, so it was not loaded: {reason}") from None
