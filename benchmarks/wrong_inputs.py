"""Give td3robot configurations and command lines with mistakes, and count what becomes of them."""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = {
    "agent": {"hidden": [8], "batch_size": 8, "replay_capacity": 100},
    "training": {
        "steps": 30, "random_steps": 10, "environments": 2, "threads": 1, "evaluate_every": 20, "log_every": 10,
        "evaluation_episodes": 1, "checkpoint_every": 20, "overlap": False,
    },
}  # fmt: skip
BASES = ("gym_pendulum", "ur5e_reach_quick", "ur5e_grasp_quick")
VALUES: list[Any] = [
    None, True, False, "", "text", "1:30", "0x1F", "1_000", "010", "off", "é\u2028", "a" * 400, -1, 0, 1, 3, 0.5, -0.5,
    1e-300, 1e9, 10**18, 10**30, 1e300, float("nan"), float("inf"), float("-inf"), [], {}, [1], [True, 2], [1, 2, 3],
    [0.5, 0.1], [[1]], {"a": 1}, [None], "2020-01-01", "[1, 2", "../..", "ur10e", "robotiq_hand_e", "Pendulum-v1",
]  # fmt: skip
CHARACTERS = ("\0", "\t", ":", "- ", "&a ", "*a", "!!python/object:os.system ", "{", "]", "\ufeff", "#", "'", "\n", "%")
PATHS = (
    "MADE",
    "LAST",
    "FILE",
    "EMPTY",
    "none",
    "/",
    ".",
    "/dev/null",
    "x" * 300,
    "",
    "-",
    "~",
    "ur5e_reach",
    "\u202e",
)
WORDS = ("-1", "0", "1", "1e9", "nan", "x", "", "99999999999999999999999", "0.5", "a=b", "agent.gamma=", "=", "é", "--")
FORMS: tuple[tuple[str, ...], ...] = (
    ("train", "PATH"), ("train", "--resume", "PATH"), ("train", "--resume", "PATH", "--more", "WORD"),
    ("train", "PATH", "--seed", "WORD"), ("train", "PATH", "--steps", "WORD"), ("train", "PATH", "--out", "PATH"),
    ("train", "PATH", "--init-from", "PATH"), ("train", "--resume", "PATH", "--set", "WORD", "--changed", "WORD"),
    ("eval", "PATH", "--episodes", "1"), ("eval", "MADE", "--episodes", "WORD"), ("eval", "MADE", "--seed", "WORD"),
    ("eval", "MADE", "--episodes", "1", "--set", "WORD"), ("eval", "MADE", "--video", "PATH"), ("inspect", "PATH"),
    ("plot", "PATH"), ("plot", "MADE", "--out", "PATH"), ("report", "PATH", "--out", "REPORT"), ("export", "PATH"),
    ("export", "MADE", "--legacy", "PATH"), ("import", "PATH", "--config", "PATH", "--out", "PATH"),
    ("schema", "WORD"), ("copy", "PATH", "PATH"), ("WORD",), ("train", "WORD", "WORD"), ("bench", "learner", "PATH"),
)  # fmt: skip
# A case is interrupted as by Ctrl-C at these times, and given up at the last [s].
INTERRUPTED_S, END_S = (10.0, 20.0), 90.0
# The run that others start from is not interrupted: its learner may have to be compiled on a busy machine [s].
MADE_S = 600.0

# Children start from a server that has the imports done and no threads.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["td3robot.cli", "td3robot.build", "td3robot.learning.runs", "torch._dynamo"])


@dataclass
class Count:
    """What became of wrong inputs.

    Attributes:
        found: Cases by outcome: ``refused`` in one sentence, ``accepted``, ``traceback``, ``stuck``, or other.
        worst: The cases that were neither refused in one sentence nor accepted, with what was said.
    """

    found: Counter[str] = field(default_factory=Counter)
    worst: list[dict[str, Any]] = field(default_factory=list)


