"""Ways to damage a checkpoint: its files, documents and tensors, drawn at random, with or without a new manifest."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

MANIFEST = "manifest.json"
# What nobody can mean anywhere; texts stand for what Python's writer of JSON or YAML would not write.
NEST = "[" * 100_000 + "]" * 100_000
NEVER = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000, NEST, '{"a":' * 50_000 + "1" + "}" * 50_000)
# What somebody may mean somewhere, in a document.
VALUES = (
    None, True, False, -1, 0, 1, 2**53, 2**63, 10**30, 1.5, 1e300, 1e-300, "", "x", "0", "\ud800", "a\nb",
    "\0", "\u202e", [], {}, [[]], [None], {"a": 1}, [1, 2, 3], "x" * 100_000, 0.1, -0.0,
)  # fmt: skip
PLAIN = ("contract.json", "counters.json", "evaluation.json", "random.json", "changes.json")
# Of these, every number is counted on: what is missing or of another type must be refused.
STRICT = ("counters.json", "evaluation.json", "random.json")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One damage.

    Attributes:
        kind: Its class, as the table names it.
        what: The file and what was done.
        signed: Whether the manifest was made to agree.
        fatal: Whether `inspect` and resuming have to refuse it; else it may be another, valid checkpoint.
    """

    kind: str
    what: str
    signed: bool
    fatal: bool


