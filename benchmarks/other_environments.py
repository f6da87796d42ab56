"""Train and evaluate for some steps on every environment that Gymnasium and other packages register."""

import argparse
import contextlib
import importlib
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from td3robot.config import load_config
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.learning.runs import make_trainer

# Packages that work beside MuJoCo 4; "gymnasium" has its own environments.
PACKAGES = (
    "gymnasium",
    "panda_gym",
    "gymnasium_robotics",
    "shimmy",
    "metaworld",
    "gym_pusht",
    "gym_aloha",
    "highway_env",
)
OUTCOMES = ("trains", "refused", "fault", "traceback")
LIMIT_S = 120  # for one environment
SMALL = (
    "agent.hidden=[32]", "agent.batch_size=32", "agent.replay_capacity=1000", "training.steps=300",
    "training.random_steps=100", "training.evaluate_every=300", "training.evaluation_episodes=1",
    "training.checkpoint_every=300", "training.learner=reference",
)  # fmt: skip


class Quiet:
    """A listener that hears nothing."""

    progress = evaluated = message = staticmethod(lambda *_: None)


def outcome(environment: str) -> tuple[str, str]:
    """Train, save and evaluate; return ``trains``, ``refused``, ``fault`` or ``traceback``, and the sentence."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    try:
        config = load_config(Path("gym_pendulum"), [*SMALL, f"environment.id={environment}"])
        with tempfile.TemporaryDirectory() as run:
            trainer = make_trainer(config, Path(run), Quiet())
            with contextlib.closing(trainer):
                trainer.train()
        best = trainer.evaluations.best
        assert best is not None
        success = "" if best.success_rate is None else ", says what success is"
        return "trains", f"an episode of {best.mean_steps:.0f} steps{success}"
    except ConfigError as error:
        return "refused", str(error)
    except Td3RobotError as error:
        return "fault", str(error)
    except Exception:  # noqa: BLE001  # this is what is searched for
        return "traceback", traceback.format_exc().strip().splitlines()[-1]
    finally:
        signal.alarm(0)


def newest(names: Sequence[str]) -> list[str]:
    """Return the names without older versions: of ``A-v1`` and ``A-v2`` the second."""
    latest: dict[str, tuple[int, str]] = {}
    for name in names:
        stem, _, version = name.rpartition("-v")
        found = (int(version), name) if stem and version.isdecimal() else (0, name)
        latest[stem or name] = max(latest.get(stem or name, found), found)
    return sorted(name for _, name in latest.values())


def environments_of(package: str) -> list[str]:
    """Return the ids of a package's environments that can be made without further arguments."""
    before = set(gymnasium.registry)
    imported = importlib.import_module(package)
    if package in ("gymnasium_robotics", "highway_env"):
        gymnasium.register_envs(imported)
    added = [name for name in gymnasium.registry if package == "gymnasium" or name not in before]
    own = [name for name in added if not name.startswith(("td3robot/", "GymV"))]
    before_last = [name for name in own if package == "gymnasium" and name.endswith("-v4")]
    return list(dict.fromkeys([*newest(own), *before_last]))


def try_package(package: str, every: int) -> None:
    """Print a line for each of a package's environments."""
    for name in environments_of(package)[::every]:
        kind, words = outcome(name if package == "gymnasium" else f"{package}:{name}")
        print(f"{kind}\t{name}\t{' '.join(words.split())}", flush=True)


def main() -> None:
    """Try the packages, each in a process of its own, and print what became of their environments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--every", type=int, default=1, help="Try every n-th environment of a package.")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        try_package(options.packages[0], options.every)
        return
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for package in options.packages:
        command = [sys.executable, "-W", "ignore", __file__, package, "--every", str(options.every), "--alone"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if (parts := line.rstrip().split("\t"))[0] in OUTCOMES:
                    counts[package][parts[0]] += 1
                    print(f"{package:20}{parts[0]:10}{parts[1]:45}{parts[2]}", flush=True)
        if process.returncode:
            print(f"{package:20}ended with status {process.returncode}")
    for package, found in counts.items():
        print(package, dict(found))


if __name__ == "__main__":
    main()