class WrongInputs:
    """Make wrong inputs, and try them in processes of their own.

    Args:
        folder: For everything that is written.
        draw: Chooses the mistakes.
    """

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._draw, self._number = folder, draw, 0
        self._places = {"FILE": folder / "file", "EMPTY": folder / "empty", "MADE": folder / "made"}
        self._places["FILE"].write_text("x")
        self._places["EMPTY"].mkdir()
        made = ["train", str(self._write(self._base("gym_pendulum"))), "--out", str(folder / "made")]
        status, said = self._run(made, interrupted_s=(), end_s=MADE_S)
        if status != 0:
            raise RuntimeError(f"the run that others start from could not be made: {said}")
        self._places["LAST"] = next((folder / "made").glob("last-*"))

    def try_all(self, count: int) -> Count:
        """Try so many."""
        kinds: list[Callable[[], list[str]]] = [self._value, self._value, self._override, self._text, self._line]
        result = Count()
        for number in range(count):
            arguments = kinds[number % len(kinds)]()
            status, said = self._run(arguments)
            outcome = judge(status, said)
            result.found[outcome] += 1
            if outcome not in ("refused", "accepted"):
                result.worst.append({"outcome": outcome, "arguments": arguments, "said": said[-1500:]})
        return result

    def _base(self, name: str) -> dict[str, Any]:
        values: dict[str, Any] = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
        for section, settings in SMALL.items():
            values[section] = values.get(section, {}) | settings
        return values

    def _write(self, values: Any) -> Path:
        return self._write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode())

    def _write_text(self, text: bytes) -> Path:
        self._number += 1
        path = self._folder / f"config-{self._number}.yaml"
        path.write_bytes(text)
        return path

    def _train(self, path: Path) -> list[str]:
        return ["train", str(path), "--out", str(self._folder / f"run-{self._number}")]

    def _value(self) -> list[str]:
        """Replace, delete or misspell one setting of a file."""
        values = self._base(self._draw.choice(BASES))
        places = list(_places(values))
        node, key = self._draw.choice(places)
        match self._draw.randrange(6):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[f"{key}x"] = node.pop(key)
            case _:
                node[key] = self._draw.choice(VALUES)
        return self._train(self._write(values))

    def _override(self) -> list[str]:
        """Set one setting of the whole configuration, defaults included, to something odd."""
        from td3robot.config import load_config

        base = self._draw.choice(BASES)
        whole = load_config(CONFIGS / f"{base}.yaml").model_dump(mode="json")
        name = self._draw.choice(list(_names(whole)))
        value = json.dumps(self._draw.choice(VALUES), ensure_ascii=False)
        return [*self._train(self._write(self._base(base))), "--set", f"{name}={value}"]

    def _text(self) -> list[str]:
        """Spoil the text of a file."""
        text = yaml.safe_dump(self._base(self._draw.choice(BASES)), sort_keys=False)
        place = self._draw.randrange(len(text))
        match self._draw.randrange(5):
            case 0:
                spoilt = text[:place].encode()
            case 1:
                spoilt = text.encode(self._draw.choice(["utf-16", "utf-8-sig", "utf-32"]))
            case 2:
                lines = text.splitlines()
                spoilt = "\n".join([*lines, self._draw.choice(lines)]).encode()
            case 3:
                spoilt = bytes(self._draw.randrange(256) for _ in range(200))
            case _:
                spoilt = (text[:place] + self._draw.choice(CHARACTERS) + text[place:]).encode()
        return self._train(self._write_text(spoilt))

    def _line(self) -> list[str]:
        """Fill a command line with odd words."""
        odd = {"PATH": PATHS, "WORD": WORDS, "REPORT": ("report.html",)}
        words = [self._draw.choice(odd[word]) if word in odd else word for word in self._draw.choice(FORMS)]
        return [str(self._places.get(word, word)) for word in words]

    def _run(
        self, arguments: list[str], interrupted_s: tuple[float, ...] = INTERRUPTED_S, end_s: float = END_S
    ) -> tuple[int | None, str]:
        """Run a command line; give its status, None where it did not end, and what it said."""
        said, home = self._folder / "said", self._folder / "home"
        home.mkdir(exist_ok=True)
        process = CHILDREN.Process(target=command_line, args=(arguments, said, home, interrupted_s))
        process.start()
        process.join(end_s)
        if process.is_alive():
            process.kill()
            process.join()
            return None, said.read_text(errors="replace")
        return process.exitcode, said.read_text(errors="replace")


def command_line(arguments: list[str], said: Path, home: Path, interrupted_s: tuple[float, ...]) -> None:
    """Run ``td3robot`` in this process, which is interrupted as by Ctrl-C at some times [s]."""
    from td3robot.cli import main

    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.chdir(home)
    os.environ["XDG_STATE_HOME"] = str(home)
    for seconds in interrupted_s:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    sys.argv = ["td3robot", *arguments]
    main()


def judge(status: int | None, said: str) -> str:
    """Name an outcome."""
    if "Traceback (most recent call last)" in said:
        return "traceback"
    if status is None:
        return "stuck"
    if status in (0, 130) or (status == 1 and "Aborted" in said):
        return "accepted"
    if status == 2:
        return "refused" if "td3robot: " in said or "Usage: " in said else "refused without a word"
    return f"status {status}"


def _places(values: Any) -> Any:
    """Yield every (container, key) of nested values."""
    for key in list(values) if isinstance(values, dict) else range(len(values)):
        yield values, key
        if isinstance(values[key], dict | list):
            yield from _places(values[key])


def _names(values: dict[str, Any], prefix: str = "") -> Any:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _names(value, f"{prefix}{key}.")


def main() -> None:
    """Try, and print the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = WrongInputs(Path(folder), random.Random(arguments.seed)).try_all(arguments.count)
    for case in result.worst:
        print(json.dumps(case))
    print(json.dumps(dict(result.found)))


if __name__ == "__main__":
    main()