def sign(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest that agrees with the files that there are."""
    found = {
        file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.is_file() and file.name != MANIFEST
    }
    files = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in found.items()}
    (path / MANIFEST).write_text(json.dumps(manifest | {"files": files}))


def damage(path: Path, rng: np.random.Generator) -> Mutation:
    """Damage the checkpoint at ``path``, and say how; one that changes nothing is drawn again."""
    manifest, before = json.loads((path / MANIFEST).read_text()), _digest(path)
    while True:
        kind = str(rng.choice(list(KINDS), p=SHARES))
        done = KINDS[kind](path, rng)
        if done is None or _digest(path) == before:
            continue
        what, fatal = done
        signed = MANIFEST not in what and bool(rng.random() < 0.75)
        if signed:
            sign(path, manifest)
        return Mutation(kind, what, signed, fatal)


def _digest(path: Path) -> str:
    found = [(file.name, file.read_bytes() if file.is_file() else b"") for file in sorted(path.iterdir())]
    return hashlib.sha256(repr(found).encode()).hexdigest()


Done = tuple[str, bool] | None


def _pick(rng: np.random.Generator, choices: Any) -> Any:
    choices = list(choices)
    return choices[int(rng.integers(len(choices)))] if choices else None


def _places(values: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything inside nested plain values."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from _places(value, (*at, key))


def _edited(values: Any, rng: np.random.Generator) -> tuple[str, Any, str | None, bool]:
    """Return what was done to a document, its new values, what replaces a mark in its text, and whether it is fatal."""
    place = _pick(rng, _places(values))
    if place is None:
        return "value", _pick(rng, VALUES), None, False
    *above, key = place
    parent = values
    for part in above:
        parent = parent[part]
    where, old = ".".join(map(str, place)), parent[key]
    match int(rng.integers(6)):
        case 0:
            del parent[key]
            return f"{where} deleted", values, None, True
        case 1 if isinstance(parent, dict):
            parent[f"{key}_"] = parent.pop(key)
            return f"{where} renamed", values, None, True
        case 2 if isinstance(parent, dict):
            parent["another"] = _pick(rng, VALUES)
            return f"{where}: a key added beside it", values, None, False
        case 3:
            parent[key] = "@MARK@"
            mark = str(_pick(rng, NEVER))
            return f"{where} = {mark[:12]}", values, mark, True
        case 4 if isinstance(old, int | float) and not isinstance(old, bool):
            factor = float(_pick(rng, (-1.0, 0.5, 1.5, 1e3, 1e6, 1e9)))
            parent[key] = old * factor if isinstance(old, float) else int(old * factor)
            return f"{where} times {factor:g}", values, None, False
    parent[key] = value = _pick(rng, VALUES)
    fatal = isinstance(value, list | dict) is not isinstance(old, list | dict) and old is not None and value is not None
    return f"{where} = {repr(value)[:20]}", values, None, fatal


def _document(path: Path, rng: np.random.Generator) -> Done:
    name = _pick(rng, [name for name in PLAIN if (path / name).is_file()])
    what, values, mark, fatal = _edited(json.loads((path / name).read_text()), rng)
    text = json.dumps(values, indent=1)
    (path / name).write_text(text if mark is None else text.replace('"@MARK@"', mark))
    free = "guard_interventions." in what  # whose names are the guard's
    return f"{name}: {what}", mark is not None or (fatal and name in STRICT and not free)


WHOLE = (
    "", " ", "null", "true", "3", "[]", "{}", '"text"', "{", NEST, "NaN", "[1e400]", "\ufeff{}", '{"a": 1, "a": 2}',
    "\0" * 100, "9" * 10_000, "[" * 1000,
)  # fmt: skip


def _whole(path: Path, rng: np.random.Generator) -> Done:
    name = _pick(rng, [name for name in (*PLAIN, "config.yaml") if (path / name).is_file()])
    text = _pick(rng, WHOLE)
    (path / name).write_text(text)
    return f"{name}: whole = {text[:10]!r}", not (
        name == "evaluation.json" and text == "null"
    ) and name != "changes.json"


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
YAML = (
    "!!python/object/apply:os.system ['true']", "!!python/name:os.system", "2001-99-99", "2001-01-01", "1:30", ".nan",
    ".inf", "1e400", "1.0e+400", NEST, "9" * 5000, "&a [*a]", "*missing", "!!binary x", "!!set {a}", "!!float abc",
    "!!int abc", "!!timestamp x", "? [a]\n: b", "0o17", "0x" + "f" * 400, "yes", "~", "'\\0'", '"\\ud800"', '"\\0"',
)  # fmt: skip
IDS = (
    "damage_canary:Pendulum-v1", "damage_canary:Evil-v0", "os:Evil-v0", "Pendulum-v0", "Pendulum", "", ":", "a:b:c",
    "../Pendulum-v1", "damage_canary/Evil-v0", "td3robot.envs:UR5eReach-v0", "gymnasium:Pendulum-v1", "Humanoid-v99",
)  # fmt: skip


def _configuration(path: Path, rng: np.random.Generator) -> Done:
    file = path / "config.yaml"
    text, values = file.read_text(), yaml.safe_load(file.read_text())
    choice = int(rng.integers(8))
    if choice == 0:
        file.write_text(f"{text}\n{LAUGHS}\n" if rng.random() < 0.5 else f"{text}\n{_pick(rng, YAML)}\n")
        return "config.yaml: appended", False
    if choice == 1:
        values["environment"] = {"kind": "gymnasium", "id": _pick(rng, IDS)}
        file.write_text(yaml.safe_dump(values, sort_keys=False))
        return f"config.yaml: environment.id = {values['environment']['id']!r}", True
    if choice in (2, 3):
        place = _pick(rng, _places(values))
        parent = values
        for part in place[:-1]:
            parent = parent[part]
        parent[place[-1]] = "@MARK@"
        value = _pick(rng, YAML)
        file.write_text(yaml.safe_dump(values, sort_keys=False).replace("'@MARK@'", value).replace("@MARK@", value))
        return f"config.yaml: {'.'.join(map(str, place))} = {value[:20]}", False
    what, values, mark, _ = _edited(values, rng)
    dumped = yaml.safe_dump(values, sort_keys=False)
    file.write_bytes((dumped if mark is None else dumped.replace("'@MARK@'", mark)).encode("utf-8", "surrogatepass"))
    return f"config.yaml: {what}", False


def _manifest(path: Path, rng: np.random.Generator) -> Done:
    file = path / MANIFEST
    what, values, mark, _ = _edited(json.loads(file.read_text()), rng)
    text = json.dumps(values, indent=1)
    file.write_text(text if mark is None else text.replace('"@MARK@"', mark))
    return f"{MANIFEST}: {what}", False


def _flip(path: Path, rng: np.random.Generator) -> Done:
    file = _pick(rng, sorted(path.iterdir()))
    content = bytearray(file.read_bytes())
    if not content:
        return None
    head = min(len(content), 200) if rng.random() < 0.5 else len(content)
    for _ in range(int(rng.integers(1, 4))):
        content[int(rng.integers(head))] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)
    return f"{file.name}: bits flipped", False


def _truncate(path: Path, rng: np.random.Generator) -> Done:
    file = _pick(rng, sorted(path.iterdir()))
    content = file.read_bytes()
    keep = int(rng.integers(len(content))) if content else 0
    file.write_bytes(content[:keep] + (rng.bytes(50) if rng.random() < 0.2 else b""))
    return f"{file.name}: cut to {keep} of {len(content)} bytes", file.suffix in (".safetensors", ".json")


def _files(path: Path, rng: np.random.Generator) -> Done:
    file = _pick(rng, [file for file in sorted(path.iterdir()) if file.name != MANIFEST])
    spare = ("changes.json", "README.md", "learning_curve.png")
    spare += () if (path / "replay.safetensors").is_file() else ("Q1.safetensors", "Q2.safetensors")
    fatal = file.name not in spare
    match int(rng.integers(7)):
        case 0:
            file.unlink()
            return f"{file.name}: deleted", fatal
        case 1:
            file.rename(path / f"x{file.name}")
            return f"{file.name}: renamed", fatal
        case 2:
            (path / "another.json").write_text(_pick(rng, WHOLE))
            return "another.json: added", False
        case 3:
            file.unlink()
            file.mkdir()
            return f"{file.name}: a directory in its place", fatal
        case 4:
            other = _pick(
                rng, [other for other in sorted(path.iterdir()) if other.suffix == file.suffix and other != file]
            )
            if other is None or other.name == MANIFEST:
                return None
            shutil.copyfile(other, file)
            return f"{file.name}: a copy of {other.name}", False
        case 5:
            file.unlink()
            os.mkfifo(file)
            return f"{file.name}: a pipe in its place", fatal
    file.write_bytes(rng.bytes(int(rng.integers(0, 500))))
    return f"{file.name}: noise in its place", fatal and file.suffix != ".yaml"


def _tensors(path: Path, rng: np.random.Generator) -> Done:
    file = _pick(rng, sorted(path.glob("*.safetensors")))
    arrays = dict(load_file(file))
    name = _pick(rng, arrays)
    if name is None:
        return None
    done = TENSORS[_pick(rng, TENSORS)](arrays, name, rng)
    if done is None:
        return None
    save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, file)
    what, fatal = done
    return f"{file.name}: {name} {what}", fatal


Tensors = Callable[[dict[str, Any], str, np.random.Generator], Done]


def _poison(value: float) -> Tensors:
    def put(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
        """Put one value that is not finite, or absurd, somewhere."""
        array = arrays[name].copy()
        if array.dtype.kind != "f" or not array.size:
            return None
        array.flat[int(rng.integers(array.size))] = value
        arrays[name] = array
        return f"= {value} somewhere", not np.isfinite(value)

    return put


def _typed(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    dtype = _pick(rng, (np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_))
    with np.errstate(all="ignore"):
        arrays[name] = arrays[name].astype(dtype)
    return f"as {np.dtype(dtype)}", False


def _shaped(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    array = arrays[name]
    changed = _pick(rng, (array.T, array.reshape(-1), array[..., None], array[:0] if array.ndim else array[None],
                          np.concatenate([array, array]) if array.ndim else np.stack([array, array])))  # fmt: skip
    arrays[name] = changed
    return f"with shape {changed.shape} for {array.shape}", changed.shape != array.shape


def _renamed(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    arrays[_pick(rng, (f"{name}x", f"x.{name}", "", "net.x.weight", "net.99.weight", "a" * 300))] = arrays.pop(name)
    return "renamed", True


def _dropped(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    del arrays[name]
    return "deleted", True


def _added(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    arrays[_pick(rng, ("another", "net.1.weight", "net.-1.bias", "99.actions", "net.0.weight.step"))] = arrays[
        name
    ].copy()
    return "copied under another name", False


def _emptied(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    arrays.clear()
    return "and all others gone", True


def _negated(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> Done:
    if arrays[name].dtype.kind != "f":
        return None
    arrays[name] = -arrays[name]
    return "negated", False


TENSORS: dict[str, Tensors] = {
    "nan": _poison(np.nan), "inf": _poison(np.inf), "-inf": _poison(-np.inf), "1e30": _poison(1e30),
    "3e38": _poison(3e38), "dtype": _typed, "shape": _shaped, "rename": _renamed, "drop": _dropped, "add": _added,
    "empty": _emptied, "negate": _negated,
}  # fmt: skip


# Each kind of damage, and how much of all it is.
KINDS: dict[str, Callable[[Path, np.random.Generator], Done]] = {
    "document": _document, "whole document": _whole, "configuration": _configuration, "manifest": _manifest,
    "bits": _flip, "truncation": _truncate, "files": _files, "tensors": _tensors,
}  # fmt: skip
SHARES = (0.24, 0.06, 0.16, 0.06, 0.12, 0.06, 0.08, 0.22)
